// Stable sorting along an axis, by a network whose comparisons depend on the positions alone.
#pragma once
#include "tile.cuh"

namespace tessera {

constexpr int ceil_power_(int n) { return n <= 1 ? 1 : 2 * ceil_power_((n + 1) / 2); }

// Whether an element belongs before another one: NaN is the largest.
template <bool Descending, class T> TS_FN bool before(T a, T b) {
  bool an = scalar::ne(a, a), bn = scalar::ne(b, b);
  if (an || bn) return Descending ? an && !bn : bn && !an;
  return Descending ? scalar::gt(a, b) : scalar::lt(a, b);
}

// Merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M) along an axis of N elements that lie
// `Stride` apart in C order, all lines at once. It moves positions, which also order equal elements.
// `take(value, position)` gives the result for the element at each place.
template <bool Descending, int N, int Stride, class R, class T, class L, class F> TS_FN Tile<R, L> sort_with(const Tile<T, L>& x, F take) {
  constexpr int total = L::rows * L::cols, lines = total / N, top = ceil_power_(N) / 2, bytes = (total * (int)sizeof(T) + 3) / 4 * 4;
  T* values = reinterpret_cast<T*>(hw::shared_memory());
  i32* at = reinterpret_cast<i32*>(hw::shared_memory() + bytes);
  int t = hw::thread(), threads = hw::threads();
  // Where element i of line j lies.
  auto place = [&](int j, int i) { return (j / Stride * N + i) * Stride + j % Stride; };
  hw::sync();
  if (L::owner(t))
    TS_UNROLL for (int k = 0; k < L::size; ++k)
      if (L::holds(k, t)) hw::store_shared(values + L::row(k, t) * L::cols + L::col(k, t), x.v[k]);
  for (int job = t; job < total; job += threads) hw::store_shared(at + job, (i32)(job / Stride % N));
  hw::sync();
  for (int p = top; p > 0; p /= 2) {
    for (int q = top, r = 0, d = p;;) {
      for (int job = t; job < lines * (N - d); job += threads) {
        int j = job / (N - d), i = job % (N - d);
        if ((i & p) != r) continue;
        i32 a = hw::load_shared(at + place(j, i)), b = hw::load_shared(at + place(j, i + d));
        T u = hw::load_shared(values + place(j, a)), v = hw::load_shared(values + place(j, b));
        bool swap = before<Descending>(v, u) || (!before<Descending>(u, v) && b < a);
        if (!swap) continue;
        hw::store_shared(at + place(j, i), b);
        hw::store_shared(at + place(j, i + d), a);
      }
      hw::sync();
      if (q == p) break;
      d = q - p, q /= 2, r = p;
    }
  }
  Tile<R, L> out;
  TS_UNROLL for (int k = 0; k < L::size; ++k) {
    out.v[k] = R(0);
    if (!L::holds(k, t)) continue;
    int e = L::row(k, t) * L::cols + L::col(k, t), j = e / (N * Stride) * Stride + e % Stride;
    i32 from = hw::load_shared(at + e);
    out.v[k] = take(values + place(j, from), from);
  }
  return out;
}
template <bool Descending, int N, int Stride, class T, class L> TS_FN Tile<T, L> sort(const Tile<T, L>& x) {
  return sort_with<Descending, N, Stride, T>(x, [](const T* value, i32) { return hw::load_shared(value); });
}
template <bool Descending, int N, int Stride, class T, class L> TS_FN Tile<i64, L> argsort(const Tile<T, L>& x) {
  return sort_with<Descending, N, Stride, i64>(x, [](const T*, i32 from) { return (i64)from; });
}

}  // namespace tessera
