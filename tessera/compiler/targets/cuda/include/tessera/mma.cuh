// acc + a @ b. If the accumulator is a Fragment, the products run on the tensor cores, 32 bytes of k at a time, all
// into one accumulator; otherwise each element is a sum of fused multiply-adds whose first chain starts at acc.
#pragma once
#include "mma_sm70.cuh"
#include "sums.cuh"

namespace tessera {

template <class T> constexpr int mma_k = sizeof(T) == 8 ? 4 : 32 / (int)sizeof(T);

TS_FN void split(u32* r, double x) {
  u64 bits = hw::bits_as<u64>(x);
  r[0] = (u32)bits, r[1] = (u32)(bits >> 32);
}
// The 16 x mma_k piece of `a` at (row, k): four registers per lane (PTX ISA, mma.m16n8k16, matrix A).
template <class A> TS_FN void load_a(u32 (&r)[4], const A& a, int row, int k) {
  using S = typename plain_<A>::type;
  using T = typename S::type;
  const S& s = untransposed(a);
  int lane = hw::thread() % 32;
  if constexpr (sizeof(T) == 8) {
    TS_UNROLL for (int x = 0; x < 2; ++x) {
      int i = row + lane / 4 + x * 8, j = k + lane % 4;
      split(r + 2 * x, hw::load_shared(plain_<A>::transposed ? s.at(j, i) : s.at(i, j)));
    }
  } else if constexpr (!plain_<A>::transposed && S::whole_pieces) {
    hw::ldmatrix_x4(r, s.at(row + lane % 16, k + lane / 16 * (16 / sizeof(T))));
  } else if constexpr (plain_<A>::transposed && S::whole_pieces && sizeof(T) == 2) {
    hw::ldmatrix_x4_trans(r, s.at(k + lane % 8 + lane / 16 * 8, row + lane / 8 % 2 * 8));
  } else {
    constexpr int per = 4 / sizeof(T);  // elements per register
    TS_UNROLL for (int x = 0; x < 4; ++x) {
      Pack<T, per> pack;
      TS_UNROLL for (int h = 0; h < per; ++h) {
        int i = row + lane / 4 + x % 2 * 8, j = k + x / 2 * (4 * per) + lane % 4 * per + h;
        pack.e[h] = hw::load_shared(plain_<A>::transposed ? s.at(j, i) : s.at(i, j));
      }
      r[x] = hw::bits_as<u32>(pack);
    }
  }
}
// Two mma_k x 8 pieces of `b` at (k, col) and (k, next): two registers each.
template <class B> TS_FN void load_b(u32 (&r)[2][2], const B& b, int k, int col, int next) {
  using S = typename plain_<B>::type;
  using T = typename S::type;
  const S& s = untransposed(b);
  int lane = hw::thread() % 32;
  if constexpr (sizeof(T) == 8) {
    TS_UNROLL for (int n = 0; n < 2; ++n) {
      int i = k + lane % 4, j = (n ? next : col) + lane / 4;
      split(r[n], hw::load_shared(plain_<B>::transposed ? s.at(j, i) : s.at(i, j)));
    }
  } else if constexpr (!plain_<B>::transposed && S::whole_pieces && sizeof(T) == 2) {
    u32 q[4];
    hw::ldmatrix_x4_trans(q, s.at(k + lane % 16, lane < 16 ? col : next));
    r[0][0] = q[0], r[0][1] = q[1], r[1][0] = q[2], r[1][1] = q[3];
  } else if constexpr (plain_<B>::transposed && S::whole_pieces) {
    u32 q[4];
    hw::ldmatrix_x4(q, s.at((lane < 16 ? col : next) + lane % 8, k + lane / 8 % 2 * (16 / sizeof(T))));
    r[0][0] = q[0], r[0][1] = q[1], r[1][0] = q[2], r[1][1] = q[3];
  } else {
    constexpr int per = 4 / sizeof(T);
    TS_UNROLL for (int n = 0; n < 2; ++n)
      TS_UNROLL for (int x = 0; x < 2; ++x) {
        Pack<T, per> pack;
        TS_UNROLL for (int h = 0; h < per; ++h) {
          int i = k + x * (4 * per) + lane % 4 * per + h, j = (n ? next : col) + lane / 4;
          pack.e[h] = hw::load_shared(plain_<B>::transposed ? s.at(j, i) : s.at(i, j));
        }
        r[n][x] = hw::bits_as<u32>(pack);
      }
  }
}
// Two 8-bit floats, the low or the high half of `x`, as f16: exact, since f16 has e5m2's exponents and all of e4m3.
template <class T> TS_FN u32 widen(u32 x) {
  u32 bytes = (x & 0xffu) << 8 | (x & 0xff00u) << 16;
  if constexpr (same<T, fp8_e5m2>) return bytes;
  u32 nan = ((bytes >> 8 & 0x7fu) == 0x7fu ? 0x7fffu : 0u) | ((bytes >> 24 & 0x7fu) == 0x7fu ? 0x7fff0000u : 0u);
  return hw::scale_f16x2((bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 1) | nan;
}
// One step of k. Sums of 8-bit integers are exact: a step's fit 32 bits.
template <class T, class X> TS_FN void mma_step(X (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if constexpr (same<T, double>) hw::mma_f64_k4(d, a, b);
  else if constexpr (is_integer<T>) {
    i32 sum[4] = {0, 0, 0, 0};
    if constexpr (same<T, i8>) hw::mma_s8_k32(sum, a, b);
    else hw::mma_u8_k32(sum, a, b);
    TS_UNROLL for (int i = 0; i < 4; ++i) d[i] += (X)sum[i];
  } else if constexpr (sizeof(T) == 1 && hw::arch < 890) {
    // One instruction may combine any values of k, as long as both operands choose the same ones.
    TS_UNROLL for (int half = 0; half < 2; ++half) {
      u32 wa[4], wb[2];
      TS_UNROLL for (int x = 0; x < 4; ++x) wa[x] = widen<T>(a[half * 2 + x % 2] >> x / 2 * 16);
      TS_UNROLL for (int x = 0; x < 2; ++x) wb[x] = widen<T>(b[half] >> x * 16);
      hw::mma_f16_k16(d, wa, wb);
    }
  } else if constexpr (sizeof(T) == 1) {
    // The hardware keeps fewer bits of such sums than f32 has, so it sums only within one step.
    float sum[4] = {0, 0, 0, 0};
    if constexpr (same<T, fp8_e4m3>) hw::mma_e4m3_k32(sum, a, b);
    else hw::mma_e5m2_k32(sum, a, b);
    TS_UNROLL for (int i = 0; i < 4; ++i) d[i] += sum[i];
  } else if constexpr (same<T, f16>) hw::mma_f16_k16(d, a, b);
  else if constexpr (same<T, bf16>) hw::mma_bf16_k16(d, a, b);
  else hw::mma_tf32_k8(d, a, b);
}
// Arrays of tf32 may hold any float; the tensor cores would truncate where they should round.
template <class T, int N> TS_FN void round_operands(u32 (&r)[N]) {
  if constexpr (same<T, tf32>)
    TS_UNROLL for (int i = 0; i < N; ++i) r[i] = hw::tf32_bits(r[i]);
}

// Products on the tensor cores; `fetch_a(registers, m, k)` gives piece m of this warp's rows.
template <class T, int K, class B, class X, class L, class F> TS_FN void mma_fragments(Tile<X, L>& acc, const B& b, F fetch_a) {
  constexpr int M = L::Row::Out, N = L::Col::Out;
  int warp = hw::thread() / 32, across = warp % L::Col::t2;
  TS_UNROLL for (int k = 0; k < K; k += mma_k<T>) {
    u32 a[M][4];
    TS_UNROLL for (int m = 0; m < M; ++m) {
      fetch_a(a[m], m, k);
      round_operands<T>(a[m]);
    }
    TS_UNROLL for (int n = 0; n < N; n += 2) {
      u32 q[2][2];
      int col = (n * L::Col::t2 + across) * 8, next = n + 1 < N ? col + L::Col::t2 * 8 : col;
      load_b(q, b, k, col, next);
      round_operands<T>(q[0]);
      round_operands<T>(q[1]);
      TS_UNROLL for (int m = 0; m < M; ++m)
        TS_UNROLL for (int x = 0; x < 2; ++x)
          if (n + x < N) {
            X(&d)[4] = *reinterpret_cast<X(*)[4]>(&acc.v[(m * N + n + x) * 4]);
            mma_step<T>(d, a[m], q[x]);
          }
    }
  }
}

// One chain, from k `first` to `end`, of a(row, k) * b(k, column).
template <bool column, class X, class L, class A, class B> TS_FN void mma_chain(Tile<X, L>& acc, A a, B b, int first, int end) {
  using Down = choose<column, typename L::Col, typename L::Row>;
  using Across = choose<column, typename L::Row, typename L::Col>;
  int t = hw::thread();
  for (int k = first; k < end; ++k) {
    X av[Down::regs], bv[Across::regs];
    TS_UNROLL for (int r = 0; r < Down::regs; ++r) {
      int i = Down::position(r, t);
      av[r] = Down::exact || i < Down::extent ? a(i, k) : X(0);
    }
    TS_UNROLL for (int n = 0; n < Across::regs; ++n) {
      int j = Across::position(n, t);
      bv[n] = Across::exact || j < Across::extent ? b(k, j) : X(0);
    }
    TS_UNROLL for (int r = 0; r < Down::regs; ++r)
      TS_UNROLL for (int n = 0; n < Across::regs; ++n) {
        X& d = acc.v[column ? L::reg(n, r) : L::reg(r, n)];
        d = multiply_add(av[r], bv[n], d);
      }
  }
}

template <int K, bool column, class X, class L, class A, class B> TS_FN Tile<X, L> mma_chains(Tile<X, L> acc, A a, B b) {
  if constexpr (K <= chain_length || is_integer<X>) mma_chain<column>(acc, a, b, 0, K);
  else {
    Sums<X, L, (K > span)> sums;
    for (int k = 0; k < K; k += chain_length) {
      mma_chain<column>(acc, a, b, k, imin(k + chain_length, K));
      sums.reach(acc, imin(k + chain_length, K), K);
    }
    return sums.result(K);
  }
  return acc;
}

// An element of a shared tile, transposed or not.
template <class S> TS_FN typename plain_<S>::type::type shared_element(const S& s, int i, int j) {
  return hw::load_shared(plain_<S>::transposed ? untransposed(s).at(j, i) : untransposed(s).at(i, j));
}

template <class A, class B, class X, class L> TS_FN Tile<X, L> mma(const A& a, const B& b, const Tile<X, L>& c) {
  using T = typename A::type;
  Tile<X, L> acc = c;
  if constexpr (is_tile<A>) {  // an accumulator of the same rows, rounded: its registers are operand registers
    using LA = typename A::layout;
    static_assert(is_fragment<LA> && LA::Col::t2 == 1 && sizeof(T) == 2, "only fragments whose rows stay in a warp feed products");
    mma_fragments<T, LA::cols>(acc, b, [&](u32(&r)[4], int m, int k) {
      TS_UNROLL for (int x = 0; x < 4; ++x) {
        int at = ((m * LA::Col::Out + k / 8 + x / 2) * 2 + x % 2) * 2;
        Pack<T, 2> pack = {a.v[at], a.v[at + 1]};
        r[x] = hw::bits_as<u32>(pack);
      }
    });
  } else if constexpr (is_quarters<L>) {
    mma_quarters(acc, a, b);
  } else if constexpr (is_fragment<L>) {
    int down = hw::thread() / 32 / L::Col::t2 % L::Row::t1;
    mma_fragments<T, A::cols>(acc, b, [&](u32(&r)[4], int m, int k) { load_a(r, a, (m * L::Row::t1 + down) * 16, k); });
  } else {
    // A result with one column is held as a vector: its positions are then rows of the product.
    return mma_chains<A::cols, L::rows == 1 && (A::rows > 1)>(
        acc, [&](int i, int k) { return cast<X>(shared_element(a, i, k)); }, [&](int k, int j) { return cast<X>(shared_element(b, k, j)); });
  }
  return acc;
}

}  // namespace tessera
