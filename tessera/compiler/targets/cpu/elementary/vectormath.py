"""The vector functions of `language.scalars` for f32 and f64, in one class.

Results are within 1 to 3.5 ulp of the exact value, gelu's within 8 (tests/unit/cpu/test_cpu_vectormath.py has each
bound), with IEEE behaviour for infinities, NaN, signed zero and subnormal numbers. The error function uses
erfc(x) = exp(-x^2) R((x - k) / (x + k)) / (x + k), as in Shepherd & Laframboise, Math. Comp. 36 (1981).
"""

from __future__ import annotations

import math

from tessera.compiler.targets.cpu.elementary.coefficients import (
    ERF,
    ERFC,
    ERFC_K,
    FIELDS,
    LOG2_ERFC,
    LOG2_PHI,
    SHORT_EXP2,
    SINH,
)
from tessera.compiler.targets.cpu.elementary.exponential import Power
from tessera.compiler.targets.cpu.elementary.trigonometric import Trigonometric
from tessera.compiler.targets.cpu.llvm.values import Val, const


class VectorMath(Power, Trigonometric):
    """Arguments and results are f32 or f64 values of any number of lanes."""

    # -- hyperbolic --------------------------------------------------------------------------------------------------
    def sinh(self, x: Val) -> Val:
        a = self.abs(x)
        z = self.mul(x, x)
        small = self.fma(self.mul(z, x), self.poly(self.clamp(z, 0, 1), SINH[x.ty.bits]), x)
        half = self.exp(a, 1)
        large = self.copysign(self.sub(half, self.div(self.k(0.25, x), half)), x)
        return self.select(self.less(a, self.k(1, x)), small, large)

    def cosh(self, x: Val) -> Val:
        half = self.exp(self.abs(x), 1)
        return self.add(half, self.div(self.k(0.25, x), half))

    def tanh(self, x: Val) -> Val:
        a = self.clamp(self.abs(x), 0.0, {32: 10.0, 64: 22.0}[x.ty.bits])
        t = self.expm1(self.add(a, a))
        return self.copysign(self.div(t, self.add(t, self.k(2, x))), x)

    # -- error function and activations ------------------------------------------------------------------------------
    def _erfc(self, a: Val, h: float) -> Val:
        """h erfc(sqrt(h) a) for a >= 0, where h is 1 or 1/2."""
        k, root = ERFC_K[a.ty.bits], math.sqrt(h)
        u = self.div(self.k(root, a), self.add(a, self.k(k / root, a)))  # h / (x + k)
        t = self.mul(self.fma(a, self.k(1 / root, a), self.k(-k / h, a)), u)
        return self.mul(self.exp_of_square(a, h), self.mul(u, self.poly(t, ERFC[a.ty.bits])))

    def erf(self, x: Val) -> Val:
        """1 - erfc(|x|) where that is exact enough, which takes no division for f32: 2 to a polynomial."""
        a = self.at_most(self.abs(x), {32: 4.0, 64: 7.0}[x.ty.bits])
        tail = self.exp2_within(self.poly(a, LOG2_ERFC)) if x.ty.bits == 32 else self._erfc(a, 1)
        large = self.sub(self.k(1, x), tail)
        small = self.fma(a, self.poly(self.mul(a, a), ERF[x.ty.bits]), a)
        y = self.copysign(self.select(self.less(a, self.k(0.75, x)), small, large), x)
        return self.select(self.is_nan(x), x, y)

    def gelu(self, x: Val) -> Val:
        """x Phi(x) as max(x, 0) - |x| Phi(-|x|): the far negative side keeps its relative accuracy."""
        a = self.at_most(self.abs(x), {32: 14.5, 64: 38.5}[x.ty.bits])
        return self._gelu(x, a, self._erfc(a, 0.5))

    def short_gelu(self, x: Val, exponent: int) -> Val:
        """gelu(x) of f32 to 15 digits, for dtypes of 16 bits and less that have so many of exponent."""
        most, coefficients = LOG2_PHI[5 if exponent <= 5 else 8]
        a = self.at_most(self.abs(x), most)
        power = self.poly(a, coefficients)
        n = self.rint(power)
        return self._gelu(x, a, self.scale(self.poly(self.sub(power, n), SHORT_EXP2), n))

    def _gelu(self, x: Val, a: Val, tail: Val) -> Val:
        """max(x, 0) - a tail, where a is |x| up to where the tail is 0."""
        zero = self.k(0, x)
        return self.fma(self.neg(a), tail, self.select(self.less(x, zero), zero, x))

    def gelu_tanh(self, x: Val) -> Val:
        """gelu's tanh form: x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x**3)."""
        c = -2 * math.sqrt(2 / math.pi)
        minus = self.mul(x, self.fma(self.mul(x, x), self.k(0.044715 * c, x), self.k(c, x)))
        return self.mul(x, self._sigmoid(minus))

    def sigmoid(self, x: Val) -> Val:
        return self._sigmoid(self.neg(x))

    def _sigmoid(self, minus: Val) -> Val:
        """1 / (1 + exp(minus)), both sides divided by a power of 2, so that they are finite as long as the
        result is not 0."""
        halvings = {32: 24, 64: 52}[minus.ty.bits]
        h = self.k(0.5**halvings, minus)
        return self.div(h, self.add(h, self.exp(minus, halvings)))

    def silu(self, x: Val) -> Val:
        return self.mul(x, self.sigmoid(x))

    def softplus(self, x: Val) -> Val:
        zero = self.k(0, x)
        positive = self.select(self.less(x, zero), zero, x)
        return self.add(positive, self.log1p(self.exp(self.neg(self.abs(x)))))

    # -- remainders --------------------------------------------------------------------------------------------------
    def fmod(self, x: Val, y: Val) -> Val:
        """x - y trunc(x / y), exactly, with the sign of x."""
        x, y = self.fn.align_lanes(x, y)
        ax, ay = self.abs(x), self.abs(y)
        q = self.fn.intrinsic("trunc", x.ty, self.div(ax, ay))
        r = self.fma(self.neg(q), ay, ax)  # exact for a quotient that is one off at most
        r = self.select(self.less(r, self.k(0, x)), self.add(r, ay), r)
        r = self.select(self.less(r, ay), r, self.sub(r, ay))
        m, _ = FIELDS[x.ty.bits]
        safe = self.less(q, self.k(2.0 ** (m - 1), x))
        safe = self.fn.binary("and", safe, self.greater(ay, self.k(2.0 ** (m + 2) * _smallest(x.ty.bits), x)))
        safe = self.fn.binary("and", safe, self.fn.compare("fcmp ord", r, r))  # an infinite y, or NaN
        far = self.fn.binary("xor", safe, const(True, safe.ty))
        return self.rarely(far, self.copysign(r, x), lambda: self.fn.here(self.fn.binary("frem", self.fn.here(x), y)))

    def mod(self, x: Val, y: Val) -> Val:
        """The remainder with the sign of y; 0 takes y's sign as well."""
        x, y = self.fn.align_lanes(x, y)
        r = self.fmod(x, y)
        nonzero = self.fn.compare("fcmp une", r, self.k(0, r))
        differ = self.fn.compare(
            "icmp slt", self.fn.binary("xor", self.bits(r), self.bits(y)), self._int(0, self.bits(r))
        )
        r2 = self.select(self.fn.binary("and", nonzero, differ), self.add(r, y), r)
        return self.select(nonzero, r2, self.copysign(self.k(0, r), y))

    def floordiv(self, x: Val, y: Val) -> Val:
        """floor(x / y) of the exact quotient, through the exact remainder."""
        x, y = self.fn.align_lanes(x, y)
        quotient = self.div(x, y)
        r = self.mod(x, y)
        q = self.div(self.sub(x, r), y)
        f = self.floor(q)
        f = self.select(self.greater(self.sub(q, f), self.k(0.5, q)), self.add(f, self.k(1, q)), f)
        f = self.select(self.equal(q, self.k(0, q)), self.copysign(self.k(0, q), quotient), f)
        kept = self.select(self.equal(r, x), self.copysign(self.k(0, q), quotient), self.k(-1, q))
        endless = self.fn.binary("and", self.is_infinite(y), self.fn.compare("fcmp ord", r, r))
        f = self.select(endless, kept, f)
        return self.select(self.equal(y, self.k(0, y)), quotient, f)


def _smallest(bits: int) -> float:
    return 2.0**-126 if bits == 32 else 2.0**-1022
