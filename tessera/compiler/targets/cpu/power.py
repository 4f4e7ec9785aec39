"""x**y as 2**(y log2 |x|), the logarithm with enough digits for the largest exponents.

f32 computes in f64. f64 carries the logarithm as a sum of two numbers, about 2^-64 exact: products and sums keep what
they lose in rounding (Dekker, Numer. Math. 18 (1971)), terms below 2^-12 of the whole need no such care.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera.compiler.targets.cpu.coefficients import EXP2, EXP2_RANGE, LOG2_SCALE, POW_LOG, THIRD
from tessera.compiler.targets.cpu.exponential import Exponential
from tessera.compiler.targets.cpu.values import F64, Val, const


class Power(Exponential):
    """pow."""

    def pow(self, x: Val, y: Val) -> Val:
        if y.const in (2, 3):  # within one ulp, and with the same ends
            square = self.mul(x, x)
            return square if y.const == 2 else self.mul(square, x)
        x, y = self.fn.align_lanes(x, y)
        a = self.abs(x)
        r = self._in_halves(self._single, a, y) if x.ty.bits == 32 else self._double(a, y)
        usual = self.fn.binary("and", self.less(self.k(0, x), x), self.less(x, self.k(math.inf, x)))
        usual = self.fn.binary("and", usual, self.less(self.abs(y), self.k(math.inf, x)))
        rare = self.fn.binary("xor", usual, const(True, usual.ty))
        return self.rarely(rare, r, lambda: self._ends(x, y, r))

    def _in_halves(self, write: Callable[[Val, Val], Val], x: Val, y: Val) -> Val:
        """f32 vectors in pieces whose f64 counterparts fit into a register."""
        fn, lanes = self.fn, x.ty.lanes
        if lanes <= max(1, self.isa.bits // 64):
            return write(x, y)
        half = lanes // 2
        parts = [
            self._in_halves(write, *(fn.shuffle(v, None, range(start, start + half)) for v in (x, y)))
            for start in (0, half)
        ]
        return fn.shuffle(parts[0], parts[1], range(lanes))

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
