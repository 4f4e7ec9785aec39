"""The parts of a plan: roots, nests and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TypeAlias

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.tile.loops.axes import LAZY, AxisId, known_index, known_or_self, shape_of
from tessera.immutable import mutable
from tessera.language.dims import Dim, prod

STORES = ("tile.store", "tile.scatter", "tile.store_shared")
READS = ("tile.load", "tile.gather", "tile.load_shared")


@mutable(eq=False)
class Root:
    """Something to be computed for every element of `value`: `op` stores or reduces it, None keeps it in scratch."""

    value: Value
    op: Op | None
    classes: tuple[AxisId, ...]
    reduced: AxisId = None
    target: object = None
    """where to keep the value, if not in its own cell"""

    @property
    def loops(self) -> list[int]:
        return [c for c in self.classes if c is not None]

    @property
    def parallel(self) -> set[int]:
        """The axes along which elements do not depend on each other."""
        return {c for c in self.classes if c is not None and c != self.reduced and c >= 0}


@mutable(eq=False)
class Nest:
    """Loops over `classes` that compute `roots`, in order; `also`: values kept on the way; `before`: loads that a step
    does before it stores to their places, of each such store; `vector` runs in lanes, and `short`, a last axis of few
    elements, in each step."""

    classes: list[int]
    roots: list[Root]
    reduced: AxisId = None
    also: list[Value] = field(default_factory=list[Value])
    before: dict[Op, list[Value]] = field(default_factory=dict[Op, list[Value]])
    vector: AxisId = None
    short: AxisId = None


@mutable(eq=False)
class LoopGroup:
    """Nests under common outer loops over `outer`. `inside` are results that are not read after the outer loops."""

    nests: list[Nest]
    outer: list[int]
    inside: set[Value] = field(default_factory=set[Value])
    parallel: set[int] = field(default_factory=set[int])


Stage: TypeAlias = "LoopGroup | Op"


def touched(op: Op) -> Iterator[Value]:
    """The views and shared tiles that `op` (or an op inside it) writes."""
    for o in op.walk():
        if o.name in STORES or o.name == "tile.copy_async":
            yield o.operands[0]


def unit_axes(view: Value) -> list[int]:
    """The axes of a view along which neighbours are neighbours in memory."""
    t = view.type
    if not isinstance(t, ViewType):
        return [len(shape_of(view)) - 1]
    if t.strides is None:
        inner = [i for i, d in enumerate(t.shape) if d != 1]
        return [inner[-1] if inner else t.rank - 1] if t.rank else []
    return [i for i, s in enumerate(t.strides) if s == 1]


def step_of(view: Value, axis: int) -> Dim | None:
    """How many elements lie from one to the next along an axis of a view; None where its type does not say."""
    t = view.type
    if not isinstance(t, ViewType) or (t.strides is None and view.op is not None):
        return None
    return prod(t.shape[axis + 1 :]) if t.strides is None else t.strides[axis]


def beside_each_other(roots: list[Root]) -> list[list[Root]]:
    """Stores in a row that fill neighbouring places of one view: they differ in one index, which counts from 0."""
    found: list[list[Root]] = []
    for root in roots:
        if found and _next_to(found[-1], root):
            found[-1].append(root)
        elif _next_to([], root):
            found.append([root])
    return [group for group in found if len(group) > 1]


def _next_to(group: list[Root], root: Root) -> bool:
    """Whether a store is to the neighbour of the last of a group; of an empty one: whether it may begin one."""
    op = root.op
    if op is None or op.name != "tile.store" or op.attrs.get("masked") or op.attrs.get("nontemporal"):
        return False
    axis = next((i for i in unit_axes(op.operands[0]) if known_index(op.operands[2 + i]) == len(group)), None)
    if axis is None or root.classes[axis] is not None:
        return False
    if not group:
        return True
    first = group[0]
    assert first.op is not None
    same = first.op.operands[0] is op.operands[0] and first.classes == root.classes
    places = zip(first.op.operands[2:], op.operands[2:], strict=True)
    return same and all(i == axis or known_or_self(a) == known_or_self(b) for i, (a, b) in enumerate(places))


def loads_beside(accesses: Iterable[tuple[Op, tuple[AxisId, ...]]]) -> list[list[tuple[Op, tuple[AxisId, ...]]]]:
    """Loads of neighbouring places of one view, in order: they differ in one index, which is known."""
    found: dict[object, dict[int, tuple[Op, tuple[AxisId, ...]]]] = {}
    for op, classes in accesses:
        if op.name != "tile.load" or op.attrs.get("masked"):
            continue
        indices = op.operands[1 : 1 + len(classes)]
        for axis in unit_axes(op.operands[0]):
            if classes[axis] is None and (number := known_index(indices[axis])) is not None:
                others = (i == axis or known_or_self(v) for i, v in enumerate(indices))
                found.setdefault((op.operands[0], classes, tuple(others)), {})[number] = op, classes
    groups: list[list[tuple[Op, tuple[AxisId, ...]]]] = []
    for places in found.values():
        for number in sorted(places):
            if number - 1 not in places:
                groups.append([])
            groups[-1].append(places[number])
    return [group for group in groups if len(group) > 1]


def memory_of(v: Value) -> Value:
    """The argument or shared tile that a view is a window onto."""
    while v.op is not None and v.op.name == "tile.subview":
        v = v.op.operands[0]
    return v


def made_here(v: Value, block: Block) -> bool:
    """Whether `block` computes the tile `v` and can store it to a given place."""
    op = v.op
    if op is None or op.block is not block or op.name == "tile.load_shared":
        return False
    return op.name in LAZY or op.name in ("tile.reduce", "tile.mma", "tile.contract", "tile.scan")
