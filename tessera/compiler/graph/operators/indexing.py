"""Elements at computed positions, masks made of positions, and what subscripts mean.

The primitive is `take`. Negative indices count from the end; what lies outside the axis reads as 0 (debug mode reports
it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import InferError, Unsettled, at_least_zero, shown
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic
from tessera.immutable import mutable
from tessera.language import dims, dtypes
from tessera.language.dims import Dim, Expr
from tessera.language.dtypes import DType
from tessera.language.lazy import np


class Take(Operator):
    """The slices of `x` at `indices` along `axis`, which the axes of `indices` replace; None: of the flattened tensor.

    Negative indices count from the end; indices outside read as 0.
    """

    apart = ("indices",)

    kind = "gather"

    def infer(self, t: Infer, x: TensorType, indices: TensorType, axis: int | None = None) -> TensorType:
        t.require(indices, "integer", operand=1)
        if axis is None and x.rank != 1:
            return x.with_shape(indices.shape)
        a = t.axis(x, 0 if axis is None else axis)
        t.canonical(axis=a)
        return x.with_shape((*x.shape[:a], *indices.shape, *x.shape[a + 1 :]))

    def reference(self, x: Any, indices: Any, axis: int | None) -> Any:
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
        return taken(x, indices, axis)

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, axis: int | None) -> Value | None:
        if axis is not None:
            return None
        return g.take(g.reshape(x, (dims.prod(tensor(x).shape),)), indices, axis=0)

    def partition(self, cut: Cut, x: TensorType, indices: TensorType, axis: int | None) -> None:
        a = cut.axis(x)
        if a is not None and axis in (a, None):
            cut.whole(f"an index may lead anywhere along {cut.dim}")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, indices: Value, axis: int | None) -> Any:
        """Sums of what was read from the same place, in ascending order of where it was read to. One index stores."""
        shape = tensor(x).shape if axis is not None else (dims.prod(tensor(x).shape),)
        a, count = axis or 0, dims.prod(tensor(indices).shape)
        if axis is not None and not tensor(indices).rank:
            return (g.put(g.zeros_like(x), indices, ct, axis=axis), None)
        at = g.to(g.reshape(indices, (count,)), dtypes.int64)
        at = g.where(g.lt(at, 0), g.add(at, shape[a]), at)
        read = g.reshape(ct, (*shape[:a], count, *shape[a + 1 :]))
        return (g.reshape(g.segment_sum(read, at, shape[a], axis=a), tensor(x).shape), None)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, indices: Value, axis: int | None) -> Any:
        return None if tangents[0] is None else g.take(tangents[0], indices, axis=axis)


def taken(x: Any, indices: Any, axis: int) -> Any:
    n = x.shape[axis]
    at = np.where(indices < 0, indices.astype(np.int64) + n, indices).astype(np.int64)
    inside = (at >= 0) & (at < n)
    if n == 0:
        return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    found = np.take(x, np.where(inside, at, 0), axis)
    mask = inside.reshape([1] * axis + list(indices.shape) + [1] * (x.ndim - axis - 1))
    return np.where(mask, found, np.zeros((), x.dtype))


class TakeAlongAxis(Operator):
    """`out[i, j, k] = x[i, indices[i, j, k], k]` for axis 1: one index per element. Other axes broadcast."""

    apart = ("indices",)

    functions = methods = ("take_along_axis", "gather")

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if len(args) == 3 and isinstance(args[1], int):
            axis = shown(args[1])
            message = f"PyTorch's x.gather({axis}, index) is x.gather(index, {axis}) here"
            raise TypeError(f"{self.signature} takes the indices before the axis: {message}")
        return super().bind(args, kwargs)

    def infer(self, t: Infer, x: TensorType, indices: TensorType, axis: int = -1) -> TensorType:
        t.require(indices, "integer", operand=1)
        a = t.axis(x, axis)
        if indices.rank != x.rank:
            both = f"{shape_text(indices.shape)} for {shape_text(x.shape)}"
            t.fail("TS213", f"take_along_axis needs as many axes of indices as of x, not {both}", operand=1)
        t.canonical(axis=a)
        rest = t.broadcast((*x.shape[:a], 1, *x.shape[a + 1 :]), (*indices.shape[:a], 1, *indices.shape[a + 1 :]))
        return x.with_shape((*rest[:a], indices.shape[a], *rest[a + 1 :]))

    def reference(self, x: Any, indices: Any, axis: int) -> Any:
        rest = np.broadcast_shapes(_without(x.shape, axis), _without(indices.shape, axis))
        x = np.broadcast_to(x, (*rest[:axis], x.shape[axis], *rest[axis:]))
        indices = np.broadcast_to(indices, (*rest[:axis], indices.shape[axis], *rest[axis:]))
        n = x.shape[axis]
        at = np.where(indices < 0, indices.astype(np.int64) + n, indices).astype(np.int64)
        inside = (at >= 0) & (at < n)
        if n == 0:
            return np.zeros(indices.shape, x.dtype)
        return np.where(inside, np.take_along_axis(x, np.where(inside, at, 0), axis), np.zeros((), x.dtype))

    def partition(self, cut: Cut, x: TensorType, indices: TensorType, axis: int) -> None:
        if cut.axis(x) == axis:
            cut.whole(f"an index may lead anywhere along {cut.dim}")
        cut.aligned([x, indices])

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, axis: int) -> Value:
        """One take from the flattened tensor, at the row-major position of each element; outside stays outside."""
        shape = tensor(x).shape
        return g.take(g.reshape(x, (dims.prod(shape),)), positions(g, shape, indices, axis), axis=0)


def positions(g: GraphBuilder, shape: Shape, indices: Value, axis: int, signed: bool = False) -> Value:
    """The places in the flattened tensor of that shape that `indices` along `axis` refer to; for indices outside, the
    number of its elements, or, where `signed` allows it, also a place below 0. Negative indices count from the end."""
    rank, n = len(shape), shape[axis]
    at = g.cast(indices, dtypes.int64)
    at = g.where(g.lt(at, 0), g.add(at, n), at)
    if signed and all(d == 1 for i, d in enumerate(shape) if i != axis):
        return at
    ok = g.logical_and(g.ge(at, 0), g.lt(at, n))
    position = g.mul(at, dims.prod(shape[axis + 1 :]))
    for i, d in enumerate(shape):
        if i != axis and d != 1:
            line = g.iota(tuple(d if k == i else 1 for k in range(rank)), axis=i)
            position = g.add(position, g.mul(line, dims.prod(shape[i + 1 :])))
    return g.where(ok, position, dims.prod(shape))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


class OneHot(Operator):
    """A new last axis of size `depth`: 1 at the position given by `indices`, 0 elsewhere."""

    differentiable = False

    def infer(self, t: Infer, indices: TensorType, depth: Dim, dtype: DType = dtypes.f32) -> TensorType:
        t.require(indices, "integer")
        t.canonical(depth=t.dim(depth, "depth"), dtype=t.dtype(dtype))
        return TensorType((*indices.shape, t.dim(depth)), t.dtype(dtype))

    def reference(self, indices: Any, depth: int, dtype: DType) -> Any:
        return indices[..., None] == np.arange(depth)

    def decompose(self, g: GraphBuilder, indices: Value, depth: Dim, dtype: DType) -> Value:
        rank = tensor(indices).rank
        line = g.iota((1,) * rank + (depth,), axis=rank)
        return g.cast(g.eq(g.unsqueeze(g.cast(indices, dtypes.int64), -1), line), dtype)


class Tril(Operator):
    """`x` with zeros above diagonal number k of its last two axes."""

    lower = True

    def infer(self, t: Infer, x: TensorType, k: int = 0) -> TensorType:
        if x.rank < 2:
            t.fail("TS213", f"{self.name} needs at least two axes, {shape_text(x.shape)} has {x.rank}")
        t.canonical(k=t.integer(k, "k"))
        return x

    def reference(self, x: Any, k: int) -> Any:
        return np.tril(x, k) if self.lower else np.triu(x, k)

    def decompose(self, g: GraphBuilder, x: Value, k: int) -> Value:
        rows, columns = tensor(x).shape[-2:]
        row, column = g.iota((rows, 1), axis=0), g.iota((1, columns), axis=1)
        rest = False if tensor(x).dtype.kind == "bool" else 0
        return g.where((g.le if self.lower else g.ge)(column, g.add(row, k)), x, rest)


class Triu(Tril):
    """`x` with zeros below diagonal number k of its last two axes."""

    lower = False


# What `x[...]` means: integers, slices, None, `...` and integer tensors, by NumPy's rules.
#
# Against a symbolic size a stop of 2 and more clips, as in NumPy; any other bound must lie within the axis,
# which is checked at launch, so that `x[1:]` has the size S-1 and not S-min(1, S), and `x[:1]` has one element.


def fail(message: str, code: str = "TS207") -> InferError:
    return InferError(Diagnostic(code, message), 0)


@mutable
class SlicedAxis:
    """The slice of one axis: elements start, start + step, ... before stop, after reversal if `flip`.

    `index` says that the axis is replaced by the axes of an integer tensor; `drop` that its one element is taken.
    """

    start: Dim
    stop: Dim
    step: int = 1
    flip: bool = False
    drop: bool = False
    index: Value | None = None


def subscript(g: GraphBuilder, x: Value, key: Any) -> Value:
    """`x[key]`. Raises InferError (TS207, TS301) where the key does not fit."""
    shape = tensor(x).shape
    items, axes = axes_of(g, shape, key)
    if any(a.index is not None and tensor(a.index).rank for a in axes):
        for a in axes:
            if a.drop:  # beside index tensors an integer counts as one of them
                a.index, a.drop, a.start, a.stop = g.size(a.start, dtypes.int64), False, 0, a.stop
    _restore_indexed(axes, shape)
    flipped = tuple(i for i, a in enumerate(axes) if a.flip)
    x = g.flip(x, flipped) if flipped else x
    starts, stops, steps = ([getattr(a, n) for a in axes] for n in ("start", "stop", "step"))
    if any(starts) or tuple(stops) != shape or any(s != 1 for s in steps):
        x = g.slice(x, tuple(starts), tuple(stops), tuple(steps))
    new = _gathered(g, x, axes, items) if any(a.index is not None for a in axes) else _plain(g, x, axes, items)
    return new


def axes_of(g: GraphBuilder, shape: Shape, key: Any) -> tuple[list[Any], list[SlicedAxis]]:
    """The parts of a key, with a slice for each axis that it leaves out, and what they mean for each axis."""
    items = _items(g, shape, cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,))
    consuming = (i for i in items if i is not None and i is not Ellipsis)
    return items, [_axis(g, item, size) for item, size in zip(consuming, shape, strict=True)]


def _restore_indexed(axes: Sequence[SlicedAxis], shape: Shape) -> None:
    """An axis that index tensors look into is not sliced."""
    for a, size in zip(axes, shape, strict=True):
        if a.index is not None:
            a.start, a.stop = 0, size


def _items(g: GraphBuilder, shape: Shape, key: tuple[Any, ...]) -> list[Any]:
    """The key with slices for the axes that `...` represents and for missing axes; None is a new axis.

    The `...` itself stays: by NumPy's rules it separates index tensors even where it represents no axis.
    """
    items = [_listed(g, k) for k in key]
    used = sum(i is not None and i is not Ellipsis for i in items)
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if used > len(shape) or len(dots) > 1:
        why = "more than one '...'" if len(dots) > 1 else f"{used} indices for {len(shape)} axes"
        raise fail(f"{why} in a subscript of {shape_text(shape)}")
    at = dots[0] + 1 if dots else len(items)
    return [*items[:at], *(slice(None) for _ in range(len(shape) - used)), *items[at:]]


def _listed(g: GraphBuilder, item: Any) -> Any:
    """A (nested) list of integers as a tensor."""
    given = cast("list[Any]", item if isinstance(item, list) else [])
    parts = [g.constant(i, dtypes.int64) if type(i) is int else _listed(g, i) for i in given]
    return g.stack(parts) if parts and all(isinstance(p, Value) for p in parts) else cast("Any", item)


def _axis(g: GraphBuilder, item: Any, size: Dim) -> SlicedAxis:
    if isinstance(item, slice):
        return _sliced(g, cast("slice[Any, Any, Any]", item), size)
    if isinstance(item, Value):
        dtype = tensor(item).dtype
        if dtype.kind == "bool":
            raise fail("the size of x[mask] depends on its values; use where(mask, x, other)")
        if not dtype.is_integer:
            raise fail(f"an index is an integer, not {dtype}", "TS301")
        return SlicedAxis(0, size, index=item)
    if isinstance(item, bool) or not isinstance(item, (int, Expr)):
        raise fail(f"{shown(item)} is not an index; integers, slices, None, '...' and integer tensors are")
    at = _from_start(g, item, size, f"index {item}")
    _within(g, at + 1, size, f"index {item}")
    if isinstance(at, int) and at < 0:
        raise fail(f"index {item} is out of range for an axis of size {size}")
    _not_before(g, at, f"index {item}")
    return SlicedAxis(at, at + 1, drop=True)


def _from_start(g: GraphBuilder, bound: Dim, size: Dim, what: str) -> Dim:
    """A bound counted from the start: what is negative by its form counts from the end, as -1 and -(S + L) do."""
    if isinstance(bound, int):
        return bound + size if bound < 0 else bound
    if at_least_zero(-bound) != -bound:
        return bound
    _within(g, 1, -bound, what)  # x[-0:] would be all of x
    return bound + size


def _within(g: GraphBuilder, bound: Dim, size: Dim, what: str) -> None:
    """Demands bound <= size, now or at launch."""
    room = size - bound
    if isinstance(room, int) and room < 0:
        raise fail(f"{what} is out of range for an axis of size {size}")
    if at_least_zero(room) != room and not dims.at_most(bound, size, g.facts):
        g.checks.append(LaunchCheck(dims.dim_min(bound, size), bound, f"{what} lies within an axis of size {size}"))


def _not_before(g: GraphBuilder, at: Dim, what: str) -> None:
    """Demands at >= 0, now or at launch."""
    if at_least_zero(at) != at and not dims.at_most(0, at, g.facts):
        g.checks.append(LaunchCheck(dims.dim_min(at, 0), 0, f"{what} does not lie before the first element"))


def _sliced(g: GraphBuilder, s: slice[Any, Any, Any], size: Dim) -> SlicedAxis:
    for bound in (s.start, s.stop, s.step):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, Expr))):
            how = "write // for /" if isinstance(bound, float) else "take(x, start + iota(n)) moves"
            raise fail(f"slice bounds are integers known at compile time, not {bound!r}; {how}")
    step = 1 if s.step is None else s.step
    if not isinstance(step, int) or step == 0:
        message = f"a slice step is an integer other than 0, not {step}"
        raise Unsettled(Diagnostic("TS207", message), 0) if isinstance(step, Expr) else fail(message)
    if isinstance(size, int) and not isinstance(s.start, Expr) and not isinstance(s.stop, Expr):
        first, _, _ = s.indices(size)
        count = len(range(*s.indices(size)))
        start = first if step > 0 else size - 1 - first
        return (
            SlicedAxis(start, start + (count - 1) * abs(step) + 1, abs(step), step < 0) if count else SlicedAxis(0, 0)
        )
    if step < 0:
        if s.start is not None or s.stop is not None:
            message = f"a slice with a negative step of an axis of size {size} has no bounds: [::{step}]"
            raise Unsettled(Diagnostic("TS207", message), 0)
        return SlicedAxis(0, size, -step, True)
    start = 0 if s.start is None else _from_start(g, s.start, size, f"slice start {s.start}")
    stop = size if s.stop is None else _from_start(g, s.stop, size, f"slice stop {s.stop}")
    if isinstance(start, int) and isinstance(stop, int) and start >= stop:
        return SlicedAxis(0, 0)
    if s.stop == 1 and start == 0:  # `x - x[:, :1]`: one element stretches, min(1, S) of them would not
        _within(g, 1, size, "slice stop 1")
    elif isinstance(s.stop, int) and s.stop >= 0:
        stop = stop if dims.at_most(stop, size, g.facts) else dims.dim_min(stop, size)
    elif stop != size:
        _within(g, stop, size, f"slice stop {s.stop}")
        _not_before(g, stop, f"slice stop {s.stop}")
    if start != 0:
        _within(g, start, stop, f"slice start {s.start}")
        _not_before(g, start, f"slice start {s.start}")
    return SlicedAxis(start, stop, step)


def _plain(g: GraphBuilder, x: Value, axes: Sequence[SlicedAxis], items: Sequence[Any]) -> Value:
    """Drops and adds axes of size 1."""
    sizes = iter(zip(axes, tensor(x).shape, strict=True))
    shape: list[Dim] = []
    for item in items:
        if item is None:
            shape.append(1)
        elif item is not Ellipsis and not (pair := next(sizes))[0].drop:
            shape.append(pair[1])
    return x if tuple(shape) == tensor(x).shape else g.reshape(x, tuple(shape))


def _gathered(g: GraphBuilder, x: Value, axes: Sequence[SlicedAxis], items: Sequence[Any]) -> Value:
    """One take for all index tensors, from the axes they look into, made one."""
    shape = tensor(x).shape
    looked = [i for i, a in enumerate(axes) if a.index is not None]
    order = [*looked, *(i for i in range(len(shape)) if i not in looked)]
    places = [i for i, item in enumerate(items) if isinstance(item, (Value, int, Expr))]
    together = places == list(range(places[0], places[0] + len(places))) if places else True
    lead = 0 if not together else looked[0]
    if together:
        order = list(range(len(shape)))
    x = x if order == list(range(len(shape))) else g.transpose(x, tuple(order))
    sizes = [shape[i] for i in looked]
    rest = [tensor(x).shape[i] for i in range(len(shape)) if not lead <= i < lead + len(looked)]
    before, after = rest[:lead], rest[lead:]
    if len(looked) > 1:
        x = g.reshape(x, (*before, dims.prod(sizes), *after))
    index = _linear(g, [cast("Value", axes[i].index) for i in looked], sizes)
    x = g.take(x, index, axis=lead)
    return _with_new_axes(g, x, axes, items, tensor(index).shape, together)


def _linear(g: GraphBuilder, indices: Sequence[Value], sizes: Sequence[Dim]) -> Value:
    """Row-major positions of index tuples; a tuple with an index outside its axis is outside altogether."""
    if len(indices) == 1:
        return indices[0]
    total, position, inside = dims.prod(sizes), None, None
    for i, (v, n) in enumerate(zip(indices, sizes, strict=True)):
        at = g.to(v, dtypes.int64)
        at = g.where(g.lt(at, 0), g.add(at, n), at)
        ok = g.logical_and(g.ge(at, 0), g.lt(at, n))
        inside = ok if inside is None else g.logical_and(inside, ok)
        part = g.mul(at, dims.prod(sizes[i + 1 :]))
        position = part if position is None else g.add(position, part)
    return g.where(inside, position, total)


def _with_new_axes(
    g: GraphBuilder, x: Value, axes: Sequence[SlicedAxis], items: Sequence[Any], indexed: Shape, together: bool
) -> Value:
    """Puts size 1 where the key says None, and takes out dropped axes, behind a take."""
    source = iter(axes)
    kept = list(tensor(x).shape)
    first = next(i for i, a in enumerate(a for a in axes if not a.drop or a.index is not None) if a.index is not None)
    at = first if together else 0
    rest = iter(kept[:at] + kept[at + len(indexed) :])
    shape: list[Dim] = [] if together else list(indexed)
    placed = not together
    for item in items:
        if item is None or item is Ellipsis:
            shape += [1] if item is None else []
            continue
        a = next(source)
        if a.index is not None:
            shape += [] if placed else list(indexed)
            placed = True
        else:
            size = next(rest)
            shape += [] if a.drop else [size]
    return x if tuple(shape) == tensor(x).shape else g.reshape(x, tuple(shape))
