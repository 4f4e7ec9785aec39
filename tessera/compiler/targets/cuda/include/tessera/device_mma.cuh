// Tensor-core products of 8-bit floats, 8-bit integers, doubles and, on sm_70, f16; host_mma.h implements the same names for the
// emulator. Fragments as in the PTX ISA, "Matrix Fragments for mma.m16n8k32" and "mma.m8n8k4 with .f64".
#pragma once
#ifdef __CUDACC_RTC__
#include "device.cuh"

namespace tessera {
namespace hw {

// Four products of 8 x 4 by 4 x 8, for sm_70. Whether a's rows, and b's columns, are neighbours in the registers.
#if __CUDA_ARCH__ < 750
#define TS_MMA_K4(order)                                                                                                  \
  asm volatile("mma.sync.aligned.m8n8k4." order ".f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, "        \
               "{%0,%1,%2,%3,%4,%5,%6,%7};"                                                                               \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])           \
               : "r"(a0), "r"(a1), "r"(b0), "r"(b1))
template <bool RowsInside, bool ColumnsInside> TS_FN void mma_f16_k4(float (&d)[8], u32 a0, u32 a1, u32 b0, u32 b1) {
  if constexpr (RowsInside && ColumnsInside) TS_MMA_K4("col.row");
  else if constexpr (RowsInside) TS_MMA_K4("col.col");
  else if constexpr (ColumnsInside) TS_MMA_K4("row.row");
  else TS_MMA_K4("row.col");
}
#undef TS_MMA_K4
#else
template <bool RowsInside, bool ColumnsInside> TS_FN void mma_f16_k4(float (&)[8], u32, u32, u32, u32) {}
#endif

#if __CUDA_ARCH__ >= 890
#define TS_MMA_FP8(name, kind)                                                                                            \
  TS_FN void name(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                                  \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." kind "." kind                                                   \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                             \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                     \
  }
TS_MMA_FP8(mma_e4m3_k32, "e4m3")
TS_MMA_FP8(mma_e5m2_k32, "e5m2")
#undef TS_MMA_FP8
#else
// Below sm_89 these instructions do not exist: mma.cuh multiplies as f16, which represents every 8-bit float.
TS_FN void mma_e4m3_k32(float (&)[4], const u32 (&)[4], const u32 (&)[2]) {}
TS_FN void mma_e5m2_k32(float (&)[4], const u32 (&)[4], const u32 (&)[2]) {}
#endif

// Two f16, times 256.
TS_FN u32 scale_f16x2(u32 x) {
  u32 r;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(0x5c005c00u));
  return r;
}

#if __CUDA_ARCH__ >= 800
#define TS_MMA_I8(name, kind)                                                                                             \
  TS_FN void name(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                                    \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." kind "." kind                                                   \
                 ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                             \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                     \
  }
#else
#define TS_MMA_I8(name, kind)                                                                                             \
  TS_FN void name##_8x8(i32& d0, i32& d1, u32 a, u32 b) {                                                                 \
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32." kind "." kind ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};"               \
                 : "+r"(d0), "+r"(d1) : "r"(a), "r"(b));                                                                  \
  }                                                                                                                       \
  TS_FN void name(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                                    \
    TS_UNROLL for (int x = 0; x < 4; ++x) name##_8x8(d[x % 2 * 2], d[x % 2 * 2 + 1], a[x], b[x / 2]);                     \
  }
#endif
TS_MMA_I8(mma_s8_k32, "s8")
TS_MMA_I8(mma_u8_k32, "u8")
#undef TS_MMA_I8

// Two products of 8 x 4 by 4 x 8: rows 0-7 with the first double of `a`, rows 8-15 with the second.
TS_FN void mma_f64_k4(double (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  TS_UNROLL for (int x = 0; x < 2; ++x)
    asm volatile("{\n.reg .f64 a, b;\nmov.b64 a, {%2, %3};\nmov.b64 b, {%4, %5};\n"
                 "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {a}, {b}, {%0,%1};\n}"
                 : "+d"(d[x * 2]), "+d"(d[x * 2 + 1]) : "r"(a[x * 2]), "r"(a[x * 2 + 1]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace hw
}  // namespace tessera
#else
#include "host_mma.h"
#endif
