"""Exponentials and logarithms.

Range reductions: Cody & Waite, "Software Manual for the Elementary Functions" (1980); log through s = f / (2 + f) as in
Tang, ACM TOMS 16 (1990).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from tessera.compiler.targets.cpu.arithmetic import Arithmetic
from tessera.compiler.targets.cpu.coefficients import EXP, EXP2, EXP2_RANGE, EXP_RANGE, FIELDS, LN2, LOG
from tessera.compiler.targets.cpu.values import Val


class Exponential(Arithmetic):
    """exp, exp2, expm1, log, log2, log10, log1p."""

    # -- exponentials ------------------------------------------------------------------------------------------------
    def _exp_parts(self, x: Val) -> tuple[Val, Val, Val]:
        """n, r and q with e**x = 2**n (1 + r + r**2 q)."""
        b = x.ty.bits
        n = self.rint(self.mul(x, self.k(1 / math.log(2), x)))
        r = self.fma(n, self.k(-LN2[b][0], x), x)
        r = self.fma(n, self.k(-LN2[b][1], x), r)
        return n, r, self.poly(r, EXP[b])

    def exp(self, x: Val, halvings: int = 0) -> Val:
        """e**x / 2**halvings."""
        lo, hi = EXP_RANGE[x.ty.bits]
        n, r, q = self._exp_parts(self.clamp(x, lo, hi + halvings))
        p = self.add(self.fma(self.mul(r, r), q, r), self.k(1, x))
        return self.scale(p, self.sub(n, self.k(halvings, x)) if halvings else n)

    def exp2(self, x: Val) -> Val:
        x = self.clamp(x, *EXP2_RANGE[x.ty.bits])
        n = self.rint(x)
        f = self.sub(x, n)
        return self.scale(self.fma(self.poly(f, EXP2[x.ty.bits]), f, self.k(1, x)), n)

    def expm1(self, x: Val) -> Val:
        lo, hi = EXP_RANGE[x.ty.bits]
        n, r, q = self._exp_parts(self.clamp(x, lo, hi))
        p = self.fma(self.mul(r, r), q, r)
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
