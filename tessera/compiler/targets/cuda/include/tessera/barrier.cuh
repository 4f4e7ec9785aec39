// A ring of stages between the producer, which fills them by tensor copies, and the warps that use them (sm_90a).
#pragma once
#include "memory.cuh"
#ifdef __CUDACC_RTC__
#include "device_sm90.cuh"
#endif

namespace tessera {

// The program's own threads are a power of two; the threads after them only fill stages.
TS_FN bool is_producer() { return hw::thread() >= hw::threads(); }
// The thread of the program that starts tensor copies if the block has no producer.
TS_FN bool is_first() { return hw::uniform(hw::thread() / 32) == 0 && hw::elect(); }

// Three warpgroups of 168 registers per thread are all that a multiprocessor has; the producer needs few of its own.
constexpr int producer_registers = 40, user_registers = 232;
static_assert(128 * (producer_registers + 2 * user_registers) <= 65536 && 168 * 384 <= 65536, "within one multiprocessor");

// Each of the N stages has two mbarriers: `full` ends a phase when its copies have landed, `empty` when all Warps have read it.
// Only one thread of the producers works. Four producer warps give their registers to two warpgroups of users. Without
// producers, one thread of the users fills the stages, with a ring of its own over the same mbarriers.
template <int N, int Warps, int Producers> struct Ring {
  static constexpr int bytes = 2 * N * (int)sizeof(u64);
  u64* full;
  int slot = 0;
  u32 parity = 0;  // of the phase of `full` that is under way in this round
  TS_FN explicit Ring(int byte) : full(reinterpret_cast<u64*>(hw::shared_memory() + byte)) {}
  TS_FN u64* empty() const { return full + N; }
  // All threads of the block call this, also those of the producer.
  TS_FN void start() const {
    if (hw::thread() == 0) {
      for (int i = 0; i < N; ++i) {
        hw::mbarrier_init(full + i, 1);
        hw::mbarrier_init(empty() + i, Warps);
      }
      hw::mbarrier_init_fence();
    }
    hw::sync_block();
  }
  // What each side does first. True for the one producer thread that continues; the others are done.
  TS_FN bool enter_producer() const {
    if constexpr (Producers == 4) hw::give_up_registers<producer_registers>();
    return hw::uniform(hw::thread() / 32) == Warps && hw::elect();
  }
  TS_FN void enter_user() const {
    if constexpr (Producers == 4) hw::take_registers<user_registers>();
  }
  // Producer: waits until the slot is free, then announces `bytes`. Copies report to the mbarrier that this returns.
  TS_FN u64* acquire(u32 bytes) const {
    hw::mbarrier_wait(empty() + slot, parity ^ 1);
    hw::mbarrier_arrive_expect(full + slot, bytes);
    return full + slot;
  }
  // Users: waits until the slot has been filled.
  TS_FN void wait() const {
    hw::sync_warp();
    hw::mbarrier_wait(full + slot, parity);
  }
  // Users: this warp has read the slot.
  TS_FN void release() const {
    hw::sync_warp();
    if (hw::thread() % 32 == 0) hw::mbarrier_arrive(empty() + slot);
  }
  // Users: the slot before this one may be filled again.
  TS_FN void release_previous() const {
    if (hw::thread() % 32 == 0) hw::mbarrier_arrive(empty() + (slot ? slot : N) - 1);
  }
  TS_FN void next() {
    if (++slot < N) return;
    slot = 0;
    parity ^= 1;
  }
};

}  // namespace tessera
