// The time and place of each program's run, and the cycles of its phases. Its first thread writes one record.
#pragma once
#include "math.cuh"

namespace tessera {

// Of a kernel with N phases; 0: it has one.
template <int N> struct TileRecord {
  u64 start;  // ns on the device's clock
  u64 duration;
  u32 tile;      // linear index in the grid, last axis fastest
  u32 sm;        // streaming multiprocessor
  u32 readings;  // of the cycle counter
  u32 cycles[N | 1];
};

// What stands before the records of a launch. A graph runs the launch again and again: each run has records of its own,
// behind those of the run before, as long as there is room; runs beyond it are counted.
struct Records {
  u64 ended;   // programs, of all runs
  u64 room;    // runs that have records
  u64 grid;    // programs of a run
  u64 phases;  // of the kernel
};

template <int N> struct Timer {
  Records* records;
  idx program;
  u64 ended, start;
  u32 last, readings, cycles[N | 1];
  TS_FN Timer(Records* r, idx p) : records(r), program(p), ended(0), start(0), last(0), readings(0), cycles{} {
    if (hw::thread() == 0) {
      ended = hw::load_word(&r->ended);
      start = hw::clock_ns();
    }
    if constexpr (N > 0) last = hw::cycles();
  }
  // What has run since the last reading was phase P. Differences of 32 bits are right up to 2^32 cycles.
  template <int P> TS_FN void read() {
    u32 now = hw::cycles();
    cycles[P] += now - last;
    last = now;
    ++readings;
  }
  // The end of the program, and of its last phase, which waits for all threads.
  template <int P> TS_FN void stop() {
    u64 room = 0, grid = 1;
    if (hw::thread() == 0) room = hw::load_word(&records->room), grid = hw::load_word(&records->grid);
    hw::sync();
    if constexpr (N > 0) read<P>();
    if (hw::thread() != 0) return;
    TileRecord<N> record{start, hw::clock_ns() - start, (u32)program, hw::multiprocessor(), readings, {}};
    TS_UNROLL for (int i = 0; i < N; ++i) record.cycles[i] = cycles[i];
    u64 run = ended / grid;  // all programs of the runs before had ended, and of this one not all
    if (run < room) hw::store_global((TileRecord<N>*)(records + 1) + run * grid + program, record);
    hw::add_word(&records->ended, 1);
  }
};

}  // namespace tessera
