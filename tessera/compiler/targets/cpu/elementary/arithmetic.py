"""Floating-point arithmetic by short names: what the elementary functions are written in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessera.compiler.targets.cpu.elementary.coefficients import FIELDS
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import Val, const, ty


class Arithmetic:
    """Emits arithmetic on f32 or f64 values of any number of lanes into `fn`."""

    def __init__(self, fn: LLVMFunction, isa: VectorISA) -> None:
        self.fn, self.isa = fn, isa

    # -- short names -------------------------------------------------------------------------------------------------
    def k(self, x: float, like: Val) -> Val:
        return const(x, like.ty)

    def add(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fadd", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fsub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fmul", a, b)

    def div(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fdiv", a, b)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        a, b, c = self.fn.align_lanes(a, b, c)
        return self.fn.intrinsic("fma", a.ty, a, b, c)

    def neg(self, a: Val) -> Val:
        return self.fn.op(f"fneg {a.ty.text} {a.ref}", a.ty, (a,))

    def abs(self, a: Val) -> Val:
        return self.fn.intrinsic("fabs", a.ty, a)

    def sqrt(self, a: Val) -> Val:
        return self.fn.intrinsic("sqrt", a.ty, a)

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        return self.fn.intrinsic("copysign", magnitude.ty, magnitude, sign)

    def rsqrt(self, a: Val) -> Val:
        return self.div(self.k(1, a), self.sqrt(a))

    def reciprocal(self, a: Val) -> Val:
        return self.div(self.k(1, a), a)

    def square(self, a: Val) -> Val:
        return self.mul(a, a)

    def rint(self, a: Val) -> Val:
        return self.fn.intrinsic("roundeven", a.ty, a)

    def floor(self, a: Val) -> Val:
        return self.fn.intrinsic("floor", a.ty, a)

    def ceil(self, a: Val) -> Val:
        return self.fn.intrinsic("ceil", a.ty, a)

    def trunc(self, a: Val) -> Val:
        return self.fn.intrinsic("trunc", a.ty, a)

    def less(self, a: Val, b: Val) -> Val:
        return self.fn.compare("fcmp olt", a, b)

    def greater(self, a: Val, b: Val) -> Val:
        return self.fn.compare("fcmp ogt", a, b)

    def equal(self, a: Val, b: Val) -> Val:
        return self.fn.compare("fcmp oeq", a, b)

    def is_nan(self, a: Val) -> Val:
        return self.fn.compare("fcmp uno", a, a)

    def is_infinite(self, a: Val) -> Val:
        return self.equal(self.abs(a), self.k(math.inf, a))

    def is_finite(self, a: Val) -> Val:
        return self.fn.compare("fcmp one", self.abs(a), self.k(math.inf, a))

    def select(self, c: Val, a: Val, b: Val) -> Val:
        return self.fn.select(c, a, b)

    def clamp(self, x: Val, lo: float, hi: float) -> Val:
        """x limited to [lo, hi]; NaN stays NaN (two min/max instructions: they give the second operand for NaN)."""
        low = self.k(lo, x)
        return self.at_most(self.select(self.greater(low, x), low, x), hi)

    def at_most(self, x: Val, hi: float) -> Val:
        """The less of the two; NaN stays NaN."""
        high = self.k(hi, x)
        return self.select(self.less(high, x), high, x)

    def poly(self, z: Val, coefficients: Sequence[float]) -> Val:
        p = self.k(coefficients[-1], z)
        for c in coefficients[-2::-1]:
            p = self.fma(p, z, self.k(c, z))
        return p

    def bits(self, a: Val) -> Val:
        return self.fn.convert("bitcast", a, a.ty.as_int())

    def _int(self, value: int, like: Val) -> Val:
        return const(value, like.ty.as_int() if like.ty.kind == "f" else like.ty)

    # -- powers of two -----------------------------------------------------------------------------------------------
    def scale(self, a: Val, n: Val) -> Val:
        """a * 2**n for n integral (as a float), rounded once, for any n within twice the exponent range."""
        t, fn = a.ty, self.fn
        if self.isa.masks and t.lanes * t.bits >= 512:
            return self.in_pieces(512 // t.bits, self._scalef, a, n)
        m, bias = FIELDS[t.bits]
        i = fn.convert("fptosi", n, ty("i", t.bits))
        half = fn.binary("ashr", i, self._int(1, i))
        for part in (half, fn.binary("sub", i, half)):
            exponent = fn.binary("shl", fn.binary("add", part, self._int(bias, i)), self._int(m, i))
            a = self.mul(a, fn.convert("bitcast", exponent, t))
        return a

    def _scalef(self, a: Val, n: Val) -> Val:
        """A whole register of AVX-512."""
        t, kind = a.ty, "ps" if a.ty.bits == 32 else "pd"
        mask, rounding = const(-1, ty("i", t.lanes)), const(4, ty("i", 32))
        return self.fn.call_pure(f"llvm.x86.avx512.mask.scalef.{kind}.512", t, a, n, const(0, t), mask, rounding)

    def in_pieces(self, most: int, write: Callable[..., Val], *values: Val) -> Val:
        """`write` of vectors, in pieces of `most` lanes if they have more."""
        fn, lanes = self.fn, values[0].ty.lanes
        if lanes <= max(1, most):
            return write(*values)
        half = lanes // 2
        parts = [
            self.in_pieces(most, write, *(fn.shuffle(v, None, range(start, start + half)) for v in values))
            for start in (0, half)
        ]
        return fn.shuffle(parts[0], parts[1], range(lanes))

    # -- the C library -----------------------------------------------------------------------------------------------
    def library(self, name: str, *args: Val) -> Val:
        """One call of the C library's function per lane."""
        args = tuple(self.fn.align_lanes(*args))
        return self.fn.here(self.fn.intrinsic(name, args[0].ty, *[self.fn.here(a) for a in args]))

    def rarely(self, condition: Val, usual: Val, slow: Callable[[], Val]) -> Val:
        """`usual`, but slow() in the lanes where `condition` holds; slow() runs only if there are such lanes."""
        fn = self.fn
        return fn.choose(fn.any_lane(condition), lambda: [fn.select(condition, slow(), usual)], lambda: [usual])[0]
