// Element types that C++ lacks. Memory holds these bits; arithmetic is done in float and rounded back.
#pragma once
#ifdef __CUDACC_RTC__
#include "device.cuh"
#else
#include "host.h"
#endif

namespace tessera {

template <class A, class B> struct same_ { static constexpr bool value = false; };
template <class A> struct same_<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool same = same_<A, B>::value;
template <bool C, class A, class B> struct choose_ { using type = A; };
template <class A, class B> struct choose_<false, A, B> { using type = B; };
template <bool C, class A, class B> using choose = typename choose_<C, A, B>::type;
template <bool C, class T = void> struct when_ {};
template <class T> struct when_<true, T> { using type = T; };
template <bool C, class T = void> using when = typename when_<C, T>::type;
template <class T> struct bare_ { using type = T; };
template <class T> struct bare_<const T> { using type = T; };
template <class T> using bare = typename bare_<T>::type;

TS_FN float infinity() { return hw::bits_as<float>(0x7f800000u); }
TS_FN float nan_f32() { return hw::bits_as<float>(0x7fffffffu); }
TS_FN double nan_f64() { return hw::bits_as<double>(0x7fffffffffffffffull); }

// Bits of a float with E exponent and M mantissa bits, nearest even. `Finite` formats have no infinity and saturate;
// fp8_e5m2 has one but saturates as well, as the hardware's conversions do. NaN becomes 0 where there is none.
template <int E, int M, u32 Max, u32 NaN> TS_FN u8 small_from(float x) {
  u32 b = hw::bits_as<u32>(x), sign = (b >> 31) << (E + M), mag = b & 0x7fffffffu;
  if (mag > 0x7f800000u) return (u8)(NaN == Max ? 0 : (sign | NaN));
  constexpr int bias = (1 << (E - 1)) - 1;
  int e = (int)(mag >> 23) - 127;  // of the leading bit
  if (e < 1 - bias) {              // subnormal: one unit is 2**(1 - bias - M)
    float unit = hw::bits_as<float>((u32)(127 + 1 - bias - M) << 23);
    float scaled = hw::bits_as<float>(mag) / unit;  // exact: a power of two
    return (u8)(sign | (u32)rintf(scaled));
  }
  u32 rounded = mag + ((1u << (22 - M)) - 1u) + ((mag >> (23 - M)) & 1u);
  u32 bits = (rounded >> (23 - M)) - ((u32)(127 - bias) << M);
  return (u8)(sign | (bits > Max ? Max : bits));
}
template <int E, int M, u32 Max, u32 NaN, u32 Inf> TS_FN float small_to(u8 v) {
  u32 mag = v & ((1u << (E + M)) - 1u), sign = (u32)(v >> (E + M)) << 31;
  constexpr int bias = (1 << (E - 1)) - 1;
  if (NaN > Max && mag >= NaN) return nan_f32();
  if (mag == Inf) return hw::bits_as<float>(sign | 0x7f800000u);
  float r = mag < (1u << M) ? (float)mag * hw::bits_as<float>((u32)(127 + 1 - bias - M) << 23)
                            : hw::bits_as<float>((mag << (23 - M)) + ((u32)(127 - bias) << 23));
  return hw::bits_as<float>(hw::bits_as<u32>(r) | sign);
}

struct f16 {
  u16 bits;
  f16() = default;
  TS_FN explicit f16(float x) : bits(hw::f16_from(x)) {}
  TS_FN operator float() const { return hw::f16_to(bits); }
};
struct bf16 {
  u16 bits;
  bf16() = default;
  TS_FN explicit bf16(float x) : bits(hw::bf16_from(x)) {}
  TS_FN operator float() const { return hw::bits_as<float>((u32)bits << 16); }
};
// A float whose last 13 mantissa bits are zero.
struct tf32 {
  float value;
  tf32() = default;
  TS_FN explicit tf32(float x) : value(hw::bits_as<float>(hw::tf32_bits(hw::bits_as<u32>(x)))) {}
  TS_FN operator float() const { return value; }
};
#define TS_SMALL(name, E, M, MAX, NAN_, INF_)                                  \
  struct name {                                                                \
    u8 bits;                                                                   \
    name() = default;                                                          \
    TS_FN explicit name(float x) : bits(small_from<E, M, MAX, NAN_>(x)) {}     \
    TS_FN operator float() const { return small_to<E, M, MAX, NAN_, INF_>(bits); } \
  };
TS_SMALL(fp8_e4m3, 4, 3, 0x7e, 0x7f, 0xff)
TS_SMALL(fp8_e5m2, 5, 2, 0x7b, 0x7d, 0x7c)
TS_SMALL(fp6_e2m3, 2, 3, 0x1f, 0x1f, 0xff)
TS_SMALL(fp6_e3m2, 3, 2, 0x1f, 0x1f, 0xff)
TS_SMALL(fp4_e2m1, 2, 1, 0x07, 0x07, 0xff)
#undef TS_SMALL
// Powers of two: 0 is 2**-127, a subnormal float, 255 NaN.
struct fp8_e8m0 {
  u8 bits;
  fp8_e8m0() = default;
  // The nearest power of two, the greater one of a tie; negative numbers become NaN.
  TS_FN explicit fp8_e8m0(float x) {
    u32 mag = hw::bits_as<u32>(x) & 0x7fffffffu, up = mag < 0x800000u ? (u32)(mag >= 0x600000u) : (mag + 0x400000u) >> 23;
    bits = (u8)(x >= 0 ? (up > 254u ? 254u : up) : 255u);
  }
  TS_FN operator float() const {
    return bits == 255 ? nan_f32() : hw::bits_as<float>(bits ? (u32)bits << 23 : 0x400000u);
  }
};

template <class T> constexpr bool is_small = same<T, f16> || same<T, bf16> || same<T, tf32> || same<T, fp8_e4m3> ||
                                             same<T, fp8_e5m2> || same<T, fp8_e8m0> || same<T, fp6_e2m3> || same<T, fp6_e3m2> || same<T, fp4_e2m1>;
template <class T> constexpr bool is_float = same<T, float> || same<T, double>;
template <class T> constexpr bool is_signed = same<T, i8> || same<T, i16> || same<T, i32> || same<T, i64>;
template <class T> constexpr bool is_unsigned = same<T, u8> || same<T, u16> || same<T, u32> || same<T, u64>;
template <class T> constexpr bool is_integer = is_signed<T> || is_unsigned<T>;

template <class T> struct complex {
  T re, im;
  complex() = default;
  TS_FN complex(T real, T imaginary) : re(real), im(imaginary) {}
  TS_FN explicit complex(T real) : re(real), im(T(0)) {}
};
template <class X> struct part_ { using type = void; };
template <class T> struct part_<complex<T>> { using type = T; };
template <class X> using part = typename part_<X>::type;
template <class X> constexpr bool is_complex = !same<part<X>, void>;

// Rounds to odd, so that a second rounding to at most 22 bits is right: f64 -> bf16 rounds once.
TS_FN float to_odd(double x) {
  float r = (float)x;
  u32 b = hw::bits_as<u32>(r);
  if ((double)r == x || x != x) return r;
  double back = (double)r;
  if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) b -= 1;
  return hw::bits_as<float>(b | 1u);
}
// A double; 64-bit integers that it cannot hold go to the odd neighbour.
template <class T> TS_FN double to_odd_double(T x) {
  if constexpr (is_integer<T> && sizeof(T) == 8) {
    T top = x >> 53;
    if (top != 0 && top != T(-1)) x = (x & ~T(0x7ff)) | T((x & T(0x7ff)) ? 0x800 : 0);
  }
  return (double)x;
}
// The type that arithmetic on T is done in.
template <class T> using compute = choose<is_small<T>, float, T>;

template <class T> TS_FN T lowest() {
  if constexpr (is_float<T> || is_small<T>) return T(-infinity());
  else if constexpr (is_signed<T>) return T((u64)1 << (sizeof(T) * 8 - 1));
  else return T(0);
}
template <class T> TS_FN T highest() {
  if constexpr (is_float<T> || is_small<T>) return T(infinity());
  else if constexpr (is_signed<T>) return T(((u64)1 << (sizeof(T) * 8 - 1)) - 1);
  else if constexpr (same<T, bool>) return true;
  else return T(~(u64)0);
}
// Float to integer: truncated towards zero and clamped to the integer's range; NaN gives 0. F represents both ends exactly.
template <class To, class F> TS_FN To truncate(F x) {
  constexpr F half = F((u64)1 << (sizeof(To) * 8 - 1)), low = is_signed<To> ? -half : F(0), high = low + 2 * half;
  return x != x ? To(0) : x >= high ? highest<To>() : x <= low ? lowest<To>() : (To)x;
}
template <class To, class From> TS_FN To cast(From x) {
  if constexpr (same<To, From>) return x;
  else if constexpr (same<To, bool> && is_complex<From>) return x.re != part<From>(0) || x.im != part<From>(0);
  else if constexpr (is_complex<To>) {
    if constexpr (is_complex<From>) return {cast<part<To>>(x.re), cast<part<To>>(x.im)};
    else return {cast<part<To>>(x), part<To>(0)};
  } else if constexpr (same<To, bool>) return is_small<From> ? (float)x != 0.0f : x != From(0);
  else if constexpr (same<From, bool>) return To(x ? 1 : 0);
  else if constexpr (is_small<To>) {
    if constexpr (is_small<From> || same<From, float>) return To((float)x);
    else return To(to_odd(to_odd_double(x)));
  } else if constexpr (is_integer<To> && (is_small<From> || is_float<From>)) {
    return truncate<To>((compute<From>)x);
  } else if constexpr (is_small<From>) return (To)(float)x;
  else return (To)x;
}
template <class To, class From> TS_FN To bitcast(From x) { return hw::bits_as<To>(x); }

}  // namespace tessera
