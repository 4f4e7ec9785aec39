// Products of warpgroups (sm_90a): four warps compute 64 rows of the accumulator, which each warp holds as mma.m16n8
// accumulators side by side. The right operand is in shared memory; the left one too, or in registers as an
// accumulator of the same rows. Products run while the program goes on; k ascends 16 (8, 32) at a time through one
// accumulator, for any tile.
#pragma once
#include "mma.cuh"
#include "tma.cuh"

namespace tessera {

template <class T> constexpr hw::Kind wgmma_kind = same<T, f16> ? hw::Kind::f16 : same<T, bf16> ? hw::Kind::bf16 : same<T, tf32> ? hw::Kind::tf32
                                                  : same<T, fp8_e4m3> ? hw::Kind::e4m3 : hw::Kind::e5m2;
template <class T> constexpr int wgmma_k = 32 / (int)sizeof(T);

// An operand in shared memory, seen from the product: positions along m or n, and along k.
template <class X, bool Left> struct Operand {
  using S = typename plain_<X>::type;
  static constexpr bool along = plain_<X>::transposed != Left;  // k runs along the lines
  static constexpr int positions = along ? S::padded_rows : S::padded_cols, depth = along ? S::cols : S::rows;
  // The number to add to the descriptor for the part that starts at positions i and k.
  TS_FN static constexpr u64 advance(int i, int k) { return (u64)(along ? S::offset(i, k) : S::offset(k, i)) >> 4; }
};

// One step of k for the columns from Col on, in the widest instructions that fit. Where columns run along the lines, each
// instruction begins where a line does (see widest_line in targets/cuda/tensor_maps.py). `a`: a descriptor or four registers.
template <class T, class B, bool TransA, int Col, int Regs, class A> TS_FN void products_across(float (&d)[Regs], const A& a, u64 b, int k) {
  constexpr int left = Regs * 2 - Col;
  constexpr int N = left >= 256 ? 256 : left >= 128 ? 128 : left >= 64 ? 64 : left >= 32 ? 32 : left >= 16 ? 16 : 8;
  static_assert(B::along || Col % B::S::line == 0, "an instruction begins where a line does");
  float(&part)[N / 2] = *reinterpret_cast<float(*)[N / 2]>(&d[Col / 2]);
  if constexpr (same<A, u64>) hw::wgmma<wgmma_kind<T>, TransA, !B::along>(part, a, b + B::advance(Col, k));
  else hw::wgmma<wgmma_kind<T>, !B::along>(part, a, b + B::advance(Col, k));
  if constexpr (left > N) products_across<T, B, TransA, Col + N>(d, a, b, k);
}

// Starts acc += a @ b. Nothing may touch the accumulator, nor `a` in registers, before finish_products.
template <class L, class A, class B> TS_FN void start_products(Tile<float, L>& acc, const A& a, const B& b) {
  using T = typename A::type;
  using Right = Operand<B, false>;
  constexpr int groups = L::Row::t1 / 4, M = L::Row::Out, regs = L::Col::Out * 4;
  static_assert(L::Row::t0 == 8 && L::Row::t1 % 4 == 0 && L::Col::t2 == 1, "warpgroups hold whole rows");
  static_assert(Right::positions >= 8 * L::Col::Out, "the right operand holds the tile");
  u64 right = untransposed(b).template descriptor<Right::along>();
  if constexpr (is_tile<A>) {
    using LA = typename A::layout;
    static_assert(same<typename LA::Row, typename L::Row> && LA::Col::t2 == 1 && LA::cols == Right::depth, "rows of the accumulator");
    constexpr int steps = LA::cols / wgmma_k<T>;
    u32 piece[steps][M][4];  // complete before the products begin: a register written between them would serialise them
    TS_UNROLL for (int k = 0; k < steps; ++k)
      TS_UNROLL for (int m = 0; m < M; ++m)
        TS_UNROLL for (int x = 0; x < 4; ++x) {
          int at = ((m * LA::Col::Out + k * 2 + x / 2) * 2 + x % 2) * 2;
          Pack<T, 2> pack = {a.v[at], a.v[at + 1]};
          piece[k][m][x] = hw::held(hw::bits_as<u32>(pack));
        }
    hw::wgmma_fence(acc.v);
    TS_UNROLL for (int k = 0; k < steps; ++k)
      TS_UNROLL for (int m = 0; m < M; ++m)
        products_across<T, Right, false, 0>(*reinterpret_cast<float(*)[regs]>(&acc.v[m * regs]), piece[k][m], right, k * wgmma_k<T>);
  } else {
    using Left = Operand<A, true>;
    static_assert(Left::positions >= 64 * groups * M && Left::depth == Right::depth, "the left operand holds the tile");
    int group = groups > 1 ? hw::uniform(hw::thread() / 128) : 0;
    u64 left = untransposed(a).template descriptor<Left::along>() + Left::advance(64, 0) * group;
    hw::wgmma_fence(acc.v);
    TS_UNROLL for (int k = 0; k < Right::depth; k += wgmma_k<T>)
      TS_UNROLL for (int m = 0; m < M; ++m)
        products_across<T, Right, !Left::along, 0>(*reinterpret_cast<float(*)[regs]>(&acc.v[m * regs]), left + Left::advance(m * groups * 64, k), right, k);
  }
  hw::wgmma_commit();
}
// Waits until at most the last `Latest` products are in flight: earlier ones have read their operands.
template <int Latest, class L> TS_FN void finish_products(Tile<float, L>& acc) { hw::wgmma_wait<Latest>(acc.v); }

// acc + a @ b, complete.
template <class A, class B, class L> TS_FN Tile<float, L> mma_warpgroups(const A& a, const B& b, const Tile<float, L>& c) {
  Tile<float, L> acc = c;
  start_products(acc, a, b);
  finish_products<0>(acc);
  return acc;
}

}  // namespace tessera
