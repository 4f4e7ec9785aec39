// Debug asserts: a failing one raises its flag, which the host looks at after the launch.
#pragma once
#include "tile.cuh"

namespace tessera {

struct Faults { u32 flags[64]; };

template <class X> TS_FN void check(Faults* faults, int number, const X& holds) {
  using L = layout_of<X>;
  bool ok = true;
  if constexpr (same<L, void>) ok = holds;
  else {
    int t = hw::thread();
    TS_UNROLL for (int k = 0; k < L::size; ++k) ok = ok && (holds.v[k] || !L::holds(k, t));
  }
  if (!ok) hw::raise(&faults->flags[number]);
}

}  // namespace tessera
