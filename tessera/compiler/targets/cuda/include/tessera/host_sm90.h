// The machine of device_sm90.cuh for the emulator; part of host.h. Tensor copies land and products happen as late as the
// program allows (or at moments drawn from the seed), so that a missing wait is found: as a read of memory that a
// copy is still filling, or as NaN in the accumulator.
#pragma once

namespace tessera {

// What steps.py writes in place of the driver's 128 opaque bytes; innermost dim first, strides and sizes as there.
struct alignas(64) TensorMap {
  u64 address, size[5], stride[4];  // stride[i]: bytes between neighbours along dim i + 1
  u32 box[5], rank, itemsize, line_bytes, rounds_to_tf32;  // line_bytes: 128, 64 or 32 of the swizzle
};
static_assert(sizeof(TensorMap) == 128, "a tensor map has 128 bytes");

namespace hw {

TS_HOST u32 shared_address(const void* p) { return (u32)((const u8*)p - m.shared); }
TS_HOST bool elect() { return m.current % 32 == 0; }
TS_HOST int uniform(int x) { return x; }
TS_HOST void sync_block() { yield(State::at_block); }
TS_HOST void sync_warp() { shuffle_xor(0, 0); }
template <int N> inline void give_up_registers() {}
template <int N> inline void take_registers() {}

// mbarriers (PTX ISA, "Size and alignment of mbarrier object"; what the 64 bits hold is ours)
struct Mbarrier { i32 tx; u8 count, pending, phase, magic; };
TS_HOST Mbarrier* mbarrier_at(u64* b) {
  check_shared(b, 8, 8, false);
  Mbarrier* x = (Mbarrier*)b;
  if (x->magic != 0xb7) fail("there is no initialised mbarrier at byte %u of shared memory", shared_address(b));
  return x;
}
TS_HOST void mbarrier_init(u64* b, u32 count) {
  check_shared(b, 8, 8, true);
  if (count < 1 || count > 255) fail("an mbarrier for %u arrivals", count);
  *(Mbarrier*)b = {0, (u8)count, (u8)count, 0, 0xb7};
}
TS_HOST void mbarrier_init_fence() {}
TS_HOST void mbarrier_settle(Mbarrier* x, u64 cycles) {
  u64& reached = m.reached[shared_address(x) / 8];
  if (reached < cycles) reached = cycles;
  if (x->pending || x->tx) return;
  x->phase ^= 1;
  x->pending = x->count;
}
TS_HOST void mbarrier_arrive_expect(u64* b, u32 bytes) {
  Mbarrier* x = mbarrier_at(b);
  if (!x->pending) fail("more arrivals than the mbarrier at byte %u of shared memory counts", shared_address(b));
  --x->pending;
  x->tx += (i32)bytes;
  mbarrier_settle(x, m.fibers[m.current].cycles);
}
TS_HOST void mbarrier_expect(u64* b, u32 bytes) { mbarrier_at(b)->tx += (i32)bytes; }
TS_HOST void mbarrier_arrive(u64* b) { mbarrier_arrive_expect(b, 0); }
TS_HOST void mbarrier_wait(u64* b, u32 parity) {
  Mbarrier* x = mbarrier_at(b);
  Fiber& f = m.fibers[m.current];
  while (x->phase == parity) {
    f.awaited = b;
    f.parity = parity;
    yield(State::at_mbarrier);
  }
  wait_until(m.reached[shared_address(b) / 8]);
}
TS_HOST void wake_waiting() {
  for (int t = 0; t < m.threads; ++t) {
    Fiber& f = m.fibers[t];
    if (f.state == State::at_mbarrier && ((Mbarrier*)f.awaited)->phase != f.parity) f.state = State::ready;
  }
}

// Tensor copies
struct TensorCopy { u8* to; const TensorMap* map; u64* barrier; i32 at[5]; int thread; u64 lands; };
struct Products;
struct Async {
  TensorCopy copies[256];
  int n_copies;
  Products* groups[8];  // per warpgroup
};
TS_HOST_STATE(Async, async_);

// Address bits 4 and up of as many pieces as a line has, xored with bits 7 and up.
TS_HOST u32 swizzled(u32 offset, u32 line_bytes) { return offset ^ (offset >> 7 & (line_bytes / 16 - 1)) << 4; }
TS_HOST u32 box_bytes(const TensorMap& t) {
  u32 n = t.itemsize;
  for (u32 d = 0; d < t.rank; ++d) n *= t.box[d];
  return n;
}
TS_HOST void prefetch_tensor_map(const TensorMap*) {}
template <int R> inline void copy_tensor(void* to, const TensorMap* map, u64* b, const i32 (&at)[R]) {
  u32 offset = shared_address(to), n = box_bytes(*map);
  if ((int)map->rank != R) fail("a tensor copy with %d coordinates of a tensor map of rank %u", R, map->rank);
  if (offset % (8 * map->line_bytes)) fail("misaligned: a tensor copy to byte %u of shared memory", offset);
  if (map->box[0] * map->itemsize != map->line_bytes) fail("lines of %u bytes in a swizzle of %u", map->box[0] * map->itemsize, map->line_bytes);
  if ((u64)offset + n > m.shared_size) fail("out of range: a tensor copy of %u bytes to byte %u of shared memory, which has %llu", n, offset, m.shared_size);
  if (async_.n_copies == 256) fail("more than 256 tensor copies under way");
  for (u32 i = offset; i < offset + n; ++i) {
    Shadow& s = m.shared_shadow[i];
    if (m.shared_state[i] == 2) fail("shared memory at byte %u is written while an asynchronous copy into it is under way", i);
    if (s.writer && s.writer != me() && s.written == m.epoch) fail("race on shared memory at byte %u: a tensor copy to what a thread has written without a barrier between", i);
    m.shared_state[i] = 2;
  }
  mbarrier_at(b);
  TensorCopy c = {(u8*)to, map, b, {}, m.current, m.fibers[m.current].cycles + copy_cycles};
  for (int d = 0; d < R; ++d) c.at[d] = at[d];
  async_.copies[async_.n_copies++] = c;
}
// One line of the box: the elements inside the tensor, zeros around them.
TS_HOST void land_line(const TensorMap& t, u64 source, bool inside, i64 first, u32 to) {
  for (u32 i = 0; i < t.box[0]; ++i) {
    u8 element[16] = {};
    i64 at = first + i;
    if (inside && at >= 0 && at < (i64)t.size[0]) {
      const u8* from = (const u8*)(source + at * t.itemsize);
      check_global(from, t.itemsize, t.itemsize, false);
      memcpy(element, from, t.itemsize);
      if (t.rounds_to_tf32) {
        u32 w;
        memcpy(&w, element, 4);
        w = tf32_bits(w);
        memcpy(element, &w, 4);
      }
    }
    u32 offset = to + i * t.itemsize;
    memcpy(m.shared + swizzled(offset, t.line_bytes), element, t.itemsize);
  }
}
TS_HOST void land_copy(int number) {
  TensorCopy c = async_.copies[number];
  async_.copies[number] = async_.copies[--async_.n_copies];
  const TensorMap& t = *c.map;
  int self = m.current;
  m.current = c.thread;
  u32 to = shared_address(c.to), lines = box_bytes(t) / (t.box[0] * t.itemsize);
  for (u32 line = 0; line < lines; ++line) {
    u64 source = t.address;
    u32 rest = line;
    bool inside = true;
    for (u32 d = 1; d < t.rank; ++d) {
      i64 at = c.at[d] + (i64)(rest % t.box[d]);
      rest /= t.box[d];
      inside = inside && at >= 0 && at < (i64)t.size[d];
      source += at * t.stride[d - 1];
    }
    land_line(t, source, inside, c.at[0], to + line * t.box[0] * t.itemsize);
  }
  u32 n = box_bytes(t);
  memset(m.shared_state + to, 1, n);
  memset((void*)(m.shared_shadow + to), 0, sizeof(Shadow) * n);
  Mbarrier* x = (Mbarrier*)c.barrier;
  x->tx -= (i32)n;
  mbarrier_settle(x, c.lands);
  m.current = self;
}
TS_HOST void fence_async_proxy() { m.fibers[m.current].fenced_at = m.clock; }

// Products of warpgroups
enum class Kind { f16, bf16, tf32, e4m3, e5m2 };
struct Accumulator { float* d; int n, last; bool used; float value[128]; };  // last: the latest commit group that writes it
struct Product {
  Kind kind;
  bool transposed_a, transposed_b, a_in_registers;
  int columns;
  u64 a, b;
  u32 registers[128][4];
  int accumulator[128], group;
};
struct Products {
  Product* queue;
  int n, capacity, arrived;
  void* payload[128];
  Accumulator accumulators[128][16];
};
TS_HOST Products& products() {
  Products*& p = async_.groups[m.current / 128];
  if (!p) p = (Products*)calloc(1, sizeof(Products));
  return *p;
}
TS_HOST int kind_bytes(Kind k) { return k == Kind::tf32 ? 4 : k == Kind::f16 || k == Kind::bf16 ? 2 : 1; }
TS_HOST float small_value(u8 x, int e, int mantissa) {  // fp8: no infinity in e4m3
  int sign = x >> 7, exponent = x >> mantissa & ((1 << e) - 1), low = x & ((1 << mantissa) - 1), bias = (1 << (e - 1)) - 1;
  if (e == 4 ? (x & 0x7f) == 0x7f : exponent == 31 && low) return NAN;
  if (e == 5 && exponent == 31) return sign ? -INFINITY : INFINITY;
  float v = exponent ? ldexpf((float)(low + (1 << mantissa)), exponent - bias - mantissa) : ldexpf((float)low, 1 - bias - mantissa);
  return sign ? -v : v;
}
TS_HOST float decoded(Kind kind, const u8* p) {
  u32 w = 0;
  memcpy(&w, p, kind_bytes(kind));
  switch (kind) {
    case Kind::f16: return f16_to((u16)w);
    case Kind::bf16: return bits_as<float>(w << 16);
    case Kind::tf32: return bits_as<float>(w & ~0x1fffu);
    case Kind::e4m3: return small_value((u8)w, 4, 3);
    default: return small_value((u8)w, 5, 2);
  }
}
// Element (i, k) of the matrix behind a descriptor; i counts along m or n (PTX ISA, "Matrix Descriptor Format", "Strides").
TS_HOST float element_at(u64 descriptor, Kind kind, bool transposed, int i, int k) {
  u32 start = (u32)(descriptor & 0x3fff) << 4, leading = (u32)(descriptor >> 16 & 0x3fff) << 4, stride = (u32)(descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 == 0 || descriptor >> 49 & 7) fail("only matrix descriptors with a swizzle and no base offset are modelled");
  u32 line_bytes = 256u >> (descriptor >> 62);
  int size = kind_bytes(kind), line = line_bytes / size;
  if (start % (8 * line_bytes) >= line_bytes) fail("a matrix that starts at byte %u of shared memory, inside a group of the swizzle", start);
  if (transposed && size != 2) fail("only 16-bit elements may lie with k outside");
  if (transposed && start % line_bytes) fail("a matrix with k outside that starts at byte %u of shared memory, inside a line", start);
  u32 offset = start + (transposed ? (u32)(i % line * size + i / line * (int)leading + k % 8 * (int)line_bytes + k / 8 * (int)stride)
                                   : (u32)(i % 8 * (int)line_bytes + i / 8 * (int)stride + k * size));
  offset = swizzled(offset, line_bytes);
  if ((u64)offset + size > m.shared_size) fail("out of range: wgmma reads byte %u of shared memory, which has %llu", offset, m.shared_size);
  for (int b = 0; b < size; ++b) {
    u8 state = m.shared_state[offset + b];
    if (state == 2) fail("wgmma reads shared memory at byte %u while an asynchronous copy into it is under way", offset + b);
    if (state == 0) fail("wgmma reads shared memory at byte %u before anything was written there", offset + b);
  }
  Shadow& s = m.shared_shadow[offset];
  if (s.writer) {  // by a thread, not by a tensor copy
    touch(&s, size, false, "shared memory", offset);
    if (m.fibers[(s.writer - 1) % m.threads].fenced_at < s.order)
      fail("wgmma reads shared memory at byte %u, which a thread wrote without fence.proxy.async behind it", offset);
  }
  return decoded(kind, m.shared + offset);
}
TS_HOST void perform(Products& g, const Product& p) {
  int K = 32 / kind_bytes(p.kind), first = m.current / 128 * 128;
  static float a[64][32], b[32][256];
  for (int i = 0; i < 64; ++i)
    for (int k = 0; k < K; ++k) {
      if (!p.a_in_registers) {
        a[i][k] = element_at(p.a, p.kind, p.transposed_a, i, k);
        continue;
      }
      int lane = i / 16 * 32 + i % 8 * 4 + k % 8 / 2;
      u16 half = (u16)(p.registers[lane][i % 16 / 8 + k / 8 * 2] >> 16 * (k % 2));
      a[i][k] = decoded(p.kind, (const u8*)&half);
    }
  for (int k = 0; k < K; ++k)
    for (int j = 0; j < p.columns; ++j) b[k][j] = element_at(p.b, p.kind, p.transposed_b, j, k);
  for (int t = 0; t < 128; ++t) {
    Accumulator& d = g.accumulators[t][p.accumulator[t]];
    if (!d.used) fail("thread %d has let go of an accumulator that a product still writes", first + t);
    for (int r = 0; r < p.columns / 2; ++r) {
      int i = t / 32 * 16 + t % 32 / 4 + r / 2 % 2 * 8, j = r / 4 * 8 + t % 4 * 2 + r % 2;
      double sum = d.value[r];
      for (int k = 0; k < K; ++k) sum += (double)a[i][k] * b[k][j];
      d.value[r] = (float)sum;
    }
  }
}
// Executes the products of the groups before `limit`, in order.
TS_HOST void perform_before(Products& g, int limit) {
  int done = 0;
  while (done < g.n && g.queue[done].group < limit) perform(g, g.queue[done++]);
  memmove(g.queue, g.queue + done, sizeof(Product) * (g.n - done));
  g.n -= done;
}

struct Issue { float* d; int columns; Kind kind; bool transposed_a, transposed_b; const u32* registers; u64 a, b; };
TS_HOST int accumulator_of(Products& g, int t, const Issue& i, int group) {
  Accumulator* free = nullptr;
  for (Accumulator& x : g.accumulators[t]) {
    if (!x.used && !free) free = &x;
    if (!x.used || x.d >= i.d + i.columns / 2 || i.d >= x.d + x.n) continue;
    if (x.d != i.d || x.n != i.columns / 2) fail("two products under way share part of an accumulator");
    for (int r = 0; r < x.n; ++r)
      if (bits_as<u32>(x.d[r]) != 0xffffffffu) fail("an accumulator was written while products into it are under way");
    x.last = group;
    return (int)(&x - g.accumulators[t]);
  }
  if (!free) fail("more than 16 accumulators under way");
  free->d = i.d, free->n = i.columns / 2, free->last = group, free->used = true;
  memcpy(free->value, i.d, sizeof(float) * free->n);
  memset(i.d, 0xff, sizeof(float) * free->n);  // NaN until the wait
  return (int)(free - g.accumulators[t]);
}
// An instruction of the warpgroup: executed when its 128 threads have arrived.
TS_HOST void issue(Issue i) {
  Products& g = products();
  Fiber& f = m.fibers[m.current];
  if (!f.products_fenced) fail("wgmma without wgmma.fence since the registers were last free");
  g.payload[m.current % 128] = &i;
  if (++g.arrived < 128) return yield(State::at_warp);
  g.arrived = 0;
  if (g.n == g.capacity) g.queue = (Product*)realloc(g.queue, sizeof(Product) * (g.capacity = g.capacity * 2 + 16));
  Product& p = g.queue[g.n++];
  p.kind = i.kind, p.transposed_a = i.transposed_a, p.transposed_b = i.transposed_b, p.a_in_registers = i.registers != nullptr;
  p.columns = i.columns, p.a = i.a, p.b = i.b, p.group = f.products_group;
  int first = m.current / 128 * 128;
  for (int t = 0; t < 128; ++t) {
    const Issue& x = *(const Issue*)g.payload[t];
    if (x.a != i.a || x.b != i.b || x.kind != i.kind || x.columns != i.columns) fail("threads of one warpgroup disagree on a wgmma instruction");
    p.accumulator[t] = accumulator_of(g, t, x, p.group);
    if (x.registers) memcpy(p.registers[t], x.registers, sizeof p.registers[t]);
    m.fibers[first + t].state = State::ready;
  }
}
template <Kind K, bool TransA, bool TransB, int R> inline void wgmma(float (&d)[R], u64 a, u64 b) {
  issue({d, R * 2, K, TransA, TransB, nullptr, a, b});
}
template <Kind K, bool TransB, int R> inline void wgmma(float (&d)[R], const u32 (&a)[4], u64 b) {
  issue({d, R * 2, K, false, TransB, a, 0, b});
}
TS_HOST u32 held(u32 x) { return x; }
template <int R> inline void wgmma_fence(float (&)[R]) { m.fibers[m.current].products_fenced = true; }
TS_HOST void wgmma_commit() { ++m.fibers[m.current].products_group; }
template <int N, int R> inline void wgmma_wait(float (&d)[R]) {
  Fiber& f = m.fibers[m.current];
  Products& g = products();
  int limit = f.products_group - N;
  perform_before(g, limit);
  f.products_fenced = N > 0;
  for (Accumulator& x : g.accumulators[m.current % 128]) {
    if (!x.used || x.last >= limit) continue;
    if (x.d < d || x.d + x.n > d + R) fail("wgmma.wait_group completes products into registers that it does not name");
    memcpy(x.d, x.value, sizeof(float) * x.n);
    x.used = false;
  }
}

TS_HOST void start_async() {
  async_.n_copies = 0;
  for (Products* g : async_.groups)
    if (g) {
      g->n = g->arrived = 0;
      memset((void*)g->accumulators, 0, sizeof g->accumulators);
    }
}
// At the end of a block: copies still in flight would write memory and registers of later blocks.
TS_HOST void check_async_ended() {
  if (async_.n_copies) fail("a program ended with tensor copies under way");
  for (Products* g : async_.groups)
    if (g && g->n) fail("a program ended with products under way");
}
TS_HOST void free_async() {
  for (Products*& g : async_.groups) {
    if (g) free(g->queue), free(g);
    g = nullptr;
  }
}

}  // namespace hw
}  // namespace tessera
