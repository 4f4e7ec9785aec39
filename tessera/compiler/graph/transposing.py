"""The same elements with their axes in another order: views. The primitive is `transpose`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import items
from tessera.compiler.graph.operator import GraphBuilder, Infer, Operator, Spread, tensor
from tessera.compiler.graph.shaping import Strided, View
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Transpose(View):
    """`x` with its axes in the order `perm`; without it, in reverse order.

    Two axes spelled out, `x.transpose(1, 2)`, are exchanged, as in PyTorch; a tuple is always a permutation.
    """

    properties = ("T",)

    def infer(self, t: Infer, x: TensorType, perm: Sequence[int] | None = None) -> TensorType:
        order = tuple(range(x.rank))[::-1]
        if isinstance(perm, Spread) and len(perm) == 2 and x.rank >= 2:
            order = _exchanged(x.rank, t.axis(x, perm[0]), t.axis(x, perm[1]))
        elif perm is not None:
            order = _permutation(t, x, perm)
        t.canonical(perm=order)
        return x.with_shape(tuple(x.shape[i] for i in order))

    def reference(self, x: Any, perm: tuple[int, ...]) -> Any:
        return np.transpose(x, perm)

    def strided(self, shape: Shape, strides: Shape, offset: Dim, /, perm: tuple[int, ...]) -> Strided:
        return tuple(shape[i] for i in perm), tuple(strides[i] for i in perm), offset

    def partition(self, cut: Cut, x: TensorType, perm: tuple[int, ...]) -> None:
        """An axis stays one wherever it goes."""

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, perm: tuple[int, ...]) -> tuple[Value]:
        return (g.transpose(ct, tuple(sorted(range(len(perm)), key=perm.__getitem__))),)


def _exchanged(rank: int, a: int, b: int) -> tuple[int, ...]:
    return tuple(b if i == a else a if i == b else i for i in range(rank))


def _permutation(t: Infer, x: TensorType, perm: Sequence[int], why: str = "") -> tuple[int, ...]:
    """`perm` counted from 0, which names every axis once."""
    order = tuple(t.axis(x, a, "perm") for a in items(perm))
    if sorted(order) != list(range(x.rank)):
        count = f"{x.rank} ax{'i' if x.rank == 1 else 'e'}s"
        t.fail("TS204", f"perm={order} is no permutation of the {count} of {shape_text(x.shape)}{why}")
    return order


class Permute(Operator):
    """`x` with its axes in the order `perm`, which names every axis, as in PyTorch."""

    functions = methods = ("permute", "permute_dims")

    def infer(self, t: Infer, x: TensorType, perm: Sequence[int]) -> TensorType:
        some = [t.axis(x, a, "perm") for a in items(perm)]
        pair = len(some) == 2 and x.rank > 2 and some[0] != some[1]
        why = f"; permute names every axis, transpose({some[0]}, {some[1]}) exchanges two" if pair else ""
        order = _permutation(t, x, perm, why)
        t.canonical(perm=order)
        return x.with_shape(tuple(x.shape[i] for i in order))

    def reference(self, x: Any, perm: tuple[int, ...]) -> Any:
        return np.transpose(x, perm)

    def decompose(self, g: GraphBuilder, x: Value, perm: tuple[int, ...]) -> Value:
        return g.transpose(x, perm)


class Swapaxes(Operator):
    """`x` with two axes exchanged."""

    def infer(self, t: Infer, x: TensorType, axis1: int, axis2: int) -> TensorType:
        a, b = t.axis(x, axis1, "axis1"), t.axis(x, axis2, "axis2")
        t.canonical(axis1=a, axis2=b)
        return x.with_shape(tuple(x.shape[i] for i in _exchanged(x.rank, a, b)))

    def reference(self, x: Any, axis1: int, axis2: int) -> Any:
        return np.swapaxes(x, axis1, axis2)

    def decompose(self, g: GraphBuilder, x: Value, axis1: int, axis2: int) -> Value:
        return g.transpose(x, _exchanged(tensor(x).rank, axis1, axis2))


class Moveaxis(Operator):
    """`x` with the axes `source` at the places `destination`; the others keep their order."""

    def infer(self, t: Infer, x: TensorType, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Any:
        a = tuple(t.axis(x, i, "source") for i in items(source))
        b = tuple(t.axis(x, i, "destination") for i in items(destination))
        if len(a) != len(b) or len(set(a)) != len(a) or len(set(b)) != len(b):
            t.fail("TS204", f"moveaxis needs as many different axes as places, not {a} and {b}")
        t.canonical(source=a, destination=b)
        return x.with_shape(tuple(x.shape[i] for i in self.order(x.rank, a, b)))

    def order(self, rank: int, source: tuple[int, ...], destination: tuple[int, ...]) -> tuple[int, ...]:
        placed = dict(zip(destination, source, strict=True))
        rest = iter([i for i in range(rank) if i not in source])
        return tuple(placed[i] if i in placed else next(rest) for i in range(rank))

    def reference(self, x: Any, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
        return np.moveaxis(x, source, destination)

    def decompose(self, g: GraphBuilder, x: Value, source: tuple[int, ...], destination: tuple[int, ...]) -> Value:
        return g.transpose(x, self.order(tensor(x).rank, source, destination))


class MatrixTranspose(Operator):
    """`x` with its last two axes exchanged."""

    functions, methods, properties = ("matrix_transpose",), (), ("mT",)

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        if x.rank < 2:
            t.fail("TS213", f"the matrix transpose needs at least two axes, {shape_text(x.shape)} has {x.rank}")
        return x.with_shape((*x.shape[:-2], x.shape[-1], x.shape[-2]))

    def reference(self, x: Any) -> Any:
        return np.swapaxes(x, -1, -2)

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        n = tensor(x).rank
        return g.transpose(x, _exchanged(n, n - 1, n - 2))
