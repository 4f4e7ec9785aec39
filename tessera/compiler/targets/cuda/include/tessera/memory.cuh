// Views of global memory, and copies between them and tiles. Elements outside a view read as a fill value
// and are not written, so ragged edges need no code of their own.
#pragma once
#include "tile.cuh"

namespace tessera {

// The alignment of arrays in bytes. Arrays with less alignment get code of their own (targets/cuda/narrow.py).
#ifndef TS_ALIGNED_TO
#define TS_ALIGNED_TO 16
#endif
constexpr int aligned_to = TS_ALIGNED_TO;
// How many of V neighbours one access moves under this alignment.
template <class T, int V> constexpr int together_of = V * (int)sizeof(T) <= aligned_to ? V : aligned_to >= (int)sizeof(T) ? aligned_to / (int)sizeof(T) : 1;

template <class T, int R> struct View {
  T* data;
  idx shape[R ? R : 1];   // elements
  idx stride[R ? R : 1];  // elements
};
template <int R> struct Offset { idx at[R ? R : 1]; };

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T e[N]; };

TS_FN idx program() { return hw::block(); }
// The number of the program that runs as the n-th, if `rows` rows of each matrix of programs run together, column by column.
TS_FN idx grouped(idx n, idx down, idx across, idx rows) {
  idx within = n % (down * across), first = within / (rows * across) * rows;
  idx high = imin(down - first, rows), rest = within - first * across;
  return n - within + (first + rest % high) * across + rest / high;
}

// A view, or a window of one: the caller gives sizes and strides of the axes that are kept.
template <int R2, class T, int R> TS_FN View<T, R2> window(const View<T, R>& v, const Offset<R>& at, const Offset<R2>& shape, const Offset<R2>& stride) {
  View<T, R2> w;
  idx p = 0;
  TS_UNROLL for (int a = 0; a < R; ++a) p += at.at[a] * v.stride[a];
  w.data = v.data + p;
  TS_UNROLL for (int a = 0; a < R2; ++a) { w.shape[a] = shape.at[a]; w.stride[a] = stride.at[a]; }
  return w;
}

template <class T> TS_FN View<T, 2> swap_axes(const View<T, 2>& v) { return {v.data, {v.shape[1], v.shape[0]}, {v.stride[1], v.stride[0]}}; }
// The view cut off where a tile of `size` at `at` ends: for tiles that are walked in chunks.
template <class T, int R> TS_FN View<T, R> clip(View<T, R> v, const Offset<R>& at, const Offset<R>& size) {
  TS_UNROLL for (int a = 0; a < R; ++a) v.shape[a] = imin(v.shape[a], at.at[a] + size.at[a]);
  return v;
}

struct Everywhere { TS_FN bool operator[](int) const { return true; } };
template <class M> struct Where {
  const M& mask;
  TS_FN bool operator[](int k) const { return element(mask, k); }
};
template <class M> TS_FN Where<M> where_mask(const M& mask) { return {mask}; }

// What is known about an access: the axes along which the tile may cross the view's edge, and whether vectors of the
// layout are contiguous and aligned. If nothing is known, every axis may, and each vector is tested. Axis + BEFORE: one
// along which it may also start before the view.
constexpr int BEFORE = 8;
template <bool Aligned_, int... Edge> struct Access {
  static constexpr bool aligned = Aligned_;
  static constexpr bool edge(int axis) { return ((axis == Edge || axis + BEFORE == Edge) || ...); }
  static constexpr bool before(int axis) { return ((axis + BEFORE == Edge) || ...); }
};
template <int... Edge> using Aligned = Access<true, Edge...>;
template <int... Edge> using Unaligned = Access<false, Edge...>;

// Calls vector(k, address) for registers k .. k+V-1 that are neighbours in memory and aligned, else single(k, address,
// inside) for each.
template <class B, class L, class A, int V, class T, int R, class Mask, class Vector, class Single>
TS_FN void visit(const View<T, R>& view, const Offset<R>& at, Mask mask, Vector vector, Single single) {
  constexpr int last = R ? R - 1 : 0;
  int t = hw::thread();
  T* base = view.data;
  TS_UNROLL for (int a = 0; a < R; ++a) base += at.at[a] * view.stride[a];
  TS_UNROLL for (int k = 0; k < L::size; k += V) {
    Coordinates<B::rank> c = locate<B, L>(L::row(k, t), L::col(k, t));
    idx p = 0, i = R ? at.at[last] + c.at[last] : 0;
    bool inside = L::holds(k, t);
    TS_UNROLL for (int a = 0; a < R; ++a) {
      p += c.at[a] * view.stride[a];
      if (a < last && A::edge(a)) inside = inside && (u64)(at.at[a] + c.at[a]) < (u64)view.shape[a];
    }
    if constexpr (V > 1) {
      static_assert(B::size(B::rank - 1) % V == 0, "a vector lies in one row");
      bool whole = inside && (!A::edge(last) || (i >= 0 && i <= view.shape[last] - V));
      bool together = A::aligned || (view.stride[last] == 1 && (u64)(base + p) % (sizeof(T) * V) == 0);
      TS_UNROLL for (int u = 0; u < V; ++u) whole = whole && mask[k + u];
      if (whole && together) vector(k, base + p);
      else if constexpr (A::edge(last) || !A::aligned || !same<Mask, Everywhere>) {
        TS_UNROLL for (int u = 0; u < V; ++u)
          single(k + u, base + p + u * view.stride[last], inside && mask[k + u] && L::holds(k + u, t) && (u64)(i + u) < (u64)view.shape[last]);
      } else {
        TS_UNROLL for (int u = 0; u < V; ++u) single(k + u, base, false);
      }
    } else {
      single(k, base + p, inside && mask[k] && (!R || !A::edge(last) || (u64)i < (u64)view.shape[last]));
    }
  }
}

template <class L, class B> constexpr int vector_width = B::rank > 0 && B::size(B::rank ? B::rank - 1 : 0) % L::vector == 0 ? L::vector : 1;

template <class L, class B, class A, class T, int R, class Mask = Everywhere>
TS_FN Tile<bare<T>, L> load(const View<T, R>& view, const Offset<R>& at, bare<T> fill, Mask mask = {}) {
  using E = bare<T>;
  constexpr int V = together_of<E, vector_width<L, B>>;
  Tile<E, L> r;
  visit<B, L, A, V>(view, at, mask,
      [&](int k, T* p) {
        auto pack = hw::load_global(reinterpret_cast<const Pack<E, V>*>(p));
        TS_UNROLL for (int u = 0; u < V; ++u) r.v[k + u] = pack.e[u];
      },
      [&](int k, T* p, bool inside) { r.v[k] = inside ? hw::load_global((const E*)p) : fill; });
  return r;
}
template <class B, class A, class T, class L, int R, class Mask = Everywhere>
TS_FN void store(const View<T, R>& view, const Tile<T, L>& x, const Offset<R>& at, Mask mask = {}) {
  constexpr int V = together_of<T, vector_width<L, B>>;
  if (!L::owner(hw::thread())) return;
  visit<B, L, A, V>(view, at, mask,
      [&](int k, T* p) {
        Pack<T, V> pack;
        TS_UNROLL for (int u = 0; u < V; ++u) pack.e[u] = x.v[k + u];
        hw::store_global(reinterpret_cast<Pack<T, V>*>(p), pack);
      },
      [&](int k, T* p, bool inside) { if (inside) hw::store_global(p, x.v[k]); });
}

// One element, for all threads; one thread stores it.
template <class T, int R> TS_FN bare<T> load_scalar(const View<T, R>& view, const Offset<R>& at, bare<T> fill, bool mask = true) {
  idx p = 0;
  TS_UNROLL for (int a = 0; a < R; ++a) {
    p += at.at[a] * view.stride[a];
    mask = mask && (u64)at.at[a] < (u64)view.shape[a];
  }
  return mask ? hw::load_global((const bare<T>*)(view.data + p)) : fill;
}
template <class T, int R> TS_FN void store_scalar(const View<T, R>& view, T x, const Offset<R>& at, bool mask = true) {
  idx p = 0;
  TS_UNROLL for (int a = 0; a < R; ++a) {
    p += at.at[a] * view.stride[a];
    mask = mask && (u64)at.at[a] < (u64)view.shape[a];
  }
  if (mask && hw::thread() == 0) hw::store_global(view.data + p, x);
}

// Elementwise access at computed indices, one index (tile or scalar) per axis; negative ones do not wrap around.
template <class L, class T, int R, class Mask, class... I>
TS_FN Tile<bare<T>, L> gather(const View<T, R>& view, bare<T> fill, Mask mask, const I&... index) {
  Tile<bare<T>, L> r;
  int t = hw::thread();
  TS_UNROLL for (int k = 0; k < L::size; ++k) {
    idx i[] = {(idx)element(index, k)..., 0}, p = 0;
    bool inside = L::holds(k, t) && mask[k];
    TS_UNROLL for (int a = 0; a < R; ++a) {
      inside = inside && (u64)i[a] < (u64)view.shape[a];
      p += i[a] * view.stride[a];
    }
    r.v[k] = inside ? hw::load_global((const bare<T>*)(view.data + p)) : fill;
  }
  return r;
}
template <class T, int R, class X, class L, class Mask, class... I>
TS_FN void scatter(const View<T, R>& view, const Tile<X, L>& x, idx rows_left, idx cols_left, Mask mask, const I&... index) {
  int t = hw::thread();
  if (!L::owner(t)) return;
  hw::begin_scatter();
  TS_UNROLL for (int k = 0; k < L::size; ++k) {
    idx i[] = {(idx)element(index, k)..., 0}, p = 0;
    bool inside = L::holds(k, t) && mask[k] && L::row(k, t) < rows_left && L::col(k, t) < cols_left;
    TS_UNROLL for (int a = 0; a < R; ++a) {
      inside = inside && (u64)i[a] < (u64)view.shape[a];
      p += i[a] * view.stride[a];
    }
    if (inside) hw::scatter_global(view.data + p, x.v[k]);
  }
}

}  // namespace tessera
