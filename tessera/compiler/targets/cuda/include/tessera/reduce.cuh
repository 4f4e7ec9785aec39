// Reductions along an axis. The order depends on the position along the axis alone, so that neither the layout nor the
// number of warps changes a bit: positions that agree modulo 1024 (128 along rows) are folded in ascending order; of those partial
// results neighbours (2p, 2p+1) are combined, then the upper half is folded onto the lower until one is left.
#pragma once
#include "tile.cuh"

namespace tessera {

constexpr int partials_of(int axis) { return axis == 1 ? 1024 : 128; }

struct Sum {
  template <class T> TS_FN static T identity() {  // -0 is the one float that changes no sum, not even a sum of -0
    if constexpr (is_float<T> || is_small<T>) return T(-0.0f);
    else if constexpr (is_complex<T>) return T(part<T>(-0.0f), part<T>(-0.0f));
    else return T(0);
  }
  template <class T> TS_FN static T combine(T a, T b) { return scalar::add(a, b); }
};
struct Prod {
  template <class T> TS_FN static T identity() { return T(1); }
  template <class T> TS_FN static T combine(T a, T b) { return scalar::mul(a, b); }
};
struct Max {
  template <class T> TS_FN static T identity() { return lowest<T>(); }
  template <class T> TS_FN static T combine(T a, T b) { return scalar::maximum(a, b); }
};
struct Min {
  template <class T> TS_FN static T identity() { return highest<T>(); }
  template <class T> TS_FN static T combine(T a, T b) { return scalar::minimum(a, b); }
};
struct Any {
  template <class T> TS_FN static T identity() { return T(0); }
  template <class T> TS_FN static T combine(T a, T b) { return T(scalar::truth(a) || scalar::truth(b)); }
};
struct All {
  template <class T> TS_FN static T identity() { return T(1); }
  template <class T> TS_FN static T combine(T a, T b) { return T(scalar::truth(a) && scalar::truth(b)); }
};
// argmax and argmin carry the position; the first NaN wins, then the best value, then the lowest position.
template <class T> struct Best {
  T value;
  i64 at;
  Best() = default;
  TS_FN Best(T v, i64 i) : value(v), at(i) {}
  TS_FN explicit Best(int) : value(T(0)), at(-1) {}
};
template <bool Largest> struct Arg {
  template <class B> TS_FN static B identity() { return B(0); }
  template <class B> TS_FN static B combine(B a, B b) {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    bool an = scalar::ne(a.value, a.value), bn = scalar::ne(b.value, b.value);
    bool better = an != bn ? an : an ? false : Largest ? scalar::gt(a.value, b.value) : scalar::lt(a.value, b.value);
    bool level = an != bn ? false : an ? true : scalar::eq(a.value, b.value);
    return better || (level && a.at < b.at) ? a : b;
  }
};

template <class T> TS_FN T shuffle_xor(T v, int mask) {
  constexpr int words = (sizeof(T) + 3) / 4;
  u32 w[words] = {};
  memcpy(w, &v, sizeof v);
  TS_UNROLL for (int i = 0; i < words; ++i) w[i] = hw::shuffle_xor(w[i], mask);
  memcpy(&v, w, sizeof v);
  return v;
}

// Folds v over the `Count` lanes that differ in the bits from `Shift` up.
template <class Op, int Shift, int Count, class T, int N> TS_FN void fold_lanes(T (&v)[N]) {
  TS_UNROLL for (int bit = Count / 2; bit > 0; bit /= 2)
    TS_UNROLL for (int i = 0; i < N; ++i) v[i] = Op::template combine<T>(v[i], shuffle_xor(v[i], bit << Shift));
}
// Folds v over the `Count` threads that differ in the bits from `Shift` up, upper half onto lower; all end with the result.
template <class Op, int Shift, int Count, class T, int N> TS_FN void fold_threads(T (&v)[N]) {
  constexpr int lanes = Shift >= 5 ? 1 : (Count << Shift) > 32 ? 32 >> Shift : Count, warps = Count / lanes;
  if constexpr (warps == 1) fold_lanes<Op, Shift, lanes>(v);
  else {  // through shared memory: the warps divide the values, unless the second barrier costs more than that saves
    constexpr int shift = Shift > 5 ? Shift : 5, shares = N > 2 ? warps : 1;
    T* scratch = reinterpret_cast<T*>(hw::shared_memory());
    int t = hw::thread(), n = hw::threads(), base = t & ~((warps - 1) << shift), own = t >> shift & (shares - 1);
    hw::sync();
    TS_UNROLL for (int i = 0; i < N; ++i) hw::store_shared(scratch + i * n + t, v[i]);
    hw::sync();
    TS_UNROLL for (int first = 0; first < N; first += shares) {
      int i = first + own;
      if (i >= N) continue;
      T x[warps];
      TS_UNROLL for (int p = 0; p < warps; ++p) x[p] = hw::load_shared(scratch + i * n + (base | p << shift));
      TS_UNROLL for (int half = warps / 2; half > 0; half /= 2)
        TS_UNROLL for (int p = 0; p < half; ++p) x[p] = Op::template combine<T>(x[p], x[p + half]);
      T one[1] = {x[0]};
      fold_lanes<Op, Shift, lanes>(one);
      if constexpr (shares == 1) v[first] = one[0];
      else hw::store_shared(scratch + i * n + t, one[0]);
    }
    if constexpr (shares > 1) {
      hw::sync();
      TS_UNROLL for (int i = 0; i < N; ++i) v[i] = hw::load_shared(scratch + i * n + (base | i % shares << shift));
    }
  }
}

// The index of the lowest bit of a position.
enum class Low { t0, in, t1, t2, out };
template <class A> constexpr Low low_bit = A::t0 > 1 ? Low::t0 : A::In > 1 ? Low::in : A::t1 > 1 ? Low::t1 : A::t2 > 1 ? Low::t2 : Low::out;
constexpr int halves_(int n) { return n <= 1 ? 0 : n <= 2 ? 1 : 2 * halves_((n + 1) / 2); }

// Folds registers In * o of the upper half of o onto the lower until S is below StepOut. The compiler would not unroll a
// long loop over halves, and the registers would become memory.
template <class Op, int In, int Out, int S, int StepIn, int StepOut, class T, int N> TS_FN void fold_halves(T (&w)[N]) {
  if constexpr (S >= StepOut) {
    TS_UNROLL for (int o = 0; o < S && o + S < Out; o += StepOut)
      TS_UNROLL for (int i = 0; i < In; i += StepIn) w[o * In + i] = Op::template combine<T>(w[o * In + i], w[(o + S) * In + i]);
    fold_halves<Op, In, Out, S / 2, StepIn, StepOut>(w);
  }
}
// Reduces w[n][register along A] for N vectors at once into out[n].
template <class Op, class A, int partials, class T, int N> TS_FN void fold_axis(T (&w)[N][A::regs], T (&out)[N]) {
  constexpr int In = A::In, keep = A::low >= partials ? 1 : partials / A::low, Out = A::Out < keep ? A::Out : keep;
  static_assert(A::low <= partials, "a layout spreads at most one partial result each over threads");
  constexpr Low first = low_bit<A>;
  TS_UNROLL for (int n = 0; n < N; ++n)
    TS_UNROLL for (int k = Out * In; k < A::regs; ++k)
      w[n][k % (Out * In)] = Op::template combine<T>(w[n][k % (Out * In)], w[n][k]);
  if constexpr (first == Low::t0 || first == Low::t1 || first == Low::t2) {
    constexpr int shift = first == Low::t0 ? A::s0 : first == Low::t1 ? A::s1 : A::s2;
    T all[N * Out * In];
    TS_UNROLL for (int i = 0; i < N * Out * In; ++i) all[i] = w[i / (Out * In)][i % (Out * In)];
    fold_threads<Op, shift, 2>(all);
    TS_UNROLL for (int i = 0; i < N * Out * In; ++i) w[i / (Out * In)][i % (Out * In)] = all[i];
  }
  constexpr int step_in = first == Low::in ? 2 : 1, step_out = first == Low::out ? 2 : 1, live = In / step_in;
  T v[N * live];
  TS_UNROLL for (int n = 0; n < N; ++n) {
    if constexpr (first == Low::in)
      TS_UNROLL for (int k = 0; k < Out * In; k += 2) w[n][k] = Op::template combine<T>(w[n][k], w[n][k + 1]);
    if constexpr (first == Low::out)
      TS_UNROLL for (int k = 0; k + 1 < Out * In; k += 2) w[n][k] = Op::template combine<T>(w[n][k], w[n][k + 1]);
    fold_halves<Op, In, Out, halves_(Out), step_in, step_out>(w[n]);
    TS_UNROLL for (int i = 0; i < live; ++i) v[n * live + i] = w[n][i * step_in];
  }
  constexpr int b2 = first == Low::t2 ? 1 : 0, b1 = first == Low::t1 ? 1 : 0, b0 = first == Low::t0 ? 1 : 0;
  fold_threads<Op, A::s2 + b2, (A::t2 >> b2)>(v);
  fold_threads<Op, A::s1 + b1, (A::t1 >> b1)>(v);
  TS_UNROLL for (int n = 0; n < N; ++n) {
    TS_UNROLL for (int s = live / 2; s > 0; s /= 2)
      TS_UNROLL for (int i = 0; i < s; ++i) v[n * live + i] = Op::template combine<T>(v[n * live + i], v[n * live + i + s]);
    out[n] = v[n * live];
  }
  fold_threads<Op, A::s0 + b0, (A::t0 >> b0)>(out);
}

// Over the columns (A = 1): one result per row; over the rows (A = 0): one per column. `value(k)` gives register k.
template <class Op, int A, class T, class L, class F> TS_FN auto reduce_with(F value) {
  using Along = choose<A == 1, typename L::Col, typename L::Row>;
  using Kept = choose<A == 1, typename L::Row, typename L::Col>;
  T w[Kept::regs][Along::regs];
  int t = hw::thread();
  TS_UNROLL for (int n = 0; n < Kept::regs; ++n)
    TS_UNROLL for (int i = 0; i < Along::regs; ++i) {
      int k = A == 1 ? L::reg(n, i) : L::reg(i, n);
      w[n][i] = Along::exact || Along::position(i, t) < Along::extent ? value(k) : Op::template identity<T>();
    }
  Tile<T, Layout<One, Kept>> r;
  fold_axis<Op, Along, partials_of(A)>(w, r.v);
  return r;
}
template <class Op, int A, class T, class L> TS_FN auto reduce(const Tile<T, L>& x) {
  return reduce_with<Op, A, T, L>([&](int k) { return x.v[k]; });
}
// Over both axes: columns are folded modulo 1024 first, then each column over its rows, then the columns.
template <class Op, class T, class L> TS_FN T reduce_all(const Tile<T, L>& x) {
  using C = typename L::Col;
  constexpr int fits = C::low >= partials_of(1) ? 1 : partials_of(1) / C::low, outer = C::Out < fits ? C::Out : fits, kept = outer * C::In;
  using Folded = Axis<C::extent, C::t0, C::s0, C::In, C::t1, C::s1, C::t2, C::s2, outer>;
  T w[kept][L::Row::regs], columns[1][kept], result[1];
  int t = hw::thread();
  TS_UNROLL for (int i = 0; i < C::regs; ++i)
    TS_UNROLL for (int r = 0; r < L::Row::regs; ++r) {
      int k = L::reg(r, i);
      T value = L::holds(k, t) ? x.v[k] : Op::template identity<T>();
      w[i % kept][r] = i < kept ? value : Op::template combine<T>(w[i % kept][r], value);
    }
  fold_axis<Op, typename L::Row, partials_of(0)>(w, columns[0]);
  fold_axis<Op, Folded, partials_of(1)>(columns, result);
  return result[0];
}
template <bool Largest, int A, class T, class L> TS_FN auto arg_reduce(const Tile<T, L>& x) {
  int t = hw::thread();
  auto best = reduce_with<Arg<Largest>, A, Best<T>, L>([&](int k) { return Best<T>(x.v[k], A == 1 ? L::col(k, t) : L::row(k, t)); });
  Tile<i64, typename layout_<decltype(best)>::type> r;
  TS_UNROLL for (int k = 0; k < decltype(r)::layout::size; ++k) r.v[k] = best.v[k].at;
  return r;
}

#define TS_REDUCTION(name, Op)                                                                          \
  template <int A, class T, class L> TS_FN auto name(const Tile<T, L>& x) { return reduce<Op, A>(x); }  \
  template <class T, class L> TS_FN T name(const Tile<T, L>& x) { return reduce_all<Op>(x); }
TS_REDUCTION(sum, Sum)
TS_REDUCTION(prod, Prod)
TS_REDUCTION(max, Max)
TS_REDUCTION(min, Min)
TS_REDUCTION(any, Any)
TS_REDUCTION(all, All)
#undef TS_REDUCTION
template <int A, class T, class L> TS_FN auto argmax(const Tile<T, L>& x) { return arg_reduce<true, A>(x); }
template <int A, class T, class L> TS_FN auto argmin(const Tile<T, L>& x) { return arg_reduce<false, A>(x); }
template <class T, class L> TS_FN i64 argmax(const Tile<T, L>& x) { return arg_reduce<true, 1>(x).v[0]; }
template <class T, class L> TS_FN i64 argmin(const Tile<T, L>& x) { return arg_reduce<false, 1>(x).v[0]; }

// An axis that is too long for registers is reduced in chunks: each is added to the partial results, up to the `left`
// positions of the axis that remain.
template <class Op, int A, class T, class L> TS_FN void accumulate(Tile<T, L>& acc, const Tile<T, L>& x, idx left) {
  int t = hw::thread();
  TS_UNROLL for (int k = 0; k < L::size; ++k)
    if ((A == 1 ? L::col(k, t) : L::row(k, t)) < left) acc.v[k] = Op::template combine<T>(acc.v[k], x.v[k]);
}
template <class T, class L> TS_FN Tile<Best<T>, L> best_so_far() {
  Tile<Best<T>, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k) r.v[k] = Best<T>(0);
  return r;
}
template <bool Largest, int A, class T, class L>
TS_FN void take_better(Tile<Best<T>, L>& best, const Tile<T, L>& x, idx start, idx left) {
  int t = hw::thread();
  TS_UNROLL for (int k = 0; k < L::size; ++k) {
    idx at = A == 1 ? L::col(k, t) : L::row(k, t);
    if (at < left) best.v[k] = Arg<Largest>::combine(best.v[k], Best<T>(x.v[k], start + at));
  }
}
template <bool Largest, int A, class T, class L> TS_FN auto best_position(const Tile<Best<T>, L>& x) {
  auto best = reduce_with<Arg<Largest>, A, Best<T>, L>([&](int k) { return x.v[k]; });
  Tile<i64, typename layout_<decltype(best)>::type> r;
  TS_UNROLL for (int k = 0; k < decltype(r)::layout::size; ++k) r.v[k] = best.v[k].at;
  return r;
}

}  // namespace tessera
