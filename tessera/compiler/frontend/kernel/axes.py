"""Broadcasting by identity: which axis of a tile a vector belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.compiler.frontend.kernel.values import Axes, Axis, Coordinate
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TileType, shape_text
from tessera.language.dims import Dim


class BroadcastError(Exception):
    """Two tiles do not fit together; the message is for people."""


@dataclass(slots=True)
class Identities:
    """The axes of every tile value, and for what is left of a reduced tile the positions its axes had there."""

    axes: dict[Value, Axes] = field(default_factory=dict[Value, Axes])
    kept: dict[Value, tuple[int, tuple[int, ...]]] = field(default_factory=dict[Value, tuple[int, tuple[int, ...]]])
    """value -> (rank of the tile it was reduced from, positions of its axes in it): `row_max` gives (2, (0,))"""

    def of(self, v: Value) -> Axes:
        """The axes of a tile; new ones of unknown identity where nothing has been said."""
        if v not in self.axes:
            assert isinstance(v.type, TileType)
            self.axes[v] = tuple(Axis() for _ in v.type.shape)
        return self.axes[v]

    def set(self, v: Value, axes: Axes, kept: tuple[int, tuple[int, ...]] | None = None) -> Value:
        self.axes[v] = axes
        if kept is not None:
            self.kept[v] = kept
        return v

    def like(self, v: Value, other: Value) -> Value:
        """`v` is an elementwise image of `other`."""
        return self.set(v, self.of(other), self.kept.get(other))

    def place(self, v: Value, target: Value) -> tuple[int, ...]:
        """For each axis of the lower-rank `v` the axis of `target` that it runs along. Raises BroadcastError."""
        vt, tt = _type(v), _type(target)
        mine, theirs = self.of(v), self.of(target)
        reduced = self.kept.get(v)
        by_position = reduced[1] if reduced and reduced[0] == tt.rank else None
        out: list[int] = []
        for i, axis in enumerate(mine):
            found = self._axis(
                axis, vt.shape[i], theirs, tt.shape, by_position[i] if by_position else None, vt.rank == 1
            )
            if found is None:
                found = self._trailing(v, target, i)
            out.append(found)
        if sorted(set(out)) != out:
            both = f"{shape_text(vt.shape)} cannot be matched with those of {shape_text(tt.shape)}"
            raise BroadcastError(f"the axes of {both}; insert axes with x[:, None]")
        for i, p in enumerate(out):
            if vt.shape[i] != 1:
                mine[i].join(theirs[p])
        return tuple(out)

    def _axis(self, axis: Axis, size: Dim, theirs: Axes, shape: Shape, position: int | None, alone: bool) -> int | None:
        known = [p for p, a in enumerate(theirs) if a.same(axis)]
        if position is not None and (position in known or not known) and shape[position] in (size, 1):
            return position
        if len(known) == 1:
            return known[0]
        if axis.origin is None or known:
            return None
        # An identity that the tile lacks can only meet an axis that has none yet.
        free = [p for p, a in enumerate(theirs) if a.origin is None and shape[p] == size]
        return free[0] if alone and len(free) == 1 and len(theirs) > 1 and not known else None

    def _trailing(self, v: Value, target: Value, i: int) -> int:
        """NumPy's rule, for vectors without an identity; refused where the length alone would decide."""
        vt, tt = _type(v), _type(target)
        last = tt.rank - vt.rank + i
        if tt.shape[last] not in (vt.shape[i], 1):
            fits = [p for p, d in enumerate(tt.shape) if d == vt.shape[i]]
            hint = f"; write x[:, None] to align it with axis {fits[0]}" if fits else ""
            raise BroadcastError(f"{shape_text(vt.shape)} does not broadcast with {shape_text(tt.shape)}{hint}")
        if vt.rank == 1 and tt.rank == 2 and tt.shape[0] == tt.shape[1] != 1:
            raise BroadcastError(
                f"{shape_text(vt.shape)} may run along either axis of {shape_text(tt.shape)}; "
                "write x[:, None] for one value per row or x[None, :] for one per column"
            )
        return last

    def pair(self, a: Value, b: Value) -> tuple[Shape, tuple[int, ...], tuple[int, ...]]:
        """The common shape of two tiles, and the result axes that the axes of each become. Raises BroadcastError."""
        at, bt = _type(a), _type(b)
        if at.rank < bt.rank:
            shape, y, x = self.pair(b, a)
            return shape, x, y
        if at.rank > bt.rank:
            x, y = tuple(range(at.rank)), self.place(b, a) if bt.rank else ()
            shape = list(at.shape)
            for i, p in enumerate(y):
                shape[p] = join_sizes(shape[p], bt.shape[i], at.shape, bt.shape)
            return tuple(shape), x, y
        same = tuple(range(at.rank))
        shape = tuple(join_sizes(m, n, at.shape, bt.shape) for m, n in zip(at.shape, bt.shape, strict=True))
        mine, theirs = self.of(a), self.of(b)
        if at.rank == 1 and at.shape == bt.shape != (1,):
            self._demand_alike(a, b, mine[0], theirs[0])
        for x, y, m, n in zip(mine, theirs, at.shape, bt.shape, strict=True):
            if m == n != 1:
                x.join(y)
        return shape, same, same

    def _demand_alike(self, a: Value, b: Value, x: Axis, y: Axis) -> None:
        """One value per row does not add to one per column, even if there are equally many."""
        ka, kb = self.kept.get(a), self.kept.get(b)
        if x.origin is not None and y.origin is not None and not x.same(y) and ka and kb and ka != kb:
            raise BroadcastError(
                f"one vector has a value per {axis_text(x)}, the other one per {axis_text(y)}; write x[:, None] and "
                "y[None, :] for their outer combination"
            )

    def merged(self, shape: Shape, parts: Sequence[tuple[Value, tuple[int, ...]]]) -> Axes:
        """The axes of a result from those of its operands and where they lie."""
        out: list[Axis] = []
        for p, size in enumerate(shape):
            found: list[Axis] = []
            for v, places in parts:
                if p in places and (_type(v).shape[places.index(p)] == size):
                    found.append(self.of(v)[places.index(p)])
            known = [a for a in found if a.origin is not None]
            out.append((known or found or [Axis()])[0])
        return tuple(out)


def join_sizes(m: Dim, n: Dim, left: Shape, right: Shape) -> Dim:
    if m == n or n == 1:
        return m
    if m == 1:
        return n
    raise BroadcastError(f"{shape_text(left)} and {shape_text(right)} do not broadcast: {m} meets {n}")


def axis_text(axis: Axis) -> str:
    """How messages call an axis."""
    origin = axis.origin
    return origin.name if isinstance(origin, Coordinate) else str(origin)


def _type(v: Value) -> TileType:
    assert isinstance(v.type, TileType)
    return v.type
