// Debug asserts: an assert that fails sets its flag, and the host reads the flags after the launch.
#pragma once
#include "tile.cuh"

namespace tessera {

struct Faults { u64 flags[64]; };  // at least the number of asserts in the kernel

template <class X> TS_FN void check(Faults* faults, int number, const X& holds) {
  using L = layout_of<X>;
  bool ok = true;
  if constexpr (same<L, void>) ok = holds;
  else {
    int t = hw::thread();
    TS_UNROLL for (int k = 0; k < L::size; ++k) ok = ok && (holds.v[k] || !L::holds(k, t));
  }
  if (!ok) hw::raise(&faults->flags[number], 1);
}

// Encodes an index as a flag that is higher for smaller indices: the smallest index outside wins, in any order of threads.
TS_FN u64 outside(i64 index) { return ~((u64)index ^ ((u64)1 << 63)); }

template <class X, class S> TS_FN void check(Faults* faults, int number, const X& holds, const S& index) {
  using L = layout_of<X>;
  u64* flag = &faults->flags[number];
  if constexpr (same<L, void>) {
    if (!holds) hw::raise(flag, outside(index));
  } else {
    int t = hw::thread();
    TS_UNROLL for (int k = 0; k < L::size; ++k) {
      if (holds.v[k] || !L::holds(k, t)) continue;
      if constexpr (same<layout_of<S>, void>) hw::raise(flag, outside(index));
      else hw::raise(flag, outside(index.v[k]));
    }
  }
}

}  // namespace tessera
