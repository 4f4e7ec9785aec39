// Printed tiles. Each program has its own part of the launch's buffer and fills it in order; the host prints the
// parts one after the other (printing.py reads this format).
#pragma once
#include "memory.cuh"

namespace tessera {

// The buffer: bytes of a part, number of programs that have one, then the parts, each with the bytes used (these 16
// too), the number of prints that did not fit, and the records: number of the print, of the elements in C order.
struct Printer {
  u8* part;
  i64 room, used, lost;
  TS_FN Printer(u8* buffer, idx program) : part(nullptr), room(hw::load_global((const i64*)buffer)), used(16), lost(0) {
    if (program < hw::load_global((const i64*)buffer + 1)) part = buffer + 16 + program * room;
  }
  // The address for the elements of the next record, which take `bytes`; null if there is no room.
  TS_FN u8* next(int site, i64 bytes) {
    if (!part) return nullptr;
    i64 start = used, end = start + 16 + (bytes + 15) / 16 * 16;
    if (end > room) ++lost;
    else used = end;
    if (hw::thread() == 0) {
      hw::store_global((i64*)part, used);
      hw::store_global((i64*)part + 1, lost);
      if (end <= room) hw::store_global((i64*)(part + start), (i64)site);
    }
    return end <= room ? part + start + 16 : nullptr;
  }
  template <class X> TS_FN void show(int site, const X& x) {
    using L = layout_of<X>;
    if constexpr (same<L, void>) {
      u8* to = next(site, sizeof(X));
      if (to && hw::thread() == 0) hw::store_global((X*)to, x);
    } else {
      using T = typename X::type;
      u8* to = next(site, (i64)L::rows * L::cols * sizeof(T));
      int t = hw::thread();
      if (!to || !L::owner(t)) return;
      TS_UNROLL for (int k = 0; k < L::size; ++k)
        if (L::holds(k, t)) hw::store_global((T*)to + L::row(k, t) * L::cols + L::col(k, t), x.v[k]);
    }
  }
};

}  // namespace tessera
