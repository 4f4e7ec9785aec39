"""Memory accesses of a group over its iteration space, and the fewest axes that describe them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.compiler.schedule.alignment import Axes, fit, shape_of
from tessera.compiler.schedule.views import ViewLayout, contiguous, kind_of, layout_of
from tessera.immutable import immutable
from tessera.language.dims import Dim, prod


@immutable
class Access:
    """`base` read or written from `offset`; `strides` per space axis, None where the value does not run along it."""

    base: Value
    offset: Dim
    strides: tuple[Dim | None, ...]


def access(layout: ViewLayout, axes: Axes, space: Shape) -> Access:
    strides: list[Dim | None] = [None] * len(space)
    for a, s in zip(axes, layout.strides, strict=True):
        if a >= 0:
            strides[a] = s
    return Access(layout.base, layout.offset, tuple(strides))


def written(v: Value, axes: Axes, space: Shape) -> Access:
    """The store of a group's result into its own contiguous buffer."""
    return access(ViewLayout(v, shape_of(v), contiguous(shape_of(v)), 0), axes, space)


def operand_axes(op: Op, v: Value, axes: dict[Value, Axes], space: Shape) -> Axes:
    """The axes along which an operand from outside the group is read by `op`."""
    shape = shape_of(v)
    if kind_of(op) in ("reduce", "scan"):
        found = fit(shape, [None] * len(shape), space)
        assert found is not None, "align() has accepted it"
        return found
    own = axes[op.result]  # elementwise: aligned at the right
    head = len(own) - len(shape)
    return tuple(own[head + j] if d != 1 else -1 for j, d in enumerate(shape))


def reads(op: Op, axes: dict[Value, Axes], space: Shape) -> list[tuple[Value, Access]]:
    """The reads of `op` from outside the group whose values are in `axes`, as (operand, access).

    Scalars are the same everywhere; contractions, and gathers but for their indices, read in ways of their own: none of
    them is listed.
    """
    out: list[tuple[Value, Access]] = []
    kind = kind_of(op)
    if kind == "contract":
        return out
    for v in op.operands[1:] if kind == "gather" else op.operands:
        layout = layout_of(v)
        assert layout is not None, "views that need a copy have been given one"
        if layout.base in axes or not shape_of(v):
            continue
        own = index_axes(op, axes[op.result]) if kind == "gather" else operand_axes(op, v, axes, space)
        out.append((v, access(layout, own, space)))
    return out


def index_axes(op: Op, own: Axes) -> Axes:
    """The axes along which a gather reads its indices; `own` are those of its result."""
    axis = int(cast(int, op.attrs["axis"]))
    return own[axis : axis + len(shape_of(op.operands[1]))]


def collapse(space: Shape, kinds: Sequence[object], accesses: Sequence[Sequence[Dim | None]]) -> list[tuple[int, ...]]:
    """Groups neighbouring axes that every access walks as one. Axes of size 1 vanish; `kinds` must not mix."""
    axes = [a for a, d in enumerate(space) if d != 1]
    out: list[list[int]] = []
    for a in axes:
        if out and kinds[out[-1][-1]] == kinds[a] and all(together(s, out[-1][-1], a, space) for s in accesses):
            out[-1].append(a)
        else:
            out.append([a])
    return [tuple(g) for g in out]


def together(strides: Sequence[Dim | None], a: int, b: int, space: Shape) -> bool:
    """Whether an access walks two neighbouring axes as one."""
    x, y = strides[a], strides[b]
    if x is None or y is None:
        return x is None and y is None
    return x == y * space[b]


@immutable
class AxisRun:
    """Neighbouring axes of what a gather reads, walked as one: their sizes, the last one's stride, and the axes of the
    space that walk them (of the indexed axis: those of the indices)."""

    shape: Shape
    stride: Dim
    axes: Axes


def gather_parts(op: Op, own: Axes) -> tuple[list[AxisRun], int]:
    """The axes of a gather's source in as few parts as its strides allow, and which of them is the indexed one.

    Each side of it has at least one part. `own` are the axes of the result.
    """
    layout = layout_of(op.operands[0])
    assert layout is not None, "views that need a copy have been given one"
    axis, rank = int(cast(int, op.attrs["axis"])), len(shape_of(op.operands[1]))

    def run(first: int, last: int, places: Axes) -> list[AxisRun]:
        shape, strides = layout.shape[first:last], layout.strides[first:last]
        groups = collapse(shape, [0] * len(shape), [strides]) or [()]
        return [
            AxisRun(tuple(shape[a] for a in g), strides[g[-1]] if g else 0, tuple(places[a] for a in g)) for g in groups
        ]

    before = run(0, axis, own[:axis])
    indexed = AxisRun(layout.shape[axis : axis + 1], layout.strides[axis], index_axes(op, own))
    return [*before, indexed, *run(axis + 1, len(layout.shape), own[axis + rank :])], len(before)


def sizes(space: Shape, groups: Sequence[tuple[int, ...]]) -> Shape:
    return tuple(prod(space[a] for a in g) for g in groups)


def units(accesses: Sequence[Sequence[Dim | None]], groups: Sequence[tuple[int, ...]]) -> set[int]:
    """The collapsed axes along which some access has its neighbours nearest in memory.

    An access that stays where it is along the last axis, such as a column that is broadcast, is of no account.
    """
    out: set[int] = set()
    for strides in accesses:
        if not groups[-1] or strides[groups[-1][-1]] in (None, 0):
            continue
        near = [(abs(s), -i) for i, g in enumerate(groups) if isinstance(s := strides[g[-1]], int) and s != 0]
        if near:
            out.add(-min(near)[1])
    return out
