// The instructions of device_mma.cuh for the emulator.
#pragma once
#include "host.h"

namespace tessera {
namespace hw {

template <class D> struct Fragments { D (*d)[4]; const u32 (*a)[4]; const u32 (*b)[2]; };
// Words of 4 bytes (doubles: 8) with Per elements each: two down and, but for doubles, two along k; `value(registers, word,
// element)` decodes.
template <class D, class Wide, int Per, int Words, class Decode> inline void perform_wide(void* (&lane)[32], Decode value) {
  constexpr int K = 4 * Per * (Words / 2);
  Wide a[16][K], b[K][8];
  for (int i = 0; i < 32; ++i) {
    Fragments<D>* f = (Fragments<D>*)lane[i];
    int g = i / 4, q = i % 4;
    for (int h = 0; h < Per; ++h) {
      for (int x = 0; x < Words; ++x) a[g + x % 2 * 8][x / 2 * 4 * Per + q * Per + h] = value(&(*f->a)[0], x, h);
      for (int x = 0; x < Words / 2; ++x) b[x * 4 * Per + q * Per + h][g] = value(&(*f->b)[0], x, h);
    }
  }
  for (int i = 0; i < 32; ++i)
    for (int c = 0; c < 4; ++c) {
      D& d = (*((Fragments<D>*)lane[i])->d)[c];
      Wide sum = (Wide)d;
      for (int k = 0; k < K; ++k) sum += a[i / 4 + c / 2 * 8][k] * b[k][i % 4 * 2 + c % 2];
      d = (D)sum;
    }
}

// Value of an 8-bit float with `mantissa` bits of fraction; the one NaN of e4m3 is 0x7f, e5m2 has infinities.
TS_HOST double value_of_fp8(u8 bits, int mantissa) {
  int exponent = (bits & 0x7f) >> mantissa, fraction = bits & ((1 << mantissa) - 1), bias = mantissa == 3 ? 7 : 15;
  double r = exponent ? ldexp(1.0 + ldexp((double)fraction, -mantissa), exponent - bias) : ldexp((double)fraction, 1 - bias - mantissa);
  if (mantissa == 3 ? (bits & 0x7f) == 0x7f : exponent == 31) r = fraction && (mantissa == 2 || fraction == 7) ? (double)NAN : (double)INFINITY;
  return bits & 0x80 ? -r : r;
}

#define TS_HOST_MMA(name, D, Wide, Per, Words, decode)                              \
  TS_HOST void name(D (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {              \
    Fragments<D> f{&d, &a, &b};                                                      \
    collective(Collective::mma, &f, [](void* (&lane)[32]) {                         \
      perform_wide<D, Wide, Per, Words>(lane, [](const u32* r, int x, int h) { return (Wide)(decode); }); \
    });                                                                             \
  }
TS_HOST_MMA(mma_e4m3_k32, float, double, 4, 4, value_of_fp8((u8)(r[x] >> 8 * h), 3))
TS_HOST_MMA(mma_e5m2_k32, float, double, 4, 4, value_of_fp8((u8)(r[x] >> 8 * h), 2))
TS_HOST_MMA(mma_s8_k32, i32, i64, 4, 4, (i8)(r[x] >> 8 * h))
TS_HOST_MMA(mma_u8_k32, i32, i64, 4, 4, (u8)(r[x] >> 8 * h))
TS_HOST_MMA(mma_f64_k4, double, double, 1, 2, (h, bits_as<double>((u64)r[2 * x] | (u64)r[2 * x + 1] << 32)))
#undef TS_HOST_MMA

// Lanes 4q .. 4q+3 and those 16 further on multiply 8 x 4 by 4 x 8: lane % 4 + (lane / 16) * 4 is a lane's number among them.
struct Quarter { float (*d)[8]; u32 a[2], b[2]; };
template <bool RowsInside, bool ColumnsInside> inline void perform_quarters(void* (&lane)[32]) {
  float a[4][8][4], b[4][4][8];
  for (int i = 0; i < 32; ++i) {
    Quarter* f = (Quarter*)lane[i];
    int q = i / 4 % 4, own = i % 4, high = i / 16 * 4;
    for (int x = 0; x < 4; ++x) {
      float left = f16_to((u16)(f->a[x / 2] >> x % 2 * 16)), right = f16_to((u16)(f->b[x / 2] >> x % 2 * 16));
      (RowsInside ? a[q][high + x][own] : a[q][high + own][x]) = left;
      (ColumnsInside ? b[q][own][high + x] : b[q][x][high + own]) = right;
    }
  }
  for (int i = 0; i < 32; ++i)
    for (int c = 0; c < 8; ++c) {
      int q = i / 4 % 4, row = i % 2 + (c & 2) + i / 16 * 4, column = (c & 4) + (i & 2) + c % 2;
      double sum = (*((Quarter*)lane[i])->d)[c];
      for (int k = 0; k < 4; ++k) sum += (double)a[q][row][k] * b[q][k][column];
      (*((Quarter*)lane[i])->d)[c] = (float)sum;
    }
}
template <bool RowsInside, bool ColumnsInside> inline void mma_f16_k4(float (&d)[8], u32 a0, u32 a1, u32 b0, u32 b1) {
  if (arch >= 750) fail("products of m8n8k4 are for sm_70");
  Quarter f{&d, {a0, a1}, {b0, b1}};
  collective(Collective::mma, &f, perform_quarters<RowsInside, ColumnsInside>);
}

TS_HOST u32 scale_f16x2(u32 x) {
  return (u32)f16_from(f16_to((u16)x) * 256.0f) | (u32)f16_from(f16_to((u16)(x >> 16)) * 256.0f) << 16;
}

}  // namespace hw
}  // namespace tessera
