"""Subscripts of tiles, read and stored: `t[0:8, ::2]`, `t[-1]`, `t[i]`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.access import storable
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Axis, marks, shown
from tessera.compiler.frontend.names.values import is_slice, is_static, type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType, shape_text
from tessera.compiler.tile.primitive import At, Element, ElementWriter, Operand, TilePrimitive
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

from tessera.compiler.frontend.kernel.builtins.gather_scatter import ScatterAlong, Take
from tessera.immutable import immutable


class Part(TilePrimitive):
    """The elements start, start + step ... of each axis, as many as `sizes` says; axes in `drop` go."""

    hidden = True
    moves = ("x",)

    def result(
        self, x: TileType, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[Dim], drop: Sequence[int]
    ) -> TileType:
        return TileType(tuple(n for a, n in enumerate(sizes) if a not in drop), x.dtype)

    def reference(self, x: Any, starts: Any, steps: Any, sizes: Any, drop: Any) -> Any:
        found = x[np.ix_(*(s + p * np.arange(n) for s, p, n in zip(starts, steps, sizes, strict=True)))]
        return np.squeeze(found, tuple(drop))

    def element(
        self, c: ElementWriter, at: list[At], x: Operand, starts: Any, steps: Any, sizes: Any, drop: Any
    ) -> Element:
        rest = iter(at)
        places = (s if a in drop else next(rest) * p + s for a, (s, p) in enumerate(zip(starts, steps, strict=True)))
        return x(*places)

    def kept(self, before: int, after: int, starts: Any, steps: Any, sizes: Any, drop: Any) -> dict[int, int]:
        left = [a for a in range(len(starts)) if a not in drop]
        return {i: a for i, a in enumerate(left) if (starts[a], steps[a]) == (0, 1)}


class Put(TilePrimitive):
    """A tile with another in place of its elements start, start + step ... of each axis. `whole`: axes that it has all
    of."""

    hidden = True
    moves = ("x", "value")

    def result(
        self, x: TileType, value: TileType, starts: Sequence[int], steps: Sequence[int], whole: Sequence[int]
    ) -> TileType:
        return x

    def reference(self, x: Any, value: Any, starts: Any, steps: Any, whole: Any) -> Any:
        out = x.copy()
        out[np.ix_(*(s + p * np.arange(n) for s, p, n in zip(starts, steps, value.shape, strict=True)))] = value
        return out

    def element(
        self, c: ElementWriter, at: list[At], x: Operand, value: Operand, starts: Any, steps: Any, whole: Any
    ) -> Element:
        inside: list[Element] = []
        places: list[At] = []
        for a, (start, step, n) in enumerate(zip(starts, steps, value.shape, strict=True)):
            if a in whole:
                places.append(at[a])
                continue
            apart = at[a] - start if step > 0 else start - at[a]
            inside += [(apart % abs(step)).equals(0)] if abs(step) > 1 else []
            place = apart // abs(step) if abs(step) > 1 else apart
            inside += [At(c, -1) < place, place < n]
            places.append(place.clip(n))
        there = functools.reduce(lambda p, q: c.apply("logical_and", p, q), inside)
        return c.choose(there, value(*places), x(*at))

    def kept(self, before: int, after: int, starts: Any, steps: Any, whole: Any) -> dict[int, int]:
        return {a: a for a in whole}


@immutable
class Taken:
    """What a subscript takes of one axis: `size` elements from `start` on, `step` apart, or those at computed `places`.
    `drop`: one element, whose axis goes."""

    start: Dim = 0
    step: int = 1
    size: Dim = 1
    drop: bool = False
    places: Value | None = None
    given: slice[Any, Any, Any] | None = None
    """the slice as it is written, with the names of sizes"""

    @property
    def rank(self) -> int:
        """How many axes of the result it makes."""
        return 0 if self.drop else tile_type(self.places).rank if self.places is not None else 1

    @property
    def length(self) -> Dim:
        return tile_type(self.places).shape[0] if self.places is not None else self.size

    def axis(self, k: KernelState, own: Axis, n: Dim) -> Axis:
        """What a value that is stored there lies along; the tile's own axis has `n` elements."""
        if self.places is not None and not self.drop:
            return k.tiles.identities.of(self.places)[0]
        return own if self.whole(n) else Axis(size=self.size)

    def whole(self, n: Dim) -> bool:
        return self.places is None and not self.drop and (self.start, self.step, self.size) == (0, 1, n)


def part(k: KernelState, x: Value, items: Sequence[Any]) -> Value:
    """`x[0:8, None, i]`: a part of a tile, with new axes of size 1. Raises KernelFault."""
    written = expanded(x, items)
    taken = taken_by(k, x, written)
    x = taken_of(k, x, taken)
    new, at, axes = list[int](), 0, iter(taken)
    for item in written:
        new += [at] if item is None else []
        at += 1 if item is None else next(axes).rank
    return k.tiles.insert_axes(x, new) if new else x


def stored(k: KernelState, x: Value, items: Sequence[Any], item: Any) -> Value:
    """What `x` is after `x[items] = item`. Raises KernelFault."""
    if any(i is None for i in items):
        raise KernelFault("TS402", "a store cannot insert an axis; leave out the None")
    t, taken = tile_type(x), taken_by(k, x, expanded(x, items))
    for b in taken:
        if b.places is not None and tile_type(b.places).rank > 1:
            raise KernelFault("TS402", "a store takes an index tile of one axis; use scatter(...) for more")
    own = zip(taken, k.tiles.identities.of(x), t.shape, strict=True)
    axes = [b.axis(k, axis, k.known(n)) for b, axis, n in own]
    value = storable(k.tiles, item, t.dtype, "the tile")
    left = [a for a, b in enumerate(taken) if not b.drop]
    shape = tuple(taken[a].length for a in left)
    if tile_type(value).rank > len(shape):
        raise KernelFault("TS402", f"{shape_text(tile_type(value).shape)} does not fit the part {shape_text(shape)}")
    value = k.tiles.fitted(value, shape, [axes[a] for a in left], storing=True)
    dropped = [a for a, b in enumerate(taken) if b.drop]
    return _put(k, x, taken, k.tiles.insert_axes(value, dropped) if dropped else value)


def _put(k: KernelState, x: Value, taken: Sequence[Taken], value: Value) -> Value:
    """The same of a value with all axes: along one computed axis after the other."""
    whole = [Taken(size=k.known(n)) for n in tile_type(x).shape]
    a = next((a for a, b in enumerate(taken) if b.places is not None), None)
    if a is None:
        if all(b.size == n.size for b, n in zip(taken, whole, strict=True)):  # all of it, so that nothing of x is left
            turned = [Taken(b.start, b.step, b.size) for b in taken]
            value = taken_of(k, value, turned, keep=True)
            return k.tiles.identities.like(k.tiles.builder.value("tile.reshape", (value,), value.type), x)
        attrs = {"starts": tuple(b.start for b in taken), "steps": tuple(b.step for b in taken)}
        kept = tuple(n for n, b in enumerate(taken) if b.whole(whole[n].size))
        return k.primitive(Put.definition, [x, value], {**attrs, "whole": kept})
    places = taken[a].places
    assert places is not None
    places = k.tiles.insert_axes(places, [0]) if taken[a].drop else places
    others = [*taken[:a], whole[a], *taken[a + 1 :]]
    if all(b.whole(n.size) for b, n in zip(others, whole, strict=True)):
        return k.primitive(ScatterAlong.definition, [x, places, value], {"axis": a})
    inner = k.primitive(ScatterAlong.definition, [taken_of(k, x, others, keep=True), places, value], {"axis": a})
    return _put(k, x, others, inner)


def taken_of(k: KernelState, x: Value, taken: Sequence[Taken], keep: bool = False) -> Value:
    """The part of a tile. `keep`: axes of one element stay."""
    t = tile_type(x)
    whole = [k.known(n) for n in t.shape]
    fixed = [Taken(size=n) if b.places is not None else b for b, n in zip(taken, whole, strict=True)]
    drop = tuple(a for a, b in enumerate(fixed) if b.drop and not keep)
    left = [a for a in range(t.rank) if a not in drop]
    if drop or not all(b.whole(n) for b, n in zip(fixed, whole, strict=True)):
        axes = k.tiles.identities.of(x)
        attrs = {"starts": tuple(b.start for b in fixed), "steps": tuple(b.step for b in fixed)}
        attrs |= {"sizes": tuple(b.size for b in fixed), "drop": drop}
        x = k.primitive(Part.definition, [x], attrs)
        kept = [a if b.whole(n) else Axis(size=_part_size(k, b, a)) for a, b, n in zip(axes, fixed, whole, strict=True)]
        k.tiles.identities.set(x, tuple(kept[a] for a in left))
    for at, a in reversed(list(enumerate(left))):
        if (places := taken[a].places) is not None:
            places = k.tiles.insert_axes(places, [0]) if keep and taken[a].drop else places
            x = Take.definition.build(k, x, places, at)
    return x


def _part_size(k: KernelState, b: Taken, axis: Axis) -> Dim:
    """How many elements `[::-1]`, `[1::2]` or `[D:]` has of an axis whose length has a name, by that name."""
    if axis.size is None or b.given is None:
        return b.size
    first, last = b.given.start or 0, b.given.stop
    last = axis.size if last is None else last
    named = dims.ceildiv(last - first if b.step > 0 else axis.size, abs(b.step))
    return named if k.known(named) == b.size else b.size


def expanded(x: Value, items: Sequence[Any]) -> list[Any]:
    """The items of a subscript with one for each axis, and None. Raises KernelFault."""
    t = tile_type(x)
    plain = [i for i in items if i is not None and i is not ...]
    if sum(i is ... for i in items) > 1:
        raise KernelFault("TS204", "an index has one `...` at most, because it stands for all other axes")
    if len(plain) > t.rank:
        raise KernelFault("TS204", f"{len(plain)} indices for the {t.rank} axes of {t.pretty()}")
    at = next((n for n, i in enumerate(items) if i is ...), len(items))
    return [*items[:at], *[slice(None)] * (t.rank - len(plain)), *items[at + 1 :]]


def taken_by(k: KernelState, x: Value, items: Sequence[Any]) -> list[Taken]:
    """What each axis gives. Raises KernelFault."""
    t = tile_type(x)
    found = [_taken(k, i, k.known(n), t) for i, n in zip((i for i in items if i is not None), t.shape, strict=True)]
    tiles = [b for b, i in zip(found, (i for i in items if i is not None), strict=True)
             if b.places is not None and not is_slice(i) and not b.drop]  # fmt: skip
    if len(tiles) > 1:
        raise KernelFault(
            "TS402",
            "a subscript of a tile takes one index tile; take(tile, places, axis) takes along one axis after the other",
        )
    return found


def _taken(k: KernelState, item: Any, n: Dim, t: TileType) -> Taken:
    """What an index or a slice takes of an axis of `n` elements."""
    if not is_slice(item):
        return _at(k, item, n, t)
    if any(_computed(k, v) for v in (item.start, item.stop, item.step)):
        return _moving(k, item, n)
    parts = [k.known(v) for v in (item.start, item.stop, item.step)]
    for given, v in zip((item.start, item.stop), parts, strict=False):
        if v is not None and (not isinstance(v, int) or isinstance(v, bool)):
            raise KernelFault("TS404", f"parts of a tile start and end at integers, not {index_text(v)}")
        if isinstance(given, dims.Expr) and isinstance(v, int) and v < 0:
            raise KernelFault("TS204", f"the slice starts or ends at {shown(given)}, which is {v}: outside of the axis")
    if parts == [None, None, None]:
        return Taken(size=n)
    start, stop, step = parts
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise KernelFault("TS404", f"the step of a slice is a number known at compile time, not {index_text(step)}")
    if step == 0:
        raise KernelFault("TS105", "the step of a slice is not 0")
    if not isinstance(n, int):  # an editor does not know it; the compiler does, and checks
        first, apart, size = _open(start, stop, step or 1, n)
        return Taken(first, apart, k.ev.facts.folded(size))
    if any(v is not None and not -n <= v <= n for v in (start, stop)):
        raise KernelFault("TS204", f"the slice reaches outside of an axis of {n} elements of {shape_text(t.shape)}")
    taken = range(*slice(start, stop, step).indices(n))
    if not taken:
        raise KernelFault("TS204", f"the slice takes none of the {n} elements of an axis of {shape_text(t.shape)}")
    return Taken(taken.start, taken.step, len(taken), given=item)


def _computed(k: KernelState, v: Any) -> bool:
    """Whether a number is known only when the program runs, or the size that it depends on is not known yet."""
    return isinstance(v, Value) or isinstance(k.known(v), dims.Expr)


def _at(k: KernelState, item: Any, n: Dim, t: TileType) -> Taken:
    """One element, or those at the places of an index tile."""
    if _computed(k, item) or k.is_tile(item):
        places = k.tiles.scalar(item, dtypes.int64) if isinstance(item, dims.Expr) else k.tile(item)
        if not tile_type(places).dtype.is_integer:
            raise KernelFault("TS207", f"an index is an integer, not {tile_type(places).pretty()}")
        return Taken(drop=not tile_type(places).rank, places=places)
    at = k.known(item)
    if not isinstance(at, int) or isinstance(at, bool):
        raise KernelFault("TS404", f"a tile is indexed by integers, slices and integer tiles, not {index_text(at)}")
    place = at + n if at < 0 and isinstance(item, int) else at
    if isinstance(n, int) and not 0 <= place < n:  # type: ignore[operator]
        raise KernelFault("TS204", f"index {at} is outside of an axis of {n} elements of {shape_text(t.shape)}")
    return Taken(place, drop=True)


def _moving(k: KernelState, item: slice[Any, Any, Any], n: Dim) -> Taken:
    """`i : i + 4`: as many elements whatever `i` is."""
    if item.step is not None and k.known(item.step) != 1:
        raise KernelFault("TS404", "a slice that starts at a computed place has no step; take(tile, places) has any")
    start, stop = (k.index(v) if v is not None else d for v, d in ((item.start, 0), (item.stop, n)))
    size = k.known(stop - start)
    if marks(size):
        raise KernelFault("TS404", f"the slice's width must be known at compile time; here it is {shown(size)}")
    if isinstance(size, int) and size <= 0:
        raise KernelFault("TS204", f"the slice {shown(start)}:{shown(stop)} is empty")
    if not marks(start) and not marks(stop):  # of sizes that an editor does not know
        return Taken(start, 1, size)
    return Taken(size=size, places=k.memory.ramp(start, (size,), 0))


def _open(start: int | None, stop: int | None, step: int, n: Dim) -> tuple[Dim, int, Dim]:
    """The same of an axis whose size is a symbol: what it is if the slice stays inside."""
    first, end = ((0, n) if step > 0 else (n - 1, -1)) if start is None or stop is None else (0, 0)
    if start is not None:
        first = start + n if start < 0 else start
    if stop is not None:
        end = stop + n if stop < 0 else stop
    return first, step, dims.ceildiv(end - first if step > 0 else first - end, abs(step))


def index_text(v: Any) -> str:
    return shown(v) if isinstance(v, dims.Expr) else repr(v) if is_static(v) else type_name(v)
