"""The same elements under another shape, or reversed: views, which lowering re-indexes by strides without a copy.

Primitives: `reshape`, `broadcast_to`, `slice` and `flip`; the others are spelled in these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import counterexample, items
from tessera.compiler.graph.operator import Infer, Operator, Spread, tensor
from tessera.compiler.graph.operators.elementwise import sum_to
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

Axes: TypeAlias = "int | tuple[int, ...] | None"
Strided: TypeAlias = "tuple[Shape, Shape, Dim] | None"


def contiguous(shape: Shape) -> Shape:
    """The strides, in elements, of a C-ordered tensor."""
    return tuple(dims.prod(shape[i + 1 :]) for i in range(len(shape)))


class ViewOperator(Operator, abstract=True):
    """A linear map that only moves elements, so its tangent is itself."""

    kind = "view"

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, **attrs: Any) -> Value:
        return g.emit(self, [tangents[0]], attrs)


class Reshape(ViewOperator):
    """The same elements in C order under another shape; one size may be -1 and is solved for."""

    functions, methods = ("reshape",), ("reshape", "view")

    def infer(self, t: Infer, x: TensorType, shape: Shape) -> TensorType:
        given = t.shape(shape)
        target = self._solved(t, x, given)
        total, want = dims.prod(x.shape), dims.prod(target)

        def differ() -> str:
            message = f"reshape of {shape_text(x.shape)} to {shape_text(given)}"
            return f"{message} does not keep the number of elements: {total}, {want}"

        t.same(total, want, "TS205", differ)
        t.canonical(shape=target)
        return x.with_shape(target)

    def _solved(self, t: Infer, x: TensorType, given: Shape) -> Shape:
        """The requested shape, with -1 replaced by its size."""
        least = min((d for d in given if isinstance(d, int)), default=0)
        if least >= 0:
            return given
        if least < -1 or given.count(-1) > 1:
            t.fail("TS205", f"reshape to {shape_text(given)}: sizes are not negative, and only one may be -1")
        total, rest = dims.prod(x.shape), dims.prod(d for d in given if d != -1)
        if rest == 0:
            have = shape_text(x.shape)
            t.fail("TS205", f"reshape of {have} to {shape_text(given)}: -1 is ambiguous beside a size of 0")
        size = dims.floordiv(t.facts.normal(total), t.facts.normal(rest))
        exact = dims.floordiv(total, rest)
        if dims.equal(exact * rest, total):
            size = exact
        elif isinstance(exact, int):  # what is to be filled has a number for each size, and it does not fit
            have = shape_text(x.shape)
            t.fail("TS205", f"reshape of {have} to {shape_text(given)}: {total} elements are not a multiple of {rest}")
        return tuple(size if d == -1 else d for d in given)

    def reference(self, x: Any, shape: tuple[int, ...]) -> Any:
        return np.reshape(x, shape)

    def strided(self, shape: Shape, strides: Shape, offset: Dim, /, **attrs: Any) -> Strided:
        """Axes of both shapes are grouped by equal products; each group of the operand must itself be contiguous."""
        target: Shape = attrs["shape"]
        have = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
        want = [d for d in target if d != 1]
        if 0 in want:
            return target, contiguous(target), offset
        out: list[Dim] = []
        for rows, columns in _groups([d for d, _ in have], want):
            group = have[rows]
            if any(s != group[i + 1][1] * group[i + 1][0] for i, (_, s) in enumerate(group[:-1])):
                return None
            out += [s * group[-1][1] for s in contiguous(tuple(want[columns]))]
        rest = iter(out)
        return target, tuple(0 if d == 1 else next(rest) for d in target), offset

    def partition(self, cut: Cut, x: TensorType, shape: Shape) -> None:
        a = cut.axis(x)
        if a is None or cut.out is None:
            cut.whole(f"it makes {cut.dim} of other axes, or the other way round")
        if not dims.equal(dims.prod(x.shape[:a]), dims.prod(shape[: cut.out])):
            cut.whole(f"it joins {cut.dim} to an axis that varies more slowly, so that its parts lie apart")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, shape: Shape) -> tuple[Value]:
        return (g.reshape(ct, tensor(x).shape),)


def _groups(a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[slice, slice]]:
    """Splits two lists of sizes other than 1 with the same product into the shortest pieces with the same product."""
    out: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(a):
        m, n = i + 1, j + 1
        while not dims.equal(p := dims.prod(a[i:m]), q := dims.prod(b[j:n])):
            if m < len(a) and _smaller(p, q):
                m += 1
            elif n < len(b) and _smaller(q, p):
                n += 1
            elif (m, n) == (len(a), len(b)):  # equal, as the shape rule has shown or checks at launch
                break
            else:
                m, n = len(a), len(b)
        out.append((slice(i, m), slice(j, n)))
        i, j = m, n
    return out


def _smaller(p: Dim, q: Dim) -> bool:
    """Whether `p` lacks factors that `q` has."""
    if isinstance(p, int) and isinstance(q, int):
        return p < q
    return p != 0 and dims.equal(dims.floordiv(q, p) * p, q)


class BroadcastTo(ViewOperator):
    """`x` broadcast to `shape` by NumPy's rule; -1 keeps the size of the operand."""

    functions = ("broadcast_to",)
    methods = ("broadcast_to", "expand")

    def infer(self, t: Infer, x: TensorType, shape: Shape) -> TensorType:
        given = t.shape(shape)
        lead = len(given) - x.rank
        target = tuple(x.shape[i - lead] if d == -1 and i >= lead else d for i, d in enumerate(given))
        message = f"{shape_text(x.shape)} does not broadcast to {shape_text(given)}"
        if lead < 0:
            t.fail("TS202", message, operand=0)
        for i, d in enumerate(x.shape):
            if d != 1 and dims.compare(d, wanted := target[i + lead], t.facts) == "no":
                t.fail("TS202", message, *counterexample(d, wanted, t.facts), operand=0)
        t.broadcast(x.shape, target)
        t.canonical(shape=target)
        return x.with_shape(target)

    def reference(self, x: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(x, shape)

    def strided(self, shape: Shape, strides: Shape, offset: Dim, /, **attrs: Any) -> Strided:
        target: Shape = attrs["shape"]
        lead = len(target) - len(shape)
        stretched = [0 if d == 1 else s for d, s in zip(shape, strides, strict=True)]
        return target, (*(0 for _ in range(lead)), *stretched), offset

    def partition(self, cut: Cut, x: TensorType, shape: Shape) -> None:
        at = -1 if cut.out is None else cut.out - (len(shape) - x.rank)
        if at >= 0 and x.shape[at] != 1:
            cut.aligned([x])
            if cut.axis(x) is None:
                cut.whole(f"its operand is not cut along {cut.dim}, and is not longer than a part")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, shape: Shape) -> tuple[Value]:
        return (sum_to(g, ct, tensor(x).shape),)


class Slice(ViewOperator):
    """Elements start, start + step, ... before stop along each axis: one number of each per axis.

    Subscripts are made of it (see `subscript`); starts and stops count from 0 and lie within the axis, steps are
    positive.
    """

    functions = methods = ()

    def infer(
        self, t: Infer, x: TensorType, start: Shape, stop: Shape, step: Sequence[int] | None = None
    ) -> TensorType:
        steps = tuple(step) if step is not None else (1,) * x.rank
        starts, stops = t.shape(start, "start"), t.shape(stop, "stop")
        if not len(starts) == len(stops) == len(steps) == x.rank:
            t.fail("TS207", f"slice needs {x.rank} starts, stops and steps for {shape_text(x.shape)}")
        out: list[Dim] = []
        for a, b, s, size in zip(starts, stops, steps, x.shape, strict=True):
            if s < 1:
                t.fail("TS207", f"slice steps are positive, not {s}; flip reverses")
            gaps = (a, b - a, size - b)
            if any(isinstance(gap, int) and gap < 0 for gap in gaps):
                t.fail("TS207", f"slice {a}:{b} does not lie within an axis of size {size}")
            out.append(b - a if s == 1 else dims.ceildiv(b - a, s))
        t.canonical(start=starts, stop=stops, step=steps)
        return x.with_shape(tuple(out))

    def reference(self, x: Any, start: Any, stop: Any, step: Any) -> Any:
        return x[tuple(slice(*v) for v in zip(start, stop, step, strict=True))]

    def strided(
        self, shape: Shape, strides: Shape, offset: Dim, /, start: Shape, stop: Shape, step: Sequence[int]
    ) -> Strided:
        at = offset
        for a, s in zip(start, strides, strict=True):
            at = at + a * s
        sizes = tuple(dims.ceildiv(b - a, n) for a, b, n in zip(start, stop, step, strict=True))
        return sizes, tuple(s * n for s, n in zip(strides, step, strict=True)), at

    def partition(self, cut: Cut, x: TensorType, start: Shape, stop: Shape, step: Sequence[int]) -> None:
        a = cut.axis(x)
        for i, (m, n, s) in enumerate(zip(start, stop, step, strict=True)):
            if i == a and not (m == 0 and s == 1 and dims.equal(n, x.shape[i])):
                cut.whole(f"it takes a piece of {cut.dim}")
            if i != a and cut.mentioned((m, n)):
                cut.whole(f"it takes a piece whose place depends on the size of {cut.dim}")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, start: Shape, stop: Shape, step: Any) -> Any:
        for axis, s in enumerate(step):
            if s != 1:  # zeros between the elements, then those beyond the last one are cut off again
                n = tensor(ct).shape
                wide = g.pad(
                    g.unsqueeze(ct, axis + 1), tuple((0, s - 1 if i == axis + 1 else 0) for i in range(len(n) + 1))
                )
                ct = g.reshape(wide, (*n[:axis], n[axis] * s, *n[axis + 1 :]))
                room = (*n[:axis], dims.dim_min(n[axis] * s, stop[axis] - start[axis]), *n[axis + 1 :])
                ct = g.slice(ct, (0,) * len(n), room)
        sizes = zip(start, tensor(ct).shape, tensor(x).shape, strict=True)
        return (g.pad(ct, tuple((a, d - a - n) for a, n, d in sizes)),)


class Flip(ViewOperator):
    """`x` in reverse order along `axis`; None means along all axes."""

    def infer(self, t: Infer, x: TensorType, axis: int | Sequence[int] | None = None) -> TensorType:
        t.canonical(axis=t.axes(x, axis))
        return x

    def reference(self, x: Any, axis: tuple[int, ...]) -> Any:
        return np.flip(x, axis)

    def strided(self, shape: Shape, strides: Shape, offset: Dim, /, axis: tuple[int, ...]) -> Strided:
        for a in axis:
            offset = offset + (shape[a] - 1) * strides[a]
        return shape, tuple(-s if i in axis else s for i, s in enumerate(strides)), offset

    def partition(self, cut: Cut, x: TensorType, axis: tuple[int, ...]) -> None:
        if cut.axis(x) in axis:
            cut.whole(f"it reverses {cut.dim}")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...]) -> tuple[Value]:
        return (g.flip(ct, axis),)


class Squeeze(Operator):
    """`x` without axes of size 1: those named by `axis`, or all whose size is known to be 1."""

    def infer(self, t: Infer, x: TensorType, axis: int | Sequence[int] | None = None) -> TensorType:
        gone = tuple(i for i, d in enumerate(x.shape) if d == 1) if axis is None else t.axes(x, axis)
        for a in gone:
            t.same(x.shape[a], 1, "TS213", f"squeeze of axis {a} of {shape_text(x.shape)}, whose size is not 1")
        t.canonical(axis=gone)
        return x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in gone))

    def reference(self, x: Any, axis: tuple[int, ...]) -> Any:
        return np.squeeze(x, axis)

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...]) -> Value:
        return g.reshape(x, tuple(d for i, d in enumerate(tensor(x).shape) if i not in axis))


class Unsqueeze(Operator):
    """`x` with new axes of size 1 at the positions `axis` of the result."""

    functions = methods = ("unsqueeze", "expand_dims")

    def infer(self, t: Infer, x: TensorType, axis: int | Sequence[int]) -> TensorType:
        count = len(axis) if isinstance(axis, (tuple, list)) else 1
        t.canonical(axis=t.axes(x, axis if axis is not None else (), extra=count))  # pyright: ignore
        return x.with_shape(_with_ones(x.shape, t.attrs["axis"]))

    def reference(self, x: Any, axis: tuple[int, ...]) -> Any:
        return np.expand_dims(x, axis)

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...]) -> Value:
        return g.reshape(x, _with_ones(tensor(x).shape, axis))


def _with_ones(shape: Shape, axes: Any) -> Shape:
    rest = iter(shape)
    return tuple(1 if i in axes else next(rest) for i in range(len(shape) + len(axes)))


class Unstack(Operator):
    """A tuple of the slices of `x` along `axis`. The size of this axis must be known."""

    multiple = True
    functions = methods = ("unstack", "unbind")

    def infer(self, t: Infer, x: TensorType, axis: int = 0) -> tuple[TensorType, ...]:
        a = t.axis(x, axis)
        size = x.shape[a]
        if not isinstance(size, int) or size > 4096:
            t.demand_known(size, "TS213", f"unstack needs an axis of known size, at most 4096, not {size}")
        t.canonical(axis=a)
        return (x.with_shape((*x.shape[:a], *x.shape[a + 1 :])),) * size

    def reference(self, x: Any, axis: int) -> Any:
        return tuple(np.moveaxis(x, axis, 0))

    def decompose(self, g: GraphBuilder, x: Value, axis: int) -> tuple[Value, ...]:
        shape = tensor(x).shape
        rest, out = (*shape[:axis], *shape[axis + 1 :]), list[Value]()
        for i in range(shape[axis]):  # type: ignore[arg-type]
            start = tuple(i if a == axis else 0 for a in range(len(shape)))
            stop = tuple(i + 1 if a == axis else d for a, d in enumerate(shape))
            out.append(g.reshape(g.slice(x, start, stop), rest))
        return tuple(out)


class Flatten(Operator):
    """`x` with the axes `start` to `end` (inclusive) made one, in C order."""

    functions, methods = ("flatten", "ravel"), ("flatten", "ravel")

    def infer(self, t: Infer, x: TensorType, start: int = 0, end: int = -1) -> TensorType:
        if not x.rank:
            t.canonical(start=0, end=-1)
            return x.with_shape((1,))
        a, b = t.axis(x, start, "start"), t.axis(x, end, "end")
        if a > b:
            t.fail("TS204", f"flatten needs start <= end, not {start} and {end}")
        t.canonical(start=a, end=b)
        return x.with_shape((*x.shape[:a], dims.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))

    def reference(self, x: Any, start: int, end: int) -> Any:
        return x.reshape((*x.shape[:start], -1 if x.size else _count(x.shape[start : end + 1]), *x.shape[end + 1 :]))

    def decompose(self, g: GraphBuilder, x: Value, start: int, end: int) -> Value:
        shape = tensor(x).shape
        if not shape:
            return g.reshape(x, (1,))
        return g.reshape(x, (*shape[:start], dims.prod(shape[start : end + 1]), *shape[end + 1 :]))


def _count(sizes: Sequence[int]) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


# The same elements with their axes in another order: views. The primitive is `transpose`.


class Transpose(ViewOperator):
    """`x` with its axes in the order `perm`; without it, in reverse order.

    Two axes as separate arguments, `x.transpose(1, 2)`, are swapped, as in PyTorch; a tuple is always a permutation.
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
        """An axis that is moved is still one axis."""

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, perm: tuple[int, ...]) -> tuple[Value]:
        return (g.transpose(ct, tuple(sorted(range(len(perm)), key=perm.__getitem__))),)


def _exchanged(rank: int, a: int, b: int) -> tuple[int, ...]:
    return tuple(b if i == a else a if i == b else i for i in range(rank))


def _permutation(t: Infer, x: TensorType, perm: Sequence[int], why: str = "") -> tuple[int, ...]:
    """`perm` counted from 0, which names every axis once."""
    order = tuple(t.axis(x, a, "perm") for a in items(perm))
    if sorted(order) != list(range(x.rank)):
        count = f"{x.rank} ax{'i' if x.rank == 1 else 'e'}s"
        t.fail("TS204", f"perm={order} is not a permutation of the {count} of {shape_text(x.shape)}{why}")
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
    """`x` with two axes swapped."""

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
    """`x` with its last two axes swapped."""

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
