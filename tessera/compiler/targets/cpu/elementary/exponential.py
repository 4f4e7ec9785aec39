"""Exponentials and logarithms.

Range reductions: Cody & Waite, "Software Manual for the Elementary Functions" (1980); log through s = f / (2 + f) as in
Tang, ACM TOMS 16 (1990).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from tessera.compiler.targets.cpu.elementary.arithmetic import Arithmetic
from tessera.compiler.targets.cpu.elementary.coefficients import (
    EXP,
    EXP2,
    EXP2_RANGE,
    EXP_RANGE,
    FIELDS,
    LN2,
    LOG,
    LOG2_SCALE,
    POW_LOG,
    THIRD,
)
from tessera.compiler.targets.cpu.llvm.values import F64, Val, const


class Exponential(Arithmetic):
    """exp, exp2, expm1, log, log2, log10, log1p."""

    # -- exponentials ------------------------------------------------------------------------------------------------
    def _reduced(self, x: Val) -> tuple[Val, Val]:
        """n and r with e**x = 2**n e**r."""
        b = x.ty.bits
        n = self.rint(self.mul(x, self.k(1 / math.log(2), x)))
        r = self.fma(n, self.k(-LN2[b][0], x), x)
        return n, self.fma(n, self.k(-LN2[b][1], x), r)

    def _power_of_e(self, n: Val, r: Val, halvings: int = 0) -> Val:
        """2**n e**r / 2**halvings; the coefficients take the halvings."""
        h = 0.5**halvings
        return self.scale(self.poly(r, [h, h, *(h * c for c in EXP[r.ty.bits])]), n)

    def exp(self, x: Val, halvings: int = 0) -> Val:
        """e**x / 2**halvings."""
        lo, hi = EXP_RANGE[x.ty.bits]
        return self._power_of_e(*self._reduced(self.clamp(x, lo, hi + halvings)), halvings)

    def exp_of_square(self, a: Val, h: float) -> Val:
        """e**(-h a**2) to full accuracy, where h is 1 or 1/2: the square is rounded after what is divided out of it."""
        b = a.ty.bits
        n = self.rint(self.mul(self.mul(a, a), self.k(-h / math.log(2), a)))
        r = self.fma(self.mul(a, self.k(-h, a)), a, self.mul(n, self.k(-LN2[b][0], a)))
        return self._power_of_e(n, self.fma(n, self.k(-LN2[b][1], a), r))

    def exp2(self, x: Val) -> Val:
        return self.exp2_within(self.clamp(x, *EXP2_RANGE[x.ty.bits]))

    def exp2_within(self, x: Val) -> Val:
        """2**x of an x that neither overflows nor vanishes."""
        n = self.rint(x)
        f = self.sub(x, n)
        return self.scale(self.fma(self.poly(f, EXP2[x.ty.bits]), f, self.k(1, x)), n)

    def expm1(self, x: Val) -> Val:
        lo, hi = EXP_RANGE[x.ty.bits]
        n, r = self._reduced(self.clamp(x, lo, hi))
        p = self.fma(self.mul(r, r), self.poly(r, EXP[x.ty.bits]), r)
        half = self.scale(self.k(0.5, x), n)  # 2**(n-1): 2**n itself overflows just below the largest argument
        twice = self.fma(half, p, self.sub(half, self.k(0.5, x)))
        return self.select(self.equal(x, self.k(0, x)), x, self.add(twice, twice))

    # -- logarithms --------------------------------------------------------------------------------------------------
    def _split(self, x: Val, subnormal: bool = False) -> tuple[Val, Val]:
        """e and m with x = 2**e m, m in [sqrt(1/2), sqrt(2)), for 0 < x < inf; `subnormal`: x may be that small."""
        t, fn = x.ty, self.fn
        m, bias = FIELDS[t.bits]
        tiny = self.less(x, self.k(2.0 ** (1 - bias), x))
        if subnormal:
            x = self.select(tiny, self.mul(x, self.k(2.0 ** (m + 2), x)), x)
        i = self.bits(x)
        offset = self._int(_float_bits(math.sqrt(0.5), t.bits), i)
        exponent = fn.binary("ashr", fn.binary("sub", i, offset), self._int(m, i))
        mantissa = fn.convert("bitcast", fn.binary("sub", i, fn.binary("shl", exponent, self._int(m, i))), t)
        e = fn.convert("sitofp", exponent, t)
        return (self.select(tiny, self.sub(e, self.k(m + 2, x)), e) if subnormal else e), mantissa

    def _log_parts(self, x: Val, subnormal: bool) -> tuple[Val, Val, Val, Val]:
        """e, f, s (hfsq + R) and hfsq: x = 2**e (1 + f), log(1 + f) = f - (hfsq - s (hfsq + R)). For 0 < x < inf."""
        e, mantissa = self._split(x, subnormal)
        f = self.sub(mantissa, self.k(1, x))
        s = self.div(f, self.add(f, self.k(2, x)))
        z = self.mul(s, s)
        r = self.mul(z, self.poly(z, LOG[x.ty.bits]))
        hfsq = self.mul(self.mul(f, f), self.k(0.5, x))
        return e, f, self.mul(s, self.add(hfsq, r)), hfsq

    def _log_ends(self, x: Val, y: Val) -> Val:
        """The values at 0, infinity, below 0 and for NaN put into y = log(x)."""
        inf = self.k(math.inf, x)
        y = self.select(self.fn.compare("fcmp ult", x, self.k(0, x)), self.k(math.nan, x), y)
        y = self.select(self.equal(x, self.k(0, x)), self.neg(inf), y)
        return self.select(self.equal(x, inf), inf, y)

    def _logarithm(self, x: Val, normal: Callable[[bool], Val]) -> Val:
        """normal(False) is right for all but the smallest numbers, for which normal(True) is, and those without one."""
        _, bias = FIELDS[x.ty.bits]
        smallest, inf = self.k(2.0 ** (1 - bias), x), self.k(math.inf, x)
        rare = self.fn.binary("or", self.fn.compare("fcmp ult", x, smallest), self.equal(x, inf))
        return self.rarely(rare, normal(False), lambda: self._log_ends(x, normal(True)))

    def log(self, x: Val, correction: Val | None = None) -> Val:
        """log(x), plus a small correction added where it loses nothing."""
        hi, lo = LN2[x.ty.bits]

        def normal(subnormal: bool) -> Val:
            e, f, sr, hfsq = self._log_parts(x, subnormal)
            low = self.fma(e, self.k(lo, x), sr)
            if correction is not None:
                low = self.add(low, correction)
            return self.fma(e, self.k(hi, x), self.sub(f, self.sub(hfsq, low)))

        return self._logarithm(x, normal)

    def _log_to_base(self, x: Val, scale: float, unit: float) -> Val:
        """log(x) * scale, where unit = log(2) * scale; e * unit is exact enough to keep powers of the base exact."""
        b = x.ty.bits
        scale_hi, unit_hi = _leading(scale, b), _leading(unit, b)

        def normal(subnormal: bool) -> Val:
            e, f, sr, hfsq = self._log_parts(x, subnormal)
            kept = self._int(-(1 << (b // 2 - 4)), self.bits(f))
            high = self.fn.convert("bitcast", self.fn.binary("and", self.bits(self.sub(f, hfsq)), kept), x.ty)
            low = self.add(self.sub(self.sub(f, high), hfsq), sr)
            tail = self.mul(self.add(high, low), self.k(scale - scale_hi, x))
            tail = self.fma(low, self.k(scale_hi, x), tail)
            tail = self.fma(e, self.k(unit - unit_hi, x), tail)
            head, product = self.mul(e, self.k(unit_hi, x)), self.mul(high, self.k(scale_hi, x))
            total = self.add(head, product)
            lost = self.add(self.sub(head, total), product)  # |head| >= |product| or head is 0
            return self.add(total, self.add(lost, tail))

        return self._logarithm(x, normal)

    def log2(self, x: Val) -> Val:
        return self._log_to_base(x, 1 / math.log(2), 1.0)

    def log10(self, x: Val) -> Val:
        return self._log_to_base(x, 1 / math.log(10), math.log10(2))

    def log1p(self, x: Val) -> Val:
        one = self.k(1, x)
        u = self.add(x, one)
        # what 1 + x lost in rounding, exactly (two-sum)
        back = self.sub(u, one)
        c = self.add(self.sub(x, back), self.sub(one, self.sub(u, back)))
        y = self.log(u, self.div(c, u))
        y = self.select(self.equal(u, one), x, y)
        y = self.select(self.equal(x, self.k(math.inf, x)), x, y)
        return self.select(self.equal(u, self.k(0, x)), self.k(-math.inf, x), y)


def _float_bits(x: float, bits: int) -> int:
    return struct.unpack("<i" if bits == 32 else "<q", struct.pack("<f" if bits == 32 else "<d", x))[0]


def _leading(x: float, bits: int) -> float:
    """x with its low mantissa half cleared, so that products with small integers and half-width numbers are exact."""
    if bits == 32:
        return math.ldexp(round(math.ldexp(x, 10)), -10)
    return math.ldexp(round(math.ldexp(x, 24)), -24)


# x**y as 2**(y log2 |x|), the logarithm with enough digits for the largest exponents.
#
# f32 computes in f64. f64 carries the logarithm as a sum of two numbers, about 2^-64 exact: products and sums
# keep what they lose in rounding (Dekker, Numer. Math. 18 (1971)), terms below 2^-12 of the whole need no such
# care.


class Power(Exponential):
    """pow."""

    def pow(self, x: Val, y: Val) -> Val:
        if y.const in (2, 3):  # within one ulp, and with the same ends
            square = self.mul(x, x)
            return square if y.const == 2 else self.mul(square, x)
        x, y = self.fn.align_lanes(x, y)
        a = self.abs(x)
        r = self.in_pieces(self.isa.bits // 64, self._single, a, y) if x.ty.bits == 32 else self._double(a, y)
        usual = self.fn.binary("and", self.less(self.k(0, x), x), self.less(x, self.k(math.inf, x)))
        usual = self.fn.binary("and", usual, self.less(self.abs(y), self.k(math.inf, x)))
        rare = self.fn.binary("xor", usual, const(True, usual.ty))
        return self.rarely(rare, r, lambda: self._ends(x, y, r))

    def _single(self, x: Val, y: Val) -> Val:
        fn, wide = self.fn, F64.wide(x.ty.lanes)
        a, b = fn.convert("fpext", x, wide), fn.convert("fpext", y, wide)
        e, m = self._split(a)  # every f32 is a normal f64
        f = self.sub(m, self.k(1, a))
        s = self.div(f, self.add(f, self.k(2, a)))
        z = self.mul(s, s)
        s = self.mul(s, self.k(LOG2_SCALE[0], a))
        log2 = self.add(self.fma(self.mul(s, z), self.poly(z, POW_LOG[32]), s), e)
        t = self.clamp(self.mul(b, log2), *EXP2_RANGE[32])
        n = self.rint(t)
        f = self.sub(t, n)
        return fn.convert("fptrunc", self.scale(self.fma(self.poly(f, EXP2[32]), f, self.k(1, t)), n), x.ty)

    def _double(self, x: Val, y: Val) -> Val:
        high, low = self._log2_double(x)
        t = self.mul(y, high)
        t_low = self.fma(y, low, self.fma(y, high, self.neg(t)))
        lo, hi = EXP2_RANGE[64]
        t_low = self.select(self.less(self.abs(t), self.k(-lo, x)), t_low, self.k(0, x))  # no digits of infinity
        t = self.clamp(t, lo, hi)
        n = self.rint(t)
        f = self.add(self.sub(t, n), t_low)
        return self.scale(self.fma(self.poly(f, EXP2[64]), f, self.k(1, x)), n)

    def _log2_double(self, x: Val) -> tuple[Val, Val]:
        """log2(x) = e + scale s (1 + z / 3 + z**2 q(z)), z = s**2, as high + low."""
        e, m = self._split(x, subnormal=True)
        f = self.sub(m, self.k(1, x))
        d = self.add(f, self.k(2, x))
        d_low = self.sub(f, self.sub(d, self.k(2, x)))
        inverse = self.div(self.k(1, x), d)
        s = self.mul(f, inverse)
        left = self.fma(self.neg(s), d_low, self.fma(self.neg(s), d, f))
        s_low = self.mul(left, inverse)
        z, z_low = self._product(s, s)
        z_low = self.fma(self.add(s, s), s_low, z_low)
        u, u_low = self._product(z, self.k(THIRD[0], x))
        u_low = self.fma(z, self.k(THIRD[1], x), self.fma(z_low, self.k(THIRD[0], x), u_low))
        u, lost = self._sum(u, self.mul(self.mul(z, z), self.poly(z, POW_LOG[64])))
        u_low = self.add(u_low, lost)
        p, p_low = self._product(s, u)
        p_low = self.fma(s, u_low, self.fma(s_low, u, p_low))
        h, lost = self._sum(s, p)
        h_low = self.add(lost, self.add(p_low, s_low))
        high, low = self._product(h, self.k(LOG2_SCALE[0], x))
        low = self.fma(h, self.k(LOG2_SCALE[1], x), self.fma(h_low, self.k(LOG2_SCALE[0], x), low))
        total, lost = self._sum(e, high)
        lost = self.select(self.equal(e, self.k(0, x)), self.k(0, x), lost)
        return total, self.add(lost, low)

    def _sum(self, a: Val, b: Val) -> tuple[Val, Val]:
        """a + b and what it lost, for |a| >= |b|."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def _product(self, a: Val, b: Val) -> tuple[Val, Val]:
        p = self.mul(a, b)
        return p, self.fma(a, b, self.neg(p))

    def _ends(self, x: Val, y: Val, r: Val) -> Val:
        """The power where r = |x|**y is not all: at 0, infinity and NaN, and for negative x."""
        fn, one, zero, inf = self.fn, self.k(1, x), self.k(0, x), self.k(math.inf, x)
        a, falls = self.abs(x), self.less(y, zero)
        r = self.select(self.equal(a, zero), self.select(falls, inf, zero), r)
        r = self.select(self.equal(a, inf), self.select(falls, zero, inf), r)
        r = self.select(fn.compare("fcmp uno", x, y), self.add(x, y), r)
        whole = self.equal(self.trunc(y), y)
        half = self.mul(y, self.k(0.5, y))
        odd = fn.binary("and", whole, fn.compare("fcmp one", self.trunc(half), half))
        r = self.select(odd, self.copysign(r, x), r)
        outside = fn.binary("and", fn.binary("xor", whole, const(True, whole.ty)), self.less(x, zero))
        finite = fn.compare("fcmp one", x, self.k(-math.inf, x))
        r = self.select(fn.binary("and", outside, finite), self.k(math.nan, x), r)
        flat = fn.binary("and", self.equal(x, self.k(-1, x)), self.equal(self.abs(y), inf))
        certain = fn.binary("or", fn.binary("or", self.equal(y, zero), self.equal(x, one)), flat)
        return self.select(certain, one, r)
