// The machine of device.cuh on an ordinary processor, for tests: each thread of a block is a fiber, blocks run one after
// another. Execution switches threads at barriers and warp operations, in an order drawn from a seed. What a GPU would let
// pass in silence is a fault here: accesses outside a buffer or misaligned, reads of uninitialised shared memory or of
// copies that have not landed, threads or programs that race, barriers that not all threads reach.
#pragma once
#include <execinfo.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
// C's headers alone have these as macros; here they are functions of tiles.
#undef isfinite
#undef isinf
#undef isnan
#undef signbit

// The machine is compiled once, with optimisation; the many kernels are compiled without. In a kernel's file its functions
// are calls into a separate library. Without that library they are part of the file.
#if defined(TS_MACHINE_APART)
#define TS_HOST extern inline __attribute__((gnu_inline))
#define TS_HOST_STATE(type, name) extern __attribute__((visibility("hidden"))) type name
#elif defined(TS_MACHINE)
#define TS_HOST
#define TS_HOST_STATE(type, name) type name
#else
#define TS_HOST inline
#define TS_HOST_STATE(type, name) static type name
#endif
#define TS_FN inline
#define TS_UNROLL
#define TS_ROLLED
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

namespace tessera {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i16 = short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;
using idx = long long;

namespace hw {

constexpr int arch = TESSERA_ARCH;

// Global memory that a launch may touch. Everything else is out of range.
struct Region {
  const char* name;
  u64 begin, size;
  i32 writable;
};

// The last accesses to a byte: 1 + the thread's number in the launch, and the span between barriers.
struct Shadow {
  u32 writer, written, reader, read;
  u32 order;  // of the last write among all
  u32 readers_block;  // 1 + block of the readers, `many` for several
  u32 scattered;  // the last scatter of its program that wrote here
};
constexpr u32 many = 0xffffffffu;

enum class State : u8 { ready, at_barrier, at_block, at_warp, at_mbarrier, done };
enum class Collective : u8 { none, shuffle, ldmatrix, stmatrix, mma };

struct PendingCopy { u8* to; const u8* from; int group; u64 lands; };
struct Fiber {
  ucontext_t first;
  jmp_buf resume;
  State state;
  bool started;
  void* payload;  // operands of the warp operation that it waits in
  PendingCopy* copies;
  int n_copies, capacity, group;
  u64* awaited;  // the mbarrier it waits for, and the parity of the phase
  u32 parity, fenced_at;
  bool products_fenced;
  int products_group;
  u32 scatters;  // that it has begun: alike in all threads of a program
  u64 cycles;  // calls of the library, in code that counts them, and what it has waited for
};
struct Warp { Collective kind; int arrived; };

struct Machine {
  int threads, current, running;
  idx block, grid;
  u64 random;
  u32 epoch;  // spans between barriers, over all blocks
  u32 clock;  // counts writes
  u8* shared;
  u64 shared_size;
  u8* shared_state;  // 0 uninitialised, 1 written, 2 a copy is under way
  u64* reached;  // by the latest arrival at the mbarrier in each 8 bytes of shared memory
  Shadow* shared_shadow;
  const Region* regions;
  int n_regions;
  Shadow** region_shadows;
  Fiber* fibers;
  int* order;
  Warp warps[32];
  u8* stacks;
  ucontext_t main;
  jmp_buf scheduler, fault;
  void (*kernel)(void**);
  void** args;
  char* message;
  int message_size;
  void** trace;
  int trace_size, traced;
};
TS_HOST_STATE(Machine, m);  // one per shared library: never merged with another's
constexpr size_t stack_bytes = 512 << 10;

[[noreturn]] TS_HOST void fail(const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  int n = snprintf(m.message, m.message_size, "program %lld, thread %d: ", m.block, m.current);
  vsnprintf(m.message + n, m.message_size - n, format, rest);
  va_end(rest);
  m.traced = backtrace(m.trace, m.trace_size);
  _longjmp(m.fault, 1);
}

TS_HOST u32 draw(u32 n) {
  m.random = m.random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)((m.random >> 33) % n);
}

TS_HOST void yield(State state) {
  Fiber& f = m.fibers[m.current];
  f.state = state;
  if (!_setjmp(f.resume)) _longjmp(m.scheduler, 1);
}
TS_HOST void fiber_main() {
  m.kernel(m.args);
  m.fibers[m.current].state = State::done;
  --m.running;
  _longjmp(m.scheduler, 1);
}
TS_HOST void resume(int thread) {
  m.current = thread;
  Fiber& f = m.fibers[thread];
  if (_setjmp(m.scheduler)) return;
  if (f.started) _longjmp(f.resume, 1);
  f.started = true;
  setcontext(&f.first);
}

TS_HOST int thread() { return m.current; }
// Of a block with a producer warp, the threads of the program.
TS_HOST int threads() {
  int n = 1;
  while (n * 2 <= m.threads) n *= 2;
  return n;
}
TS_HOST idx block() { return m.block; }
TS_HOST idx blocks() { return m.grid; }
TS_HOST u8* shared_memory() { return m.shared; }
TS_HOST void sync() { yield(State::at_barrier); }

// Time, in calls of the device library: alike in every run. Threads that meet have the time of the latest. A copy is under way
// for as long as many instructions run; a product takes some.
constexpr u64 copy_cycles = 1000, mma_cycles = 16;
TS_HOST u32 cycles() { return (u32)m.fibers[m.current].cycles; }
TS_HOST void wait_until(u64 cycles) {
  Fiber& f = m.fibers[m.current];
  if (f.cycles < cycles) f.cycles = cycles;
}

// A warp operation happens when all 32 lanes have arrived; the last one carries it out for all.
TS_HOST void collective(Collective kind, void* payload, void (*perform)(void* (&lane)[32])) {
  Warp& w = m.warps[m.current / 32];
  if (w.arrived && w.kind != kind) fail("lanes of one warp have diverged: they wait in different warp operations");
  w.kind = kind;
  m.fibers[m.current].payload = payload;
  if (++w.arrived < 32) return yield(State::at_warp);
  w.arrived = 0;
  int first = m.current / 32 * 32, self = m.current;
  void* lanes[32];
  u64 latest = 0;
  for (int i = 0; i < 32; ++i) {
    lanes[i] = m.fibers[first + i].payload;
    if (latest < m.fibers[first + i].cycles) latest = m.fibers[first + i].cycles;
  }
  for (int i = 0; i < 32; ++i) m.fibers[first + i].cycles = latest + (kind == Collective::mma ? mma_cycles : 1);
  perform(lanes);
  m.current = self;
  for (int i = 0; i < 32; ++i) m.fibers[first + i].state = State::ready;
}

TS_HOST u32 me() { return (u32)(m.block * m.threads + m.current) + 1; }

TS_HOST void touch(Shadow* s, u64 n, bool write, const char* where, u64 offset) {
  u32 id = me(), block = (u32)m.block + 1;
  if (write) ++m.clock;
  for (u64 i = 0; i < n; ++i, ++s) {
    if (s->writer && s->writer != id) {
      bool other = (s->writer - 1) / m.threads + 1 != block;
      if (other || s->written == m.epoch)
        fail("race on %s at byte %llu: %s here, written by %s %d without a barrier between", where, offset + i, write ? "written" : "read",
             other ? "program" : "thread", other ? (int)((s->writer - 1) / m.threads) : (int)((s->writer - 1) % m.threads));
    }
    if (write) {
      bool other = s->reader && s->readers_block != block;
      if (other || (s->reader && s->reader != id && s->read == m.epoch))
        fail("race on %s at byte %llu: written here, read by another %s without a barrier between", where, offset + i, other ? "program" : "thread");
      s->writer = id;
      s->written = m.epoch;
      s->order = m.clock;
    } else {
      s->readers_block = !s->reader || s->readers_block == block ? block : many;
      s->reader = s->reader && s->read == m.epoch && s->reader != id ? many : id;
      s->read = m.epoch;
    }
  }
}

TS_HOST void check_global(const void* p, u64 n, u64 align, bool write) {
  u64 a = (u64)p;
  for (int i = 0; i < m.n_regions; ++i) {
    const Region& r = m.regions[i];
    if (a < r.begin || a >= r.begin + r.size) continue;
    if (a + n > r.begin + r.size) fail("out of range: %llu bytes at byte %llu of %s, which has %llu", n, a - r.begin, r.name, r.size);
    if (a % align) fail("misaligned: %llu bytes at byte %llu of %s", n, a - r.begin, r.name);
    if (write && !r.writable) fail("written: %s, which the kernel does not declare as an output", r.name);
    return touch(m.region_shadows[i] + (a - r.begin), n, write, r.name, a - r.begin);
  }
  fail("out of range: %s %llu bytes that belong to no buffer", write ? "writes" : "reads", n);
}
TS_HOST void begin_scatter() { ++m.fibers[m.current].scatters; }
// Beyond the checks of every store: no two elements of one scatter, in any threads, may have one place.
TS_HOST void check_scatter(const void* p) {
  u64 a = (u64)p;
  for (int i = 0; i < m.n_regions; ++i) {
    const Region& r = m.regions[i];
    if (a < r.begin || a >= r.begin + r.size) continue;
    Shadow& s = m.region_shadows[i][a - r.begin];
    u32 now = m.fibers[m.current].scatters;
    if (s.scattered == now && (s.writer - 1) / m.threads == m.block)
      fail("Two elements of a scatter go to one place of %s: which one stays is not defined.", r.name);
    s.scattered = now;
  }
}
TS_HOST void check_shared(const void* p, u64 n, u64 align, bool write) {
  u64 offset = (u64)((const u8*)p - m.shared);
  if ((const u8*)p < m.shared || offset + n > m.shared_size) fail("out of range: %llu bytes at byte %lld of shared memory, which has %llu", n, (i64)offset, m.shared_size);
  if (offset % align) fail("misaligned: %llu bytes at byte %llu of shared memory", n, offset);
  for (u64 i = 0; i < n; ++i) {
    u8& state = m.shared_state[offset + i];
    if (state == 2) fail("shared memory at byte %llu is %s while an asynchronous copy into it is under way", offset + i, write ? "written" : "read");
    if (!write && state == 0) fail("shared memory at byte %llu is read before anything was written there", offset + i);
    if (write) state = 1;
  }
  touch(m.shared_shadow + offset, n, write, "shared memory", offset);
}

template <class T> inline T load_global(const T* p) {
  check_global(p, sizeof(T), alignof(T), false);
  T r;
  memcpy(&r, (const void*)p, sizeof r);
  return r;
}
template <class T> inline void store_global(T* p, T v) {
  check_global(p, sizeof(T), alignof(T), true);
  memcpy((void*)p, &v, sizeof v);
}
template <class T> inline void scatter_global(T* p, T v) {
  check_scatter(p);
  store_global(p, v);
}
template <class T> inline T load_shared(const T* p) {
  check_shared(p, sizeof(T), alignof(T), false);
  T r;
  memcpy(&r, (const void*)p, sizeof r);
  return r;
}
template <class T> inline void store_shared(T* p, T v) {
  check_shared(p, sizeof(T), alignof(T), true);
  memcpy((void*)p, &v, sizeof v);
}

TS_HOST void raise(u64* flag, u64 what) { if (*flag < what) *flag = what; }
TS_HOST void add_word(u64* word, u64 what) { *word += what; }
inline void add_shared(u32* sum, u32 what) { store_shared(sum, load_shared(sum) + what); }
TS_HOST u64 load_word(const u64* word) { return *word; }

TS_HOST void commit_async() { ++m.fibers[m.current].group; }
TS_HOST void land_async(int latest) {
  Fiber& f = m.fibers[m.current];
  int kept = 0;
  for (int i = 0; i < f.n_copies; ++i) {
    PendingCopy& c = f.copies[i];
    if (c.group >= f.group - latest) {
      f.copies[kept++] = c;
      continue;
    }
    wait_until(c.lands);
    memcpy(c.to, c.from, 16);
    memset(m.shared_state + (c.to - m.shared), 1, 16);
    ++m.clock;
    for (int b = 0; b < 16; ++b) {
      Shadow& s = m.shared_shadow[c.to - m.shared + b];
      s.written = m.epoch, s.order = m.clock;
    }
  }
  f.n_copies = kept;
}
template <int N> inline void wait_async() { land_async(N); }
TS_HOST void wait_all_async() {
  ++m.fibers[m.current].group;
  land_async(0);
}
TS_HOST void copy_async16(void* shared, const void* global) {
  check_global(global, 16, 16, false);
  check_shared(shared, 16, 16, true);
  if (arch < 800) {
    memcpy(shared, global, 16);
    return;
  }
  Fiber& f = m.fibers[m.current];
  if (f.n_copies == f.capacity) f.copies = (PendingCopy*)realloc(f.copies, sizeof(PendingCopy) * (f.capacity = f.capacity * 2 + 16));
  f.copies[f.n_copies++] = {(u8*)shared, (const u8*)global, f.group, f.cycles + copy_cycles};
  memset(m.shared_state + ((u8*)shared - m.shared), 2, 16);
}

template <class To, class From> inline To bits_as(From v) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the width");
  To r;
  memcpy(&r, &v, sizeof r);
  return r;
}

TS_HOST u16 f16_from(float x) {
  u32 b = bits_as<u32>(x), sign = b >> 16 & 0x8000u, mag = b & 0x7fffffffu;
  if (mag > 0x7f800000u) return 0x7fff;
  if (mag >= 0x477ff000u) return (u16)(sign | 0x7c00u);
  if (mag < 0x38800000u) return (u16)(sign | (u32)rintf(bits_as<float>(mag) * 16777216.0f));
  return (u16)(sign | ((mag + 0xfffu + (mag >> 13 & 1u) - 0x38000000u) >> 13));
}
TS_HOST float f16_to(u16 x) {
  u32 sign = (u32)(x & 0x8000) << 16, mag = x & 0x7fff;
  if (mag >= 0x7c00) return bits_as<float>(sign | 0x7f800000u | (mag & 0x3ff) << 13);
  float r = mag < 0x400 ? (float)mag * 5.9604644775390625e-8f : bits_as<float>((mag << 13) + 0x38000000u);
  return bits_as<float>(bits_as<u32>(r) | sign);
}
TS_HOST u16 bf16_from(float x) {
  u32 b = bits_as<u32>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
TS_HOST u32 f16_pair_from(float low, float high) { return f16_from(low) | (u32)f16_from(high) << 16; }
TS_HOST u32 bf16_pair_from(float low, float high) { return bf16_from(low) | (u32)bf16_from(high) << 16; }
template <class T> inline T max_nan(T a, T b) { return a != a || b != b ? a + b : a > b ? a : b > a ? b : __builtin_signbit(a) ? b : a; }
template <class T> inline T min_nan(T a, T b) { return a != a || b != b ? a + b : a < b ? a : b < a ? b : __builtin_signbit(a) ? a : b; }
TS_HOST u32 mul_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }

struct Shuffle { u32 value, result; int mask; };
TS_HOST u32 shuffle_xor(u32 v, int mask) {
  Shuffle s{v, 0, mask};
  collective(Collective::shuffle, &s, [](void* (&lane)[32]) {
    for (int i = 0; i < 32; ++i) {
      Shuffle* own = (Shuffle*)lane[i];
      own->result = ((Shuffle*)lane[(i ^ own->mask) & 31])->value;
    }
  });
  return s.result;
}

struct MatrixLoad { u32 (*r)[4]; const u8* row; bool transposed; };
TS_HOST void perform_ldmatrix(void* (&lane)[32]) {
  u16 rows[32][8];
  int first = m.current / 32 * 32;
  for (int i = 0; i < 32; ++i) {
    m.current = first + i;
    const u8* row = ((MatrixLoad*)lane[i])->row;
    check_shared(row, 16, 16, false);
    memcpy(rows[i], row, 16);
  }
  for (int i = 0; i < 32; ++i) {
    MatrixLoad* l = (MatrixLoad*)lane[i];
    for (int x = 0; x < 4; ++x) {
      int g = i / 4, q = i % 4 * 2;
      u16 low = l->transposed ? rows[x * 8 + q][g] : rows[x * 8 + g][q];
      u16 high = l->transposed ? rows[x * 8 + q + 1][g] : rows[x * 8 + g][q + 1];
      (*l->r)[x] = (u32)low | (u32)high << 16;
    }
  }
}
TS_HOST void ldmatrix_x4(u32 (&r)[4], const void* row) {
  MatrixLoad l{&r, (const u8*)row, false};
  collective(Collective::ldmatrix, &l, perform_ldmatrix);
}
TS_HOST void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
  MatrixLoad l{&r, (const u8*)row, true};
  collective(Collective::ldmatrix, &l, perform_ldmatrix);
}

template <int N> struct MatrixStore { u8* row; const u32 (*r)[N]; };
template <bool Transposed, int N> inline void perform_stmatrix(void* (&lane)[32]) {
  u16 rows[8 * N][8];
  for (int i = 0; i < 32; ++i)
    for (int x = 0; x < N; ++x)
      for (int h = 0; h < 2; ++h) {
        u16 e = (u16)((*((MatrixStore<N>*)lane[i])->r)[x] >> 16 * h);
        int g = i / 4, q = i % 4 * 2 + h;
        (Transposed ? rows[x * 8 + q][g] : rows[x * 8 + g][q]) = e;
      }
  int first = m.current / 32 * 32;
  for (int i = 0; i < 8 * N; ++i) {
    m.current = first + i;
    u8* row = ((MatrixStore<N>*)lane[i])->row;
    check_shared(row, 16, 16, true);
    memcpy(row, rows[i], 16);
  }
}
template <bool Transposed, int N> inline void stmatrix(void* row, const u32 (&r)[N]) {
  if (arch < 900) fail("stmatrix is for sm_90 and later");
  MatrixStore<N> s{(u8*)row, &r};
  collective(Collective::stmatrix, &s, perform_stmatrix<Transposed, N>);
}

TS_HOST u32 tf32_bits(u32 x) { return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0xfffu + (x >> 13 & 1u)) & ~0x1fffu; }

struct Mma { float (*d)[4]; const u32 (*a)[4]; const u32 (*b)[2]; };
// Products of m16n8kK; `value(word, half)` decodes an element. Halves = 2: 16-bit elements, 1: 32-bit.
template <int Halves, class Decode> inline void perform_mma(void* (&lane)[32], Decode value) {
  constexpr int K = 8 * Halves;
  float a[16][K], b[K][8];
  for (int i = 0; i < 32; ++i) {
    Mma* f = (Mma*)lane[i];
    int g = i / 4, q = i % 4;
    for (int x = 0; x < 4; ++x)
      for (int h = 0; h < Halves; ++h) a[g + x % 2 * 8][x / 2 * (K / 2) + q * Halves + h] = value((*f->a)[x], h);
    for (int x = 0; x < 2; ++x)
      for (int h = 0; h < Halves; ++h) b[x * (K / 2) + q * Halves + h][g] = value((*f->b)[x], h);
  }
  for (int i = 0; i < 32; ++i)
    for (int c = 0; c < 4; ++c) {
      double sum = (*((Mma*)lane[i])->d)[c];
      for (int k = 0; k < K; ++k) sum += (double)a[i / 4 + c / 2 * 8][k] * b[k][i % 4 * 2 + c % 2];
      (*((Mma*)lane[i])->d)[c] = (float)sum;
    }
}
TS_HOST void mma_f16_k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  Mma f{&d, &a, &b};
  collective(Collective::mma, &f, [](void* (&lane)[32]) { perform_mma<2>(lane, [](u32 w, int h) { return f16_to((u16)(w >> 16 * h)); }); });
}
TS_HOST void mma_bf16_k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  Mma f{&d, &a, &b};
  collective(Collective::mma, &f, [](void* (&lane)[32]) { perform_mma<2>(lane, [](u32 w, int h) { return bits_as<float>(w >> 16 * h << 16); }); });
}
TS_HOST void mma_tf32_k8(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  Mma f{&d, &a, &b};
  collective(Collective::mma, &f, [](void* (&lane)[32]) { perform_mma<1>(lane, [](u32 w, int) { return bits_as<float>(w & ~0x1fffu); }); });
}

TS_HOST u64 clock_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec;
}
TS_HOST u32 multiprocessor() { return 0; }

}  // namespace hw
}  // namespace tessera
#include "host_sm90.h"
namespace tessera {
namespace hw {

TS_HOST void start_block() {
  memset(m.shared, 0xff, m.shared_size);  // NaN, which shows if it is read
  memset(m.shared_state, 0, m.shared_size);
  memset((void*)m.shared_shadow, 0, sizeof(Shadow) * m.shared_size);
  memset(m.reached, 0, m.shared_size / 8 * 8);
  memset(m.warps, 0, sizeof m.warps);
  m.running = m.threads;
  ++m.epoch;
  for (int t = 0; t < m.threads; ++t) {
    Fiber& f = m.fibers[t];
    f.state = State::ready;
    f.started = false;
    f.n_copies = f.group = f.products_group = 0;
    f.scatters = 0;
    f.cycles = 0;
    f.fenced_at = 0;
    f.products_fenced = false;
    getcontext(&f.first);
    f.first.uc_stack.ss_sp = m.stacks + stack_bytes * t;
    f.first.uc_stack.ss_size = stack_bytes;
    f.first.uc_link = nullptr;
    makecontext(&f.first, fiber_main, 0);
    m.order[t] = t;
  }
  start_async();
}
// How many threads from `first` on are in a state.
TS_HOST int count(State state, int first, int end) {
  int n = 0;
  for (int t = first; t < end; ++t) n += m.fibers[t].state == state;
  return n;
}
// A barrier of the program's threads, none of which may have ended, or of all threads that have not ended.
TS_HOST bool pass_barrier() {
  int own = threads(), all = m.threads;
  State state = count(State::at_barrier, 0, own) == own ? State::at_barrier : State::at_block;
  if (state == State::at_block && count(state, 0, own) + count(state, own, all) + count(State::done, own, all) != all) return false;
  ++m.epoch;
  u64 latest = 0;
  for (int t = 0; t < all; ++t)
    if (m.fibers[t].state == state && latest < m.fibers[t].cycles) latest = m.fibers[t].cycles;
  for (int t = 0; t < all; ++t)
    if (m.fibers[t].state == state) m.fibers[t].state = State::ready, m.fibers[t].cycles = latest;
  return true;
}
[[noreturn]] TS_HOST void fail_stuck() {
  for (int t = 0; t < m.threads; ++t)
    if (m.fibers[t].state == State::at_mbarrier)
      fail("thread %d waits for the mbarrier at byte %u of shared memory, which nobody completes", t, shared_address(m.fibers[t].awaited));
  fail("%d of %d threads wait at a barrier that the others do not reach", count(State::at_barrier, 0, m.threads), m.threads);
}
// Seeds with special meanings: the first (or the last) warp runs as far as it can before any other.
constexpr u64 in_turn = 0, first_warp_ahead = 1, last_warp_ahead = 2;

TS_HOST void run_block(u64 seed) {
  start_block();
  bool ahead = seed == first_warp_ahead || seed == last_warp_ahead;
  while (m.running) {
    if (seed != in_turn && !ahead)
      for (int i = m.threads - 1; i > 0; --i) {
        int j = (int)draw(i + 1), x = m.order[i];
        m.order[i] = m.order[j];
        m.order[j] = x;
      }
    bool progress = false;
    int moved = -1;
    wake_waiting();
    for (int i = 0; i < m.threads; ++i) {
      int t = seed == last_warp_ahead ? m.threads - 1 - i : m.order[i];
      if (m.fibers[t].state != State::ready) continue;
      if (ahead && progress && t / 32 != moved) break;
      progress = true;
      moved = t / 32;
      resume(t);
    }
    if (progress && !(seed && draw(3) == 0)) continue;
    // While threads can run, copies land at moments drawn from the seed; otherwise when no thread can run. So a program that does
    // not wait for its copy is found.
    if (!progress && pass_barrier()) continue;
    if (async_.n_copies) land_copy((int)draw(async_.n_copies));
    else if (!progress && m.running) fail_stuck();
  }
  check_async_ended();
  for (int t = 0; t < m.threads; ++t)
    if (m.fibers[t].n_copies) fail("a program ended with asynchronous copies under way");
}

// Runs one launch. Returns 0, or 1 with a message and the return addresses of the failing place.
struct Launch {
  void (*kernel)(void**);
  void** args;
  const Region* regions;
  i64 n_regions, grid, threads, shared_size;
  u64 seed;  // 0: threads take turns in order; 1, 2: one warp ahead; else an order drawn from it
  char* message;
  i64 message_size;
  void** trace;
  i64 trace_size, traced;
};
TS_HOST int emulate(Launch* l) {
  memset((void*)&m, 0, sizeof m);
  m.threads = (int)l->threads;
  m.grid = l->grid;
  m.random = l->seed;
  m.shared_size = (u64)l->shared_size;
  m.shared = (u8*)aligned_alloc(1024, (m.shared_size + 2047) / 1024 * 1024);
  m.shared_state = (u8*)calloc(m.shared_size + 1, 1);
  m.reached = (u64*)calloc(m.shared_size / 8 + 1, 8);
  m.shared_shadow = (Shadow*)calloc(m.shared_size + 1, sizeof(Shadow));
  m.regions = l->regions;
  m.n_regions = (int)l->n_regions;
  m.region_shadows = (Shadow**)calloc(m.n_regions + 1, sizeof(Shadow*));
  for (int i = 0; i < m.n_regions; ++i) m.region_shadows[i] = (Shadow*)calloc(m.regions[i].size + 1, sizeof(Shadow));
  m.fibers = (Fiber*)calloc(m.threads, sizeof(Fiber));
  m.order = (int*)calloc(m.threads, sizeof(int));
  m.stacks = (u8*)mmap(nullptr, stack_bytes * m.threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  m.kernel = l->kernel;
  m.args = l->args;
  m.message = l->message;
  m.message_size = (int)l->message_size;
  m.trace = l->trace;
  m.trace_size = (int)l->trace_size;
  int failed = _setjmp(m.fault);
  if (!failed)
    for (m.block = 0; m.block < m.grid; ++m.block) run_block(l->seed);
  l->traced = m.traced;
  for (int t = 0; t < m.threads; ++t) free(m.fibers[t].copies);
  for (int i = 0; i < m.n_regions; ++i) free(m.region_shadows[i]);
  free_async();
  munmap(m.stacks, stack_bytes * m.threads);
  free(m.order), free(m.fibers), free(m.region_shadows), free(m.shared_shadow), free(m.shared_state), free(m.reached), free(m.shared);
  m.fibers = nullptr;
  return failed;
}

}  // namespace hw
}  // namespace tessera
#ifdef TS_COUNTS_CALLS  // the compiler has every function of a kernel's file call these; C's library has some of these names
#define TS_COUNTER extern "C" __attribute__((used, no_instrument_function)) void
TS_COUNTER __cyg_profile_func_enter(void*, void*) {
  if (tessera::hw::m.fibers) ++tessera::hw::m.fibers[tessera::hw::m.current].cycles;
}
TS_COUNTER __cyg_profile_func_exit(void*, void*) {}
#ifdef __ELF__
asm(".hidden __cyg_profile_func_enter\n.hidden __cyg_profile_func_exit");
#endif
#endif
