"""The discrete Fourier transform along one axis, on which all functions of `ts.fft` rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.spectral.factors import is_smooth, power_of_two
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

DENSE = 64
"""the longest transform with a large prime factor that is a product with the matrix of its roots"""


class Dft(Operator):
    """n^power * sum over j of x[j] exp(-2 pi i j k / n) along `axis`; `inverse`: with +i.

    With `imaginary`, of x + i imaginary for real ones. It is linear and its matrix symmetric, so that it is its own
    tangent and its own adjoint.
    """

    kind = "spectral"
    batching = "axis"
    methods = ()

    def infer(
        self, t: Infer, x: TensorType, imaginary: TensorType | None = None, axis: int = -1, inverse: bool = False,
        power: float = 0.0,
    ) -> TensorType:  # fmt: skip
        a = t.axis(x, axis)
        demand_elements(t, x.shape[a])
        t.canonical(axis=a, inverse=t.flag(inverse, "inverse"), power=t.number(power, "power", -1, 0))
        if imaginary is None:
            t.require(x, "complex")
            return x
        for i, part in enumerate((x, imaginary)):
            if part.dtype not in (dtypes.f32, dtypes.f64):
                t.fail("TS301", f"dft of two parts takes f32 or f64, not {part.dtype}", operand=i)
        dtype = t.promote(x, imaginary)
        same = x.rank == imaginary.rank and all(map(dims.equal, x.shape, imaginary.shape))
        if not same:
            t.fail("TS202", f"the parts of dft have the shapes {shape_text(x.shape)} and {shape_text(imaginary.shape)}")
        return x.with_dtype(dtype.paired)

    def reference(self, x: Any, imaginary: Any, axis: int, inverse: bool, power: float) -> Any:
        whole = x if imaginary is None else x + 1j * imaginary
        wide = whole.astype(np.complex128)
        found = np.fft.ifft(wide, axis=axis, norm="forward") if inverse else np.fft.fft(wide, axis=axis)
        return found * float(x.shape[axis]) ** power

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, imaginary: Value | None, axis: int, inverse: bool,
        power: float,
    ) -> tuple[Value | None, ...]:  # fmt: skip
        found = g.dft(ct, axis=axis, inverse=inverse, power=power)
        return (found, None) if imaginary is None else (g.real(found), g.neg(g.imag(found)))

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Sequence[Value | None], x: Value, imaginary: Value | None,
        axis: int, inverse: bool, power: float,
    ) -> Value:  # fmt: skip
        parts = [None if imaginary is None and i else v for i, v in enumerate(tangents)]
        if imaginary is not None:
            parts = [g.zeros_like(x) if v is None else v for v in parts]
        return g.dft(*parts, axis=axis, inverse=inverse, power=power)

    def decompose(
        self, g: GraphBuilder, x: Value, imaginary: Value | None, axis: int, inverse: bool, power: float
    ) -> Value | None:
        """As [before, n, behind]; where passes do not compute it, by a product or by Bluestein's convolution."""
        shape = tensor(x).shape
        n = shape[axis]
        if len(shape) != 3 or axis != 1:
            three = (dims.prod(shape[:axis]), n, dims.prod(shape[axis + 1 :]))
            parts = [v if v is None else g.reshape(v, three) for v in (x, imaginary)]
            return g.reshape(g.dft(*parts, axis=1, inverse=inverse, power=power), shape)
        if isinstance(n, int) and n > 1 and is_smooth(n):
            return None
        if imaginary is not None:
            return g.dft(g.make_complex(x, imaginary), axis=1, inverse=inverse, power=power)
        if n == 1:
            return g.cast(x, tensor(x).dtype)
        if not isinstance(n, int):
            return scaled(g, g.matmul(_matrix(g, x, n, inverse), x), n, power)
        if n <= DENSE:
            table = g.roots_of_unity(n, n, "matrix", inverse, tensor(x).dtype)
            return scaled(g, g.matmul(table, x), n, power)
        return _by_convolution(g, x, n, inverse, power)

    def partition(
        self, cut: Cut, x: TensorType, imaginary: TensorType | None, axis: int, inverse: bool, power: float
    ) -> None:
        if cut.axis(x) == axis:
            cut.whole(f"each element of a transform depends on all along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return operations(operands[0].shape, attrs["axis"])


def demand_elements(t: Infer, n: Dim) -> None:
    """Refuses a transform of nothing."""
    if isinstance(n, int) and n < 1:
        t.fail("TS213", f"a transform has at least 1 element, not {n}")


def operations(shape: Shape, axis: int) -> Dim:
    """The usual count, 5 n log2(n), of transforms along an axis; an axis of unknown size counts as a million long."""
    n = shape[axis]
    return dims.prod(shape) * 5 * (max(1, math.ceil(math.log2(n))) if isinstance(n, int) and n > 0 else 20)


def _matrix(g: GraphBuilder, x: Value, n: Dim, inverse: bool) -> Value:
    """The matrix of a transform whose length is known at launch."""
    j, k, length = g.iota((n, 1), axis=0), g.iota((1, n), axis=1), g.size(n, dtypes.int64)
    turns = g.div(g.to(g.mod(g.mul(j, k), length), dtypes.f64), g.to(length, dtypes.f64))
    angle = g.mul(turns, math.tau if inverse else -math.tau)
    return g.to(g.make_complex(g.cos(angle), g.sin(angle)), tensor(x).dtype)


def _by_convolution(g: GraphBuilder, x: Value, n: int, inverse: bool, power: float) -> Value:
    """jk = (j^2 + k^2 - (k - j)^2) / 2 makes the sum a convolution with a chirp, which longer transforms compute."""
    long, dtype = power_of_two(2 * n - 1), tensor(x).dtype
    wave = g.reshape(g.roots_of_unity(n, n, "chirp", inverse, dtype), (n, 1))
    response = g.reshape(g.roots_of_unity(n, long, "response", inverse, dtype), (long, 1))
    padded = g.pad(g.mul(x, wave), ((0, 0), (0, long - n), (0, 0)))
    found = g.dft(g.mul(g.dft(padded, axis=1), response), axis=1, inverse=True)
    before, _, behind = tensor(x).shape
    first = g.slice(found, (0, 0, 0), (before, n, behind))
    return scaled(g, g.mul(first, wave), n, power)


def scaled(g: GraphBuilder, x: Value, n: Dim, power: float) -> Value:
    """n^power x."""
    if power == 0:
        return x
    if isinstance(n, int):
        return g.mul(x, float(n) ** power)
    return g.mul(x, g.to(g.pow(g.size(n, dtypes.f64), power), tensor(x).dtype))
