// The time and place of each program's run. Its first thread writes one record.
#pragma once
#include "math.cuh"

namespace tessera {

struct TileRecord {
  u32 tile;   // linear index in the grid, last axis fastest
  u32 sm;     // streaming multiprocessor
  i32 slot;   // -1: the slot of the multiprocessor is not recorded
  u32 phase;  // index into the kernel's phases
  u64 start;  // ns on the device's clock
  u64 duration;
};

struct Timer {
  TileRecord* records;
  idx program;
  u64 start;
  TS_FN Timer(TileRecord* r, idx p) : records(r), program(p), start(hw::thread() == 0 ? hw::clock_ns() : 0) {}
  TS_FN void stop() {
    hw::sync();
    if (hw::thread() != 0) return;
    TileRecord record{(u32)program, hw::multiprocessor(), -1, 0, start, hw::clock_ns() - start};
    hw::store_global(records + program, record);
  }
};

}  // namespace tessera
