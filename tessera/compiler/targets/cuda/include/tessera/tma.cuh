// Tiles that tensor copies fill and wgmma reads: lines of 128 bytes (64 or 32 if a tile is not a multiple of that), in groups
// of eight whose 16-byte pieces are permuted. Both instructions, and `at` here, xor the number of a piece within
// its line with address bits 7 and up.
#pragma once
#include "barrier.cuh"
#include "shared.cuh"

namespace tessera {

// A matrix of R x C at a multiple of 1024 bytes, with room for PR x PC, in lines of at most Widest bytes. Lines of further
// columns follow as further boxes.
template <class T, int R, int C, int PR = R, int PC = C, int Widest = 128> struct Swizzled {
  using type = T;
  static constexpr int rows = R, cols = C, padded_rows = PR, padded_cols = PC, piece = 16 / (int)sizeof(T), row = PC * (int)sizeof(T);
  static constexpr int line_bytes = Widest >= 128 && row % 128 == 0 ? 128 : Widest >= 64 && row % 64 == 0 ? 64 : 32, line = line_bytes / (int)sizeof(T);
  static constexpr int boxes = PC / line, box_bytes = PR * line_bytes, bytes = boxes * box_bytes;
  static constexpr bool whole_pieces = true;
  static_assert(PR % 8 == 0 && PC % line == 0, "whole groups of whole lines");
  int first;
  TS_FN explicit Swizzled(int byte) : first(byte) {}
  TS_FN static constexpr int offset(int r, int c) { return c / line * box_bytes + r * line_bytes + c % line * (int)sizeof(T); }
  TS_FN T* at(int r, int c) const {
    int byte = offset(r, c);
    return reinterpret_cast<T*>(hw::shared_memory() + first + (byte ^ (byte >> 7 & (line_bytes / 16 - 1)) << 4));
  }
  // Starts to fill it, padding included, from the tensor at (row, col); `outer` are the coordinates of its matrix in a batch.
  template <class... Outer> TS_FN void fetch(const TensorMap& map, u64* full, idx row, idx col, Outer... outer) const {
    TS_UNROLL for (int i = 0; i < boxes; ++i) {
      i32 at[] = {(i32)(col + i * line), (i32)row, (i32)outer...};
      hw::copy_tensor(hw::shared_memory() + first + i * box_bytes, &map, full, at);
    }
  }
  // Writes zeros beyond R x C, once for tiles that threads fill: products read whole groups.
  TS_FN void clear_padding() const {
    for (int i = hw::thread(); i < PR * PC; i += hw::threads())
      if (i / PC >= R || i % PC >= C) hw::store_shared(at(i / PC, i % PC), T(0.0f));
  }
  // The matrix descriptor (PTX ISA, "Matrix Descriptor Format"): address, leading and stride offset in units of 16 bytes,
  // swizzle. Where k runs along the lines, groups of eight rows are the stride apart and the leading offset is not used;
  // where it runs across them, groups of eight k are, and the next lines of one k are a box away.
  template <bool Along> TS_FN u64 descriptor() const {
    u32 address = hw::shared_address(hw::shared_memory() + first);
    return (u64)((address & 0x3ffff) >> 4) | (u64)(Along ? 1 : box_bytes >> 4) << 16 | (u64)(8 * line_bytes >> 4) << 32 |
           (u64)(line_bytes == 128 ? 1 : line_bytes == 64 ? 2 : 3) << 62;
  }
};
// N tiles of one kind, for copies that run ahead of their use.
template <class S, int N> struct Slots {
  static constexpr int bytes = S::bytes;
  int first;
  TS_FN explicit Slots(int byte) : first(byte) {}
  TS_FN S operator[](idx stage) const { return S(first + (int)((u32)stage % N) * bytes); }
  TS_FN void clear_padding() const {
    TS_UNROLL for (int i = 0; i < N; ++i) (*this)[i].clear_padding();
  }
};

// Makes what this thread wrote to shared memory visible to products after the next barrier.
TS_FN void publish() { hw::fence_async_proxy(); }
// barrier() and wait_for_stage() where threads copy what products read.
TS_FN void publish_barrier() {
  hw::wait_all_async();
  publish();
  hw::sync();
}
template <int Latest> TS_FN void publish_stage() {
  hw::wait_async<Latest>();
  publish();
  hw::sync();
}

// Tensor copies outside pipelines: one mbarrier, which ends a phase at each barrier of the block.
struct Copies {
  u64* landed;
  u32 parity = 0;
  TS_FN explicit Copies(int byte) : landed(reinterpret_cast<u64*>(hw::shared_memory() + byte)) {}
  // All threads call this once.
  TS_FN void start() const {
    if (hw::thread() == 0) {
      hw::mbarrier_init(landed, 1);
      hw::mbarrier_init_fence();
    }
    hw::sync_block();
  }
  // Announces `bytes`; copies report to the mbarrier that this returns.
  TS_FN u64* expect(u32 bytes) const {
    hw::mbarrier_expect(landed, bytes);
    return landed;
  }
  // Waits for all copies, by tensor or by thread, and for all threads.
  TS_FN void barrier() {
    hw::wait_all_async();
    publish();
    if (is_first()) hw::mbarrier_arrive(landed);
    hw::mbarrier_wait(landed, parity);
    parity ^= 1;
    hw::sync();
  }
};

}  // namespace tessera
