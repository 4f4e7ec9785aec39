// Tiles in shared memory, and the asynchronous copies that fill them.
#pragma once
#include "memory.cuh"

namespace tessera {

TS_FN void sync() { hw::sync(); }
// Waits for this program's asynchronous copies, then for all of its threads.
TS_FN void barrier() {
  hw::wait_all_async();
  hw::sync();
}

// A matrix of R x C. Pieces of 16 bytes are permuted within Swizzle bytes of a row (0: not at all), with a different xor for each
// of the rows that start in the same bank. targets/cuda/banks.py chooses 0, 32, 64 or 128.
template <class T, int R, int C, int Swizzle = 0> struct Shared {
  using type = T;
  static constexpr int rows = R, cols = C, piece = 16 / sizeof(T), pieces = C / piece;
  static constexpr bool whole_pieces = C % piece == 0;
  static constexpr int spread = Swizzle / 16, rows_per_line = pieces % 8 == 0 ? 1 : pieces % 4 == 0 ? 2 : pieces % 2 == 0 ? 4 : 8;
  static_assert(Swizzle == 0 || (whole_pieces && pieces % spread == 0), "a row is made of whole groups of pieces");
  T* data;
  TS_FN explicit Shared(int byte) : data(reinterpret_cast<T*>(hw::shared_memory() + byte)) {}
  // Neighbouring rows differ by two pieces: then the rows of ldmatrix touch every bank once, and so do two neighbouring
  // pieces of four rows (the words of 32-bit operands whose k runs across rows).
  static constexpr int turn(int r) { return r / rows_per_line * 2 % spread + r / rows_per_line % spread * 2 / spread; }
  TS_FN T* at(int r, int c) const {
    if constexpr (Swizzle) return data + r * C + ((c / piece ^ turn(r)) * piece + c % piece);
    else return data + r * C + c;
  }
};
// N shared tiles of one shape, for copies that run ahead of their use.
template <class T, int R, int C, int N, int Swizzle = 0> struct Stages {
  static constexpr int bytes = (R * C * (int)sizeof(T) + 127) / 128 * 128;
  int first;
  TS_FN explicit Stages(int byte) : first(byte) {}
  // 32 bits count the stages of any loop, and dividing them costs a fraction of dividing 64 bits.
  TS_FN Shared<T, R, C, Swizzle> operator[](idx stage) const { return Shared<T, R, C, Swizzle>(first + (int)((u32)stage % N) * bytes); }
};
// Closes the copies started so far as one stage.
TS_FN void commit() { hw::commit_async(); }
// Waits, in all threads, until at most `Latest` stages are in flight.
template <int Latest> TS_FN void wait_for_stage() {
  hw::wait_async<Latest>();
  hw::sync();
}

template <class S> struct Transposed {
  using type = typename S::type;
  static constexpr int rows = S::cols, cols = S::rows;
  S of;
};
template <class S> TS_FN Transposed<S> transposed(const S& s) { return {s}; }
template <class S> struct plain_ { using type = S; static constexpr bool transposed = false; };
template <class S> struct plain_<Transposed<S>> { using type = S; static constexpr bool transposed = true; };
template <class S> TS_FN const S& untransposed(const S& s) { return s; }
template <class S> TS_FN const S& untransposed(const Transposed<S>& s) { return s.of; }

template <class S, class L> constexpr int shared_vector = L::vector <= S::piece && S::piece % L::vector == 0 && S::cols % L::vector == 0 && L::cols == S::cols && S::cols % S::piece == 0 ? L::vector : 1;

// Whether a tile's registers are rows of 8 x 8 matrices: then four go to shared memory by one instruction. The mirror of
// Grouping.stored_by_matrices.
template <class S, class L> constexpr bool stored_by_matrices =
    hw::arch >= 900 && is_fragment<L> && sizeof(typename S::type) == 2 && L::rows % 16 == 0 && L::cols % 8 == 0 && L::Col::exact && S::rows == L::rows && S::cols == L::cols;
template <class S, class L> TS_FN void store_matrices(const S& s, const Tile<typename S::type, L>& x) {
  using P = Pack<typename S::type, 2>;
  constexpr bool turned = plain_<S>::transposed;
  constexpr int N = L::Col::Out;
  int lane = hw::thread() % 32, warp = hw::thread() - lane;
  TS_UNROLL for (int k = 0; k < L::size; k += 4) {
    int n = k / 4 % N;
    if (n % 2 || !L::holds(k, warp)) continue;
    int row = L::row(k, warp), col = n + 1 < N && lane >= 16 ? L::col(k + 4, warp) : L::col(k, warp);
    auto* at = turned ? untransposed(s).at(col + lane % 8, row + lane / 8 % 2 * 8) : untransposed(s).at(row + lane % 16, col);
    u32 r[4];
    TS_UNROLL for (int i = 0; i < (n + 1 < N ? 4 : 2); ++i) r[i] = hw::bits_as<u32>(P{x.v[k + 2 * i], x.v[k + 2 * i + 1]});
    if (n + 1 < N) hw::stmatrix<turned>(at, r);
    else hw::stmatrix<turned>(at, {r[0], r[1]});
  }
}

template <class S, class L> TS_FN void store_shared(const S& s, const Tile<typename S::type, L>& x) {
  int t = hw::thread();
  if (!L::owner(t)) return;
  if constexpr (stored_by_matrices<S, L>) {
    store_matrices(s, x);
  } else {
    using T = typename S::type;
    constexpr int V = shared_vector<S, L>;
    TS_UNROLL for (int k = 0; k < L::size; k += V) {
      if (!L::holds(k + V - 1, t)) continue;
      int p = L::row(k, t) * L::cols + L::col(k, t);
      Pack<T, V> pack;
      TS_UNROLL for (int u = 0; u < V; ++u) pack.e[u] = x.v[k + u];
      hw::store_shared(reinterpret_cast<Pack<T, V>*>(s.at(p / S::cols, p % S::cols)), pack);
    }
  }
}
template <class L, class S> TS_FN Tile<typename S::type, L> load_shared(const S& s) {
  using T = typename S::type;
  constexpr int V = shared_vector<S, L>;
  int t = hw::thread();
  Tile<T, L> r;
  TS_UNROLL for (int k = 0; k < L::size; k += V) {
    Pack<T, V> pack = {};
    int p = L::row(k, t) * L::cols + L::col(k, t);
    if (L::holds(k + V - 1, t)) pack = hw::load_shared(reinterpret_cast<const Pack<T, V>*>(s.at(p / S::cols, p % S::cols)));
    TS_UNROLL for (int u = 0; u < V; ++u) r.v[k + u] = pack.e[u];
  }
  return r;
}

// Starts copying the tile of `view` at `at` into `s`; elements outside the view arrive as 0. B is the tile's shape, A
// what is known of the access.
template <class B, class A, class S, class T, int R> TS_FN void copy_async(const S& s, const View<T, R>& view, const Offset<R>& at) {
  using E = typename S::type;
  constexpr int last = B::size(R - 1), V = last % S::piece == 0 && S::cols % S::piece == 0 ? S::piece : 1;
  constexpr int total = S::rows * S::cols / V;
  const E* base = view.data;
  TS_UNROLL for (int a = 0; a < R; ++a) base += at.at[a] * view.stride[a];
  for (int i = hw::thread(); i < total; i += hw::threads()) {
    int p = i * V, rest = p;
    idx offset = 0, end = 0, begin = 0;  // of the piece's elements, those from begin to end lie inside
    bool inside = true;
    TS_UNROLL for (int a = R - 1; a >= 0; --a) {
      int c = rest % B::size(a);
      rest /= B::size(a);
      offset += c * view.stride[a];
      if (A::edge(a) && !(a == R - 1 && A::before(a))) inside = inside && (u64)(at.at[a] + c) < (u64)view.shape[a];
      if (a == R - 1) end = A::edge(a) ? view.shape[a] - at.at[a] - c : V;
      if (a == R - 1 && A::before(a)) begin = -(at.at[a] + c);
    }
    E* to = s.at(p / S::cols, p % S::cols);
    const E* from = base + offset;
    bool whole = V > 1 && inside && begin <= 0 && end >= V;
    if (whole && ((A::aligned && aligned_to == 16) || (view.stride[R - 1] == 1 && (u64)from % 16 == 0))) {
      hw::copy_async16(to, from);
    } else if (whole && A::aligned) {
      constexpr int W = together_of<E, V>;
      TS_UNROLL for (int u = 0; u < V; u += W)
        hw::store_shared(reinterpret_cast<Pack<E, W>*>(to + u), hw::load_global(reinterpret_cast<const Pack<E, W>*>(from + u)));
    } else {
      TS_UNROLL for (int u = 0; u < V; ++u)
        hw::store_shared(to + u, inside && u >= begin && u < end ? hw::load_global(from + u * view.stride[R - 1]) : E(0));
    }
  }
}

}  // namespace tessera
