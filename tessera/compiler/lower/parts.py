"""Where the parts of a concatenation or padding are computed: at their places in its result.

A part that nothing else reads gets no memory of its own. The kernel that computes it stores directly to its window of
the result, so that nothing is left to be copied. The part may itself be a concatenation.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tessera.compiler.graph.operator import REGISTRY, attributes_of, operator_of
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.compiler.schedule.alignment import shape_of
from tessera.compiler.schedule.matrices import contraction
from tessera.compiler.schedule.views import ViewLayout, contiguous, layout_of, views_to


def homes(block: Block) -> dict[Value, ViewLayout]:
    """For groups' results that are stored into another result's memory: that result, and their layout in it."""
    found: dict[Value, ViewLayout] = {}
    for group in reversed(block.ops):
        if group.attrs.get("kind") != "join":
            continue
        (result,) = group.results
        op = group.region.block.terminator.operands[0].op
        assert op is not None
        outside = dict(zip(group.region.block.args, group.operands, strict=True))
        for v, place in zip(op.operands, windows(op, home_of(result, found)), strict=True):
            part = _part(v, outside)
            if part is not None and _dtype(part) == _dtype(result):
                home = _reshaped(place, shape_of(part))
                if home is not None and _stores_to(home, part):
                    found[part] = home
    return found


def home_of(v: Value, known: Mapping[Value, ViewLayout]) -> ViewLayout:
    """The memory layout of a group's result: as a part of another one, or in its own memory."""
    return known.get(v) or ViewLayout(v, shape_of(v), contiguous(shape_of(v)), 0)


def windows(op: Op, home: ViewLayout) -> list[ViewLayout]:
    """The windows that a concatenation or padding, whose result has the layout `home`, stores its operands to."""
    operator: Any = operator_of(op)
    shapes = [shape_of(v) for v in op.operands]
    return [
        window(home, start, shape)
        for start, shape in zip(operator.windows(shapes, **attributes_of(op)), shapes, strict=True)
    ]


def window(whole: ViewLayout, start: Shape, shape: Shape) -> ViewLayout:
    """The part that begins at `start`, of that shape."""
    offset = whole.offset
    for s, at in zip(whole.strides, start, strict=True):
        offset = offset + s * at
    return ViewLayout(whole.base, shape, whole.strides, offset)


def _dtype(v: Value) -> object:
    assert isinstance(v.type, TensorType)
    return v.type.dtype


def _part(v: Value, outside: Mapping[Value, Value]) -> Value | None:
    """The result of a group of this block that `v` is, perhaps under another shape, if nothing else reads it."""
    views, layout = views_to(v), layout_of(v)
    if layout is None or not layout.whole or any(w.name != "graph.reshape" for w in views):
        return None
    if any(len(w.uses) != 1 for w in (v, *(w.operands[0] for w in views))):
        return None
    part = outside.get(layout.base)
    if part is None or part.op is None or len(part.uses) != 1 or part.op.block is not part.users[0].block:
        return None
    return part


def _reshaped(layout: ViewLayout, shape: Shape) -> ViewLayout | None:
    """A window under another shape; None where its strides do not allow it."""
    operator: Any = REGISTRY["reshape"]
    found = operator.strided(layout.shape, layout.strides, layout.offset, shape=shape)
    return None if found is None else ViewLayout(layout.base, *found)


def _stores_to(home: ViewLayout, part: Value) -> bool:
    """Whether the kernel of the group that computes `part` can store there. Products store rows and columns that are
    walked as one axis each."""
    group = part.op
    assert group is not None
    if group.attrs.get("kind") != "contract":
        return group.attrs.get("kind") in ("map", "row", "join")
    product = next(op for op in group.region.block.ops if op.name == "graph.contract")
    c = contraction(product)
    several = [[c.out.index(x) for x in labels] for labels in (c.rows, c.columns) if len(labels) > 1]
    if not several:
        return True
    alone = group.region.block.terminator.operands[part.index] is product.result
    return alone and all(
        home.strides[a] == home.strides[b] * home.shape[b] for axes in several for a, b in pairwise(axes)
    )
