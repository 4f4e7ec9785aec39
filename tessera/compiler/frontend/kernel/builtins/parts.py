"""Parts of tiles, and tiles made of several. `t[0:8, ::2]` and `t[-1]` are parts too, at places known at compile
time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Axis, marks, shown
from tessera.compiler.frontend.names.values import is_sequence, is_slice, is_static, type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType, shape_text
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.compiler.tile.primitive import At, Element, ElementWriter, Operand, TilePrimitive
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

MOVES = "Every element moves through scratch memory, or through shared memory on a GPU."


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

    def kept(self, rank: int, starts: Any, steps: Any, sizes: Any, drop: Any) -> dict[int, int]:
        left = [a for a in range(len(starts)) if a not in drop]
        return {i: a for i, a in enumerate(left) if (starts[a], steps[a]) == (0, 1)}


def part(k: KernelState, x: Value, items: Sequence[Any]) -> Value:
    """`x[0:8, None, -1]`: a part of a tile, with new axes of size 1. Raises KernelFault."""
    t = tile_type(x)
    plain = [i for i in items if i is not None and i is not ...]
    if len(plain) > t.rank:
        raise KernelFault("TS204", f"{len(plain)} indices for the {t.rank} axes of {t.pretty()}")
    at = items.index(...) if any(i is ... for i in items) else len(items)
    items = [*items[:at], *[slice(None)] * (t.rank - len(plain)), *items[at + 1 :]]
    bounds = [_bounds(k, i, k.known(n), t) for i, n in zip((i for i in items if i is not None), t.shape, strict=True)]
    drop = tuple(a for a, i in enumerate(i for i in items if i is not None) if not is_slice(i))
    whole = [b == (0, 1, k.known(n)) for b, n in zip(bounds, t.shape, strict=True)]
    if not all(whole) or drop:
        starts, steps, sizes = zip(*bounds, strict=True)
        axes = k.tiles.identities.of(x)
        attrs = {"starts": starts, "steps": steps, "sizes": sizes, "drop": drop}
        x = k.primitive(Part.definition, [x], attrs)
        kept = [a if same else Axis(size=n) for a, same, n in zip(axes, whole, sizes, strict=True)]
        k.tiles.identities.set(x, tuple(a for i, a in enumerate(kept) if i not in drop))
    left = [i for i in items if i is None or is_slice(i)]
    new = [p for p, i in enumerate(left) if i is None]
    return k.tiles.insert_axes(x, new) if new else x


def _bounds(k: KernelState, item: Any, n: Dim, t: TileType) -> tuple[Dim, int, Dim]:
    """Where a slice or number starts along an axis of `n` elements, its step, and how many elements it takes."""
    parts = [k.known(v) for v in ((item.start, item.stop, item.step) if is_slice(item) else (item,))]
    for v in parts:
        if v is not None and (not isinstance(v, int) or isinstance(v, bool)):
            advice = "take(tile, places) reads computed ones" if marks(v) or not is_static(v) else "write numbers"
            raise KernelFault(
                "TS404", f"parts of a tile start and end at numbers known at compile time, not {_said(v)}; {advice}"
            )
    if not is_slice(item):
        at = parts[0] + n if parts[0] < 0 else parts[0]
        if isinstance(at, int) and isinstance(n, int) and not 0 <= at < n:
            where = f"an axis of {n} elements of {shape_text(t.shape)}"
            raise KernelFault("TS204", f"index {parts[0]} is outside of {where}")
        return at, 1, 1
    if parts == [None, None, None]:
        return 0, 1, n
    start, stop, step = parts
    if step == 0:
        raise KernelFault("TS105", "the step of a slice is not 0")
    if not isinstance(n, int):  # an editor does not know it; the compiler does, and checks
        return _open(start, stop, step or 1, n)
    if any(v is not None and not -n <= v <= n for v in (start, stop)):
        raise KernelFault("TS204", f"the slice reaches outside of an axis of {n} elements of {shape_text(t.shape)}")
    taken = range(*slice(start, stop, step).indices(n))
    if not taken:
        raise KernelFault("TS204", f"the slice takes none of the {n} elements of an axis of {shape_text(t.shape)}")
    return taken.start, taken.step, len(taken)


def _open(start: int | None, stop: int | None, step: int, n: Dim) -> tuple[Dim, int, Dim]:
    """The same of an axis whose size is a symbol: what it is if the slice stays inside."""
    first, end = ((0, n) if step > 0 else (n - 1, -1)) if start is None or stop is None else (0, 0)
    if start is not None:
        first = start + n if start < 0 else start
    if stop is not None:
        end = stop + n if stop < 0 else stop
    return first, step, dims.ceildiv(end - first if step > 0 else first - end, abs(step))


def _said(v: Any) -> str:
    return shown(v) if isinstance(v, dims.Expr) else repr(v) if is_static(v) else type_name(v)


class Flip(TileBuiltin):
    """The elements along `axis` in the other order, as `x[::-1]` has them. What does not exist, at a ragged edge, comes
    first."""

    shapes = "`[..., N, ...] -> [..., N, ...]`"
    dtypes = "any -> the same"
    cost = MOVES
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    y[0:4] = ts.tile.flip(x[0:4])

>>> y = np.zeros(4, np.float32)
>>> example(np.array([1, 2, 3, 4], np.float32), y)
>>> y
[4. 3. 2. 1.]
"""

    def build(self, k: KernelState, x: Any, axis: Any = -1) -> Value:
        value = k.tile(x)
        along = k.tiles.axis_of(value, axis, "flip")
        items = [slice(None)] * tile_type(value).rank
        return part(k, value, [*items[:along], slice(None, None, -1), *items[along + 1 :]])


class Take(TilePrimitive):
    """Elements of a tile along `axis` at computed `places`. A place outside of the tile is padding: 0, and in no
    reduction."""

    shapes = "`[..., N, ...], [K] -> [..., K, ...]`"
    dtypes = "any, and integers -> the dtype of the tile"
    cost = MOVES
    moves = ("x",)
    partial = True
    padding = -1  # places that do not exist are outside
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], at: Tensor["m", ts.int32], y: Tensor["m", ts.f32]):
    y[0:3] = ts.tile.take(x[0:4], at[0:3])

>>> y = np.zeros(3, np.float32)
>>> example(np.array([10, 20, 30, 40], np.float32), np.array([3, 0, 3], np.int32), y)
>>> y
[40. 10. 40.]
"""

    def result(self, x: TileType, places: TileType, axis: int = -1) -> TileType:
        if places.rank != 1 or not places.dtype.is_integer:
            raise ValueError(f"places are integers along one axis, not {places.pretty()}")
        if not -x.rank <= axis < x.rank:
            raise ValueError(f"axis {axis} is out of range for {shape_text(x.shape)}")
        at = axis % x.rank
        return TileType((*x.shape[:at], places.shape[0], *x.shape[at + 1 :]), x.dtype)

    def reference(self, x: Any, places: Any, axis: int) -> Any:
        n = x.shape[axis]
        found = np.take(x, np.clip(places, 0, n - 1), axis)
        shape = [1] * x.ndim
        shape[axis] = len(places)
        return np.where(((places >= 0) & (places < n)).reshape(shape), found, np.zeros((), x.dtype))

    def element(self, c: ElementWriter, at: list[At], x: Operand, places: Operand, axis: int) -> Element:
        along, n = axis % len(x.shape), x.shape[axis]
        i = c.place(places(at[along]))
        inside = c.apply("logical_and", At(c, -1) < i, i < n)
        return c.choose(inside, x(*at[:along], i.clip(n), *at[along + 1 :]), 0)

    def kept(self, rank: int, axis: int) -> dict[int, int]:
        return {a: a for a in range(rank) if a != axis % rank}


class Joined(TilePrimitive):
    """Two tiles behind each other along `axis`."""

    hidden = True
    moves = ("x", "y")

    def result(self, x: TileType, y: TileType, axis: int) -> TileType:
        return TileType((*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :]), x.dtype)

    def reference(self, x: Any, y: Any, axis: int) -> Any:
        return np.concatenate((x, y), axis)

    def element(self, c: ElementWriter, at: list[At], x: Operand, y: Operand, axis: int) -> Element:
        i, n = at[axis], x.shape[axis]
        first = x(*at[:axis], i.clip(n), *at[axis + 1 :])
        second = y(*at[:axis], (i - n).clip(y.shape[axis]), *at[axis + 1 :])
        return c.choose(i < n, first, second)

    def kept(self, rank: int, axis: int) -> dict[int, int]:
        return {a: a for a in range(rank) if a != axis}


def _tiles(k: KernelState, given: Any, what: str) -> list[Value]:
    """Tiles in a tuple or list, of one shape but for what `what` allows, in their common dtype."""
    if not is_sequence(given) or not given:
        raise KernelFault("TS105", f"{what} takes a tuple of tiles, such as {what}((a, b)), not {type_name(given)}")
    found = [k.tile(v) for v in given]
    if len({tile_type(v).dtype for v in found}) == 1:
        return found  # moving rounds nothing
    return k.tiles.promote(found)[0]


class Concat(TileBuiltin):
    """Tiles behind each other along `axis`."""

    also = ("cat", "concatenate")
    shapes = "`([M, N], [M, K], ...) -> [M, N + K + ...]`"
    dtypes = "any -> the same, or the common dtype"
    cost = MOVES
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["m", ts.f32]):
    y[0:5] = ts.tile.concat((x[0:3], x[0:2] * 10))

>>> y = np.zeros(5, np.float32)
>>> example(np.array([1, 2, 3], np.float32), y)
>>> y
[ 1.  2.  3. 10. 20.]
"""

    def build(self, k: KernelState, tiles: Any, axis: Any = -1) -> Value:
        first, *others = _tiles(k, tiles, "concat")
        along = k.tiles.axis_of(first, axis, "concat")
        rest = _without(first, along)
        for v in others:
            if tile_type(v).rank != tile_type(first).rank or _without(v, along) != rest:
                shapes = f"{shape_text(tile_type(first).shape)} and {shape_text(tile_type(v).shape)}"
                raise KernelFault("TS402", f"concat joins tiles that differ along axis {along} alone, not {shapes}")
            axes = k.tiles.identities.of(first)
            first = k.primitive(Joined.definition, [first, v], {"axis": along})
            size = tile_type(first).shape[along]
            k.tiles.identities.set(first, (*axes[:along], Axis(size=size), *axes[along + 1 :]))
        return first


def _without(x: Value, axis: int) -> tuple[Dim, ...]:
    shape = tile_type(x).shape
    return (*shape[:axis], *shape[axis + 1 :])


class Stack(TileBuiltin):
    """Tiles of one shape along a new axis at `axis`."""

    shapes = "`([M, N], [M, N], ...) -> [..., M, N]`, `[M, ..., N]` or `[M, N, ...]`"
    dtypes = "any -> the same, or the common dtype"
    cost = MOVES
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["M", "N", ts.f32]):
    y[0:2, 0:3] = ts.tile.stack((x[0:3], x[0:3] * 10))

>>> y = np.zeros((2, 3), np.float32)
>>> example(np.array([1, 2, 3], np.float32), y)
>>> y
[[ 1.  2.  3.]
 [10. 20. 30.]]
"""

    def build(self, k: KernelState, tiles: Any, axis: Any = 0) -> Value:
        found = _tiles(k, tiles, "stack")
        rank = tile_type(found[0]).rank + 1
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise KernelFault("TS204", f"axis {axis!r} is out of range")
        return Concat.definition.build(k, tuple(k.tiles.insert_axes(v, [axis % rank]) for v in found), axis % rank)


class Split(TileBuiltin):
    """A tile cut into `parts` tiles of one size along `axis`: a tuple."""

    shapes = "`[..., N, ...] -> ([..., N / parts, ...], ...)`"
    dtypes = "any -> the same, in every part"
    cost = MOVES
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["m", ts.f32]):
    real, imaginary = ts.tile.split(x[0:6], 2)
    y[0:3] = real * imaginary

>>> y = np.zeros(3, np.float32)
>>> example(np.array([1, 2, 3, 4, 5, 6], np.float32), y)
>>> y
[ 4. 10. 18.]
"""

    def build(self, k: KernelState, x: Any, parts: Any, axis: Any = -1) -> tuple[Value, ...]:
        value = k.tile(x)
        along = k.tiles.axis_of(value, axis, "split")
        n = k.known(tile_type(value).shape[along])
        if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
            raise KernelFault(
                "TS105", f"a tile is split into a number of parts known at compile time, not {_said(parts)}"
            )
        if isinstance(n, int) and n % parts:
            raise KernelFault(
                "TS402", f"{shape_text(tile_type(value).shape)} has no {parts} equal parts along axis {along}"
            )
        before = [slice(None)] * along
        if not isinstance(n, int):  # an editor does not know it; the compiler does
            attrs = {"starts": (0,) * tile_type(value).rank, "steps": (1,) * tile_type(value).rank, "drop": ()}
            sizes = tuple(dims.floordiv(d, parts) if a == along else d for a, d in enumerate(tile_type(value).shape))
            return tuple(k.primitive(Part.definition, [value], {**attrs, "sizes": sizes}) for _ in range(parts))
        size = n // parts
        return tuple(part(k, value, [*before, slice(i, i + size)]) for i in range(0, n, size))
