"""How the axes of a fusion group's values map to its iteration space.

Every value of a group has, per axis, the axis of the space that it runs along, or -1 where its size is 1. A value that
runs along all axes is "full"; one that avoids the inner (reduced) axes is a "row" value, computed once per row.
Broadcasting, keepdims, inserted and transposed axes become bookkeeping here and cost nothing: a transposed value is in
the program that computed it, and only its store walks memory in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tessera.compiler.graph.operator import attributes_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.compiler.schedule.views import is_view, kind_of, views_to
from tessera.language.dims import prod
from tessera.language.order import CHUNK

Axes: TypeAlias = tuple[int, ...]


def shape_of(v: Value) -> Shape:
    assert isinstance(v.type, TensorType)
    return v.type.shape


def fit(shape: Shape, known: list[int | None], space: Shape) -> Axes | None:
    """Completes `known` (per axis of `shape`: a space axis, or None) so that axes ascend and sizes agree.

    An open axis takes the right-aligned space axis where it can, else the first that fits. Where none is open, the axes
    may be in any order.
    """
    if all(size == 1 or a is not None for size, a in zip(shape, known, strict=True)):
        return _settled(shape, [-1 if a is None else a for a in known], space)
    out: list[int] = []
    last = -1
    for p, (size, a) in enumerate(zip(shape, known, strict=True)):
        if size == 1:
            out.append(-1)
            continue
        if a is None:
            limit = next((k for k in known[p + 1 :] if k is not None and k >= 0), len(space))
            right = p + len(space) - len(shape)
            options = [right, *range(last + 1, limit)] if last < right < limit else list(range(last + 1, limit))
            a = next((o for o in options if space[o] == size), None)
            if a is None:
                return None
        if a <= last or space[a] != size:
            return None
        out.append(a)
        last = a
    return tuple(out)


def _settled(shape: Shape, known: Sequence[int], space: Shape) -> Axes | None:
    """All axes, where they are known: distinct ones of these sizes."""
    out = tuple(-1 if size == 1 else a for size, a in zip(shape, known, strict=True))
    real = [(a, size) for a, size in zip(out, shape, strict=True) if size != 1]
    return out if len({a for a, _ in real}) == len(real) and all(space[a] == size for a, size in real) else None


def in_order(own: Axes) -> bool:
    """Whether a value's axes are in the order of the space's axes."""
    last = -1
    for a in own:
        if a >= 0:
            if a < last:
                return False
            last = a
    return True


def align_map(op: Op, axes: dict[Value, Axes], space: Shape) -> Axes | None:
    """The axes of an elementwise result from those of its operands in the group (operands outside say nothing)."""
    shape = shape_of(op.result)
    known: list[int | None] = [None] * len(shape)
    for v in op.operands:
        own = through_views(v, axes, space)
        if own is None:
            return None
        for j, a in enumerate(own or ()):
            slot = len(shape) - len(own) + j
            if a >= 0:
                if known[slot] not in (None, a):
                    return None
                known[slot] = a
    return fit(shape, known, space)


def base_of(v: Value) -> Value:
    """The value that `v` is a view of; itself if it is none."""
    while (op := v.op) is not None and is_view(op):
        v = op.operands[0]
    return v


def through_views(v: Value, axes: dict[Value, Axes], space: Shape) -> Axes | None:
    """The axes of an operand: () when it comes from outside the group; None when a view in it moves elements."""
    views = views_to(v)
    base = views[0].operands[0] if views else v
    if base not in axes:
        return ()
    own = axes[base]
    for op in views:
        moved = _realign(op, own, space)
        if moved is None:
            return None
        own = moved
    return own


def _realign(op: Op, own: Axes, space: Shape) -> Axes | None:
    """Axes after a view that transposes, or adds, drops or stretches axes of size 1."""
    before, after = shape_of(op.operands[0]), shape_of(op.result)
    kind = op.name.partition(".")[2]
    if kind == "reshape":
        kept = [a for a in own if a >= 0]
        if [d for d in before if d != 1] != [d for d in after if d != 1]:
            return None
        rest = iter(kept)
        return tuple(next(rest) if d != 1 else -1 for d in after)
    if kind == "transpose":
        return tuple(own[int(p)] for p in attributes_of(op)["perm"])
    if kind == "broadcast_to":
        known: list[int | None] = [None] * len(after)
        for j, a in enumerate(own):
            known[len(after) - len(own) + j] = a if a >= 0 else None
        return fit(after, known, space)
    return None


def align(op: Op, axes: dict[Value, Axes], space: Shape) -> dict[Value, Axes] | None:
    """The axes of all results of a group op; None where the op does not fit onto the space."""
    kind = kind_of(op)
    if kind == "gather" and any(base_of(v) in axes for v in op.operands):
        return None  # computed indices and the tensor that they index are read from memory
    if kind in ("map", "random", "gather", "generate"):
        own = align_map(op, axes if kind == "map" else {}, space)
        return None if own is None else dict.fromkeys(op.results, own)
    if kind in ("reduce", "scan"):
        own = through_views(op.operands[0], axes, space)
        if own is None or not in_order(own):  # terms are summed in the operand's own order
            return None
        shape = shape_of(op.operands[0])
        own = own or fit(shape, [None] * len(shape), space) or ()
        if not is_full(own, space):
            return None
        return dict.fromkeys(op.results, own if kind == "scan" else _reduced(op, own))
    return None


def reduced_axes(op: Op) -> tuple[int, ...]:
    """The operand axes that a reduction removes or a scan runs along."""
    attrs: dict[str, Any] = attributes_of(op)
    axis = attrs.get("axis")
    rank = len(shape_of(op.operands[0]))
    if axis is None:
        return tuple(range(rank))
    return tuple(a % rank for a in ((axis,) if isinstance(axis, int) else axis))


SEARCHED = 4 * CHUNK
"""elements up to which one program searches for the place of an extremum"""


def long_reduction(op: Op) -> bool:
    """A reduction of everything to a scalar that is worth spreading over many programs."""
    if kind_of(op) != "reduce":
        return False
    shape = shape_of(op.operands[0])
    n = prod(shape)
    if len(reduced_axes(op)) != len(shape):
        return False
    if op.name in ("graph.argmax", "graph.argmin"):  # whose order is free, so that short ones take one launch
        return isinstance(n, int) and n > SEARCHED
    return not isinstance(n, int) or n > CHUNK


def _reduced(op: Op, own: Axes) -> Axes:
    gone = reduced_axes(op)
    if attributes_of(op).get("keepdims"):
        return tuple(-1 if i in gone else a for i, a in enumerate(own))
    return tuple(a for i, a in enumerate(own) if i not in gone)


def is_full(own: Axes, space: Shape) -> bool:
    """Whether the value runs along every axis of the space that is longer than 1."""
    return {a for a in own if a >= 0} == {i for i, d in enumerate(space) if d != 1}


def is_row(own: Axes, space: Shape, inner: tuple[int, ...]) -> bool:
    """Whether it runs along exactly the axes outside `inner`."""
    return {a for a in own if a >= 0} == {i for i, d in enumerate(space) if d != 1 and i not in inner}
