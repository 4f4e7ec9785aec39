"""Gather and scatter: elements at computed indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.access import storable
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Shared, View
from tessera.compiler.frontend.names.values import is_tuple
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType, shape_text
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.compiler.tile.primitive import At, Element, ElementWriter, Operand, TilePrimitive
from tessera.language.dims import Dim, prod
from tessera.language.lazy import np

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

MOVES = "Every element moves through scratch memory, or through shared memory on a GPU."


class Gather(TileBuiltin):
    """Elements of a tensor at computed indices, one integer tile per axis. For a tile, elements along `axis`, as in
    NumPy's `take_along_axis`: `index` is as long as the tile along the other axes. An index out of range, also a
    negative one, gives padding: 0, and left out of reductions."""

    shapes = "the index tiles' common shape; of a tile `[M, N], [M, K] -> [M, K]` for the last axis"
    dtypes = "indices are integers; gives the dtype of the tensor or tile"
    cost = (
        "One access for each element, and the more the further apart they lie; of a tile in shared or scratch memory."
    )
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], at: Tensor["m", ts.int32], y: Tensor["m", ts.f32]):
    for i in ts.tile.range(0, m, 4):
        y[i : i + 4] = ts.tile.gather(x, at[i : i + 4])

>>> y = np.zeros(3, np.float32)
>>> example(np.array([10, 20, 30, 40], np.float32), np.array([3, 0, 3], np.int32), y)
>>> y
[40. 10. 40.]
"""

    def build(self, k: KernelState, source: Any, index: Any, *more: Any, axis: Any = -1) -> Value:
        if not isinstance(source, View):
            if more:
                raise KernelFault("TS402", "gather of a tile takes one index, and runs along one axis")
            value = k.tile(source)
            return gathered(k, value, k.tile(index), k.tiles.axis_of(value, axis, "gather"))
        if axis != -1:
            raise KernelFault("TS402", "gather of a tensor takes an index tile for each axis, and no axis=")
        return k.memory.load(k.memory.place(source, tuple(map(k.operand, (index, *more)))))


class Scatter(TileBuiltin):
    """Writes elements of a tensor at computed indices, which must be distinct. For a tile, returns a new one with
    `value` at the indices `index` along `axis`: of several values for one element the last one stays, and indices out
    of range are ignored. `x[:, index] = value` is the same."""

    shapes = "`index` is an integer tile, or a tuple of one for each axis; `value` has their shape. Of a tile \
`[..., N, ...], [K], [..., K, ...] -> [..., N, ...]`, or the index as long as the values"
    dtypes = "indices are integers; the value is rounded to the dtype of the tensor or tile"
    cost = "One access for each element, and the more the further apart they lie; of a tile N times K comparisons for \
each line along the axis."
    example = """
@ts.kernel
def example(x: Tensor["m", ts.f32], at: Tensor["m", ts.int32], y: Tensor["n", ts.f32]):
    for i in ts.tile.range(0, m, 4):
        ts.tile.scatter(y, at[i : i + 4], x[i : i + 4])

>>> y = np.zeros(4, np.float32)
>>> example(np.array([10, 20], np.float32), np.array([3, 1], np.int32), y)
>>> y
[ 0. 20.  0. 10.]
"""

    def build(self, k: KernelState, target: Any, index: Any, value: Any, axis: Any = -1) -> Value | None:
        if isinstance(target, Shared):
            raise KernelFault("TS406", "scatter gives a new tile; to a shared one, store a part: s[index] = value")
        if not isinstance(target, View):
            return put(k, k.tile(target), k.tile(index), k.operand(value), axis)
        if axis != -1:
            raise KernelFault("TS402", "scatter to a tensor takes an index tile for each axis, and no axis=")
        assert k.ev.builder.span is not None
        at = tuple(map(k.operand, index)) if is_tuple(index) else k.operand(index)
        k.memory.store(k.memory.place(target, at, storing=True), k.tile(value), k.ev.builder.span)
        return None


class Take(TilePrimitive):
    """Elements of a tile along `axis` at computed indices `places`, like `x[:, places]`. An index out of range gives
    padding: 0, and left out of reductions. A single number as index removes the axis."""

    shapes = "`[..., N, ...], [K] -> [..., K, ...]`; `[..., N, ...], [] -> [..., ...]`"
    dtypes = "any, and integers -> the dtype of the tile"
    cost = MOVES
    moves = ("x",)
    places = "places"
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

    def build(self, k: KernelState, x: Any, places: Any, axis: int = -1) -> Value:
        value, at = k.tile(x), k.tile(places)
        along, axes = k.tiles.axis_of(value, axis, "take"), k.tiles.identities.of(value)
        out = k.primitive(self, [value, at], {"axis": along})
        found = (*axes[:along], *k.tiles.identities.of(at), *axes[along + 1 :])
        return k.tiles.identities.set(out, found)

    def result(self, x: TileType, places: TileType, axis: int = -1) -> TileType:
        if not places.dtype.is_integer:
            raise ValueError(f"places are integers, not {places.pretty()}")
        if not -x.rank <= axis < x.rank:
            raise ValueError(f"axis {axis} is out of range for {shape_text(x.shape)}")
        at = axis % x.rank
        return TileType((*x.shape[:at], *places.shape, *x.shape[at + 1 :]), x.dtype)

    def reference(self, x: Any, places: Any, axis: int) -> Any:
        along, n = axis % x.ndim, x.shape[axis]
        found = np.take(x, np.clip(places, 0, n - 1), along)
        inside = np.logical_and(places >= 0, places < n).reshape((*places.shape, *[1] * (x.ndim - along - 1)))
        return np.where(inside, found, np.zeros((), x.dtype))

    def element(self, c: ElementWriter, at: list[At], x: Operand, places: Operand, axis: int) -> Element:
        along = axis % len(x.shape)
        behind = along + len(places.shape)
        n = x.shape[along]
        i = c.place(places(*at[along:behind]))
        inside = c.apply("logical_and", At(c, -1) < i, i < n)
        return c.choose(inside, x(*at[:along], i.clip(n), *at[behind:]), 0)

    def kept(self, before: int, after: int, axis: int) -> dict[int, int]:
        along = axis % before
        return {a if a < along else a + after - before: a for a in range(before) if a != along}


class GatherAlong(TilePrimitive):
    """`gather` of a tile along one axis: each element of `index` selects the element for its position."""

    hidden = True
    moves = ("x",)
    places = "index"
    padding = -1

    def result(self, x: TileType, index: TileType, axis: int) -> TileType:
        _demand_index(x, index, axis)
        if index.rank != x.rank:
            raise ValueError(f"an index {index.pretty()} has other axes than {x.pretty()}; take(x, places) reads lines")
        return TileType(index.shape, x.dtype)

    def reference(self, x: Any, index: Any, axis: int) -> Any:
        n = x.shape[axis]
        found = np.take_along_axis(x, np.clip(index, 0, n - 1).astype(np.int64), axis)
        return np.where(np.logical_and(index >= 0, index < n), found, np.zeros((), x.dtype))

    def element(self, c: ElementWriter, at: list[At], x: Operand, index: Operand, axis: int) -> Element:
        along, n = axis % len(x.shape), x.shape[axis]
        i = c.place(index(*at))
        inside = c.apply("logical_and", At(c, -1) < i, i < n)
        return c.choose(inside, x(*at[:along], i.clip(n), *at[along + 1 :]), 0)

    def kept(self, before: int, after: int, axis: int) -> dict[int, int]:
        return {a: a for a in range(before) if a != axis % before}


def _demand_index(x: TileType, index: TileType, axis: int) -> int:
    """The axis, counted from the first. Raises ValueError where an index does not fit a tile but along it."""
    if not index.dtype.is_integer:
        raise ValueError(f"an index holds integers, not {index.pretty()}")
    if not -x.rank <= axis < x.rank:
        raise ValueError(f"axis {axis} is out of range for {shape_text(x.shape)}")
    along = axis % x.rank
    if index.rank == x.rank and any(
        n != m for a, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if a != along
    ):
        shapes = f"{shape_text(index.shape)} and {shape_text(x.shape)}"
        raise ValueError(f"an index is as long as the tile along all axes but axis {along}; these are {shapes}")
    return along


def _demand_values(x: TileType, index: TileType, value: TileType, axis: int) -> None:
    along = _demand_index(x, index, axis)
    if index.rank not in (1, x.rank):
        raise ValueError(f"an index has one axis or as many axes as the tile, not {index.pretty()} for {x.pretty()}")
    size = index.shape[along] if index.rank == x.rank else index.shape[0]
    wanted = (*x.shape[:along], size, *x.shape[along + 1 :])
    if value.shape != wanted:
        raise ValueError(f"the values are {shape_text(wanted)} here, not {shape_text(value.shape)}")


class ScatterAlong(TilePrimitive):
    """A tile with `value` stored at the indices `index` of an axis; of several for one element, the last one stays."""

    hidden = True
    moves = ("x", "value")
    padding = -1

    def result(self, x: TileType, index: TileType, value: TileType, axis: int) -> TileType:
        _demand_values(x, index, value, axis)
        return x

    def reference(self, x: Any, index: Any, value: Any, axis: int) -> Any:
        return _stepwise(x, index, value, axis, lambda old, new: new)

    def element(self, c: ElementWriter, at: list[At], x: Operand, index: Operand, value: Operand, axis: int) -> Element:
        return _each_index(c, at, x, index, value, axis % len(x.shape), lambda old, new: new)

    def kept(self, before: int, after: int, axis: int) -> dict[int, int]:
        return {a: a for a in range(before) if a != axis % before}


def _stepwise(x: Any, index: Any, value: Any, axis: int, f: Callable[[Any, Any], Any]) -> Any:
    """Values put into a tile one index after the other, in NumPy."""
    out, lines = np.moveaxis(x.copy(), axis, 0), np.moveaxis(value, axis, 0)
    places = np.moveaxis(index, axis, 0) if index.ndim == x.ndim else index
    numbers = np.arange(len(out)).reshape((-1, *[1] * (x.ndim - 1)))
    for place, line in zip(places, lines, strict=True):
        with np.errstate(all="ignore"):
            out = np.where(numbers == place, f(out, line), out)
    return np.moveaxis(out, 0, axis)


def _each_index(
    c: ElementWriter, at: list[At], x: Operand, index: Operand, value: Operand, axis: int,
    f: Callable[[Element, Element], Element],
) -> Element:  # fmt: skip
    """An element of the same: what stands at each index, in order, where the index is this place."""
    lines = len(index.shape) == 1

    def step(j: At, old: Element) -> Element:
        there = [*at[:axis], j, *at[axis + 1 :]]
        place = c.place(index(j) if lines else index(*there))
        return c.choose(place.equals(at[axis]), f(old, value(*there)), old)

    return c.fold(value.shape[axis], x(*at), step)


class ScatterAdd(TilePrimitive):
    """Adds each element of `value` at its index along `axis`, in the order of `index` on every target, and returns the
    new tile. Indices out of range are ignored. `index` has one axis, or those of `value`."""

    shapes = "`[..., N, ...], [K], [..., K, ...] -> [..., N, ...]`"
    dtypes = "any number, and integers -> the dtype of the tile, f32 for narrower floats"
    cost = "N times K comparisons for each line along the axis; " + MOVES[0].lower() + MOVES[1:]
    padding = MappingProxyType({"index": -1})
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], at: Tensor["n", ts.int32], y: Tensor["m", ts.f32]):
    y[0:3] = ts.tile.scatter_add(ts.tile.zeros((3,)), at[0:4], x[0:4])

>>> y = np.zeros(3, np.float32)
>>> example(np.array([1, 2, 3, 4], np.float32), np.array([2, 0, 2, 2], np.int32), y)
>>> y
[2. 0. 8.]
"""

    def build(self, k: KernelState, x: Any, index: Any, value: Any, axis: int = -1) -> Value:
        return added(k, k.tile(x), k.tile(index), k.operand(value), axis)

    def result(self, x: TileType, index: TileType, value: TileType, axis: int = -1) -> TileType:
        _demand_values(x, index, value, axis)
        if x.dtype.kind == "bool":
            raise ValueError("bools cannot be added; convert them with cast(...)")
        if value.dtype != x.dtype:
            raise ValueError(f"the values hold {value.dtype}, the tile {x.dtype}")
        return x

    def reference(self, x: Any, index: Any, value: Any, axis: int) -> Any:
        return _stepwise(x, index, value, axis, lambda old, new: old + new)

    def element(self, c: ElementWriter, at: list[At], x: Operand, index: Operand, value: Operand, axis: int) -> Element:
        return _each_index(c, at, x, index, value, axis % len(x.shape), lambda old, new: c.apply("add", old, new))

    def flops(self, operands: Sequence[TileType], result: TileType, **attrs: Any) -> Dim:
        return prod(operands[2].shape)


def gathered(k: KernelState, x: Value, index: Value, axis: int) -> Value:
    """`gather` of a tile. Raises KernelFault."""
    try:
        out = k.primitive(GatherAlong.definition, [x, index], {"axis": axis})
    except KernelFault as e:
        raise KernelFault(e.code, e.message.replace("gather_along", "gather")) from None
    return k.tiles.identities.like(out, index)


def put(k: KernelState, x: Value, index: Value, value: Any, axis: int) -> Value:
    """A tile with values at computed places. Raises KernelFault."""
    try:
        return _with_values(k, ScatterAlong.definition, x, index, value, axis)
    except KernelFault as e:
        raise KernelFault(e.code, e.message.replace("scatter_along", "scatter"), rewrites=e.rewrites) from None


def added(k: KernelState, x: Value, index: Value, value: Any, axis: int) -> Value:
    return _with_values(k, ScatterAdd.definition, k.tiles.compute(x), index, value, axis)


def _with_values(k: KernelState, definition: TilePrimitive, x: Value, index: Value, value: Any, axis: int) -> Value:
    """Numbers, and values with fewer axes, are spread to what the index asks for; they take the tile's dtype."""
    t, at = tile_type(x), tile_type(index)
    along = k.tiles.axis_of(x, axis, definition.name)
    if at.rank in (1, t.rank):
        size, lies = (at.shape[along], k.tiles.identities.of(index)[along]) if at.rank == t.rank else (
            at.shape[0], k.tiles.identities.of(index)[0])  # fmt: skip
        axes = k.tiles.identities.of(x)
        shape = (*t.shape[:along], size, *t.shape[along + 1 :])
        tile = storable(k.tiles, value, t.dtype, "the tile")
        value = k.tiles.fitted(tile, shape, (*axes[:along], lies, *axes[along + 1 :]), storing=True)
    return k.primitive(definition, [x, index, value], {"axis": along})
