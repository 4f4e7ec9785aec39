// Combines elements in shared memory in pairs, along an axis of N elements that are `Stride` apart in C order.
#pragma once
#include "tile.cuh"

namespace tessera {

// One step of language/order.py: `count` pairs in each of `Lines` lines, spread over the threads.
template <int N, int Stride, int Lines, class F> TS_FN void combine_pairs(F combine, int first, int apart, int count) {
  for (int job = hw::thread(); job < count * Lines; job += hw::threads()) {
    int line = job % Lines, left = first + job / Lines * 2 * apart;
    int start = line / Stride * N * Stride + line % Stride;
    combine(start + left * Stride, start + (left + apart) * Stride);
  }
  hw::sync();
}

}  // namespace tessera
