// The machine under NVRTC: every instruction that the library uses and that C++ has no expression for.
// host.h implements the same names for the emulator; nothing above this file contains PTX.
#pragma once

#define TS_FN __forceinline__
#define TS_UNROLL _Pragma("unroll")
#define TS_ROLLED _Pragma("unroll 1")

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

constexpr int arch = __CUDA_ARCH__;

// A block runs one tile program, or several one after the other. Threads are numbered along x; the grid is linear.
TS_FN int thread() { return threadIdx.x; }
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
// The program's threads in a block that has a producer warp: a power of two. Their barrier excludes the producer.
TS_FN int threads() { return 1 << (31 - __clz(blockDim.x)); }
TS_FN void sync() { asm volatile("bar.sync 1, %0;" ::"r"(threads()) : "memory"); }
#else
TS_FN int threads() { return blockDim.x; }
TS_FN void sync() { __syncthreads(); }
#endif
TS_FN idx block() { return blockIdx.x; }
TS_FN idx blocks() { return gridDim.x; }

TS_FN u32 shuffle_xor(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }

extern __shared__ __align__(1024) u8 dynamic_shared[];
TS_FN u8* shared_memory() { return dynamic_shared; }

template <class To, class From> TS_FN To bits_as(From v) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the width");
  To r;
  memcpy(&r, &v, sizeof r);
  return r;
}

// Elements that fill a word move together: the compiler does not join two elements of 2 bytes.
template <class T, int Bytes> struct word_ { using type = T; };
template <class T> struct word_<T, 4> { using type = u32; };
template <class T> struct word_<T, 8> { using type = u64; };
template <class T> using word = typename word_<T, alignof(T) == sizeof(T) ? sizeof(T) : 0>::type;
template <class T> TS_FN T load_global(const T* p) { return bits_as<T>(*reinterpret_cast<const word<T>*>(p)); }
template <class T> TS_FN void store_global(T* p, T v) { *reinterpret_cast<word<T>*>(p) = bits_as<word<T>>(v); }
TS_FN void begin_scatter() {}
template <class T> TS_FN void scatter_global(T* p, T v) { *p = v; }
template <class T> TS_FN T load_shared(const T* p) { return bits_as<T>(*reinterpret_cast<const word<T>*>(p)); }
template <class T> TS_FN void store_shared(T* p, T v) { *reinterpret_cast<word<T>*>(p) = bits_as<word<T>>(v); }

// A flag that any thread may raise: the highest stays.
TS_FN void raise(u64* flag, u64 what) { atomicMax((unsigned long long*)flag, (unsigned long long)what); }
// Words that all programs share.
TS_FN void add_word(u64* word, u64 what) { atomicAdd((unsigned long long*)word, (unsigned long long)what); }
TS_FN u64 load_word(const u64* word) { return *(const volatile u64*)word; }

// A sum that one thread of a block has in shared memory.
TS_FN void add_shared(u32* sum, u32 what) { atomicAdd(sum, what); }

TS_FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Asynchronous copy of 16 bytes from global to shared memory; it has landed after wait_async.
TS_FN void copy_async16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
#else
  *reinterpret_cast<uint4*>(shared) = *reinterpret_cast<const uint4*>(global);
#endif
}
// Copies issued since the last commit become one group; wait_async<N> waits until at most the N latest are in flight.
TS_FN void commit_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> TS_FN void wait_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
TS_FN void wait_all_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

TS_FN u16 f16_from(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
TS_FN float f16_to(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
TS_FN u16 bf16_from(float x) {
#if __CUDA_ARCH__ >= 800
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  u32 b = bits_as<u32>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
}

// Two floats rounded by one instruction, the first in the lower half.
#if __CUDA_ARCH__ >= 800
TS_FN u32 f16_pair_from(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TS_FN u32 bf16_pair_from(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
#else
TS_FN u32 f16_pair_from(float low, float high) { return f16_from(low) | (u32)f16_from(high) << 16; }
TS_FN u32 bf16_pair_from(float low, float high) { return bf16_from(low) | (u32)bf16_from(high) << 16; }
#endif

// The larger and the smaller of two floats; NaN if either is NaN; +0 is larger than -0.
TS_FN float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a != a || b != b ? a + b : fmaxf(a, b);
#endif
}
TS_FN float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a != a || b != b ? a + b : fminf(a, b);
#endif
}
TS_FN double max_nan(double a, double b) { return a != a || b != b ? a + b : fmax(a, b); }
TS_FN double min_nan(double a, double b) { return a != a || b != b ? a + b : fmin(a, b); }

TS_FN u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }

// Matrices of eight 16-byte rows, spread over the warp as operands of mma (PTX ISA, ldmatrix).
TS_FN void ldmatrix_x4(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
TS_FN void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
// Stores N such matrices; the first 8 N lanes point to their rows (PTX ISA, stmatrix).
template <bool Transposed, int N> TS_FN void stmatrix(void* row, const u32 (&r)[N]) {
#if __CUDA_ARCH__ >= 900
  static_assert(N == 2 || N == 4, "two or four matrices");
#define TS_STMATRIX(kind, registers, ...) \
  asm volatile("stmatrix.sync.aligned.m8n8." kind ".shared.b16 [%0], " registers ";" ::"r"(shared_address(row)), __VA_ARGS__ : "memory")
  if constexpr (N == 4 && Transposed) TS_STMATRIX("x4.trans", "{%1, %2, %3, %4}", "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]));
  else if constexpr (N == 4) TS_STMATRIX("x4", "{%1, %2, %3, %4}", "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]));
  else if constexpr (Transposed) TS_STMATRIX("x2.trans", "{%1, %2}", "r"(r[0]), "r"(r[1]));
  else TS_STMATRIX("x2", "{%1, %2}", "r"(r[0]), "r"(r[1]));
#undef TS_STMATRIX
#endif
}

// A float rounded to the precision of tf32, ties to even as tensor copies (TMA) of TFLOAT32 do and all dtypes here; cvt.rna
// would round them away from zero.
TS_FN u32 tf32_bits(u32 x) {
#if __CUDA_ARCH__ >= 900
  u32 r;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(r) : "f"(bits_as<float>(x)));
  return r;
#else
  return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0xfffu + (x >> 13 & 1u)) & ~0x1fffu;
#endif
}

// d += a @ b on the tensor cores; fragments as in the PTX ISA, mma.m16n8k*.
TS_FN void mma_f16_k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}
TS_FN void mma_bf16_k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
TS_FN void mma_tf32_k8(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

TS_FN u64 clock_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
// No access to memory moves across a reading.
TS_FN u32 cycles() {
  u32 t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
TS_FN u32 multiprocessor() {
  u32 id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

}  // namespace hw
}  // namespace tessera
