"""Joining, splitting, repeating and flipping tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.builtins.gather_scatter import MOVES
from tessera.compiler.frontend.kernel.builtins.subscripts import Part, index_text, part
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Axis
from tessera.compiler.frontend.names.values import is_sequence, type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType, shape_text
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.compiler.tile.primitive import At, Element, ElementWriter, Operand, TilePrimitive
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Flip(TileBuiltin):
    """The elements along `axis` in reverse order, like `x[::-1]`. Elements that do not exist, at a ragged edge, come
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


class Repeat(TilePrimitive):
    """Each element along `axis`, `repeats` times, as in `np.repeat`."""

    shapes = "`[..., N, ...] -> [..., N * repeats, ...]`"
    dtypes = "any -> the same"
    cost = MOVES
    moves = ("x",)
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["m", ts.f32]):
    y[0:6] = ts.tile.repeat(x[0:3], 2)

>>> y = np.zeros(6, np.float32)
>>> example(np.array([1, 2, 3], np.float32), y)
>>> y
[1. 1. 2. 2. 3. 3.]
"""

    def result(self, x: TileType, repeats: int, axis: int = -1) -> TileType:
        if type(repeats) is not int or repeats < 1:  # whatever stands in the text comes here
            raise ValueError(f"repeats is 1 or more, known at compile time, not {repeats!r}")
        if type(axis) is not int or not -x.rank <= axis < x.rank:
            raise ValueError(f"axis {axis!r} is out of range for {shape_text(x.shape)}")
        at = axis % x.rank
        return TileType((*x.shape[:at], x.shape[at] * repeats, *x.shape[at + 1 :]), x.dtype)

    def reference(self, x: Any, repeats: int, axis: int) -> Any:
        return np.repeat(x, repeats, axis)

    def element(self, c: ElementWriter, at: list[At], x: Operand, repeats: int, axis: int) -> Element:
        along = axis % len(x.shape)
        return x(*at[:along], at[along] // repeats, *at[along + 1 :])

    def kept(self, before: int, after: int, repeats: int, axis: int) -> dict[int, int]:
        return {a: a for a in range(before) if a != axis % before}


def repeat(k: KernelState, x: Value, repeats: int, axis: int) -> Value:
    """`x` with each element so often along `axis`; the other axes lie along what they did."""
    own = k.tiles.identities.of(x)
    out = k.primitive(Repeat.definition, [x], {"repeats": repeats, "axis": axis})
    new = k.tiles.identities.of(out)
    return k.tiles.identities.set(out, tuple(new[a] if a == axis else mine for a, mine in enumerate(own)))


class UnpackFp4(TileBuiltin):
    """Unpacks bytes that hold two fp4_e2m1 numbers, the first one in the lower half, along `axis`."""

    shapes = "`[..., N, ...] -> [..., 2 N, ...]`"
    dtypes = "uint8 -> fp4_e2m1"
    cost = "Every byte moves through scratch memory, or through shared memory on a GPU; 15 operations for each element."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.uint8], y: Tensor["m", ts.f32]):
    y[0:4] = ts.tile.unpack_fp4(x[0:2])

>>> y = np.zeros(4, np.float32)
>>> example(np.array([0x21, 0xF7], np.uint8), y)
>>> y
[ 0.5  1.   6.  -6. ]
"""

    def build(self, k: KernelState, x: Any, axis: Any = -1) -> Value:
        value = k.tile(x)
        if tile_type(value).dtype != dtypes.uint8:
            raise KernelFault("TS301", f"unpack_fp4 takes bytes (uint8), not {tile_type(value).dtype}")
        at = k.tiles.axis_of(value, axis, "unpack_fp4")
        pair, tiles = repeat(k, value, 2, at), k.tiles
        place = tiles.builder.value("tile.iota", (), TileType(tile_type(pair).shape, dtypes.int32), {"axis": at})
        odd = tiles.map("eq", tiles.map("bit_and", tiles.identities.like(place, pair), 1), 1)
        code = tiles.where(odd, tiles.map("shift_right", pair, 4), tiles.map("bit_and", pair, 15))
        m = tiles.cast(tiles.map("bit_and", code, 7), dtypes.f32)  # 0 0.5 1 1.5 2 3 4 6
        most = tiles.where(tiles.map("lt", m, 6), tiles.map("sub", m, 2), tiles.map("sub", tiles.map("add", m, m), 8))
        found = tiles.where(tiles.map("lt", m, 4), tiles.map("mul", m, 0.5), most)
        found = tiles.where(tiles.map("ge", code, 8), tiles.map("neg", found), found)
        return tiles.cast(found, dtypes.fp4_e2m1)


class Joined(TilePrimitive):
    """Two tiles joined along `axis`."""

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

    def kept(self, before: int, after: int, axis: int) -> dict[int, int]:
        return {a: a for a in range(before) if a != axis}


def _tiles(k: KernelState, given: Any, what: str) -> list[Value]:
    """Tiles in a tuple or list, of one shape but for what `what` allows, in their common dtype."""
    if not is_sequence(given) or not given:
        raise KernelFault("TS105", f"{what} takes a tuple of tiles, such as {what}((a, b)), not {type_name(given)}")
    found = [k.tile(v) for v in given]
    if len({tile_type(v).dtype for v in found}) == 1:
        return found  # moving rounds nothing
    return k.tiles.promote(found)[0]


class Concat(TileBuiltin):
    """Tiles joined along `axis`."""

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
        shapes = [[k.known(n) for n in tile_type(v).shape] for v in found]
        other = next((s for s in shapes if s != shapes[0]), None)
        if other is not None:
            both = f"{shape_text(tuple(shapes[0]))} and {shape_text(tuple(other))}"
            raise KernelFault("TS402", f"stack takes tiles of one shape, not {both}")
        return Concat.definition.build(k, tuple(k.tiles.insert_axes(v, [axis % rank]) for v in found), axis % rank)


class Split(TileBuiltin):
    """A tuple of `parts` tiles of equal size, split along `axis`."""

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
                "TS105", f"a tile is split into a number of parts known at compile time, not {index_text(parts)}"
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
