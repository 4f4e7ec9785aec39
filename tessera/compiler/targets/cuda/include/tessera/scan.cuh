// Inclusive prefixes along an axis of N elements that lie `Stride` apart in C order. The order depends on the position
// alone: segments of 32 are summed in ascending order, then the totals of the segments before are added.
#pragma once
#include "reduce.cuh"

namespace tessera {

template <class Op, int N, int Stride, class T, class L> TS_FN Tile<T, L> scan(const Tile<T, L>& x) {
  constexpr int segment = 32, segments = (N + segment - 1) / segment, lines = L::rows * L::cols / N;
  T* s = reinterpret_cast<T*>(hw::shared_memory());
  int t = hw::thread(), threads = hw::threads();
  // Element i of line j.
  auto at = [&](int j, int i) { return s + (j / Stride * N + i) * Stride + j % Stride; };
  hw::sync();
  if (L::owner(t))
    TS_UNROLL for (int k = 0; k < L::size; ++k)
      if (L::holds(k, t)) hw::store_shared(s + L::row(k, t) * L::cols + L::col(k, t), x.v[k]);
  hw::sync();
  for (int job = t; job < lines * segments; job += threads) {
    int j = job / segments, first = job % segments * segment;
    T sum = hw::load_shared(at(j, first));
    for (int i = first + 1; i < first + segment && i < N; ++i) {
      sum = Op::template combine<T>(sum, hw::load_shared(at(j, i)));
      hw::store_shared(at(j, i), sum);
    }
  }
  if constexpr (segments > 1) {
    hw::sync();
    for (int j = t; j < lines; j += threads) {  // the last element of each segment becomes the total of all elements up to it
      T total = hw::load_shared(at(j, segment - 1));
      for (int i = 2 * segment - 1; i < N; i += segment) {
        total = Op::template combine<T>(total, hw::load_shared(at(j, i)));
        hw::store_shared(at(j, i), total);
      }
    }
    hw::sync();
    for (int job = t; job < lines * (segments - 1); job += threads) {
      int j = job / (segments - 1), first = (job % (segments - 1) + 1) * segment;
      T before = hw::load_shared(at(j, first - 1));
      for (int i = first; i < first + segment && i < N; ++i)
        if (i % segment != segment - 1) hw::store_shared(at(j, i), Op::template combine<T>(before, hw::load_shared(at(j, i))));
    }
  }
  hw::sync();
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k)
    r.v[k] = L::holds(k, t) ? hw::load_shared(s + L::row(k, t) * L::cols + L::col(k, t)) : T(0);
  return r;
}

}  // namespace tessera
