// The instructions of device_scaled.cuh for the emulator. Sums are exact, where the hardware keeps fewer bits.
#pragma once
#include "numeric.cuh"

namespace tessera {
namespace hw {

struct ScaledFragments { float (*d)[4]; const u32 (*a)[4]; const u32 (*b)[2]; u32 a_scale, b_scale; };

template <class T> inline double small_value(u8 bits) {
  T x;
  x.bits = bits;
  return (double)(float)x;
}
// The element at place `at` of a register: in a byte, where fp4 lies in the middle, or in half of one.
template <class T, int Per> inline double packed_value(u32 word, int at) {
  if constexpr (Per == 8) return small_value<T>((u8)(word >> 4 * at & 15));
  u8 byte = (u8)(word >> 8 * at);
  if (same<T, fp4_e2m1>) return small_value<T>((u8)(byte >> 2 & 15));
  return small_value<T>(same<T, fp6_e2m3> || same<T, fp6_e3m2> ? (u8)(byte & 63) : byte);
}
template <class Scale> inline double scale_value(u32 word, int block) {
  u8 bits = (u8)(word >> 8 * block);
  return small_value<Scale>(same<Scale, fp8_e4m3> ? (u8)(bits & 127) : bits);
}

template <class A, class B, class Scale, int Per> inline void perform_scaled(void* (&lane)[32]) {
  constexpr int K = 8 * Per, block = same<Scale, fp8_e8m0> ? 32 : 16;
  double a[16][K], b[K][8];
  for (int i = 0; i < 32; ++i) {
    ScaledFragments* f = (ScaledFragments*)lane[i];
    int g = i / 4, q = i % 4;
    for (int h = 0; h < Per; ++h) {
      for (int x = 0; x < 4; ++x) a[g + x % 2 * 8][x / 2 * 4 * Per + q * Per + h] = packed_value<A, Per>((*f->a)[x], h);
      for (int x = 0; x < 2; ++x) b[x * 4 * Per + q * Per + h][g] = packed_value<B, Per>((*f->b)[x], h);
    }
  }
  for (int k = 0; k < K; ++k) {
    for (int r = 0; r < 16; ++r) a[r][k] *= scale_value<Scale>(((ScaledFragments*)lane[r % 8 * 4 + r / 8])->a_scale, k / block);
    for (int n = 0; n < 8; ++n) b[k][n] *= scale_value<Scale>(((ScaledFragments*)lane[n * 4])->b_scale, k / block);
  }
  for (int i = 0; i < 32; ++i)
    for (int c = 0; c < 4; ++c) {
      float& d = (*((ScaledFragments*)lane[i])->d)[c];
      double sum = d;
      for (int k = 0; k < K; ++k) sum += a[i / 4 + c / 2 * 8][k] * b[k][i % 4 * 2 + c % 2];
      d = (float)sum;
    }
}

template <class A, class B> inline void mma_scaled_k32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 a_scale, u32 b_scale) {
  ScaledFragments f{&d, &a, &b, a_scale, b_scale};
  collective(Collective::mma, &f, perform_scaled<A, B, fp8_e8m0, 4>);
}
template <class Scale> inline void mma_scaled_k64(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 a_scale, u32 b_scale) {
  ScaledFragments f{&d, &a, &b, a_scale, b_scale};
  collective(Collective::mma, &f, perform_scaled<fp4_e2m1, fp4_e2m1, Scale, 8>);
}

}  // namespace hw
}  // namespace tessera
