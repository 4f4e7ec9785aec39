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

// What stands before the records of a launch. A graph runs the launch again and again: each run has records of its own,
// behind those of the run before, as long as there is room; runs beyond it are counted.
struct Records {
  u64 runs;   // that are complete
  u64 ended;  // programs of the run that goes on
  u64 room;   // runs that have records
  u64 grid;   // programs of a run
};

struct Timer {
  Records* records;
  idx program;
  u64 run, start;
  TS_FN Timer(Records* r, idx p) : records(r), program(p), run(0), start(0) {
    if (hw::thread() != 0) return;
    run = hw::load_word(&r->runs);  // stays as it is until the last program of this run ends
    start = hw::clock_ns();
  }
  TS_FN void stop() {
    hw::sync();
    if (hw::thread() != 0) return;
    TileRecord record{(u32)program, hw::multiprocessor(), -1, 0, start, hw::clock_ns() - start};
    u64 grid = hw::load_word(&records->grid);
    if (run < hw::load_word(&records->room)) hw::store_global((TileRecord*)(records + 1) + run * grid + program, record);
    if (hw::increment(&records->ended) != grid) return;
    hw::store_word(&records->ended, 0);
    hw::store_word(&records->runs, run + 1);
  }
};

}  // namespace tessera
