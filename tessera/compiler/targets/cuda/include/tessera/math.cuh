// The scalar functions of tile programs, under their names in the language. Floats narrower than 32 bits
// compute in float and round once. Integer division by zero gives 0, as NumPy's does.
#pragma once
#include "numeric.cuh"

namespace tessera {
namespace scalar {

// arithmetic
template <class T> TS_FN T add(T x, T y) { if constexpr (same<T, bool>) return x || y; else return T(compute<T>(x) + compute<T>(y)); }
template <class T> TS_FN T sub(T x, T y) { return T(compute<T>(x) - compute<T>(y)); }
template <class T> TS_FN T mul(T x, T y) { if constexpr (same<T, bool>) return x && y; else return T(compute<T>(x) * compute<T>(y)); }
template <class T> TS_FN T div(T x, T y) { return T(compute<T>(x) / compute<T>(y)); }
TS_FN float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
TS_FN double fma(double x, double y, double z) { return ::fma(x, y, z); }
template <class T> TS_FN when<is_small<T>, T> fma(T x, T y, T z) { return T(::fmaf(x, y, z)); }

TS_FN float remainder_(float x, float y) { return ::fmodf(x, y); }
TS_FN double remainder_(double x, double y) { return ::fmod(x, y); }
TS_FN float floor_(float x) { return ::floorf(x); }
TS_FN double floor_(double x) { return ::floor(x); }
TS_FN float copysign_(float x, float sign) { return ::copysignf(x, sign); }
TS_FN double copysign_(double x, double sign) { return ::copysign(x, sign); }
template <class T> TS_FN T mod(T x, T y) {
  if constexpr (is_signed<T>) {
    if (y == 0 || y == -1) return 0;
    T r = (T)(x % y);
    return r != 0 && (r < 0) != (y < 0) ? (T)(r + y) : r;
  } else if constexpr (is_unsigned<T>) {
    return y == 0 ? T(0) : (T)(x % y);
  } else {
    using C = compute<T>;
    C a = x, b = y, r = remainder_(a, b);
    if (r != 0) return T((r < 0) != (b < 0) ? r + b : r);
    return T(b < 0 ? -C(0) : C(0));
  }
}
template <class T> TS_FN T floordiv(T x, T y) {
  if constexpr (is_signed<T>) {
    if (y == 0) return 0;
    if (y == -1) return (T)(0 - (u64)x);
    T q = (T)(x / y);
    return x % y != 0 && (x < 0) != (y < 0) ? (T)(q - 1) : q;
  } else if constexpr (is_unsigned<T>) {
    return y == 0 ? T(0) : (T)(x / y);
  } else {
    using C = compute<T>;
    C a = x, b = y;
    if (b == 0) return T(a / b);
    C r = remainder_(a, b), q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return T(copysign_(C(0), a / b));
    C whole = floor_(q);
    return T(q - whole > C(0.5) ? whole + 1 : whole);
  }
}
TS_FN float pow(float x, float y) { return ::powf(x, y); }
TS_FN double pow(double x, double y) { return ::pow(x, y); }
template <class T> TS_FN T pow(T x, T y) {
  if constexpr (is_small<T>) {
    return T(::powf(x, y));
  } else {  // by squaring, modulo 2**bits; a negative exponent gives 1 / x**-y without its fraction
    if constexpr (is_signed<T>)
      if (y < 0) return x == 1 ? T(1) : x == -1 ? T((y & 1) ? -1 : 1) : T(0);
    u64 r = 1, b = (u64)x;
    for (u64 e = (u64)y; e; e >>= 1, b *= b)
      if (e & 1) r *= b;
    return (T)r;
  }
}
template <class T> TS_FN T maximum(T x, T y) {
  if constexpr (is_float<T> || is_small<T>) return T(hw::max_nan((compute<T>)x, (compute<T>)y));
  else return x > y ? x : y;
}
template <class T> TS_FN T minimum(T x, T y) {
  if constexpr (is_float<T> || is_small<T>) return T(hw::min_nan((compute<T>)x, (compute<T>)y));
  else return x < y ? x : y;
}
TS_FN float atan2(float y, float x) { return ::atan2f(y, x); }
TS_FN double atan2(double y, double x) { return ::atan2(y, x); }
template <class T> TS_FN when<is_small<T>, T> atan2(T y, T x) { return T(::atan2f(y, x)); }

// comparison and logic
template <class T> TS_FN bool eq(T x, T y) { return compute<T>(x) == compute<T>(y); }
template <class T> TS_FN bool ne(T x, T y) { return compute<T>(x) != compute<T>(y); }
template <class T> TS_FN bool lt(T x, T y) { return compute<T>(x) < compute<T>(y); }
template <class T> TS_FN bool le(T x, T y) { return compute<T>(x) <= compute<T>(y); }
template <class T> TS_FN bool gt(T x, T y) { return compute<T>(x) > compute<T>(y); }
template <class T> TS_FN bool ge(T x, T y) { return compute<T>(x) >= compute<T>(y); }
template <class T> TS_FN bool truth(T x) { return compute<T>(x) != compute<T>(0); }
template <class T> TS_FN bool logical_and(T x, T y) { return truth(x) && truth(y); }
template <class T> TS_FN bool logical_or(T x, T y) { return truth(x) || truth(y); }
template <class T> TS_FN bool logical_xor(T x, T y) { return truth(x) != truth(y); }
template <class T> TS_FN bool logical_not(T x) { return !truth(x); }
template <class T> TS_FN T bit_and(T x, T y) { return T(x & y); }
template <class T> TS_FN T bit_or(T x, T y) { return T(x | y); }
template <class T> TS_FN T bit_xor(T x, T y) { return T(x ^ y); }
template <class T> TS_FN T bit_not(T x) { if constexpr (same<T, bool>) return !x; else return T(~x); }
template <class T> TS_FN T shift_left(T x, T y) { return (u64)y >= sizeof(T) * 8 ? T(0) : T((u64)x << (u64)y); }
template <class T> TS_FN T shift_right(T x, T y) {
  return (u64)y >= sizeof(T) * 8 ? T(is_signed<T> && x < T(0) ? -1 : 0) : T(x >> y);
}
template <class T> TS_FN T where(bool c, T x, T y) { return c ? x : y; }

// unary maths
template <class T> TS_FN T neg(T x) {
  if constexpr (is_integer<T>) return T(0 - (u64)x);
  else return T(-compute<T>(x));
}
template <class T> TS_FN T abs(T x) {
  if constexpr (same<T, double>) return ::fabs(x);
  else if constexpr (is_signed<T>) return x < 0 ? T(0 - (u64)x) : x;
  else if constexpr (is_float<T> || is_small<T>) return T(::fabsf(x));
  else return x;
}
template <class T> TS_FN T sign(T x) {
  using C = compute<T>;
  C v = x;
  return T(v > C(0) ? C(1) : v < C(0) ? C(0) - C(1) : v == C(0) ? C(0) : v);  // keeps NaN; -0 gives 0
}
#define TS_FLOAT_FUNCTION(name, single, wide)       \
  TS_FN float name(float x) { return single; }      \
  TS_FN double name(double x) { return wide; }      \
  template <class T> TS_FN when<is_small<T>, T> name(T x) { return T(name((float)x)); }
TS_FLOAT_FUNCTION(exp, ::expf(x), ::exp(x))
TS_FLOAT_FUNCTION(exp2, ::exp2f(x), ::exp2(x))
TS_FLOAT_FUNCTION(expm1, ::expm1f(x), ::expm1(x))
TS_FLOAT_FUNCTION(log, ::logf(x), ::log(x))
TS_FLOAT_FUNCTION(log2, ::log2f(x), ::log2(x))
TS_FLOAT_FUNCTION(log10, ::log10f(x), ::log10(x))
TS_FLOAT_FUNCTION(log1p, ::log1pf(x), ::log1p(x))
TS_FLOAT_FUNCTION(sqrt, ::sqrtf(x), ::sqrt(x))
TS_FLOAT_FUNCTION(rsqrt, 1.0f / ::sqrtf(x), 1.0 / ::sqrt(x))
TS_FLOAT_FUNCTION(reciprocal, 1.0f / x, 1.0 / x)
TS_FLOAT_FUNCTION(sin, ::sinf(x), ::sin(x))
TS_FLOAT_FUNCTION(cos, ::cosf(x), ::cos(x))
TS_FLOAT_FUNCTION(tan, ::tanf(x), ::tan(x))
TS_FLOAT_FUNCTION(atan, ::atanf(x), ::atan(x))
TS_FLOAT_FUNCTION(sinh, ::sinhf(x), ::sinh(x))
TS_FLOAT_FUNCTION(cosh, ::coshf(x), ::cosh(x))
TS_FLOAT_FUNCTION(tanh, ::tanhf(x), ::tanh(x))
TS_FLOAT_FUNCTION(erf, ::erff(x), ::erf(x))
TS_FLOAT_FUNCTION(floor, ::floorf(x), ::floor(x))
TS_FLOAT_FUNCTION(ceil, ::ceilf(x), ::ceil(x))
TS_FLOAT_FUNCTION(round, ::rintf(x), ::rint(x))
TS_FLOAT_FUNCTION(trunc, ::truncf(x), ::trunc(x))
// activations; no branch overflows. 1 + erf and 1 + tanh would cancel far below 0; where erfc is 0, so is gelu
TS_FLOAT_FUNCTION(gelu, 0.5f * (x < -15.0f ? -15.0f : x) * ::erfcf(-0.70710678118654752f * x),
                  0.5 * (x < -39.0 ? -39.0 : x) * ::erfc(-0.70710678118654752440 * x))
TS_FLOAT_FUNCTION(gelu_tanh, x / (1.0f + ::expf(-1.5957691216057308f * (x + 0.044715f * x * x * x))),
                  x / (1.0 + ::exp(-1.5957691216057307117 * (x + 0.044715 * x * x * x))))
#undef TS_FLOAT_FUNCTION
template <class T> TS_FN T square(T x) { return mul(x, x); }
template <class T> TS_FN bool isnan(T x) { return compute<T>(x) != compute<T>(x); }
template <class T> TS_FN bool isinf(T x) { return abs(compute<T>(x)) == compute<T>(infinity()); }
template <class T> TS_FN bool isfinite(T x) { return abs(compute<T>(x)) < compute<T>(infinity()); }
template <class T> TS_FN bool signbit(T x) {
  if constexpr (same<compute<T>, double>) return hw::bits_as<u64>(compute<T>(x)) >> 63;
  else return hw::bits_as<u32>(compute<T>(x)) >> 31;
}
template <class T> TS_FN T relu(T x) { return maximum(x, T(0)); }
template <class T> TS_FN T sigmoid(T x) {
  using C = compute<T>;
  C v = x, e = exp(-abs(v));
  return T((v >= C(0) ? C(1) : e) / (C(1) + e));
}
template <class T> TS_FN T silu(T x) {
  using C = compute<T>;
  C v = x, e = exp(-abs(v));
  return T(v * ((v >= C(0) ? C(1) : e) / (C(1) + e)));
}
template <class T> TS_FN T softplus(T x) {
  using C = compute<T>;
  C v = x;
  return T(hw::max_nan(v, C(0)) + log1p(exp(-abs(v))));
}

}  // namespace scalar

// index arithmetic of tile programs; sizes and offsets are 64-bit
TS_FN idx imin(idx a, idx b) { return a < b ? a : b; }
TS_FN idx imax(idx a, idx b) { return a > b ? a : b; }
TS_FN idx idiv(idx a, idx b) { return scalar::floordiv<idx>(a, b); }
TS_FN idx imod(idx a, idx b) { return scalar::mod<idx>(a, b); }

}  // namespace tessera
