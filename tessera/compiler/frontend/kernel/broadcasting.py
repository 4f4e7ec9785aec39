"""Broadcasting of tiles: which axes of two tiles match.

The rule is `docs/kernels.md`, "How tiles meet". Axes meet by what they are, never by their lengths: lengths only
decide, once that is settled, whether it can be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from tessera.compiler.frontend.kernel.values import (
    LEADING,
    PRIVATE,
    UNNAMED,
    Axes,
    Axis,
    Coordinate,
    axis_text,
    size_text,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TileType, shape_text
from tessera.immutable import mutable
from tessera.language.dims import Dim, Expr, divisibility, symbols

Relation = Literal["same", "near", "open", "different", "unclear"]
Rewrite: TypeAlias = "tuple[str, Mapping[int, str]]"
"""what a fix says, and what it puts behind the operands of these numbers"""
Places = tuple[int, ...]


class BroadcastError(Exception):
    """Two tiles do not fit together; the message is for people."""

    def __init__(self, message: str, code: str = "TS402", rewrites: Sequence[Rewrite] = ()) -> None:
        super().__init__(message)
        self.code, self.rewrites = code, tuple(rewrites)


def relation(a: Axis, b: Axis) -> Relation:
    """Whether two axes are one axis. near: one start moves with all that the other moves with, and with more."""
    if a.same(b):
        return "same"
    if a.origin is None or b.origin is None:
        return "same" if _one_size(a, b) else "open"
    x, y = a.walks, b.walks
    if not x and not y:
        if a.dim == b.dim or _one_size(a, b):
            return "same"
        parts = isinstance(a.origin, Coordinate) or isinstance(b.origin, Coordinate)  # 0:16, which is not all of a dim
        return "open" if parts or unnamed(a.dim) or unnamed(b.dim) else "different"
    if x == y or _one_size(a, b):
        return "same"
    if not x or not y or x.isdisjoint(y):
        return "different"
    return "near" if x < y or y < x else "unclear"


def _one_size(a: Axis, b: Axis) -> bool:
    """Whether both are as long as one dim says, for all its sizes: D//2 and D//2, but not 16 and 16."""
    return isinstance(a.size, Expr) and a.size == b.size and not any(PRIVATE in s for s in symbols(a.size))


def _nameless(axis: Axis) -> bool:
    """Whether an axis stands still and no name says which it is: of 4 elements by annotation, or 0:16."""
    part = isinstance(axis.origin, Coordinate)
    return not axis.walks and (part or any(PRIVATE in s for s in symbols(axis.dim or 0)))


def unnamed(d: Dim | None) -> bool:
    """Whether a dim is that of an axis which no annotation names."""
    return isinstance(d, Expr) and any(PRIVATE in s and s.endswith((UNNAMED, LEADING)) for s in symbols(d))


@mutable
class Identities:
    """The axes of every tile value, and for what is left of a reduced tile the positions its axes had there."""

    axes: dict[Value, Axes] = field(default_factory=dict[Value, Axes])
    kept: dict[Value, tuple[int, Places]] = field(default_factory=dict[Value, tuple[int, Places]])
    """value -> (rank of the tile it was reduced from, positions of its axes in it): `row_max` gives (2, (0,))"""
    unordered: set[Value] = field(default_factory=set[Value])
    """matrices made of two vectors, in which the order of the axes is not determined"""

    def of(self, v: Value) -> Axes:
        """The axes of a tile; new ones of unknown identity where nothing has been said."""
        if v not in self.axes:
            self.axes[v] = tuple(Axis(size=d) for d in _type(v).shape)
        return self.axes[v]

    def set(self, v: Value, axes: Axes, kept: tuple[int, Places] | None = None, unordered: bool = False) -> Value:
        self.axes[v] = axes
        if kept is not None:
            self.kept[v] = kept
        if unordered:
            self.unordered.add(v)
        return v

    def like(self, v: Value, other: Value) -> Value:
        """`v` is an elementwise image of `other`."""
        return self.set(v, self.of(other), self.kept.get(other), other in self.unordered)

    # several operands
    def together(self, values: Sequence[Value]) -> tuple[Shape, list[Places], Axes, bool]:
        """The common shape of tiles, the result's axes that the axes of each become, the result's axes, and whether
        their order is not determined. Raises BroadcastError."""
        rank = max(_type(v).rank for v in values)
        widest = [v for v in values if _type(v).rank == rank]
        lead = next((v for v in widest if v not in self.unordered), widest[0])
        unordered = rank > 1 and lead in self.unordered
        if rank == 1:
            found, sizes = self._of_vectors(values)
            unordered = len(found) > 1
        else:
            found, sizes = list(self.of(lead)), list(_type(lead).shape)
        places: list[Places] = []
        for i, v in enumerate(values):
            at = tuple(range(rank)) if v is lead and rank > 1 else self.fit(v, found, sizes, i, len(values))
            places.append(at)
            for a, p, n in zip(self.of(v), at, _type(v).shape, strict=True):
                longer = sizes[p] == 1 != n
                sizes[p] = join_sizes(sizes[p], n, tuple(sizes), _type(v).shape)
                if longer or (found[p].stretches and not a.stretches):
                    found[p] = a
        for v, at in zip(values, places, strict=True):
            for a, p, n in zip(self.of(v), at, _type(v).shape, strict=True):
                if n == sizes[p] and not a.stretches:
                    a.join(found[p])
                    found[p] = narrower(found[p], a)
        return tuple(sizes), places, tuple(found), unordered

    def _of_vectors(self, values: Sequence[Value]) -> tuple[list[Axis], list[Dim]]:
        """The axes of what vectors make: one, or a matrix of those of two different ones."""
        found: list[Axis] = []
        sizes: list[Dim] = []
        were: list[tuple[int, Places] | None] = []
        for v in (v for v in values if _type(v).rank == 1):
            (axis,), (size,) = self.of(v), _type(v).shape
            how = [relation(axis, f) if not f.stretches else "open" for f in found]
            if axis.stretches or not all(r == "different" for r in how):
                continue  # `fit` says which
            for f, n, kept in zip(found, sizes, were, strict=True):
                own = self.kept.get(v)
                apart = own is not None and kept is not None and own != kept  # rows and columns of tiles
                if n == size != 1 and (_nameless(axis) or _nameless(f)) and not apart:
                    why = "may or may not lie along the axis of"
                    self._ask(v, [f], [n], values.index(v), why)
            found.append(axis)
            sizes.append(size)
            were.append(self.kept.get(v))
            if len(found) > 2:
                raise BroadcastError(
                    f"one vector runs along {axis_text(found[0])}, one along {axis_text(found[1])}, one along "
                    f"{axis_text(found[2])}; vectors of two axes make a matrix, vectors of three make nothing. "
                    "Say which axes the result has with [:, None] behind one",
                    "TS418",
                )
        if not found:
            v = next(v for v in values if _type(v).rank == 1)
            return [*self.of(v)], [*_type(v).shape]
        return found, sizes

    # one operand
    def fit(
        self, v: Value, axes: Sequence[Axis], sizes: Sequence[Dim], at: int = 0, count: int = 1, storing: bool = False
    ) -> Places:
        """For each axis of `v` the one of a tile with these axes that it meets. Raises BroadcastError."""
        if _type(v).rank == len(axes) > 1 or (storing and _type(v).rank == len(axes)):
            return self._same_rank(v, axes, sizes, at, count, storing)
        mine, shape = self.of(v), _type(v).shape
        out = [self._meets(v, i, axes, sizes, at) for i in range(len(mine))]
        if len(set(out)) != len(out) or (sorted(out) != out and v not in self.unordered):
            raise BroadcastError(
                f"the axes of {self.text(v)} lie in another order in {_text(axes, sizes)}; transpose it, or say where "
                f"they lie with None, as in [:, None]",
                "TS418",
                [("the transpose (.T)", {at: ".T"})] if len(shape) == 2 else (),
            )
        return tuple(out)

    def _meets(self, v: Value, i: int, axes: Sequence[Axis], sizes: Sequence[Dim], at: int) -> int:
        """Where axis `i` of `v`, which has fewer axes, lies among `axes`."""
        axis, rank, kept = self.of(v)[i], _type(v).rank, self.kept.get(v)
        position = kept[1][i] if kept and kept[0] == len(axes) else None
        how: list[Relation] = [relation(axis, a) if not a.stretches else "open" for a in axes]
        alike = [p for p, a in enumerate(axes) if a.same(axis)]
        for found in (alike, *([p for p, r in enumerate(how) if r == wanted] for wanted in ("same", "near"))):
            if position in found:
                assert position is not None
                return position
            if len(found) == 1 and (found is alike or "unclear" not in how):
                return found[0]
            twins = [j for j, a in enumerate(self.of(v)) if a.same(axis)]
            if len(found) > 1 and len(twins) == len(found):  # S by S in both
                return found[twins.index(i)]
            if len(found) > 1:
                return self._ask(v, axes, sizes, at, "may run along several axes of")
        if "unclear" in how:
            return self._ask(v, axes, sizes, at, "starts at a part of the offset of an axis of")
        free = [p for p, a in enumerate(axes) if a.stretches] or [p for p, r in enumerate(how) if r == "open"]
        if axis.stretches or (len(axes) == 1 and how != ["different"]):
            return len(axes) - rank + i
        if axis.origin is None or (unnamed(axis.dim) and not axis.walks):
            if position in free:
                assert position is not None
                return position
            if (
                axis.origin is not None and len(axes) - rank + i in free
            ):  # of parameters without annotation: NumPy's rule
                return len(axes) - rank + i
            return self._ask(
                v, axes, sizes, at, "may run along either axis of" if len(axes) == 2 else "is somewhere in"
            )
        if len(free) == 1:
            return free[0]
        if position in free:
            assert position is not None
            return position
        known = (
            f"runs along {axis_text(axis)}, which is not an axis of" if not free else "may run along several axes of"
        )
        return self._ask(v, axes, sizes, at, known)

    def _ask(self, v: Value, axes: Sequence[Axis], sizes: Sequence[Dim], at: int, why: str) -> int:
        """Two readings, and how each is written."""
        ways: list[Rewrite] = []
        advice = "say where it lies: with [:, None] behind it for one value per row, [None, :] for one per column"
        if len(axes) == 1:
            flat = size_text(_type(v).shape[0])
            advice = (
                "write [:, None] behind one and [None, :] behind the other for all pairs, or "
                f".reshape({flat}) behind one to go element by element"
            )
            ways = [
                ("all pairs ([:, None] and [None, :])", {1 - at: "[:, None]", at: "[None, :]"}),
                (f"them element by element (.reshape({flat}))", {at: f".reshape({flat})"}),
            ]
        if _type(v).rank == 1 and len(axes) == 2:
            ways = [
                ("one value per column ([None, :])", {at: "[None, :]"}),
                ("one value per row ([:, None])", {at: "[:, None]"}),
            ]
            if isinstance(sizes[0], int) and sizes[0] != sizes[1] == _type(v).shape[0]:
                ways = ways[:1]
            elif isinstance(sizes[1], int) and sizes[1] != sizes[0] == _type(v).shape[0]:
                ways = ways[1:]
        size = _type(v).shape[0]
        if isinstance(size, Expr) and len(axes) > 1 and size not in sizes:
            ways = []
            advice = f"{size_text(size)} is none of its sizes; if it is one of them, annotate it so"
        raise BroadcastError(f"the vector {self.text(v)} {why} {_text(axes, sizes)}; {advice}", "TS418", ways)

    def _same_rank(
        self, v: Value, axes: Sequence[Axis], sizes: Sequence[Dim], at: int, count: int, storing: bool
    ) -> Places:
        """By position; refused if the axes contradict it. Axes of size 1 that the user inserted determine positions."""
        mine = self.of(v)
        if any(a.stretches for a in (*mine, *axes)):
            return tuple(range(len(axes)))
        how = [relation(a, b) for a, b in zip(mine, axes, strict=True)]
        wrong = [p for p, r in enumerate(how) if r in ("different", "unclear")]
        if not wrong:
            return tuple(range(len(axes)))
        elsewhere = [next((q for q, b in enumerate(axes) if relation(a, b) == "same"), None) for a in mine]
        turned = all(p is not None for p in elsewhere) and len(set(elsewhere)) == len(elsewhere)
        if turned and v in self.unordered:
            return tuple(p for p in elsewhere if p is not None)
        one = [1 in pair for pair in zip(_type(v).shape, sizes, strict=True)]
        wrong = [p for p in wrong if turned or not one[p]]  # one element stretches, as in NumPy
        if not wrong or (storing and not turned):
            return tuple(range(len(axes)))  # of a store the place is written down: there is no other reading
        p = wrong[0]
        here = f"axis {p} of {self.text(v)} runs along {axis_text(mine[p])}, that of {_text(axes, sizes)} along "
        flat = ", ".join(map(size_text, _type(v).shape))
        by_place: Rewrite = (
            f"them element by element, whatever the axes are (.reshape({flat}))",
            {at: f".reshape({flat})"},
        )
        if turned and len(axes) == 2:
            raise BroadcastError(
                f"{here}{axis_text(axes[p])}: the axes lie in another order. Write .T to bring them together, or "
                f".reshape({flat}) to go element by element",
                "TS418",
                [("the transpose (.T)", {at: ".T"}), by_place],
            )
        ways = [by_place]
        if len(wrong) == 1 and count == 2 and len(axes) == 2:
            other = [":", ":"]
            left, right = [*other[: p + 1], "None", *other[p + 1 :]], [*other[:p], "None", *other[p:]]
            both = {1 - at: f"[{', '.join(left)}]", at: f"[{', '.join(right)}]"}
            ways = [(f"all pairs along these axes ({both[0]} and {both[1]})", both), by_place]
        raise BroadcastError(
            f"{here}{axis_text(axes[p])}. Insert an axis with None to combine all of one with all of the other, or "
            f"write .reshape({flat}) to go element by element",
            "TS418",
            ways,
        )

    def text(self, v: Value) -> str:
        return _text(self.of(v), _type(v).shape)


def narrower(a: Axis, b: Axis) -> Axis:
    """Of two axes that are one, the one whose start moves with less: what both have in common."""
    if a.origin is None or (b.origin is not None and relation(a, b) == "near" and b.walks < a.walks):
        return b
    return a


def join_sizes(m: Dim, n: Dim, left: Shape, right: Shape) -> Dim:
    if m == n or n == 1:
        return m
    if m == 1:
        return n
    condition = divisibility(m, n)
    raise BroadcastError(
        f"{shape_text(left)} and {shape_text(right)} do not broadcast: {size_text(m)} meets {size_text(n)}"
        + (f"; assert {condition} before, and they are equal" if condition else "")
    )


def _text(axes: Sequence[Axis], sizes: Sequence[Dim]) -> str:
    """`[16 along i, N]`."""
    parts: list[str] = []
    for axis, n in zip(axes, sizes, strict=True):
        size, along = size_text(axis.size if axis.size is not None else n), axis_text(axis)
        parts.append(size if axis.origin is None or along == size else f"{size} along {along}")
    return f"[{', '.join(parts)}]"


def _type(v: Value) -> TileType:
    assert isinstance(v.type, TileType)
    return v.type
