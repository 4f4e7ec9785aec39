// acc + (a * a_scale) @ (b * b_scale), with scales of blocks along k, by instructions that apply the scales. The sums of one
// instruction are added in f32; within an instruction the hardware keeps fewer bits.
#pragma once
#include "mma.cuh"
#include "device_scaled.cuh"

namespace tessera {

template <class Scale> constexpr int scaled_block = same<Scale, fp8_e8m0> ? 32 : 16;
// The mirror of `scaled_depth` in compiler/machines.py.
template <class T, class U, int K> constexpr int scaled_k = same<T, fp4_e2m1> && same<U, fp4_e2m1> && K % 64 == 0 ? 64 : 32;

// Four fp4, one to a byte, as four neighbours of four bits.
TS_FN u32 pack_fp4(u32 x) {
  x &= 0x0f0f0f0fu;
  x = (x | x >> 4) & 0x00ff00ffu;
  return (x | x >> 8) & 0xffffu;
}
// Eight fp4 of a line (a row of `a`, a column of `b`), starting at k. Inside: whether k runs along the stored rows.
template <bool Inside, class S> TS_FN u32 eight_fp4(const S& s, int line, int k) {
  u32 r[2] = {0, 0};
  if constexpr (Inside && S::whole_pieces) {
    auto pack = hw::load_shared(reinterpret_cast<const Pack<fp4_e2m1, 8>*>(s.at(line, k)));
    memcpy(r, &pack, sizeof pack);
  } else {
    TS_UNROLL for (int i = 0; i < 8; ++i) r[i / 4] |= (u32)hw::load_shared(Inside ? s.at(line, k + i) : s.at(k + i, line)).bits << i % 4 * 8;
  }
  return pack_fp4(r[0]) | pack_fp4(r[1]) << 16;
}
// N scales of a line, the first in the lowest byte.
template <bool Inside, int N, class S> TS_FN u32 scales_of(const S& s, int line, int first) {
  u32 r = 0;
  if constexpr (Inside && S::cols % N == 0) {
    auto pack = hw::load_shared(reinterpret_cast<const Pack<typename S::type, N>*>(s.at(line, first)));
    TS_UNROLL for (int i = 0; i < N; ++i) r |= (u32)pack.e[i].bits << 8 * i;
  } else {
    TS_UNROLL for (int i = 0; i < N; ++i) r |= (u32)hw::load_shared(Inside ? s.at(line, first + i) : s.at(first + i, line)).bits << 8 * i;
  }
  return r;
}
// Elements in bytes in the instruction's format: fp4 in the middle of its byte, fp6 below two zeros.
template <class T, int N> TS_FN void place_in_bytes(u32 (&r)[N]) {
  TS_UNROLL for (int i = 0; i < N; ++i)
    if constexpr (same<T, fp4_e2m1>) r[i] = (r[i] & 0x0f0f0f0fu) << 2;
    else if constexpr (same<T, fp6_e2m3> || same<T, fp6_e3m2>) r[i] &= 0x3f3f3f3fu;
}
// The instruction ignores the sign of a scale, so it is applied to the eight elements of the register that share the scale.
TS_FN u32 with_sign(u32 elements, u32 scales, int block) { return elements ^ (0u - (scales >> (8 * block + 7) & 1u) & 0x88888888u); }

template <class A, class B, class SA, class SB, class L>
TS_FN void mma_scaled_fragments(Tile<float, L>& acc, const A& a, const B& b, const SA& a_scale, const SB& b_scale) {
  using T = typename A::type;
  using U = typename B::type;
  using Scale = typename SA::type;
  constexpr int K = A::cols, depth = scaled_k<T, U, K>, scales = depth / scaled_block<Scale>, M = L::Row::Out, N = L::Col::Out;
  constexpr bool signs = same<Scale, fp8_e4m3>;
  int lane = hw::thread() % 32, warp = hw::thread() / 32, across = warp % L::Col::t2, down = warp / L::Col::t2 % L::Row::t1;
  TS_UNROLL for (int k = 0; k < K; k += depth) {
    int block = k / scaled_block<Scale>;
    u32 fa[M][4], sa[M];
    TS_UNROLL for (int m = 0; m < M; ++m) {
      int row = (m * L::Row::t1 + down) * 16;
      // Even lanes give the scales of a row, odd lanes those of the row eight further down.
      sa[m] = scales_of<!plain_<SA>::transposed, scales>(untransposed(a_scale), row + lane / 4 + lane % 2 * 8, block);
      if constexpr (depth == 64) {
        TS_UNROLL for (int x = 0; x < 4; ++x)
          fa[m][x] = eight_fp4<!plain_<A>::transposed>(untransposed(a), row + lane / 4 + x % 2 * 8, k + x / 2 * 32 + lane % 4 * 8);
      } else {
        load_a(fa[m], a, row, k);
        place_in_bytes<T>(fa[m]);
      }
      if constexpr (signs) TS_UNROLL for (int half = 0; half < 2; ++half) {
        u32 own = scales_of<!plain_<SA>::transposed, scales>(untransposed(a_scale), row + lane / 4 + half * 8, block);
        TS_UNROLL for (int x = half; x < 4; x += 2) fa[m][x] = with_sign(fa[m][x], own, x / 2 * 2 + lane % 4 / 2);
      }
    }
    TS_UNROLL for (int n = 0; n < N; ++n) {
      int col = (n * L::Col::t2 + across) * 8;
      u32 fb[2], sb = scales_of<plain_<SB>::transposed, scales>(untransposed(b_scale), col + lane / 4, block);
      if constexpr (depth == 64) {
        TS_UNROLL for (int x = 0; x < 2; ++x) {
          fb[x] = eight_fp4<plain_<B>::transposed>(untransposed(b), col + lane / 4, k + x * 32 + lane % 4 * 8);
          if constexpr (signs) fb[x] = with_sign(fb[x], sb, x * 2 + lane % 4 / 2);
        }
      } else {
        u32 q[2][2];
        load_b(q, b, k, col, col);
        fb[0] = q[0][0], fb[1] = q[0][1];
        place_in_bytes<U>(fb);
      }
      TS_UNROLL for (int m = 0; m < M; ++m) {
        float sum[4] = {0, 0, 0, 0};
        if constexpr (depth == 64) hw::mma_scaled_k64<Scale>(sum, fa[m], fb, sa[m], sb);
        else hw::mma_scaled_k32<T, U>(sum, fa[m], fb, sa[m], sb);
        TS_UNROLL for (int i = 0; i < 4; ++i) acc.v[(m * N + n) * 4 + i] += sum[i];
      }
    }
  }
}

template <class A, class B, class SA, class SB, class L>
TS_FN Tile<float, L> mma_scaled(const A& a, const B& b, const SA& a_scale, const SB& b_scale, const Tile<float, L>& c) {
  constexpr int block = scaled_block<typename SA::type>;
  if constexpr (is_fragment<L>) {
    Tile<float, L> acc = c;
    mma_scaled_fragments(acc, a, b, a_scale, b_scale);
    return acc;
  } else {  // beside products that tensor cores do not support
    return mma_chains<A::cols, false>(
        c, [&](int i, int k) { return (float)bf16((float)shared_element(a, i, k) * (float)shared_element(a_scale, i, k / block)); },
        [&](int k, int j) { return (float)bf16((float)shared_element(b, k, j) * (float)shared_element(b_scale, k / block, j)); });
  }
}

}  // namespace tessera
