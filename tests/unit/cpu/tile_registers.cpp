// What AMX's instructions do, in order and with their roundings, for normal numbers: code that names these functions
// instead runs on any processor. The registers are those of one thread.
#include <cmath>
#include <cstdint>
#include <cstring>

static unsigned char config[64], registers[8][1024];
static bool configured;

static int rows(int t) { return config[48 + t]; }
static int width(int t) { return config[16 + 2 * t]; }
template <class T> static T *row(int t, int i) { return reinterpret_cast<T *>(registers[t] + 64 * i); }
static float widened(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

template <class A, class B> static void bytes(int d, int a, int b) {
  for (int m = 0; m < rows(d); m++)
    for (int n = 0; n < width(d) / 4; n++)
      for (int k = 0; k < width(a); k++)
        row<uint32_t>(d, m)[n] += uint32_t(int(row<A>(a, m)[k]) * int(row<B>(b, k / 4)[4 * n + k % 4]));
}

extern "C" {
void soft_ldtilecfg(const void *p) {
  std::memcpy(config, p, 64);
  std::memset(registers, 0, sizeof registers);
  configured = true;
}
void soft_tilerelease() { configured = false; }
void soft_tilezero(int8_t t) { std::memset(registers[t], configured ? 0 : 255, 1024); }
void soft_tileloadd64(int8_t t, const char *p, int64_t stride) {
  for (int i = 0; configured && i < rows(t); i++) std::memcpy(registers[t] + 64 * i, p + i * stride, width(t));
}
void soft_tilestored64(int8_t t, char *p, int64_t stride) {
  for (int i = 0; configured && i < rows(t); i++) std::memcpy(p + i * stride, registers[t] + 64 * i, width(t));
}
void soft_tdpbf16ps(int8_t d, int8_t a, int8_t b) {
  for (int m = 0; m < rows(d); m++)
    for (int n = 0; n < width(d) / 4; n++) {
      float even = 0, odd = 0;
      for (int k = 0; k < width(a) / 4; k++) {
        even = std::fmaf(widened(row<uint16_t>(a, m)[2 * k]), widened(row<uint16_t>(b, k)[2 * n]), even);
        odd = std::fmaf(widened(row<uint16_t>(a, m)[2 * k + 1]), widened(row<uint16_t>(b, k)[2 * n + 1]), odd);
      }
      row<float>(d, m)[n] += even + odd;
    }
}
void soft_tdpbssd(int8_t d, int8_t a, int8_t b) { bytes<int8_t, int8_t>(d, a, b); }
void soft_tdpbsud(int8_t d, int8_t a, int8_t b) { bytes<int8_t, uint8_t>(d, a, b); }
void soft_tdpbusd(int8_t d, int8_t a, int8_t b) { bytes<uint8_t, int8_t>(d, a, b); }
void soft_tdpbuud(int8_t d, int8_t a, int8_t b) { bytes<uint8_t, uint8_t>(d, a, b); }
}
