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

namespace scalar {

template <class T> TS_FN complex<T> add(complex<T> x, complex<T> y) { return x + y; }
template <class T> TS_FN complex<T> sub(complex<T> x, complex<T> y) { return x - y; }
template <class T> TS_FN complex<T> mul(complex<T> x, complex<T> y) { return x * y; }
template <class T> TS_FN complex<T> div(complex<T> x, complex<T> y) { return x / y; }
template <class T> TS_FN complex<T> neg(complex<T> x) { return -x; }
template <class T> TS_FN complex<T> square(complex<T> x) { return x * x; }
template <class T> TS_FN complex<T> reciprocal(complex<T> x) { return complex<T>{T(1), T(0)} / x; }
template <class T> TS_FN T abs(complex<T> x) { return hypotenuse(x.re, x.im); }
template <class T> TS_FN bool eq(complex<T> x, complex<T> y) { return x == y; }
template <class T> TS_FN bool ne(complex<T> x, complex<T> y) { return x != y; }
template <class T> TS_FN bool truth(complex<T> x) { return x.re != T(0) || x.im != T(0); }
template <class T> TS_FN bool logical_and(complex<T> x, complex<T> y) { return truth(x) && truth(y); }
template <class T> TS_FN bool logical_or(complex<T> x, complex<T> y) { return truth(x) || truth(y); }
template <class T> TS_FN bool logical_xor(complex<T> x, complex<T> y) { return truth(x) != truth(y); }
template <class T> TS_FN bool logical_not(complex<T> x) { return !truth(x); }
template <class T> TS_FN complex<T> exp(complex<T> x) {
  T e = exp(x.re);
  return x.im == T(0) ? complex<T>{e, x.im} : complex<T>{e * cos(x.im), e * sin(x.im)};
}
template <class T> TS_FN complex<T> log(complex<T> x) { return {log(abs(x)), atan2(x.im, x.re)}; }
// The root with a real part >= 0, computed without cancellation.
template <class T> TS_FN complex<T> sqrt(complex<T> x) {
  if (x.re == T(0) && x.im == T(0)) return {T(0), x.im};
  T s = sqrt((abs(x.re) + abs(x)) / T(2)), d = x.im / (T(2) * s);
  if (x.re >= T(0)) return {s, d};
  return {abs(d), x.im < T(0) ? -s : s};
}
template <class T> TS_FN complex<T> pow(complex<T> x, complex<T> y) {
  if (y == complex<T>{T(0), T(0)}) return {T(1), T(0)};
  if (x == complex<T>{T(0), T(0)}) return {T(0), T(0)};
  return exp(y * log(x));
}

}  // namespace scalar

}  // namespace tessera
