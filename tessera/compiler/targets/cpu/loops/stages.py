"""The parts of a plan: roots, nests and groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.loops.axes import AxisId, shape_of
from tessera.immutable import mutable

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
    """Loops over `classes` that compute `roots`, in order; `also`: values kept on the way; `vector` runs in lanes."""

    classes: list[int]
    roots: list[Root]
    reduced: AxisId = None
    also: list[Value] = field(default_factory=list[Value])
    vector: AxisId = None


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
