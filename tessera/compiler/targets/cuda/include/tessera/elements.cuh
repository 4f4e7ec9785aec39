// Tiles whose elements are computed from elements anywhere in other tiles, through shared memory.
#pragma once
#include "tile.cuh"

namespace tessera {

// Puts a tile into shared memory in C order, `byte` bytes behind its start; barriers stand around it.
template <class T, class L> TS_FN T* spill(int byte, const Tile<T, L>& x) {
  T* place = reinterpret_cast<T*>(hw::shared_memory() + byte);
  int t = hw::thread();
  if (L::owner(t))
    TS_UNROLL for (int k = 0; k < L::size; ++k)
      if (L::holds(k, t)) hw::store_shared(place + L::row(k, t) * L::cols + L::col(k, t), x.v[k]);
  return place;
}

// The tile of shape `To` (a Box) whose element at coordinates c is each(c).
template <class T, class L, class To, class F> TS_FN Tile<T, L> each_element(F each) {
  int t = hw::thread();
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k) r.v[k] = L::holds(k, t) ? each(locate<To, L>(L::row(k, t), L::col(k, t))) : T(0);
  return r;
}

}  // namespace tessera
