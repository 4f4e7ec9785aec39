// Products that multiply by scales of blocks (sm_120f); host_scaled.h implements the same names for the emulator. Fragments as
// in the PTX ISA, "Matrix Fragments for mma.m16n8k32" and "mma.m16n8k64". The scales of row r of `a` come from lane
// r % 8 * 4 + r / 8, those of column n of `b` from lane n * 4: byte-id and thread-id 0 ("Block Scaling for mma.sync").
#pragma once
#ifdef __CUDACC_RTC__
#include "numeric.cuh"

namespace tessera {
namespace hw {

#define TS_MMA_SCALED(shape, kind, a_type, b_type, scale)                                                                 \
  asm volatile("mma.sync.aligned." shape ".row.col.kind::" kind ".f32." a_type "." b_type ".f32." scale                   \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, 0};"                     \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scale), "r"(b_scale))

// 32 of k, one scale in fp8_e8m0: elements in bytes, fp6 in the lower six bits and fp4 in the middle four.
template <class A, class B> TS_FN void mma_scaled_k32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 a_scale, u32 b_scale) {
#define TS_PAIR(B_, a_type, b_type) \
  if constexpr (same<B, B_>) TS_MMA_SCALED("m16n8k32", "mxf8f6f4.block_scale.scale_vec::1X", a_type, b_type, "ue8m0")
#define TS_ROW(A_, a_type)                      \
  if constexpr (same<A, A_>) {                  \
    TS_PAIR(fp8_e4m3, a_type, "e4m3");          \
    TS_PAIR(fp8_e5m2, a_type, "e5m2");          \
    TS_PAIR(fp6_e2m3, a_type, "e2m3");          \
    TS_PAIR(fp6_e3m2, a_type, "e3m2");          \
    TS_PAIR(fp4_e2m1, a_type, "e2m1");          \
  }
  TS_ROW(fp8_e4m3, "e4m3")
  TS_ROW(fp8_e5m2, "e5m2")
  TS_ROW(fp6_e2m3, "e2m3")
  TS_ROW(fp6_e3m2, "e3m2")
  TS_ROW(fp4_e2m1, "e2m1")
#undef TS_ROW
#undef TS_PAIR
}
// 64 of k, two to a byte: two scales in fp8_e8m0, or four in fp8_e4m3, whose signs it does not see.
template <class Scale> TS_FN void mma_scaled_k64(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 a_scale, u32 b_scale) {
  if constexpr (same<Scale, fp8_e8m0>) TS_MMA_SCALED("m16n8k64", "mxf4nvf4.block_scale.scale_vec::2X", "e2m1", "e2m1", "ue8m0");
  else TS_MMA_SCALED("m16n8k64", "mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "e2m1", "ue4m3");
}
#undef TS_MMA_SCALED

}  // namespace hw
}  // namespace tessera
#else
#include "host_scaled.h"
#endif
