"""`ts.tile` on NumPy: a kernel's text, run as plain Python, gives what its launches are held against.

A tile has values and knows which of its elements exist: those outside of an array read as 0, but no reduction sees
them. Indices are Python's integers. Programs run one after the other, as the outermost loop says.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz import part_oracle


class Lanes:
    """base, base + 1, ..."""

    def __init__(self, base: int, size: int) -> None:
        self.base, self.size = base, size

    def tile(self) -> Tile:
        return Tile(np.arange(self.base, self.base + self.size))

    def __add__(self, other: Any) -> Any:
        return Lanes(self.base + other, self.size) if isinstance(other, int) else self.tile() + other

    def __sub__(self, other: Any) -> Any:
        return Lanes(self.base - other, self.size) if isinstance(other, int) else self.tile() - other

    def __lt__(self, other: Any) -> Tile:
        return self.tile() < other

    def __mod__(self, other: int) -> Tile:
        return Tile(self.tile().values % other)


class Tile:
    """`axes`: for each, which positions exist. `mask`: which elements the author's masks leave."""

    def __init__(self, values: Any, axes: Any = None, place: Any = None, mask: Any = True) -> None:
        self.values = np.asarray(values)
        self.axes = [np.ones(n, bool) for n in self.values.shape] if axes is None else axes
        self.mask, self.place = np.asarray(mask), place

    @property
    def exists(self) -> Any:
        shaped = np.ones((), bool)
        for a in self.axes:
            shaped = np.logical_and.outer(shaped, a)
        return np.broadcast_to(self.mask, self.values.shape) & shaped

    def reshape(self, *sizes: int) -> Tile:
        """Of one axis to as many elements: the same, along nothing."""
        if self.values.shape == sizes:
            return self
        return Tile(self.values.reshape(sizes), mask=self.exists.reshape(sizes))

    @property
    def T(self) -> Tile:
        return Tile(self.values.T, self.axes[::-1], mask=np.broadcast_to(self.mask, self.values.shape).T)

    @property
    def known(self) -> part_oracle.Known:
        return self.values, self.exists

    def __getitem__(self, items: Any) -> Tile:
        return _of(part_oracle.part(self.known, _items(items)))

    def put(self, items: Any, value: Any) -> Tile:
        """The tile that `self[items] = value` makes."""
        return _of(part_oracle.put(self.known, _items(items), _tile(value).known))

    def turned(self) -> Tile:
        """A condition's other side."""
        return Tile(~self.values)

    def _with(self, other: Any, f: Callable[[Any, Any], Any]) -> Tile:
        other = other.tile() if isinstance(other, Lanes) else other if isinstance(other, Tile) else Tile(other)
        made = Lane if isinstance(self, Lane) or isinstance(other, Lane) else Tile
        return made(f(self.values, other.values), _both(self, other), mask=self.mask & other.mask)

    def __add__(self, other: Any) -> Tile:
        return self._with(other, np.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tile:
        return self._with(other, np.subtract)

    def __mul__(self, other: Any) -> Tile:
        return self._with(other, np.multiply)

    def __lt__(self, other: Any) -> Tile:
        return self._with(other, np.less)

    def __floordiv__(self, other: Any) -> Tile:
        return self._with(other, np.floor_divide)

    def __mod__(self, other: Any) -> Tile:
        return self._with(other, np.mod)

    def __rsub__(self, other: Any) -> Tile:
        return Tile(other)._with(self, np.subtract)

    def __gt__(self, other: Any) -> Tile:
        return self._with(other, np.greater)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __index__(self) -> int:
        return int(self.values)


class Lane(Tile):
    """One lane of `linear_id`: all indices of it are one axis. `straight`: displaced at most, as a slice is."""

    straight = False

    def _displaced(self, other: Any, out: Tile) -> Tile:
        if self.straight and isinstance(other, int) and isinstance(out, Lane):
            out.straight = True
        return out

    def __add__(self, other: Any) -> Tile:
        return self._displaced(other, super().__add__(other))

    def __sub__(self, other: Any) -> Tile:
        return self._displaced(other, super().__sub__(other))


def _of(known: part_oracle.Known) -> Tile:
    return Tile(known[0], mask=known[1])


def _tile(x: Any) -> Tile:
    return x.tile() if isinstance(x, Lanes) else x if isinstance(x, Tile) else Tile(x)


def _items(items: Any) -> tuple[Any, ...]:
    given = items if isinstance(items, tuple) else (items,)
    return tuple(i.known if isinstance(i, Tile) and i.values.ndim else i for i in given)


def each_lane(count: int) -> list[Lane]:
    lanes = [Lane(np.array([i])) for i in range(count)]
    for lane in lanes:
        lane.straight = True
    return lanes


def _both(*tiles: Tile) -> list[Any]:
    """What exists of an elementwise result: what does of all that have axes."""
    shaped = [t.axes for t in tiles if t.axes]
    return [np.logical_and.reduce(parts) for parts in zip(*shaped, strict=True)]


class Memory:
    """An array whose outside reads as 0 and is not stored."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def _places(self, index: Any) -> tuple[list[Any], Any, Any]:
        """Indices that broadcast with each other, which of them lie inside, and which exist along each axis."""
        items = list(index) if isinstance(index, tuple) else [index]
        shaped = [i for i in items if isinstance(i, (slice, Lanes)) or (isinstance(i, Tile) and i.values.ndim)]
        found: list[Any] = []
        inside, axis, axes = np.asarray(True), 0, list[Any]()
        if any(isinstance(i, Lane) for i in items):
            return self._place_of_lane(items)
        for item, extent in zip(items, self.data.shape, strict=True):
            kept = np.asarray(True)
            if isinstance(item, slice):
                at = np.arange(int(item.start), int(item.stop))
            elif isinstance(item, Lanes):
                at = item.tile().values
            elif isinstance(item, Tile) and item.values.ndim:
                at, kept = item.values, item.exists
            else:
                at = np.asarray(int(item))
            lies = (at >= 0) & (at < extent) & kept
            if isinstance(item, (slice, Lanes)):
                kept = lies
            if at.ndim:
                axes.append(kept)
                form = [-1 if a == axis else 1 for a in range(len(shaped))]
                at, lies, axis = at.reshape(form), lies.reshape(form), axis + 1
            found.append(np.where(lies, at, 0))
            inside = inside & lies
        shape = np.broadcast_shapes(*(np.shape(i) for i in found))
        return found, np.broadcast_to(inside, shape), axes

    def _place_of_lane(self, items: list[Any]) -> tuple[list[Any], Any, Any]:
        found, inside, exists = list[Any](), np.ones(1, bool), np.ones(1, bool)
        for item, extent in zip(items, self.data.shape, strict=True):
            at = item.values if isinstance(item, Tile) else np.array([int(item)])
            if isinstance(item, Tile):
                exists = exists & item.exists
            lies = (at >= 0) & (at < extent)
            if isinstance(item, Lane) and item.straight:
                exists = exists & lies
            found.append(np.where(lies, at, 0))
            inside = inside & lies
        return found, inside & exists, [exists]

    def __getitem__(self, index: Any) -> Tile:
        found, inside, axes = self._places(index)
        values = self.data[tuple(found)] if self.data.size else np.zeros(inside.shape, self.data.dtype)
        made = Lane if any(isinstance(i, Lane) for i in (index if isinstance(index, tuple) else (index,))) else Tile
        return made(np.where(inside, values, 0), axes, (self, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.put(index, value, True)

    def put(self, index: Any, value: Any, mask: Any) -> None:
        found, inside, _ = self._places(index)
        values = np.broadcast_to(value.values if isinstance(value, Tile) else value, inside.shape)
        stored = inside & np.broadcast_to(mask, inside.shape)
        places = tuple(np.broadcast_to(i, inside.shape)[stored] for i in found)
        self.data[places] = values[stored]


def _load(source: Tile, mask: Tile, other: Any = None) -> Tile:
    memory, index = source.place
    _, inside, _ = memory._places(index)
    if other is None:
        return Tile(np.where(mask.values, source.values, 0), source.axes, mask=mask.values)
    return Tile(np.where(mask.values & inside, source.values, other))


def _store(target: Tile, value: Any, mask: Tile) -> None:
    memory, index = target.place
    memory.put(index, value, mask.values)


def _reduced(f: Any, identity: float) -> Callable[..., Tile]:
    def reduce(x: Tile, axis: int | None = None) -> Tile:
        rest = [] if axis is None else [a for n, a in enumerate(x.axes) if n != axis]
        return Tile(f(np.where(x.exists, x.values, identity), axis), rest)

    return reduce


def _sorted(x: Tile, axis: int = -1, descending: bool = False) -> Tile:
    """What exists stands first; what is behind it has no value."""
    values, exists = (np.moveaxis(v, axis, -1) for v in (x.values, x.exists))
    out, count = np.full(values.shape, np.nan), exists.sum(-1)
    for place in np.ndindex(values.shape[:-1]):
        line = np.sort(values[place][exists[place]])
        out[place][: count[place]] = line[::-1] if descending else line
    there = np.arange(values.shape[-1]) < count[..., None]
    return Tile(np.moveaxis(out, -1, axis), mask=np.moveaxis(there, -1, axis))


def _scanned(f: Any, identity: float) -> Callable[..., Tile]:
    def scan(x: Tile, axis: int = -1) -> Tile:
        return Tile(f.accumulate(np.where(x.exists, x.values, identity), axis=axis), x.axes, mask=x.mask)

    return scan


def _folded(
    x: Tile, combine: Callable[[float, float], float], axis: int | None = None, identity: float | None = None
) -> Tile:
    """Elements that exist, one after the other; of nothing the identity, else nothing, which as one number is 0."""
    values, exists = (np.ravel(v) if axis is None else np.moveaxis(v, axis, -1) for v in (x.values, x.exists))
    out, there = np.zeros(values.shape[:-1]), np.ones(values.shape[:-1], bool)
    for place in np.ndindex(out.shape):
        line = values[place][exists[place]]
        there[place] = len(line) > 0 or identity is not None or not out.ndim
        out[place] = functools.reduce(combine, line) if len(line) else identity or 0
    return Tile(out, [a for n, a in enumerate(x.axes) if n != axis] if axis is not None else [], mask=there)


def _running(x: Tile, combine: Callable[[float, float], float], axis: int = -1, reverse: bool = False) -> Tile:
    """The same of all elements up to each that exists."""
    values, exists = (np.moveaxis(v, axis, -1) for v in (x.values, x.exists))
    out = np.full(values.shape, np.nan)
    for place in np.ndindex(values.shape[:-1]):
        there = np.nonzero(exists[place])[0]
        there = there[::-1] if reverse else there
        found = list(itertools.accumulate(values[place][there], combine))
        out[place][there] = found
    return Tile(np.moveaxis(out, -1, axis), x.axes, mask=x.mask)


def _mma(a: Tile, b: Tile) -> Tile:
    left, right = (np.where(t.exists, t.values, 0) for t in (a, b))
    return Tile(left @ right, [a.axes[0], b.axes[1]])


class Shared:
    """A shared tile: what was copied into it last."""

    tile: Tile


def keep(old: Tile, new: Tile) -> Tile:
    """What does not exist in a step leaves what is carried as it was."""
    return Tile(np.where(new.exists, new.values, old.values), old.axes, mask=old.mask)


tile = SimpleNamespace(
    range=range, range_k=range, program_id=None, arange=lambda a: Lanes(0, a), cdiv=lambda a, b: -((-a) // b),
    zeros=lambda shape: Tile(np.zeros(shape)), ones=lambda shape: Tile(np.ones(shape)),
    sum=_reduced(np.sum, 0), max=_reduced(np.max, -np.inf), load=_load, store=_store,
    row_sum=lambda x: _reduced(np.sum, 0)(x, 1), col_sum=lambda x: _reduced(np.sum, 0)(x, 0),
    min=_reduced(np.min, np.inf), full=lambda shape, value: Tile(np.full(shape, value)), sort=_sorted, mma=_mma,
    cumsum=_scanned(np.add, 0), cummax=_scanned(np.maximum, -np.inf), cummin=_scanned(np.minimum, np.inf),
    take=lambda x, at: x[at], gather=lambda x, at: x[at], scatter=lambda x, at, v: x.put(at, v),
    scatter_add=lambda x, at, v: _of(part_oracle.added(x.known, at.known, _tile(v).known)),
    argsort=lambda x, descending=False: _of(part_oracle.positions(*x.known, descending)),
    reduce=_folded, associative_scan=_running,
    maximum=lambda a, b: a._with(b, np.maximum),
    where=lambda c, a, b: type(c)(
        np.where(c.values, a.values, b.values), _both(c, a, b), mask=c.mask & a.mask & b.mask
    ),
)  # fmt: skip
