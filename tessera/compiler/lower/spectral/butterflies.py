"""Short transforms in registers, written out with the builder of Tile IR.

A complex number is a pair of tiles. All transforms are forward, exp(-2 pi i j k / n); an inverse one is this with the
two parts of every number changed over, before and after.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import TypeAlias

from tessera.compiler.graph.operators.spectral.factors import prime_factors
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.builder import TileBuilder
from tessera.language.dims import Dim

Pair: TypeAlias = "tuple[Value, Value]"
"""the real and the imaginary part"""


class Butterflies:
    """Arithmetic of pairs, and transforms of lists of them."""

    def __init__(self, b: TileBuilder) -> None:
        self.b = b

    def parts(self, x: Value, swapped: bool = False) -> Pair:
        """A tile of complex numbers as a pair; `swapped`: the imaginary parts first."""
        real, imaginary = self.b.map("real", x), self.b.map("imag", x)
        return (imaginary, real) if swapped else (real, imaginary)

    def spread(self, x: Pair, shape: tuple[Dim, ...]) -> Pair:
        """Both parts repeated along axes of size 1."""
        axes = tuple(range(len(shape)))
        return self.b.broadcast(x[0], shape, axes), self.b.broadcast(x[1], shape, axes)

    # -- arithmetic --------------------------------------------------------------------------------------------------
    def number(self, like: Value, value: float) -> Value:
        t = like.type
        assert isinstance(t, TileType)
        return self.b.full(t.shape, value, t.dtype)

    def add(self, x: Pair, y: Pair) -> Pair:
        return self.b.map("add", x[0], y[0]), self.b.map("add", x[1], y[1])

    def sub(self, x: Pair, y: Pair) -> Pair:
        return self.b.map("sub", x[0], y[0]), self.b.map("sub", x[1], y[1])

    def scaled(self, x: Value, by: float) -> Value:
        return self.b.map("mul", x, self.number(x, by))

    def times(self, x: Pair, w: Pair) -> Pair:
        """The product of two complex numbers."""
        b = self.b
        real = b.map("fma", x[0], w[0], b.map("neg", b.map("mul", x[1], w[1])))
        return real, b.map("fma", x[0], w[1], b.map("mul", x[1], w[0]))

    def turned(self, x: Pair, k: int, n: int) -> Pair:
        """x exp(-2 pi i k / n)."""
        b, k = self.b, k % n
        if 8 * k % n == 0:
            match 8 * k // n:
                case 0:
                    return x
                case 2:
                    return x[1], b.map("neg", x[0])
                case 4:
                    return b.map("neg", x[0]), b.map("neg", x[1])
                case 6:
                    return b.map("neg", x[1]), x[0]
                case eighths:
                    half = math.sqrt(0.5)
                    both, apart = b.map("add", x[0], x[1]), b.map("sub", x[1], x[0])
                    at = {1: (both, apart, 1, 1), 3: (apart, both, 1, -1), 5: (both, apart, -1, -1)}
                    real, imaginary, a, c = at.get(eighths, (apart, both, -1, 1))
                    return self.scaled(real, a * half), self.scaled(imaginary, c * half)
        w = cmath.exp(-2j * cmath.pi * k / n)
        return self.times(x, (self.number(x[0], w.real), self.number(x[0], w.imag)))

    # -- transforms --------------------------------------------------------------------------------------------------
    def transform(self, x: Sequence[Pair]) -> list[Pair]:
        """The transform of these elements, in order."""
        n = len(x)
        if n == 1:
            return [*x]
        if n == 2:
            return [self.add(*x), self.sub(*x)]
        if n == 4:
            return self._four(x)
        primes = prime_factors(n)
        if len(primes) == 1:
            return self._prime(x)
        first = 4 if n % 4 == 0 else primes[-1]
        return self._composed(x, first)

    def of_real(self, z: Sequence[Pair]) -> list[Pair]:
        """Results 0 to n of the transform of 2n real numbers, from that of pairs of them."""
        b, n, (real, imaginary) = self.b, len(z), z[0]
        zero = self.number(real, 0.0)
        out: list[Pair] = [(b.map("add", real, imaginary), zero)] * (n + 1)
        out[n] = b.map("sub", real, imaginary), zero
        for k in range(1, n // 2 + 1):
            near, far = z[k], z[n - k]
            if k == n - k:
                out[k] = near[0], b.map("neg", near[1])
                continue
            both = b.map("add", near[0], far[0]), b.map("sub", near[1], far[1])
            apart = b.map("sub", near[0], far[0]), b.map("add", near[1], far[1])
            w, half = -0.5j * cmath.exp(-1j * cmath.pi * k / n), self.number(real, 0.5)
            turned = self.times(apart, (self.number(real, w.real), self.number(real, w.imag)))
            less = self.number(real, -0.5)
            out[k] = b.map("fma", both[0], half, turned[0]), b.map("fma", both[1], half, turned[1])
            out[n - k] = b.map("fma", both[0], half, b.map("neg", turned[0])), b.map("fma", both[1], less, turned[1])
        return out

    def _four(self, x: Sequence[Pair]) -> list[Pair]:
        even, apart = self.add(x[0], x[2]), self.sub(x[0], x[2])
        odd, across = self.add(x[1], x[3]), self.sub(x[1], x[3])
        b = self.b
        return [
            self.add(even, odd),
            (b.map("add", apart[0], across[1]), b.map("sub", apart[1], across[0])),
            self.sub(even, odd),
            (b.map("sub", apart[0], across[1]), b.map("add", apart[1], across[0])),
        ]

    def _prime(self, x: Sequence[Pair]) -> list[Pair]:
        """Elements j and n - j have conjugate roots: their sums and differences are multiplied by real numbers."""
        b, n = self.b, len(x)
        pairs = [(x[j], x[n - j]) for j in range(1, (n + 1) // 2)]
        sums, apart = [self.add(*p) for p in pairs], [self.sub(*p) for p in pairs]
        total = x[0]
        for s in sums:
            total = self.add(total, s)
        out: list[Pair] = [total] * n
        for k in range(1, (n + 1) // 2):
            near, far = x[0], None
            for j, (s, d) in enumerate(zip(sums, apart, strict=True), 1):
                angle = 2 * math.pi * (j * k % n) / n
                cos, sin = self.number(s[0], math.cos(angle)), self.number(s[0], math.sin(angle))
                near = b.map("fma", s[0], cos, near[0]), b.map("fma", s[1], cos, near[1])
                if far is None:
                    far = b.map("mul", d[0], sin), b.map("mul", d[1], sin)
                else:
                    far = b.map("fma", d[0], sin, far[0]), b.map("fma", d[1], sin, far[1])
            assert far is not None
            out[k] = b.map("add", near[0], far[1]), b.map("sub", near[1], far[0])
            out[n - k] = b.map("sub", near[0], far[1]), b.map("add", near[1], far[0])
        return out

    def _composed(self, x: Sequence[Pair], first: int) -> list[Pair]:
        """J. W. Cooley and J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965."""
        n, rest = len(x), len(x) // first
        columns = [self.transform([x[rest * p + j] for p in range(first)]) for j in range(rest)]
        out: list[Pair] = [x[0]] * n
        for q in range(first):
            row = self.transform([self.turned(columns[j][q], j * q, n) for j in range(rest)])
            for k, v in enumerate(row):
                out[q + first * k] = v
        return out
