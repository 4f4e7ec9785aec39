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
  u64 ended;   // programs, of all runs
  u64 room;    // runs that have records
  u64 grid;    // programs of a run
  u64 unused;  // records begin at a multiple of their size
};

struct Timer {
  Records* records;
  idx program;
  u64 ended, start;
  TS_FN Timer(Records* r, idx p) : records(r), program(p), ended(0), start(0) {
    if (hw::thread() != 0) return;
    ended = hw::load_word(&r->ended);
    start = hw::clock_ns();
  }
  TS_FN void stop() {
    u64 room = 0, grid = 1;
    if (hw::thread() == 0) room = hw::load_word(&records->room), grid = hw::load_word(&records->grid);
    hw::sync();
    if (hw::thread() != 0) return;
    TileRecord record{(u32)program, hw::multiprocessor(), -1, 0, start, hw::clock_ns() - start};
    u64 run = ended / grid;  // all programs of the runs before had ended, and of this one not all
    if (run < room) hw::store_global((TileRecord*)(records + 1) + run * grid + program, record);
    hw::add_word(&records->ended, 1);
  }
};

}  // namespace tessera
