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

// When a program began, and how many had ended.
struct Begin { u64 start, ended; };
TS_FN Begin begin(const Records* records) {
  u64 ended = hw::load_word(&records->ended);
  return {hw::clock_ns(), ended};
}
template <int N> TS_FN void write(Records* records, idx program, Begin begin, u64 room, u64 grid, u32 readings, const u32 (&cycles)[N | 1]) {
  TileRecord<N> record{begin.start, hw::clock_ns() - begin.start, (u32)program, hw::multiprocessor(), readings, {}};
  TS_UNROLL for (int i = 0; i < N; ++i) record.cycles[i] = cycles[i];
  u64 run = begin.ended / grid;  // all programs of the runs before had ended, and of this one not all
  if (run < room) hw::store_global((TileRecord<N>*)(records + 1) + run * grid + program, record);
  hw::add_word(&records->ended, 1);
}

// What is known until the end is in shared memory: in registers it would be in those of all threads.
template <int N> struct Timer {
  struct State {
    u64 start, ended;
    u32 cycles[N];
  };
  Records* records;
  idx program;
  State* state;
  u32 last, readings;
  TS_FN Timer(Records* r, idx p, int byte) : records(r), program(p), state(reinterpret_cast<State*>(hw::shared_memory() + byte)), readings(0) {
    if (hw::thread() == 0) {
      Begin now = begin(r);
      hw::store_shared(&state->start, now.start);
      hw::store_shared(&state->ended, now.ended);
      TS_UNROLL for (int i = 0; i < N; ++i) hw::store_shared(state->cycles + i, 0u);
    }
    last = hw::cycles();
  }
  // What has run since the last reading was phase P. Differences of 32 bits are right up to 2^32 cycles.
  template <int P> TS_FN void read() {
    u32 now = hw::cycles();
    if (hw::thread() == 0) hw::add_shared(state->cycles + P, now - last);
    last = now;
    ++readings;
  }
  // The end of the program, and of its last phase, which waits for all threads.
  template <int P> TS_FN void stop() {
    u64 room = 0, grid = 1;
    if (hw::thread() == 0) room = hw::load_word(&records->room), grid = hw::load_word(&records->grid);
    hw::sync();
    read<P>();
    if (hw::thread() != 0) return;
    u32 cycles[N | 1];
    TS_UNROLL for (int i = 0; i < N; ++i) cycles[i] = hw::load_shared(state->cycles + i);
    write<N>(records, program, {hw::load_shared(&state->start), hw::load_shared(&state->ended)}, room, grid, readings, cycles);
  }
};
// Of one phase.
template <> struct Timer<0> {
  Records* records;
  idx program;
  Begin begun;
  TS_FN Timer(Records* r, idx p) : records(r), program(p), begun{} {
    if (hw::thread() == 0) begun = begin(r);
  }
  TS_FN void stop() {
    u64 room = 0, grid = 1;
    if (hw::thread() == 0) room = hw::load_word(&records->room), grid = hw::load_word(&records->grid);
    hw::sync();
    u32 none[1] = {};
    if (hw::thread() == 0) write<0>(records, program, begun, room, grid, 0, none);
  }
};

}  // namespace tessera
