"""Sine, cosine, tangent and their inverses: three-part pi/2 (Cody & Waite 1980), the C library for huge arguments."""

from __future__ import annotations

import math

from tessera.compiler.targets.cpu.elementary.arithmetic import Arithmetic
from tessera.compiler.targets.cpu.elementary.coefficients import ATAN, COS, HALF_PI, REDUCIBLE, SIN
from tessera.compiler.targets.cpu.llvm.values import Val, const, ty


class Trigonometric(Arithmetic):
    """sin, cos, tan, atan, atan2."""

    # -- trigonometric -----------------------------------------------------------------------------------------------
    def _quadrant(self, x: Val) -> tuple[Val, Val]:
        """x = quadrant * pi/2 + r, |r| <= pi/4; the quadrant as an integer."""
        b = x.ty.bits
        n = self.rint(self.mul(x, self.k(2 / math.pi, x)))
        r = x
        for part in HALF_PI[b]:
            r = self.fma(n, self.k(-part, x), r)
        limit = self.clamp(n, -(2.0**30), 2.0**30)  # lanes beyond are recomputed, but must not be undefined
        limit = self.select(self.is_nan(limit), self.k(0, x), limit)
        return self.fn.convert("fptosi", limit, ty("i", b)), r

    def _sin_cos(self, r: Val) -> tuple[Val, Val]:
        z = self.mul(r, r)
        s = self.fma(self.mul(z, r), self.poly(z, SIN[r.ty.bits]), r)
        half = self.mul(z, self.k(0.5, r))
        w = self.sub(self.k(1, r), half)
        lost = self.sub(self.sub(self.k(1, r), w), half)
        c = self.add(w, self.fma(self.mul(z, z), self.poly(z, COS[r.ty.bits]), lost))
        return s, c

    def _odd(self, quadrant: Val) -> Val:
        one = self._int(1, quadrant)
        return self.fn.compare("icmp ne", self.fn.binary("and", quadrant, one), self._int(0, quadrant))

    def _sine(self, x: Val, quarter_turns: int) -> Val:
        q, r = self._quadrant(x)
        if quarter_turns:
            q = self.fn.binary("add", q, self._int(quarter_turns, q))
        s, c = self._sin_cos(r)
        y = self.select(self._odd(q), c, s)
        flip = self.fn.compare("icmp ne", self.fn.binary("and", q, self._int(2, q)), self._int(0, q))
        return self.select(flip, self.neg(y), y)

    def _far(self, x: Val, y: Val, name: str) -> Val:
        """`y`, with the C library's answer where any lane is too large for the range reduction."""
        far = self.greater(self.abs(x), self.k(REDUCIBLE[x.ty.bits], x))
        return self.rarely(far, y, lambda: self.library(name, x))

    def sin(self, x: Val) -> Val:
        y = self._sine(x, 0)
        return self._far(x, self.select(self.equal(x, self.k(0, x)), x, y), "sin")

    def cos(self, x: Val) -> Val:
        return self._far(x, self._sine(x, 1), "cos")

    def tan(self, x: Val) -> Val:
        q, r = self._quadrant(x)
        s, c = self._sin_cos(r)
        odd = self._odd(q)
        y = self.div(self.select(odd, self.neg(c), s), self.select(odd, s, c))
        return self._far(x, self.select(self.equal(x, self.k(0, x)), x, y), "tan")

    def _atan_positive(self, num: Val, den: Val) -> Val:
        """atan(num / den) for 0 <= num, den."""
        big = self.greater(self.mul(den, self.k(1 + math.sqrt(2), num)), num)
        big = self.fn.binary("xor", big, const(True, big.ty))
        mid = self.greater(num, self.mul(den, self.k(math.sqrt(2) - 1, num)))
        n = self.select(big, self.neg(den), self.select(mid, self.sub(num, den), num))
        d = self.select(big, num, self.select(mid, self.add(num, den), den))
        base = self.select(big, self.k(math.pi / 2, num), self.select(mid, self.k(math.pi / 4, num), self.k(0, num)))
        half = HALF_PI[num.ty.bits][1]
        tail = self.select(big, self.k(half, num), self.select(mid, self.k(half / 2, num), self.k(0, num)))
        t = self.div(n, d)
        z = self.mul(t, t)
        p = self.fma(self.mul(z, t), self.poly(z, ATAN[num.ty.bits]), tail)
        return self.add(base, self.add(t, p))

    def atan(self, x: Val) -> Val:
        a = self.abs(x)
        y = self._atan_positive(self.clamp(a, 0.0, 2.0**100), self.k(1, x))
        return self.copysign(y, x)

    def atan2(self, y: Val, x: Val) -> Val:
        y, x = self.fn.align_lanes(y, x)
        ay, ax = self.abs(y), self.abs(x)
        swap = self.greater(ay, ax)
        num, den = self.select(swap, ax, ay), self.select(swap, ay, ax)
        ratio = self.div(num, den)
        ratio = self.select(self.equal(num, den), self.k(1, x), ratio)  # also inf over inf
        ratio = self.select(self.equal(den, self.k(0, x)), self.k(0, x), ratio)
        a = self._atan_positive(ratio, self.k(1, x))
        high, low = self.k(math.pi / 2, x), self.k(HALF_PI[x.ty.bits][1], x)
        a = self.select(swap, self.add(self.sub(high, a), low), a)
        zero = self._int(0, self.bits(x))
        left = self.fn.compare("icmp slt", self.bits(x), zero)
        pi = self.add(self.sub(self.k(math.pi, x), a), self.k(2 * HALF_PI[x.ty.bits][1], x))
        a = self.copysign(self.select(left, pi, a), y)
        return self.select(self.fn.compare("fcmp uno", x, y), self.k(math.nan, x), a)
