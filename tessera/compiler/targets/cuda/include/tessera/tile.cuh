// Tiles in registers. A layout maps each element of a tile to a register of a thread; everything else
// follows from it. Elementwise work needs no communication; loads and stores are layout-polymorphic.
#pragma once
#include "complex.cuh"

namespace tessera {

// How the positions along one axis of a tile are spread, from the lowest digit of the position to the highest: T0
// threads, In registers, T1 threads, T2 threads, Out registers. Thread digits are found at bit S* of the thread number.
template <int Extent, int T0, int S0, int In_, int T1, int S1, int T2, int S2, int Out_> struct Axis {
  static constexpr int extent = Extent, In = In_, Out = Out_, regs = In_ * Out_;
  static constexpr int t0 = T0, s0 = S0, t1 = T1, s1 = S1, t2 = T2, s2 = S2;
  static constexpr int low = T0 * In * T1 * T2;  // positions per step of the outer registers
  static constexpr bool exact = low * Out == Extent;
  static constexpr int threads = (T0 - 1) << S0 | (T1 - 1) << S1 | (T2 - 1) << S2;  // bits that tell threads apart
  // Position held in register k (In fastest).
  TS_FN static int position(int k, int thread) {
    int a = thread >> S0 & (T0 - 1), b = thread >> S1 & (T1 - 1), c = thread >> S2 & (T2 - 1);
    return (((k / In * T2 + c) * T1 + b) * In + k % In) * T0 + a;
  }
};
using One = Axis<1, 1, 0, 1, 1, 0, 1, 0, 1>;

// A matrix of rows x cols; tiles of other ranks are seen as [1, n] or [product of leading dims, last].
template <class R, class C> struct Layout {
  using Row = R;
  using Col = C;
  static constexpr int rows = R::extent, cols = C::extent, size = R::regs * C::regs;
  static constexpr bool exact = R::exact && C::exact;
  static constexpr int vector = C::t0 == 1 ? C::In : 1;  // neighbouring registers that are neighbouring columns
  static constexpr int threads = R::threads | C::threads;
  static constexpr int row_register(int k) { return k / (C::regs * R::In) * R::In + k / C::In % R::In; }
  static constexpr int col_register(int k) { return k / (R::In * C::In) % C::Out * C::In + k % C::In; }
  static constexpr int reg(int r, int c) { return ((r / R::In * C::Out + c / C::In) * R::In + r % R::In) * C::In + c % C::In; }
  TS_FN static int row(int k, int thread) { return R::position(row_register(k), thread); }
  TS_FN static int col(int k, int thread) { return C::position(col_register(k), thread); }
  TS_FN static bool holds(int k, int thread) { return exact || (row(k, thread) < rows && col(k, thread) < cols); }
  // Of threads that hold the same elements, one writes.
  TS_FN static bool owner(int thread) { return (thread & ~threads & (hw::threads() - 1)) == 0; }
};

constexpr int log2_(int n) { return n <= 1 ? 0 : 1 + log2_(n / 2); }
constexpr int steps_(int extent, int step) { return (extent + step - 1) / step; }

// TR x TC threads, each with vectors of V neighbouring columns (and P neighbouring rows), assigned round robin.
template <int Rows, int Cols, int TR, int TC, int V, int P = 1>
using Blocked = Layout<Axis<Rows, 1, 0, P, TR, log2_(TC), 1, 0, steps_(Rows, P * TR)>,
                       Axis<Cols, 1, 0, V, TC, 0, 1, 0, steps_(Cols, V * TC)>>;
// The accumulator of 16 x 8 tensor-core products, WR x WC warps.
template <int Rows, int Cols, int WR, int WC>
using Fragment = Layout<Axis<Rows, 8, 2, 2, WR, 5 + log2_(WC), 1, 0, steps_(Rows, 16 * WR)>,
                        Axis<Cols, 1, 0, 2, 4, 0, WC, 5, steps_(Cols, 8 * WC)>>;
// The accumulator of sm_70's 8 x 8 products: four at once, below each other, one to every fourth of a warp.
template <int Rows, int Cols, int WR, int WC>
using Quarters = Layout<Axis<Rows, 2, 0, 2, 4, 2, 2 * WR, 4, steps_(Rows, 32 * WR)>,
                        Axis<Cols, 1, 0, 2, 2, 1, WC, 5 + log2_(WR), steps_(Cols, 4 * WC)>>;
template <class L> constexpr bool is_fragment = L::Row::t0 == 8;
// Vectors that belong to the rows, or to the columns, of a layout.
template <class L> using RowsOf = Layout<One, typename L::Row>;
template <class L> using ColsOf = Layout<One, typename L::Col>;

template <class T, class L> struct Tile {
  using type = T;
  using layout = L;
  T v[L::size];
};

template <class X> struct layout_ { using type = void; };
template <class T, class L> struct layout_<Tile<T, L>> { using type = L; };
template <class X> constexpr bool is_tile = !same<typename layout_<X>::type, void>;
template <class... X> struct common_ { using type = void; };
template <class X, class... Rest> struct common_<X, Rest...> {
  using type = choose<is_tile<X>, typename layout_<X>::type, typename common_<Rest...>::type>;
};
// The layout of the operands that are tiles; the others are scalars, used for every element.
template <class... X> using layout_of = typename common_<X...>::type;
template <class T, class L> TS_FN T element(const Tile<T, L>& x, int k) { return x.v[k]; }
template <class T> TS_FN when<!is_tile<T>, T> element(const T& x, int) { return x; }

// A tile of what `each` gives for register k.
#define TS_TILE(each)                                 \
  int k = 0;                                          \
  Tile<decltype(each), L> r;                          \
  TS_UNROLL for (; k < L::size; ++k) r.v[k] = each;   \
  return r
// Each scalar function over tiles, or over scalars alone.
#define TS_LIFT1(name)                                                 \
  template <class X> TS_FN auto name(const X& x) {                     \
    using L = layout_of<X>;                                            \
    if constexpr (same<L, void>) return scalar::name(x);               \
    else { TS_TILE(scalar::name(element(x, k))); }                     \
  }
#define TS_LIFT2(name)                                                 \
  template <class X, class Y> TS_FN auto name(const X& x, const Y& y) { \
    using L = layout_of<X, Y>;                                         \
    if constexpr (same<L, void>) return scalar::name(x, y);            \
    else { TS_TILE(scalar::name(element(x, k), element(y, k))); }      \
  }
#define TS_LIFT3(name)                                                 \
  template <class X, class Y, class Z> TS_FN auto name(const X& x, const Y& y, const Z& z) { \
    using L = layout_of<X, Y, Z>;                                      \
    if constexpr (same<L, void>) return scalar::name(x, y, z);         \
    else { TS_TILE(scalar::name(element(x, k), element(y, k), element(z, k))); } \
  }
// Long functions on many registers: unrolled, they would take seconds to compile and leave the accumulators too few registers.
// A loop processes some of them at a time and rotates the tile's registers; after the last step each is back in its place.
constexpr int many_registers = 64, some_registers = 16;
#define TS_LIFT1_LONG(name)                                            \
  template <class X> TS_FN X name(const X& x) {                        \
    using L = layout_of<X>;                                            \
    if constexpr (same<L, void>) return scalar::name(x);               \
    else {                                                             \
      constexpr int all = L::size, some = all >= many_registers && all % some_registers == 0 ? some_registers : all; \
      X r = x;                                                         \
      TS_ROLLED for (int i = 0; i < all; i += some) {                  \
        typename X::type done[some];                                   \
        TS_UNROLL for (int k = 0; k < some; ++k) done[k] = scalar::name(r.v[k]); \
        TS_UNROLL for (int k = some; k < all; ++k) r.v[k - some] = r.v[k]; \
        TS_UNROLL for (int k = 0; k < some; ++k) r.v[all - some + k] = done[k]; \
      }                                                                \
      return r;                                                        \
    }                                                                  \
  }
TS_LIFT2(add) TS_LIFT2(sub) TS_LIFT2(mul) TS_LIFT2(div) TS_LIFT2(floordiv) TS_LIFT2(mod) TS_LIFT2(pow)
TS_LIFT2(maximum) TS_LIFT2(minimum) TS_LIFT2(atan2) TS_LIFT3(fma) TS_LIFT3(where)
TS_LIFT2(eq) TS_LIFT2(ne) TS_LIFT2(lt) TS_LIFT2(le) TS_LIFT2(gt) TS_LIFT2(ge)
TS_LIFT2(logical_and) TS_LIFT2(logical_or) TS_LIFT2(logical_xor) TS_LIFT1(logical_not)
TS_LIFT2(bit_and) TS_LIFT2(bit_or) TS_LIFT2(bit_xor) TS_LIFT1(bit_not) TS_LIFT2(shift_left) TS_LIFT2(shift_right)
TS_LIFT1(neg) TS_LIFT1(abs) TS_LIFT1(sign) TS_LIFT1(exp) TS_LIFT1(exp2) TS_LIFT1(log) TS_LIFT1(log2) TS_LIFT1(sqrt)
TS_LIFT1(rsqrt) TS_LIFT1(reciprocal) TS_LIFT1(square) TS_LIFT1(floor) TS_LIFT1(ceil) TS_LIFT1(round) TS_LIFT1(trunc)
TS_LIFT1(signbit) TS_LIFT1(real) TS_LIFT1(imag) TS_LIFT2(make_complex)
TS_LIFT1(isnan) TS_LIFT1(isinf) TS_LIFT1(isfinite) TS_LIFT1(relu)
TS_LIFT1_LONG(expm1) TS_LIFT1_LONG(log10) TS_LIFT1_LONG(log1p) TS_LIFT1_LONG(sin) TS_LIFT1_LONG(cos)
TS_LIFT1_LONG(tan) TS_LIFT1_LONG(atan) TS_LIFT1_LONG(sinh) TS_LIFT1_LONG(cosh) TS_LIFT1_LONG(tanh) TS_LIFT1_LONG(erf)
TS_LIFT1_LONG(sigmoid) TS_LIFT1_LONG(silu) TS_LIFT1_LONG(softplus) TS_LIFT1_LONG(gelu) TS_LIFT1_LONG(gelu_tanh)
template <class To, class T, class L> TS_FN auto cast(const Tile<T, L>& x) {
  if constexpr (same<T, float> && (same<To, f16> || same<To, bf16>) && L::size % 2 == 0) {
    Tile<To, L> r;
    TS_UNROLL for (int k = 0; k < L::size; k += 2) {
      u32 both = same<To, f16> ? hw::f16_pair_from(x.v[k], x.v[k + 1]) : hw::bf16_pair_from(x.v[k], x.v[k + 1]);
      r.v[k] = hw::bits_as<To>((u16)both);
      r.v[k + 1] = hw::bits_as<To>((u16)(both >> 16));
    }
    return r;
  } else {
    TS_TILE(cast<To>(x.v[k]));
  }
}
template <class To, class T, class L> TS_FN auto bitcast(const Tile<T, L>& x) {
  TS_TILE(bitcast<To>(x.v[k]));
}

template <class L, class T> TS_FN Tile<T, L> full(T value) {
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k) r.v[k] = value;
  return r;
}
// x[r] at every (r, c), and x[c] at every (r, c).
template <class L, class T> TS_FN Tile<T, L> spread_rows(const Tile<T, RowsOf<L>>& x) {
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k) r.v[k] = x.v[L::row_register(k)];
  return r;
}
template <class L, class T> TS_FN Tile<T, L> spread_cols(const Tile<T, ColsOf<L>>& x) {
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k) r.v[k] = x.v[L::col_register(k)];
  return r;
}

// The shape of a tile of any rank; element (c0, c1, ...) is element c0 * ... in C order of the layout's matrix.
template <int... D> struct Box {
  static constexpr int rank = sizeof...(D);
  static constexpr int size(int axis) {
    int d[] = {D..., 1};
    return d[axis];
  }
};
// Coordinates in the box of row `row`, column `col`.
template <int R> struct Coordinates { int at[R ? R : 1]; };
template <class B, class L> TS_FN Coordinates<B::rank> locate(int row, int col) {
  Coordinates<B::rank> c = {};
  if constexpr (B::rank == 2 && B::size(0) == L::rows && B::size(1) == L::cols) {
    c.at[0] = row;
    c.at[1] = col;
  } else {
    int p = row * L::cols + col;
    TS_UNROLL for (int a = B::rank - 1; a > 0; --a) {
      c.at[a] = p % B::size(a);
      p /= B::size(a);
    }
    c.at[0] = p;
  }
  return c;
}
// The coordinate along axis A, starting from `origin`.
template <class T, class L, class B, int A> TS_FN Tile<T, L> iota(idx origin = 0) {
  Tile<T, L> r;
  int t = hw::thread();
  TS_UNROLL for (int k = 0; k < L::size; ++k) {
    r.v[k] = cast<T>(origin + locate<B, L>(L::row(k, t), L::col(k, t)).at[A]);
  }
  return r;
}

}  // namespace tessera
