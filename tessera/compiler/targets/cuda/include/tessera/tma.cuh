// Stages that tensor copies fill and wgmma reads: 128-byte lines, eight to a 1024-byte group in which 16-byte pieces
// change places (the 128-byte swizzle of both instructions: address bits 4-6 are xored with bits 7-9).
#pragma once
#include "barrier.cuh"

namespace tessera {

// Where an operand's neighbours in memory lie.
enum class Major { k, mn };

// N stages of an operand with Rows positions along m or n (whole groups) and Depth along k. Major::k: a line holds the
// whole depth of one row. Major::mn: a line holds one k of as many rows as fit; further rows follow as further blocks.
template <class T, int Rows, int Depth, int N, Major M> struct TensorStages {
  using type = T;
  static constexpr bool k_major = M == Major::k;
  static constexpr int rows = Rows, depth = Depth, line = 128 / (int)sizeof(T);
  static constexpr int boxes = k_major ? 1 : Rows / line, box_bytes = 128 * (k_major ? Rows : Depth), bytes = boxes * box_bytes;
  static_assert(k_major ? Depth == line && Rows % 8 == 0 && Rows <= 256 : Rows % line == 0 && Depth % 8 == 0, "stages are whole lines");
  int first;
  TS_FN explicit TensorStages(int byte) : first(byte) {}
  // Starts filling a slot from the operand at (row, k); `outer` are the coordinates of its matrix among several.
  template <class... Outer> TS_FN void fetch(int slot, const TensorMap& map, u64* full, idx row, idx k, Outer... outer) const {
    u8* to = hw::shared_memory() + first + slot * bytes;
    TS_UNROLL for (int i = 0; i < boxes; ++i) {
      i32 at[] = {(i32)(k_major ? k : row + i * line), (i32)(k_major ? row : k), (i32)outer...};
      hw::copy_tensor(to + i * box_bytes, &map, full, at);
    }
  }
  // The matrix descriptor of a slot (PTX ISA, "Matrix Descriptor Format"): address, leading and stride offset in units of
  // 16 bytes, 128-byte swizzle. Major::k: groups of eight rows are 1024 bytes apart, and the leading offset is not used.
  // Major::mn: groups of eight k are 1024 bytes apart, lines of the next rows a box.
  TS_FN u64 descriptor(int slot) const {
    u32 address = hw::shared_address(hw::shared_memory() + first + slot * bytes);
    return (u64)((address & 0x3ffff) >> 4) | (u64)(k_major ? 1 : box_bytes >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
  }
  // What to add to it for the part that starts at (row, k).
  TS_FN static constexpr u64 advance(int row, int k) {
    int offset = k_major ? row * 128 + k * (int)sizeof(T) : row / line * box_bytes + row % line * (int)sizeof(T) + k * 128;
    return (u64)(offset >> 4);
  }
};

}  // namespace tessera
