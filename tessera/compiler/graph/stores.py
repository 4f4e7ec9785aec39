"""What `x[key] = value` makes of a tensor: one with other elements where the key says, by NumPy's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import InferError
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.operators.indexing import SlicedAxis, axes_of, fail, subscript
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape
from tessera.language import dims, dtypes


def stored(g: GraphBuilder, x: Value, key: Any, value: Value) -> Value:
    """`x` with `value` at the places of `key`. Raises InferError (TS202, TS207, TS301) where they do not fit."""
    shape, dtype = tensor(x).shape, tensor(x).dtype
    value = g.to(_fitting(x, value), dtype)
    if isinstance(key, Value) and tensor(key).dtype == dtypes.bool_:
        return _masked(g, x, key, value)
    items, axes = axes_of(g, shape, key)
    if any(i is None for i in items):
        raise fail("a store cannot insert an axis; leave out the None")
    changed = [i for i, a in enumerate(axes) if a.index is not None or a.drop or not _whole(a, shape, i)]
    if not changed:
        return _spread(g, value, shape)
    if len(changed) == 1 and (axes[changed[0]].drop or axes[changed[0]].index is not None):
        return _put(g, x, axes, changed[0], value)
    plain = all(a.index is None and a.step == 1 and not a.flip for a in axes)
    if plain and not all(a.drop for a in axes):
        sizes = [a.stop - a.start for a in axes]
        kept = tuple(n for n, a in zip(sizes, axes, strict=True) if not a.drop)
        return _joined(g, x, axes, g.reshape(_spread(g, value, kept), tuple(sizes)), 0)
    return _scattered(g, x, key, value)


def _fitting(x: Value, value: Value) -> Value:
    """A store rounds numbers to the dtype of the tensor, and does not change their kind."""
    order = ("bool", "integer", "float", "complex")
    kinds = [order.index(_kind(tensor(v).dtype)) for v in (x, value)]
    if kinds[1] > kinds[0]:
        have, want = tensor(value).dtype, tensor(x).dtype
        error = fail(f"{have} is stored to a tensor of {want}; convert one of them, as with .to(ts.{want})", "TS301")
        raise InferError(error.diagnostic, 1)
    return value


def _spread(g: GraphBuilder, value: Value, shape: Shape) -> Value:
    try:
        return g.broadcast_to(value, shape)
    except InferError as e:
        raise InferError(e.diagnostic, 1) from None


def _kind(dtype: dtypes.DType) -> str:
    if dtype == dtypes.bool_:
        return "bool"
    return "integer" if dtype.is_integer else "complex" if dtype.is_complex else "float"


def _whole(a: SlicedAxis, shape: Shape, i: int) -> bool:
    return (a.start, a.stop, a.step, a.flip) == (0, shape[i], 1, False)


def _masked(g: GraphBuilder, x: Value, mask: Value, value: Value) -> Value:
    """One value for all elements where `mask` holds: how many there are is known when the program runs."""
    rest = tensor(x).rank - tensor(mask).rank
    if rest < 0 or tensor(value).rank > rest:
        raise fail("as many elements as the mask has are not known; x[mask] = takes one value: x = where(mask, y, x)")
    return g.where(g.reshape(mask, (*tensor(mask).shape, *(1,) * rest)), value, x)


def _put(g: GraphBuilder, x: Value, axes: Sequence[SlicedAxis], axis: int, value: Value) -> Value:
    """Whole slices at numbers along one axis: in a loop that carries `x`, they are stored in its memory."""
    a, shape = axes[axis], tensor(x).shape
    at = g.size(a.start, dtypes.int64) if a.index is None else a.index
    slices = (*shape[:axis], *tensor(at).shape, *shape[axis + 1 :])
    return g.put(x, at, _spread(g, value, slices), axis=axis)


def _joined(g: GraphBuilder, x: Value, axes: Sequence[SlicedAxis], value: Value, axis: int) -> Value:
    """What lies before a slice, the slice, and what lies behind it, axis by axis."""
    shape = tensor(x).shape
    while axis < len(axes) and _whole(axes[axis], shape, axis):
        axis += 1
    if axis == len(axes):
        return value
    a = axes[axis]

    def part(start: dims.Dim, stop: dims.Dim) -> list[Value]:
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = start, stop  # type: ignore[call-overload]
        return [g.slice(x, tuple(starts), tuple(stops), (1,) * len(shape))] if stop - start != 0 else []

    inside = [_joined(g, v, axes, value, axis + 1) for v in part(a.start, a.stop)]
    parts = [*part(0, a.start), *inside, *part(a.stop, shape[axis])]
    return g.concat(parts, axis=axis) if len(parts) > 1 else parts[0] if parts else x


def _scattered(g: GraphBuilder, x: Value, key: Any, value: Value) -> Value:
    """By the number of each element. An index outside reads 0, so numbers count from 1 there."""
    shape = tensor(x).shape
    count = dims.prod(shape)
    at = subscript(g, g.reshape(g.add(g.iota((count,), axis=0), 1), shape), key)
    places = tensor(at).shape
    row = (dims.prod(places),)
    at = g.reshape(g.where(g.eq(at, 0), count, g.sub(at, 1)), row)
    return g.reshape(g.put(g.reshape(x, (count,)), at, g.reshape(_spread(g, value, places), row), axis=0), shape)
