"""Subscripts of views: the block, lanes or elements that they select, and their loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NoReturn

from tessera.compiler.frontend.kernel.broadcasting import relation
from tessera.compiler.frontend.kernel.coordinates import READ, STORED, Coordinates
from tessera.compiler.frontend.kernel.index import outer
from tessera.compiler.frontend.kernel.places import IndexedAxis, described, first_axis
from tessera.compiler.frontend.kernel.tiles import KernelFault, Tiles, tile_type
from tessera.compiler.frontend.kernel.values import (
    Axes,
    Axis,
    EachIndex,
    Lanes,
    TileWindow,
    View,
    marks,
    shown,
    sizes_text,
)
from tessera.compiler.frontend.names.values import is_slice, is_tuple, type_name
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import INDEX, Shape, TileType, ViewType, shape_text
from tessera.errors import Span
from tessera.immutable import immutable, mutable
from tessera.language import dtypes
from tessera.language.dims import Dim, Expr, prod
from tessera.language.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """Computed places of a view: one integer tile per axis, all of one shape."""

    view: View
    index: tuple[Value, ...]
    axes: tuple[Axis, ...]
    mask: Value | None
    known: tuple[Dim, ...] = ()
    """indices that are the same for all elements"""
    sliced: tuple[int, ...] = ()
    """axes that a slice walks: what of it lies outside is padding"""
    anywhere: bool = False
    """the author says what lies outside of the view, so that no index has to be inside"""

    @property
    def attrs(self) -> dict[str, Any]:
        """What ops that access these places say of them."""
        return {
            **({"masked": True} if self.mask is not None else {}),
            **({"sliced": self.sliced} if self.sliced else {}),
            **({"anywhere": True} if self.anywhere else {}),
        }


Place = TileWindow | Elements
SLICE_BETWEEN = (
    "a slice between index tiles leaves open where their axes go; write the slice as an index tile, too: "
    "(start + ts.tile.arange(16))[:, None], columns[None, :]"
)


def _is_read(v: Value) -> bool:
    """Whether a value is computed from elements of a tensor."""
    seen, stack = set[Value](), [v]
    while stack:
        op = stack.pop().op
        if op is not None and op.name in ("tile.load", "tile.gather"):
            return True
        new = [x for x in op.operands if x not in seen] if op is not None else []
        seen.update(new)
        stack += new
    return False


def anywhere(p: Place) -> Place:
    """A place of which the author says what lies outside of the tensor, so that it need not stay inside."""
    return replace(p, anywhere=True) if isinstance(p, Elements) else replace(p, checked=False)


@mutable
class Stored:
    """A store as the race check sees it. `window` is None where places are computed element by element."""

    view: View
    window: TileWindow | None
    span: Span
    op: Op


@immutable
class Condition:
    """What a condition is known to say of lanes: pairs of their base and a limit."""

    below: frozenset[tuple[Dim, Dim]] = frozenset()
    """base + lane < limit"""
    least: frozenset[tuple[Dim, Dim]] = frozenset()
    """base + lane >= limit"""
    whole: bool = True
    """whether it says nothing else"""

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.below | other.below, self.least | other.least, self.whole and other.whole)

    def may_keep_after(self, base: Dim, start: int) -> bool:
        """Whether base + lane >= start follows, or cannot be ruled out because not all that it says is known."""
        return not self.whole or any(_not_negative(limit + base - b - start) for b, limit in self.least)

    def may_keep_before(self, base: Dim, end: Dim) -> bool:
        """The same of base + lane < end."""
        return not self.whole or any(_not_negative(end - limit - base + b) for b, limit in self.below)


NOT_KNOWN = Condition(whole=False)


def _refuse_steps(view: View, items: Sequence[Any], storing: bool) -> None:
    """A load and a store are of neighbouring elements."""
    slices = [i for i in items if is_slice(i)]
    for at, s in enumerate(slices):
        if s.step in (None, 1):
            continue
        part = f"[{':, ' * at}::{s.step}]"
        way = f"load the block, and take a part of the tile: {view.name}[...]{part}"
        if storing:
            way = f"store at an index tile: start + {s.step} * ts.tile.arange(n)"
        raise KernelFault("TS402", f"the slice's step is {s.step}, and a block has neighbouring elements; {way}")


def _not_negative(room: Dim) -> bool:
    return isinstance(room, int) and room >= 0


@mutable
class Memory:
    """Loads and stores. `mask` is the condition of the masked statements around, if any."""

    tiles: Tiles
    coordinates: Coordinates
    folded: Callable[[Dim], Dim]
    """a size in the fewest names, by what is asserted"""
    mask: Value | None = None
    condition: Condition = field(default=Condition())
    """what is known of `mask`"""
    stores: list[Stored] = field(default_factory=list[Stored])
    written: set[int] = field(default_factory=set[int])
    indexed: list[IndexedAxis] = field(default_factory=list[IndexedAxis])
    """where the indices of the latest subscript stand, for people"""
    shifted: list[tuple[View, int, Lanes, Condition, Op]] = field(
        default_factory=list["tuple[View, int, Lanes, Condition, Op]"]
    )
    """loads of lanes that start elsewhere than their tensor, with the condition around"""
    _subviews: dict[tuple[Block, Value, tuple[Dim, ...], tuple[int, ...]], Value] = field(
        default_factory=dict[tuple[Block, Value, tuple[Dim, ...], tuple[int, ...]], Value]
    )

    # from a subscript to a place
    def place(self, view: View, index: Any, storing: bool = False) -> Place:
        """The elements that `view[index]` means. Raises KernelFault."""
        items: list[Any] = list(index) if is_tuple(index) else [index]
        written = sum(i is not ... for i in items)
        items = _ellipsis(items, len(view.shape))
        if any(i is None for i in items):
            raise KernelFault("TS402", f"a store cannot insert an axis; leave out the None in {view.name}[...]")
        if len(items) > len(view.shape):
            raise KernelFault(
                "TS207",
                f"{len(items)} indices for {view.name}, which has the {len(view.shape)} axes {sizes_text(view.shape)}",
            )
        items = [i if isinstance(i, EachIndex) else self._plain(i) for i in items]
        _refuse_steps(view, items, storing)
        start = first_axis(self.coordinates, view, items)
        self.indexed = described(self.coordinates, view, items, start, written == len(view.shape))
        items = [*[EachIndex()] * start, *items, *[slice(None)] * (len(view.shape) - start - len(items))]
        full = [self.coordinates.batch_offset(view, a) if isinstance(i, EachIndex) else i for a, i in enumerate(items)]
        self._observe(view, full, storing)
        if all(isinstance(i, (int, Expr, slice)) for i in full):
            return self._window(view, full)
        lanes = [i for i in full if isinstance(i, Lanes)]
        if any(isinstance(i, Value) for i in full) or not _regular(lanes):
            return self._elements(view, full)
        return self._window(view, full)

    def _plain(self, item: Any) -> Any:
        """An index item as int, Dim, slice, Lanes or integer tile."""
        if isinstance(item, Value):
            if item.type == INDEX:
                return self.coordinates.of_index(item)
            t = tile_type(item)
            if not t.dtype.is_integer:
                raise KernelFault("TS207", f"an index is an integer, not {t.pretty()}")
            return self.coordinates.of_scalar(item) if t.rank == 0 else item
        if isinstance(item, bool) or not (isinstance(item, (int, Expr, Lanes)) or is_slice(item)):
            raise KernelFault(
                "TS207", f"{type_name(item)} is not an index; use sizes, slices, coordinates or integer tiles"
            )
        return item

    def _observe(self, view: View, full: Sequence[Any], storing: bool) -> None:
        """Tells program coordinates how far they go, from what they index; in `y[p, p * 8] = 1` the first axis says."""
        seen = set[str]()
        for axis, item in enumerate(full):
            start: Any = item.base if isinstance(item, Lanes) else item.start if is_slice(item) else item
            if isinstance(start, Expr) and not (storing and marks(start) & seen):
                self.coordinates.observe(start, view.shape[axis], STORED if storing else READ)
                seen |= marks(start)

    # windows
    def _window(self, view: View, full: Sequence[Any]) -> TileWindow:
        offsets: list[Dim] = []
        sizes: list[Dim] = []
        kept: list[int] = []
        axes: dict[int, Axis] = {}
        checked, shifted = False, None
        for a, item in enumerate(full):
            extent = view.shape[a]
            if is_slice(item):
                lower, size = self._slice(item, extent)
                axes[a] = self._axis(self._inside(lower, view, a, sliced=True), size, extent)
            elif isinstance(item, Lanes):
                lower, size, axes[a] = item.base, item.size, item.axis
                checked = checked or not self.coordinates.is_origin(item)
                if item.launch is not None and not self.coordinates.is_origin(item):
                    shifted = a, item
            else:
                offsets.append(self._inside(_from_end(item, extent), view, a))
                sizes.append(1)
                continue
            kept.append(a)
            offsets.append(lower)
            sizes.append(self.tiles.known(size))
        lanes = [a for a, i in enumerate(full) if isinstance(i, Lanes)]
        if lanes and any(is_slice(i) for i in full[lanes[0] : lanes[-1]]):
            raise KernelFault("TS402", SLICE_BETWEEN)
        out = TileWindow(view, tuple(offsets), tuple(sizes), tuple(kept), tuple(axes[a] for a in kept), shifted=shifted)
        return self._masked(out, checked)

    def _masked(self, w: TileWindow, checked: bool) -> TileWindow:
        """Adds the mask in force where it says more than the view's end does, and that of the launch's last lanes."""
        mask = self._along(w) if self._narrows(w, checked) else None
        if checked and mask is None:
            mask = self._launched(w.shape, w.axes)
        return replace(w, mask=mask, checked=checked)

    def _launched(self, shape: Shape, axes: Axes) -> Value | None:
        """Which elements exist along an axis that lanes of `linear_id` walk; None without such an axis."""
        at = next((n for n, axis in enumerate(axes) if self.coordinates.is_launched(axis)), None)
        if at is None:
            return None
        return self.tiles.fitted(self.coordinates.launch_mask(self.tiles, shape[at]), shape, axes)

    def _inside(self, at: Dim, view: View, axis: int, sliced: bool = False) -> Dim:
        """Refuses a place that is known to lie outside."""
        place, extent = self.tiles.known(at), self.tiles.known(view.shape[axis])
        empty = extent == 0 and place == 0 and sliced  # an axis without elements has nothing to read
        if isinstance(place, int) and isinstance(extent, int) and not (0 <= place < extent or empty):
            raise KernelFault("TS409", f"index {place} leaves axis {axis} of {view.name}, which has {extent} elements")
        return at

    def _narrows(self, w: TileWindow, checked: bool) -> bool:
        """Whether the condition in force says more than the end of the view does."""
        ends = {(w.offsets[a], w.view.shape[a]) for a in w.kept}
        known = self.condition
        return self.mask is not None and (not known.whole or bool(known.least) or checked or not known.below <= ends)

    def _along(self, w: TileWindow) -> Value | None:
        """The mask in the window's shape; None where its axes are not the window's."""
        assert self.mask is not None
        if tile_type(self.mask).rank > len(w.shape):
            return None
        try:
            return self.tiles.fitted(self.mask, w.shape, w.axes)
        except KernelFault:
            return None

    def _slice(self, s: slice[Any, Any, Any], extent: Dim) -> tuple[Dim, Dim]:
        lower = _from_end(self._bound(s.start, 0), extent)
        upper = _from_end(self._bound(s.stop, extent), extent)
        size = self.folded(upper - lower)
        if isinstance(size, int) and size <= 0:
            raise KernelFault("TS207", f"the slice {lower}:{upper} is empty")
        if marks(size):
            raise KernelFault("TS404", f"the slice's width must be known at compile time; here it is {shown(size)}")
        return lower, size

    def _block(self, s: slice[Any, Any, Any], extent: Dim) -> tuple[Dim, Dim, Axis]:
        lower, size = self._slice(s, extent)
        return lower, self.tiles.known(size), self._axis(lower, size, extent)

    def _bound(self, value: Any, default: Dim) -> Dim:
        if value is None:
            return default
        if isinstance(value, Value):
            return self.coordinates.of_index(value) if value.type == INDEX else self.coordinates.of_scalar(value)
        if isinstance(value, bool) or not isinstance(value, (int, Expr)):
            raise KernelFault("TS207", f"a slice starts and stops at integers, not {value!r}")
        return value

    def _axis(self, lower: Dim, size: Dim, extent: Dim) -> Axis:
        if lower == 0 and size == extent:
            return Axis(extent, size)
        return Axis(self.coordinates.walking(lower, extent), size)

    # computed places
    def _elements(self, view: View, full: Sequence[Any]) -> Elements:
        """Index tiles broadcast with each other, and their axes stand where the first of them does, between those of
        slices; numbers have none. As NumPy has it, but that a number moves nothing to the front."""
        advanced = [a for a, i in enumerate(full) if isinstance(i, (Lanes, Value))]
        shaped, lead = self.tiles.together([self.tiles.cast(self.tile_of(full[a]), dtypes.int64) for a in advanced])
        base = tile_type(shaped[0]).shape
        blocks = {a: self._block(i, view.shape[a]) for a, i in enumerate(full) if is_slice(i)}
        if any(advanced[0] < a < advanced[-1] for a in blocks):
            raise KernelFault("TS402", SLICE_BETWEEN)
        at = sum(a < advanced[0] for a in blocks)
        before, behind = list(blocks.values())[:at], list(blocks.values())[at:]
        shape = (*(b[1] for b in before), *base, *(b[1] for b in behind))
        axes = (*(b[2] for b in before), *lead, *(b[2] for b in behind))
        places = {a: n if n < at else n + len(base) for n, a in enumerate(blocks)}
        given = iter(shaped)
        index: list[Value] = []
        for a, item in enumerate(full):
            if a in blocks:
                index.append(self.counted(blocks[a][0], shape, places[a]))
            elif isinstance(item, (Lanes, Value)):
                own = tuple(range(at, at + len(base)))
                index.append(self.tiles.builder.broadcast(next(given), shape, own))
            else:
                index.append(self.tiles.full(shape, _from_end(item, view.shape[a]), dtypes.int64))
        sliced = tuple(blocks)
        mask = None
        if self.mask is not None:
            mask = self._fit_mask(self.mask, shape, axes)
        elif not any(isinstance(i, Value) and _is_read(i) for i in full):  # those exist where what is read does
            mask = self._launched(shape, axes)
        return Elements(view, tuple(index), axes, mask, tuple(i for i in full if isinstance(i, (int, Expr))), sliced)

    def _fit_mask(self, mask: Value, shape: Shape, axes: tuple[Axis, ...]) -> Value | None:
        if tile_type(mask).rank > len(shape):
            had, wanted = shape_text(tile_type(mask).shape), shape_text(shape)
            raise KernelFault("TS402", f"the mask {had} does not fit the elements {wanted}")
        return self.tiles.fitted(mask, shape, axes)

    def ramp(self, base: Dim, shape: Shape, axis: int) -> Value:
        """base, base + 1, ... along `axis` of a tile of `shape`, as int64."""
        t = TileType(shape, dtypes.int64)
        out = self.tiles.builder.value("tile.iota", (), t, {"axis": axis})
        if base != 0:
            out = self.tiles.builder.map(
                "add", out, self.tiles.builder.broadcast(self.tiles.scalar(base, dtypes.int64), shape, ())
            )
        return out

    def counted(self, start: Dim, shape: Shape, axis: int) -> Value:
        """As `ramp`, for a slice: an iota plus its start, so that passes find both."""
        builder = self.tiles.builder
        count = builder.value("tile.iota", (), TileType(shape, dtypes.int64), {"axis": axis})
        first = self.tiles.of_index(self.tiles.indices.emit(start))
        return builder.map("add", count, builder.broadcast(first, shape, ()))

    def tile_of(self, i: Lanes | Value) -> Value:
        """Lanes as an int64 tile."""
        if isinstance(i, Value):
            return i
        out = self.ramp(i.base, i.shape, i.position)
        return self.tiles.identities.set(
            out, tuple(i.axis if a == i.position else Axis(size=1, inserted=True) for a in range(i.rank))
        )

    # loads
    def filling(self, dtype: DType, other: Any) -> bool | int | float | complex | None:
        """What `load` puts where nothing is read. Raises KernelFault."""
        given = self.tiles.known(other) if isinstance(other, Expr) else other
        if given is not None and not isinstance(given, (bool, int, float, complex)):
            raise KernelFault(
                "TS105", f"other is a number known at compile time, not {type_name(given)}; use where(...)"
            )
        if given is not None and not _fits(dtype, given):
            raise KernelFault("TS302", f"other={given!r} is not an element of {dtype}")
        return given

    def load(self, p: Place, other: Any = None) -> Value:
        """The tile at a place, in the view's dtype. `other` defines the elements that are not read; else they are
        padding."""
        fill = 0 if other is None else other
        defined: dict[str, Any] = {} if other is None else {"defined": True}
        builder, tiles = self.tiles.builder, self.tiles
        if isinstance(p, Elements):
            operands = [p.view.value, *p.index, *([p.mask] if p.mask is not None else [])]
            attrs: dict[str, Any] = {"fill": fill, **p.attrs, **defined}
            shape = tile_type(p.index[0]).shape
            return tiles.identities.set(
                builder.value("tile.gather", operands, TileType(shape, p.view.dtype), attrs), p.axes
            )
        view, offsets = self.subview(p)
        out = builder.load(view, offsets, p.shape, p.mask, fill)
        if out.op is not None:
            out.op.attrs |= {**defined, **({"inside": True} if p.checked else {})}
            if p.shifted is not None and other is None:
                self.shifted.append((p.view, *p.shifted, self.condition, out.op))
        return tiles.identities.set(out, p.axes)

    def subview(self, p: TileWindow) -> tuple[Value, list[Value]]:
        """The view whose axes are exactly the window's, and the window's offsets in it."""
        offsets = [self.tiles.indices.emit(p.offsets[a]) for a in p.kept]
        if len(p.kept) == len(p.sizes):
            return p.view.value, offsets
        drop = tuple(a for a in range(len(p.sizes)) if a not in p.kept)
        at = tuple(p.offsets[a] if a in drop else 0 for a in range(len(p.sizes)))
        block: Block | None = self.tiles.builder.block
        while block is not None:
            if (known := self._subviews.get((block, p.view.value, at, drop))) is not None:
                return known, offsets
            block = outer(block)
        shape = tuple(map(self.tiles.known, p.view.shape))
        strides = p.view.type.strides or _contiguous(shape)
        kept = tuple(shape[a] for a in p.kept)
        inner = tuple(strides[a] for a in p.kept)
        t = ViewType(kept, p.view.dtype, None if inner == _contiguous(kept) else inner)
        sizes = tuple(1 if a in drop else shape[a] for a in range(len(shape)))
        operands = [p.view.value, *(self.tiles.indices.emit(o) for o in at)]
        attrs: dict[str, Any] = {"sizes": sizes, "drop": drop, "computed": True}
        out = self.tiles.builder.value("tile.subview", operands, t, attrs, p.view.name)
        self._subviews[self.tiles.builder.block, p.view.value, at, drop] = out
        return out, offsets

    # stores
    def store(self, p: Place, value: Any, span: Span) -> None:
        """Writes a tile or number; it is broadcast to the place and converted to the view's dtype."""
        axes = p.axes
        shape = p.shape if isinstance(p, TileWindow) else tile_type(p.index[0]).shape
        tile = self._fitted(value, shape, axes, p.view)
        self.written.add(p.view.argument)
        builder = self.tiles.builder
        if isinstance(p, Elements):
            operands = [p.view.value, tile, *p.index, *([p.mask] if p.mask is not None else [])]
            scattered = builder.op("tile.scatter", operands, (), p.attrs)
            self.stores.append(Stored(p.view, None, span, scattered))
            return
        if self._narrows(p, p.checked) and p.mask is None:
            assert self.mask is not None
            if tile_type(self.mask).rank <= len(p.shape):
                self.tiles.fitted(self.mask, p.shape, p.axes)  # says along which axes they lie
            condition, stored = shape_text(tile_type(self.mask).shape), shape_text(p.shape)
            raise KernelFault("TS402", f"the condition has shape {condition}, the stored tile {stored}")
        view, offsets = self.subview(p)
        op = builder.store(view, tile, offsets, p.mask)
        if p.checked:
            op.attrs["inside"] = True
        self.stores.append(Stored(p.view, p, span, op))

    def _fitted(self, value: Any, shape: Shape, axes: Sequence[Axis], view: View) -> Value:
        tiles = self.tiles
        tile = storable(tiles, value, view.dtype, view.name)
        t = tile_type(tile)
        if t.rank > len(shape):
            self._refuse_fit(tile, shape, view)
        try:
            return tiles.fitted(tile, shape, axes, storing=True)
        except KernelFault as e:
            if e.code == "TS402":
                self._refuse_fit(tile, shape, view)
            raise

    def _refuse_fit(self, tile: Value, shape: Shape, view: View) -> NoReturn:
        t = tile_type(tile)
        why = "; vectors along two axes make a matrix" if t.rank == 2 and len(shape) == 1 else ""
        had = self.tiles.identities.text(tile)
        raise KernelFault("TS402", f"a tile {had} does not fit the place {shape_text(shape)} of {view.name}{why}")


def storable(tiles: Tiles, value: Any, dtype: DType, name: str) -> Value:
    """A tile or number as elements of what holds `dtype`. Raises KernelFault."""
    if isinstance(value, Value):
        demand_storable(tile_type(value).dtype, dtype, name)
        return tiles.cast(value, dtype)
    if isinstance(value, (bool, int, float)) and not _fits(dtype, value):
        raise KernelFault(
            "TS303", f"{value!r} cannot be stored to {name}, which holds {dtype}, without an explicit cast"
        )
    return tiles.scalar(value, dtype)


def demand_storable(source: DType, target: DType, name: str) -> None:
    """Stores convert, but never drop a fraction or an imaginary part by surprise."""
    lossy = (source.is_float and not (target.is_float or target.is_complex)) or (
        source.is_complex and not target.is_complex
    )
    if lossy:
        raise KernelFault(
            "TS303", f"{source} cannot be stored to {name}, which holds {target}, without an explicit cast"
        )


def _ellipsis(items: list[Any], rank: int) -> list[Any]:
    if not any(i is ... for i in items):
        return items
    at = next(k for k, i in enumerate(items) if i is ...)
    return [*items[:at], *[slice(None)] * (rank - len(items) + 1), *items[at + 1 :]]


def _regular(lanes: Sequence[Lanes]) -> bool:
    """Whether the lanes of an index run along axes of their own, in their order, so that they span a block."""
    ranks = {i.rank for i in lanes}
    positions = [i.position for i in lanes]
    if len(lanes) <= 1:
        return all(i.rank == 1 for i in lanes)
    if ranks == {1}:  # as in arithmetic: two axes make a block, one axis pairs
        return all(relation(a.axis, b.axis) == "different" for a, b in combinations(lanes, 2))
    return len(ranks) == 1 and positions == list(range(next(iter(ranks))))


def _from_end(d: Dim, extent: Dim) -> Dim:
    """A negative constant counts from the end, as everywhere in Python."""
    return extent + d if isinstance(d, int) and d < 0 else d


def _contiguous(shape: Shape) -> Shape:
    return tuple(prod(shape[a + 1 :]) for a in range(len(shape)))


def _fits(dtype: DType, number: bool | int | float | complex) -> bool:
    """Whether a number can be an element; floats may be rounded."""
    if isinstance(number, complex):
        return dtype.is_complex
    if not dtype.is_integer:
        return True
    low = -dtype.maximum - 1 if dtype.kind == "int" else 0
    return low <= number <= dtype.maximum and number == int(number)
