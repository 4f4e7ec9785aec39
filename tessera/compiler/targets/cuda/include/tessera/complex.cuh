// Complex numbers: the functions of the language that take them.
#pragma once
#include "math.cuh"

namespace tessera {

template <class T> TS_FN complex<T> operator+(complex<T> x, complex<T> y) { return {x.re + y.re, x.im + y.im}; }
template <class T> TS_FN complex<T> operator-(complex<T> x, complex<T> y) { return {x.re - y.re, x.im - y.im}; }
template <class T> TS_FN complex<T> operator-(complex<T> x) { return {-x.re, -x.im}; }
template <class T> TS_FN complex<T> operator*(complex<T> x, complex<T> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
// Smith's algorithm (1962): no overflow where the quotient itself does not overflow.
template <class T> TS_FN complex<T> operator/(complex<T> x, complex<T> y) {
  if (scalar::abs(y.re) >= scalar::abs(y.im)) {
    T r = y.im / y.re, d = y.re + y.im * r;
    return {(x.re + x.im * r) / d, (x.im - x.re * r) / d};
  }
  T r = y.re / y.im, d = y.re * r + y.im;
  return {(x.re * r + x.im) / d, (x.im * r - x.re) / d};
}
template <class T> TS_FN bool operator==(complex<T> x, complex<T> y) { return x.re == y.re && x.im == y.im; }
template <class T> TS_FN bool operator!=(complex<T> x, complex<T> y) { return !(x == y); }

TS_FN float hypotenuse(float x, float y) { return ::hypotf(x, y); }
TS_FN double hypotenuse(double x, double y) { return ::hypot(x, y); }
TS_FN float signed_like(float x, float sign) { return ::copysignf(x, sign); }
TS_FN double signed_like(double x, double sign) { return ::copysign(x, sign); }

namespace scalar {

template <class T> TS_FN complex<T> add(complex<T> x, complex<T> y) { return x + y; }
template <class T> TS_FN complex<T> sub(complex<T> x, complex<T> y) { return x - y; }
template <class T> TS_FN complex<T> mul(complex<T> x, complex<T> y) { return x * y; }
template <class T> TS_FN complex<T> div(complex<T> x, complex<T> y) { return x / y; }
template <class T> TS_FN complex<T> neg(complex<T> x) { return -x; }
template <class T> TS_FN complex<T> square(complex<T> x) { return x * x; }
template <class T> TS_FN complex<T> reciprocal(complex<T> x) {
  if (abs(x.re) >= abs(x.im)) {
    T r = x.im / x.re, d = x.re + x.im * r;
    return {T(1) / d, -r / d};
  }
  T r = x.re / x.im, d = x.re * r + x.im;
  return {r / d, T(-1) / d};
}
template <class T> TS_FN T abs(complex<T> x) { return hypotenuse(x.re, x.im); }
template <class T> TS_FN T real(complex<T> x) { return x.re; }
template <class T> TS_FN T imag(complex<T> x) { return x.im; }
template <class T> TS_FN complex<compute<T>> make_complex(T x, T y) { return {(compute<T>)x, (compute<T>)y}; }
template <class T> TS_FN bool eq(complex<T> x, complex<T> y) { return x == y; }
template <class T> TS_FN bool ne(complex<T> x, complex<T> y) { return x != y; }
template <class T> TS_FN bool truth(complex<T> x) { return x.re != T(0) || x.im != T(0); }
template <class T> TS_FN bool logical_and(complex<T> x, complex<T> y) { return truth(x) && truth(y); }
template <class T> TS_FN bool logical_or(complex<T> x, complex<T> y) { return truth(x) || truth(y); }
template <class T> TS_FN bool logical_xor(complex<T> x, complex<T> y) { return truth(x) != truth(y); }
template <class T> TS_FN bool logical_not(complex<T> x) { return !truth(x); }
// exp(re) * (cos(im), sin(im)), special values as in C99's annex G. Where exp(re) alone would overflow, part of the
// exponent is multiplied in last.
template <class T> TS_FN complex<T> exp(complex<T> x) {
  if (x.im == T(0)) return {exp(x.re), x.im};
  if (!(x.im - x.im == T(0)) && x.re - x.re != T(0) && x.re == x.re)  // an infinite exponent, and no angle
    return x.re > T(0) ? complex<T>{x.re, x.im - x.im} : complex<T>{T(0), signed_like(T(0), x.im)};
  constexpr bool narrow = sizeof(T) == 4;
  bool large = x.re > T(narrow ? 80 : 700);
  T e = exp(x.re - (large ? T(narrow ? 32 : 256) : T(0)));
  T scale = large ? T(narrow ? 7.896296018268069e13 : 1.5114276650041035e111) : T(1);
  return {e * cos(x.im) * scale, e * sin(x.im) * scale};
}
template <class T> TS_FN complex<T> log(complex<T> x) { return {log(abs(x)), atan2(x.im, x.re)}; }
// The root with a real part >= 0, computed without cancellation; special values as in C99's annex G.
template <class T> TS_FN complex<T> sqrt(complex<T> x) {
  if (x.re == T(0) && x.im == T(0)) return {T(0), x.im};
  if (x.im != T(0) && abs(x.im) == abs(x.im) * T(2)) return {abs(x.im), x.im};  // infinite
  T s = sqrt(abs(x.re) / T(2) + abs(x) / T(2)), d = x.im / (T(2) * s);
  if (x.re >= T(0)) return {s, d};
  return {abs(d), signed_like(s, x.im)};
}
template <class T> TS_FN complex<T> pow(complex<T> x, complex<T> y) {
  if (y == complex<T>{T(0), T(0)}) return {T(1), T(0)};
  if (x == complex<T>{T(0), T(0)}) return {T(0), T(0)};
  return exp(y * log(x));
}

}  // namespace scalar

}  // namespace tessera
