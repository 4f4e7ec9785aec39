// Sums of products in the order of language/order.py: chains of products, groups of chains, and groups, each in ascending
// order. Adding to -0 changes no value, so that the first of them needs no code of its own.
#pragma once
#include "reduce.cuh"
#include "memory.cuh"

namespace tessera {

constexpr int chain_length = 128, group_length = 16, span = chain_length * group_length;  // those of order.py

template <class X> TS_FN X multiply_add(X x, X y, X z) {
  if constexpr (is_float<X> || is_small<X>) return scalar::fma(x, y, z);
  else return scalar::add(z, scalar::mul(x, y));
}

// The sum of the chains that have ended. `Many`: there may be several groups.
template <class X, class L, bool Many> struct Sums {
  Tile<X, L> group = full<L>(Sum::identity<X>()), total = full<L>(Sum::identity<X>());
  // The products before `k`, of `size`, have been added: stores `chain` if it ends there.
  TS_FN void reach(Tile<X, L>& chain, idx k, idx size) {
    if (k % chain_length != 0 && k < size) return;
    TS_UNROLL for (int i = 0; i < L::size; ++i) group.v[i] = scalar::add(group.v[i], chain.v[i]), chain.v[i] = X(0);
    if constexpr (Many) {
      if (k % span != 0 && k < size) return;
      TS_UNROLL for (int i = 0; i < L::size; ++i) total.v[i] = scalar::add(total.v[i], group.v[i]), group.v[i] = Sum::identity<X>();
    }
  }
  TS_FN Tile<X, L> result(idx size) const {
    if (size == 0) return full<L>(X(0));
    if constexpr (Many) return total;
    else return group;
  }
};

// One row of a times one column of b: a chain to each thread. `scratch`: shared memory for one X of each.
template <class X, class A, class B> TS_FN X inner_product(const View<A, 2>& a, idx row, const View<B, 2>& b, idx col) {
  X* scratch = reinterpret_cast<X*>(hw::shared_memory());
  const A* left = a.data + row * a.stride[0];
  const B* right = b.data + col * b.stride[1];
  int t = hw::thread(), n = hw::threads();
  idx size = a.shape[1];
  X total = Sum::identity<X>();
  for (idx first = 0; first < size; first += (idx)n * chain_length) {
    idx k = first + (idx)t * chain_length, end = imin(k + chain_length, size);
    X chain = X(0);
    for (; k < end; ++k)
      chain = multiply_add(cast<X>(hw::load_global(left + k * a.stride[1])), cast<X>(hw::load_global(right + k * b.stride[0])), chain);
    int chains = (int)imin((size - first + chain_length - 1) / chain_length, n), groups = steps_(chains, group_length);
    hw::sync();
    hw::store_shared(scratch + t, chain);
    hw::sync();
    X group = Sum::identity<X>();
    for (int i = t * group_length; i < chains && i < (t + 1) * group_length; ++i) group = scalar::add(group, hw::load_shared(scratch + i));
    hw::sync();
    hw::store_shared(scratch + t, group);
    hw::sync();
    for (int g = 0; g < groups; ++g) total = scalar::add(total, hw::load_shared(scratch + g));
  }
  return size == 0 ? X(0) : total;
}

}  // namespace tessera
