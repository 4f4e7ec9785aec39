"""Transforms of real numbers: half of the results say all, and a transform of half the length computes them.

The even elements as real parts and the odd ones as imaginary parts are the elements of one complex transform, whose
results are taken apart by their symmetry (E. O. Brigham, "The Fast Fourier Transform", 1974, section 10-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.spectral.factors import SHORT, is_smooth
from tessera.compiler.graph.operators.spectral.transform import demand_elements, operations, scaled
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Rdft(Operator):
    """Results 0 to n // 2 of the transform `dft` of n real numbers along `axis`; the others are their conjugates."""

    kind = "spectral"
    batching = "axis"
    methods = ()

    def infer(self, t: Infer, x: TensorType, axis: int = -1, power: float = 0.0) -> TensorType:
        t.require(x, "float")
        wide, a = t.convert(0, x, x.dtype.compute), t.axis(x, axis)
        demand_elements(t, x.shape[a])
        t.canonical(axis=a, power=t.number(power, "power", -1, 0))
        shape = (*x.shape[:a], half(x.shape[a]), *x.shape[a + 1 :])
        return TensorType(shape, wide.dtype.paired)

    def reference(self, x: Any, axis: int, power: float) -> Any:
        return np.fft.rfft(x.astype(np.float64), axis=axis) * float(x.shape[axis]) ** power

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int, power: float) -> tuple[Value]:
        """A result and its conjugate carry half of a cotangent each."""
        n = tensor(x).shape[axis]
        given = g.mul(g.conj(ct), weights(g, ct, n, axis, 0.5))
        return (g.to(g.irdft(given, n, axis, power), tensor(x).dtype),)

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, axis: int, power: float
    ) -> Value:
        return g.rdft(tangents[0], axis, power)

    def decompose(self, g: GraphBuilder, x: Value, axis: int, power: float) -> Value | None:
        shape = tensor(x).shape
        n = shape[axis]
        if (wide := tensor(x).dtype.compute) != tensor(x).dtype:
            return g.rdft(g.cast(x, wide), axis, power)
        if len(shape) != 3 or axis != 1:
            found = g.rdft(g.reshape(x, three(shape, axis)), 1, power)
            return g.reshape(found, (*shape[:axis], half(n), *shape[axis + 1 :]))
        before, _, behind = shape
        if not isinstance(n, int) or n % 2:
            whole = g.dft(g.cast(x, tensor(x).dtype.paired), axis=1, power=power)
            return g.slice(whole, (0, 0, 0), (before, half(n), behind))
        if behind == 1 and 2 < n <= SHORT and is_smooth(n // 2):
            return None
        pairs = g.reshape(x, (before, n // 2, 2, behind))
        even, odd = (
            g.reshape(g.slice(pairs, (0, 0, i, 0), (before, n // 2, i + 1, behind)), (before, n // 2, behind))
            for i in (0, 1)
        )
        z, scale = g.dft(even, odd, axis=1), float(n) ** power
        zero, inner = _split(g, z)
        real, imaginary = g.mul(g.real(zero), scale), g.mul(g.imag(zero), scale)
        ends = [g.to(f(real, imaginary), tensor(z).dtype) for f in (g.add, g.sub)]
        back = g.conj(g.flip(inner, 1))
        turned = g.mul(g.sub(inner, back), _turns(g, z, n, conjugate=False))
        middle = g.add(g.mul(g.add(inner, back), 0.5 * scale), g.mul(turned, -0.5j * scale))
        return g.concat([ends[0], middle, ends[1]], axis=1)

    def partition(self, cut: Cut, x: TensorType, axis: int, power: float) -> None:
        if cut.axis(x) == axis:
            cut.whole(f"each element of a transform depends on all along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.floordiv(operations(operands[0].shape, attrs["axis"]), 2)


class Irdft(Operator):
    """The `n` real numbers whose transform, the inverse one, has results 0 to n // 2 like `x` along `axis`.

    The imaginary parts of result 0, and of result n / 2, are taken for 0.
    """

    batching = "axis"
    methods = ()

    def infer(self, t: Infer, x: TensorType, n: Dim, axis: int = -1, power: float = 0.0) -> TensorType:
        t.require(x, "complex")
        a, count = t.axis(x, axis), t.dim(n, "n")
        demand_elements(t, count)
        t.same(
            x.shape[a], half(count), "TS213", lambda: f"irdft of {count} elements takes {half(count)}, not {x.shape[a]}"
        )
        t.canonical(n=count, axis=a, power=t.number(power, "power", -1, 0))
        return TensorType((*x.shape[:a], count, *x.shape[a + 1 :]), x.dtype.part)

    def reference(self, x: Any, n: int, axis: int, power: float) -> Any:
        return np.fft.irfft(x.astype(np.complex128), n, axis=axis, norm="forward") * float(n) ** power

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, n: Dim, axis: int, power: float
    ) -> tuple[Value]:
        """Each number counts for itself and its conjugate."""
        found = g.conj(g.rdft(ct, axis, power))
        return (g.mul(found, weights(g, found, n, axis, 2.0)),)

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, n: Dim, axis: int, power: float
    ) -> Value:
        return g.irdft(tangents[0], n, axis, power)

    def decompose(self, g: GraphBuilder, x: Value, n: Dim, axis: int, power: float) -> Value:
        shape = tensor(x).shape
        if len(shape) != 3 or axis != 1:
            found = g.irdft(g.reshape(x, three(shape, axis)), n, 1, power)
            return g.reshape(found, (*shape[:axis], n, *shape[axis + 1 :]))
        before, _, behind = shape
        if not isinstance(n, int) or n % 2:
            twice = g.mul(x, weights(g, x, n, 1, 2.0))
            padded = g.pad(twice, ((0, 0), (0, n - half(n)), (0, 0)))
            return g.real(g.dft(padded, axis=1, inverse=True, power=power))
        zero, rest = _split(g, x)
        inner, last = _split(g, rest, n // 2 - 1)
        first, last = g.real(zero), g.real(last)
        back = g.conj(g.flip(inner, 1))
        turned = g.mul(g.sub(inner, back), _turns(g, x, n, conjugate=True))
        middle = g.add(g.add(inner, back), g.mul(turned, 1j))
        z = g.concat([g.make_complex(g.add(first, last), g.sub(first, last)), middle], axis=1)
        z = scaled(g, g.dft(z, axis=1, inverse=True), n, power)
        return g.reshape(g.stack([g.real(z), g.imag(z)], axis=2), (before, n, behind))

    def partition(self, cut: Cut, x: TensorType, n: Dim, axis: int, power: float) -> None:
        if cut.axis(x) == axis or cut.mentioned(n):
            cut.whole(f"each element of a transform depends on all along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.floordiv(operations(results[0].shape, attrs["axis"]), 2)


def half(n: Dim) -> Dim:
    """How many results of a transform of n real numbers say all."""
    return dims.floordiv(n, 2) + 1


def three(shape: Shape, axis: int) -> Shape:
    """The shape with one axis before `axis`, and one behind."""
    return dims.prod(shape[:axis]), shape[axis], dims.prod(shape[axis + 1 :])


def _split(g: GraphBuilder, x: Value, at: int = 1) -> tuple[Value, Value]:
    """The first elements along the middle axis, and those from number `at` on."""
    before, count, behind = tensor(x).shape
    return g.slice(x, (0, 0, 0), (before, at, behind)), g.slice(x, (0, at, 0), (before, count, behind))


def _turns(g: GraphBuilder, like: Value, n: int, conjugate: bool) -> Value:
    """The roots of unity 1 to n / 2 - 1, along the middle axis."""
    table = g.roots_of_unity(n, n // 2, "line", conjugate, tensor(like).dtype)
    return g.reshape(g.slice(table, (1,), (n // 2,)), (n // 2 - 1, 1))


def weights(g: GraphBuilder, like: Value, n: Dim, axis: int, inner: float) -> Value:
    """1 for the results that are their own conjugates, 0 and n / 2, and `inner` for the others."""
    shape = tensor(like).shape
    own = tuple(d if i == axis else 1 for i, d in enumerate(shape))
    k = g.iota(own, axis=axis)
    alone = g.logical_or(g.eq(k, 0), g.eq(g.mul(k, 2), n))
    return g.to(g.where(alone, 1.0, inner), tensor(like).dtype)
