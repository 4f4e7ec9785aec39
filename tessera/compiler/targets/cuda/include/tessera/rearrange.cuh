// Moves elements between threads, through shared memory.
#pragma once
#include "tile.cuh"

namespace tessera {

// The tile of shape `To` (a Box) whose element c is element sum(c * Step) of x in C order: a change of layout, a
// reshape, a transposition or a repetition along axes, by the steps alone.
template <class L, class To, class Step, class T, class From> TS_FN Tile<T, L> rearrange(const Tile<T, From>& x) {
  T* scratch = reinterpret_cast<T*>(hw::shared_memory());
  int t = hw::thread();
  hw::sync();
  if (From::owner(t))
    TS_UNROLL for (int k = 0; k < From::size; ++k)
      if (From::holds(k, t)) hw::store_shared(scratch + From::row(k, t) * From::cols + From::col(k, t), x.v[k]);
  hw::sync();
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; ++k) {
    r.v[k] = T(0);
    if (!L::holds(k, t)) continue;
    Coordinates<To::rank> c = locate<To, L>(L::row(k, t), L::col(k, t));
    int p = 0;
    TS_UNROLL for (int a = 0; a < To::rank; ++a) p += c.at[a] * Step::size(a);
    r.v[k] = hw::load_shared(scratch + p);
  }
  return r;
}

}  // namespace tessera
