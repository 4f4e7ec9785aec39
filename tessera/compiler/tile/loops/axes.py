"""Which axes of which tile values run together: the classes that loops are made of.

Every axis of every tile value of a block is a node; elementwise ops, broadcasts, transposes and the kept axes of
reductions join the nodes that always have the same coordinate. Axes of size 1 have no class. A class that occurs twice
in one value (`a + a.T`) is `broken`: its members do not share a coordinate, and nothing is fused along it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType, TileType
from tessera.compiler.tile.dialect import INDEX_OPS
from tessera.language.dims import Dim
from tessera.language.scalars import TABLE

AxisId: TypeAlias = "int | None"
"""A class of axes; None for an axis of size 1."""

ELEMENTWISE = frozenset([f"tile.{n}" for n in TABLE] + ["tile.cast", "tile.bitcast", "tile.philox"])
LAZY = ELEMENTWISE | frozenset(
    [f"tile.{n}" for n in (*INDEX_OPS, "program_id", "dim", "to_scalar", "to_index", "constant", "iota", "broadcast",
                           "reshape", "transpose", "load", "gather", "load_shared", "subview")]
)  # fmt: skip
"""ops that are computed where they are needed, element by element"""


def shape_of(v: Value) -> tuple[Dim, ...]:
    return v.type.shape if isinstance(v.type, (TileType, SharedType)) else ()


def reshaped_axes(op: Op) -> list[int | None] | None:
    """For a reshape that only adds or drops axes of size 1: the operand axis behind each result axis, None for a new
    one. None where elements really move to other axes."""
    old = [(i, d) for i, d in enumerate(shape_of(op.operands[0])) if d != 1]
    new = [d for d in shape_of(op.result) if d != 1]
    if [d for _, d in old] != new:
        return None
    rest = iter(i for i, _ in old)
    return [None if d == 1 else next(rest) for d in shape_of(op.result)]


def moves(op: Op) -> bool:
    """Whether a reshape moves elements to other axes: its result is read from memory in C order."""
    return op.name == "tile.reshape" and bool(shape_of(op.operands[0])) and reshaped_axes(op) is None


def known_index(v: Value) -> int | None:
    """An index that is a number."""
    d = v.op.attrs["dim"] if v.op is not None and v.op.name == "tile.dim" else None
    return d if isinstance(d, int) else None


def known_or_self(v: Value) -> object:
    """An index by its size, where it is one: two spellings of 0 are one place."""
    return v.op.attrs["dim"] if v.op is not None and v.op.name == "tile.dim" else v


def accessed(op: Op) -> Value:
    """The tile that a load gives, or a store takes."""
    return op.result if op.results else op.operands[1]


def place(op: Op) -> tuple[Value, tuple[object, ...], tuple[Dim, ...]]:
    """The view that a load or a store is of, where it begins along each axis, and how far it reaches: equal for
    accesses of the very same elements."""
    shape = shape_of(accessed(op))
    indices = op.operands[1 if op.results else 2 :]
    return op.operands[0], (*map(known_or_self, indices[: len(shape)]),), shape


class Spaces:
    """The classes of a block's axes (union-find over (value, axis))."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ids: dict[tuple[Value, int], int] = {}
        self._parent: list[int] = []
        self.broken: set[int] = set()
        values: dict[Value, None] = {}
        for op in ops:
            for v in (*op.operands, *op.results):
                if shape_of(v):
                    values[v] = None
            self._join(op)
        for v in values:
            seen = [c for c in self.of(v, raw=True) if c is not None]
            self.broken |= {c for c in seen if seen.count(c) > 1}
        self._join_places(ops, values)

    def _join_places(self, ops: Sequence[Op], values: Iterable[Value]) -> None:
        """What is loaded from, or stored to, the same elements of memory that change has the same coordinates, unless
        that breaks a class: as where a matrix is stored transposed to where it was."""
        stored = {op.operands[0] for op in ops if op.name == "tile.store"}
        found: dict[object, list[Value]] = {}
        for op in ops:
            if op.name in ("tile.load", "tile.store") and op.operands[0] in stored:
                found.setdefault(place(op), []).append(accessed(op))
        alike = [same for same in found.values() if len(same) > 1]
        if not alike:
            return
        beside: dict[int, set[int]] = {}
        for v in values:
            classes = {c for c in self.of(v, raw=True) if c is not None}
            for c in classes if len(classes) > 1 else ():
                beside.setdefault(c, set()).update(classes - {c})
        for first, *others in alike:
            for v in others:
                for i in range(len(shape_of(v))):
                    self._join_apart((first, i), (v, i), beside)

    def _join_apart(self, a: tuple[Value, int], b: tuple[Value, int], beside: dict[int, set[int]]) -> None:
        """Joins two axes if no value has both. `beside`: the classes of the other axes of the values with a class."""
        x, y = self._find(self._node(*a)), self._find(self._node(*b))
        if x == y or not self.broken.isdisjoint((x, y)) or y in map(self._find, beside.get(x, ())):
            return
        self._same(a, b)
        both = beside.get(x, set()) | beside.get(y, set())
        beside[self._find(x)] = both

    def _node(self, v: Value, axis: int) -> int:
        key = (v, axis)
        if key not in self._ids:
            self._ids[key] = len(self._parent)
            self._parent.append(self._ids[key])
        return self._ids[key]

    def _find(self, n: int) -> int:
        while self._parent[n] != n:
            self._parent[n] = self._parent[self._parent[n]]
            n = self._parent[n]
        return n

    def _same(self, a: tuple[Value, int], b: tuple[Value, int]) -> None:
        if shape_of(a[0])[a[1]] != 1 and shape_of(b[0])[b[1]] != 1:
            self._parent[self._find(self._node(*a))] = self._find(self._node(*b))

    def _join(self, op: Op) -> None:
        name = op.name
        if name in ELEMENTWISE or name == "tile.gather":
            operands = op.operands[1:] if name == "tile.gather" else op.operands
            for x in operands:
                for i in range(len(shape_of(op.result))):
                    self._same((x, i), (op.result, i))
        elif name == "tile.broadcast":
            axes: Sequence[int] = op.attrs["axes"]  # type: ignore[assignment]
            for i, a in enumerate(axes):
                self._same((op.operands[0], i), (op.result, a))
        elif name == "tile.transpose":
            perm: Sequence[int] = op.attrs["perm"]  # type: ignore[assignment]
            for i, p in enumerate(perm):
                self._same((op.operands[0], p), (op.result, i))
        elif name == "tile.reduce":
            gone: Sequence[int] = op.attrs["axes"]  # type: ignore[assignment]
            kept = [i for i in range(len(shape_of(op.operands[0]))) if i not in gone]
            for j, i in enumerate(kept):
                self._same((op.operands[0], i), (op.result, j))
        elif name == "tile.reshape" and (axes_of := reshaped_axes(op)) is not None:
            for j, i in enumerate(axes_of):
                if i is not None:
                    self._same((op.operands[0], i), (op.result, j))
        elif name == "tile.store" and op.attrs.get("masked"):
            for i in range(len(shape_of(op.operands[1]))):
                self._same((op.operands[-1], i), (op.operands[1], i))
        elif name == "tile.load" and op.attrs.get("masked"):
            for i in range(len(shape_of(op.result))):
                self._same((op.operands[-1], i), (op.result, i))
        elif name == "tile.scatter":
            for x in op.operands[2:]:
                for i in range(len(shape_of(op.operands[1]))):
                    self._same((x, i), (op.operands[1], i))

    def of(self, v: Value, raw: bool = False) -> tuple[AxisId, ...]:
        """The class of each axis. Broken classes are replaced by one of the value's own for each axis, unless `raw`."""
        out: list[AxisId] = []
        for i, d in enumerate(shape_of(v)):
            if d == 1:
                out.append(None)
                continue
            c = self._find(self._node(v, i))
            out.append(self._own(v, i) if not raw and c in self.broken else c)
        return tuple(out)

    def _own(self, v: Value, axis: int) -> int:
        """The class of one axis alone. What a reduction keeps of its operand's axes is made in the operand's loops."""
        while v.op is not None and v.op.name == "tile.reduce":
            gone = cast("tuple[int, ...]", v.op.attrs["axes"])
            v = v.op.operands[0]
            axis = [i for i in range(len(shape_of(v))) if i not in gone][axis]
        return -1 - self._node(v, axis)


def operand_coords(op: Op, k: int, coords: tuple[AxisId, ...]) -> tuple[AxisId, ...]:
    """The coordinates at which operand k of a lazy op is read when its result is read at `coords`."""
    x = op.operands[k]
    shape = shape_of(x)
    if not shape:
        return ()
    name = op.name
    if name == "tile.broadcast":
        axes: Sequence[int] = op.attrs["axes"]  # type: ignore[assignment]
        return tuple(None if d == 1 else coords[a] for d, a in zip(shape, axes, strict=True))
    if name == "tile.transpose":
        perm: Sequence[int] = op.attrs["perm"]  # type: ignore[assignment]
        out: list[AxisId] = [None] * len(shape)
        for i, p in enumerate(perm):
            out[p] = coords[i]
        return tuple(out)
    if name == "tile.reshape":
        axes_of = reshaped_axes(op)
        assert axes_of is not None
        moved: list[AxisId] = [None] * len(shape)
        for j, i in enumerate(axes_of):
            if i is not None:
                moved[i] = coords[j]
        return tuple(moved)
    return tuple([None if d == 1 else c for d, c in zip(shape, coords, strict=True)])
