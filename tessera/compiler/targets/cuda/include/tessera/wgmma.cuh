// Products of warpgroups (sm_90a): operands in shared memory, four warps to 64 rows of the accumulator, which each warp
// holds as mma.m16n8 accumulators side by side. Products run while the program goes on; k ascends 16 (8, 32) at a time
// through one accumulator, for any tile.
#pragma once
#include "tma.cuh"

namespace tessera {

template <class T> constexpr hw::Kind wgmma_kind = same<T, f16> ? hw::Kind::f16 : same<T, bf16> ? hw::Kind::bf16 : same<T, tf32> ? hw::Kind::tf32
                                                  : same<T, fp8_e4m3> ? hw::Kind::e4m3 : hw::Kind::e5m2;
template <class T> constexpr int wgmma_k = 32 / (int)sizeof(T);

// One step of k for the columns from Col on, in the widest instructions that fit.
template <class A, class B, int Col, int Regs> TS_FN void products_across(float (&d)[Regs], u64 a, u64 b, int k) {
  constexpr int left = Regs * 2 - Col;
  constexpr int N = left >= 256 ? 256 : left >= 128 ? 128 : left >= 64 ? 64 : left >= 32 ? 32 : left >= 16 ? 16 : 8;
  float(&part)[N / 2] = *reinterpret_cast<float(*)[N / 2]>(&d[Col / 2]);
  hw::wgmma<wgmma_kind<typename A::type>, !A::k_major, !B::k_major>(part, a, b + B::advance(Col, k));
  if constexpr (left > N) products_across<A, B, Col + N>(d, a, b, k);
}

// Starts acc += a @ b for one slot of both operands. The accumulator must be left alone until finish_products.
template <class L, class A, class B> TS_FN void start_products(Tile<float, L>& acc, const A& a, const B& b, int slot) {
  constexpr int groups = L::Row::t1 / 4, M = L::Row::Out, regs = L::Col::Out * 4;
  static_assert(L::Row::t0 == 8 && L::Row::t1 % 4 == 0 && L::Col::t2 == 1, "warpgroups hold whole rows");
  static_assert(A::rows >= 64 * groups * M && B::rows >= 8 * L::Col::Out && A::depth == B::depth, "stages hold the tile");
  int group = groups > 1 ? hw::uniform(hw::thread() / 128) : 0;
  u64 left = a.descriptor(slot) + A::advance(64, 0) * group, right = b.descriptor(slot);
  hw::wgmma_fence();
  TS_UNROLL for (int k = 0; k < A::depth; k += wgmma_k<typename A::type>)
    TS_UNROLL for (int m = 0; m < M; ++m) {
      float(&d)[regs] = *reinterpret_cast<float(*)[regs]>(&acc.v[m * regs]);
      products_across<A, B, 0>(d, left + A::advance(m * groups * 64, k), right, k);
    }
  hw::wgmma_commit();
}
// Waits until at most the Latest latest starts are under way: what came before has read its slot.
template <int Latest, class L> TS_FN void finish_products(Tile<float, L>& acc) { hw::wgmma_wait<Latest>(acc.v); }

}  // namespace tessera
