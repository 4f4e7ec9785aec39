// Products on sm_70's tensor cores. Each fourth of a warp (lanes 4q .. 4q+3 and those 16 further on) multiplies 8 x 4 by
// 4 x 8 values; all four share the operand b, so that a warp gives 32 x 8. Fragments as in the PTX ISA, "Matrix Fragments
// for mma.m8n8k4", which takes operands in either order: values that are neighbours in memory are read together.
#pragma once
#include "shared.cuh"
#include "device_mma.cuh"

namespace tessera {

template <class L> constexpr bool is_quarters = L::Row::t0 == 2;

// N neighbours in a row of a shared tile, as registers.
template <int N, class S, int R> TS_FN void load_row(u32 (&r)[R], const S& s, int row, int col) {
  using T = typename S::type;
  Pack<T, N> pack = hw::load_shared(reinterpret_cast<const Pack<T, N>*>(s.at(row, col)));
  memcpy(r, &pack, sizeof pack);
}
// Eight values of k for one row (column) of an operand per lane, or, where k runs down the stored tile, for four. `at`:
// where this lane's rows (columns) start.
template <class S> TS_FN void load_eight(u32 (&r)[4], const S& s, bool k_inside, int at, int k) {
  if (k_inside) return load_row<8>(r, s, at, k);
  TS_UNROLL for (int step = 0; step < 2; ++step) {
    u32 four[2];
    load_row<4>(four, s, k + step * 4 + hw::thread() % 4, at);
    r[2 * step] = four[0], r[2 * step + 1] = four[1];
  }
}

template <class A, class B, class L> TS_FN void mma_quarters(Tile<float, L>& acc, const A& a, const B& b) {
  constexpr bool rows_inside = plain_<A>::transposed, columns_inside = !plain_<B>::transposed;
  constexpr int M = L::Row::Out, N = L::Col::Out / 2, down = L::Row::t2 / 2;
  int lane = hw::thread() % 32, warp = hw::thread() / 32, first = warp % down * 32, across = warp / down % L::Col::t2;
  TS_UNROLL for (int k = 0; k < A::cols; k += 8) {
    u32 left[M][4], right[4];
    TS_UNROLL for (int m = 0; m < M; ++m)
      load_eight(left[m], untransposed(a), !rows_inside, m * 32 * down + first + (rows_inside ? lane / 4 * 4 : lane), k);
    TS_UNROLL for (int n = 0; n < N; ++n) {
      int column = ((2 * n + lane / 16) * L::Col::t2 + across) * 4;
      load_eight(right, untransposed(b), !columns_inside, columns_inside ? column : column + lane % 4, k);
      TS_UNROLL for (int m = 0; m < M; ++m)
        TS_UNROLL for (int step = 0; step < 4; step += 2) {
          float(&d)[8] = *reinterpret_cast<float(*)[8]>(&acc.v[(m * N + n) * 8]);
          hw::mma_f16_k4<rows_inside, columns_inside>(d, left[m][step], left[m][step + 1], right[step], right[step + 1]);
        }
    }
  }
}

}  // namespace tessera
