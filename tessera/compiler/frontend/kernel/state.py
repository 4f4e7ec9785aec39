"""The state of the kernel layer: what every rule of the tile language reads and changes, and conversions of values."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from tessera.compiler.frontend.evaluate.machine import Evaluator, Layer
from tessera.compiler.frontend.kernel.access import NOT_KNOWN, Condition, Elements, Memory, Place
from tessera.compiler.frontend.kernel.coordinates import Coordinates
from tessera.compiler.frontend.kernel.grid import Plan, plan
from tessera.compiler.frontend.kernel.index import Indices
from tessera.compiler.frontend.kernel.tiles import NUMBERS, KernelFault, Tiles, tile_type
from tessera.compiler.frontend.kernel.values import (
    Axes,
    Axis,
    Coordinate,
    Lanes,
    Panel,
    Share,
    Shared,
    TileWindow,  # fmt: skip
    Transposed,
    View,
    axis_text,
    marks,
    size_text,
)
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.names.values import UNKNOWN, Number, Unknown, is_sequence, is_slice, is_tuple, type_name
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import INDEX, Shape, TileType, Type, shape_text
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.primitive import TilePrimitive
from tessera.compiler.unit import Param
from tessera.errors import Span
from tessera.language import dims, dtypes
from tessera.language.annotations import TupleAnn
from tessera.language.dims import Dim, Expr
from tessera.language.dtypes import DType

Role = Literal["batch", "rows", "whole"]
"""what a program has of an axis of a tensor that it reads as a whole: one element, a block of rows, or all"""
ROW_ELEMENTS = 8192
"""elements of a row block that a parameter read as a whole is divided into"""
DEFAULTS: dict[str, Any] = {
    "BM": 64, "BN": 64, "BK": 32, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "BLOCK": 1024, "BLOCK_SIZE": 1024,
    "num_warps": 4, "warps": 4, "num_stages": 2, "stages": 2, "vector": 4,
}  # fmt: skip
"""the schedule's parameters where neither the autotuner nor `with_config` says anything"""


def returned_dims(definition: Definition) -> frozenset[str]:
    """The dims of what a kernel says it returns."""
    returns = definition_signature(definition).returns
    items = returns.items if isinstance(returns, TupleAnn) else (returns,)
    return frozenset(str(d) for a in items for d in getattr(a, "shape", None) or ())


class KernelState(Layer):
    """What is known of one kernel while it is read.

    `sizes`: the dims that are known. `grid_loop`: whether the outermost range is taken for a grid axis. `rolled`: the
    places of `while` loops that run when the kernel runs although their conditions are known. `laned`: those of loops
    that lanes leave one by one by `break`.
    """

    prefix = "tile"

    def __init__(
        self,
        ev: Evaluator,
        grid_loop: bool = True,
        rolled: frozenset[tuple[int, int]] = frozenset(),
        laned: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        super().__init__(ev)
        assert isinstance(ev.definition.tree, ast.FunctionDef)
        self.plan: Plan = plan(ev.definition.tree, returned_dims(ev.definition))
        ev.definition = replace(ev.definition, tree=self.plan.tree)
        ev.frame.locals = assigned_names(ev.definition.tree)
        self.config, self.grid_loop = dict(ev.definition.options.get("config") or {}), grid_loop
        for name, value in self.config.items():
            if isinstance(value, Unknown) and name not in ev.dims:  # in an editor, of what the text does not tell
                self.config[name] = dims.symbol(name)
        self.settings_read: set[str] = set()
        """the parameters that `ts.tile.context()` has been asked for"""
        self.rolled, self.left = rolled, rolled
        self.read_by_lanes, self.laned = laned, laned
        self.sizes: dict[str, int] = dict(ev.sizes)
        self.builder = TileBuilder(ev.block, span=ev.definition.span)
        ev.builder = self.builder
        self.indices = Indices(self.builder, self.sizes)
        self.coordinates = Coordinates(ev.block, self.indices, ev.definition.span)
        self.tiles = Tiles(self.builder, self.indices)
        self.memory = Memory(self.tiles, self.coordinates, lambda size: ev.facts.folded(size))
        self.conditions: dict[Value, Condition] = {}
        self.views: dict[str, View] = {}
        self.arguments: list[Param] = []
        self.implicit: dict[str, Coordinate] = {}
        self.captured: list[View] = []
        self.capture_nodes: list[ast.AST] = []
        self.loaded: dict[TileWindow, Value] = {}
        self.elements: dict[Value, Elements] = {}
        """where tiles at computed indices come from: `load` and `store` take the place, not what was there"""
        self.filled: set[Value] = set()
        self.parted: list[str] = []
        """names of tiles that have been stored to in part"""
        self.reads: list[tuple[Shared, Span]] = []
        self.divided: set[Coordinate] = set()
        self.results: list[int] = []
        self.allocated: list[View] = []
        """results that no parameter receives"""
        self.lead: Shape | None = None
        """the axes that `...` stands for in the first parameter whose annotation has one"""
        self.speculated: Coordinate | None = None
        self.stages = 0
        self.calling: ast.AST = ev.definition.tree
        """the call of a function of `ts.tile` that is being read"""
        self.choosing = False
        """whether conditions choose among elements, as in a function that combines them: none is decided once"""
        self.returned_early = False
        """a value is returned where other paths go on, which has been said"""
        self.retry = False
        """the outermost range turned out not to tell programs apart: evaluate again with it serial"""

    def dims(self) -> dict[str, Dim]:
        return {n: dims.symbol(n) for n in self.ev.dims}

    def setting(self, *names: str) -> int:
        """A schedule parameter that is an integer, under the first of its names that is set. Raises KernelFault."""
        name = next((n for n in names if n in self.config), names[0])
        value = self.config.get(name, DEFAULTS.get(name))
        if isinstance(value, (Unknown, Expr)):
            value = DEFAULTS.get(name, 16)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise KernelFault("TS404", f"the configuration's {name} must be a positive integer, not {value!r}")
        return value

    # values
    def known(self, d: Any) -> Any:
        """A size with what is known put in; anything else as it is."""
        return self.tiles.known(d) if isinstance(d, Expr) else d

    def settle(self, value: Any) -> Any:
        return self.known(value)

    def count(self, shape: Shape) -> Dim:
        return self.tiles.known(dims.prod(shape))

    def is_tile(self, value: Any) -> bool:
        return isinstance(value, (Value, TileWindow, Lanes, Shared, Transposed, View))

    def operand(self, value: Any) -> Any:
        """A value of the program as a tile, or a number or size that adapts to the tiles beside it."""
        if isinstance(value, Value):
            return self.coordinates.of_index(value) if value.type == INDEX else value
        if isinstance(value, (*NUMBERS, Expr)):
            return value
        if isinstance(value, Lanes):
            return self.memory.tile_of(value)
        if isinstance(value, TileWindow):
            return self.loaded[value] if value in self.loaded else self.memory.load(value)
        if isinstance(value, Shared):
            self._note_read(value)
            return self.tiles.load_shared(value.value, value.axes)
        if isinstance(value, Transposed):
            return self.tiles.transpose(self.operand(value.of))
        if isinstance(value, View):
            return self.memory.load(self.rows_of(value))
        if isinstance(value, Number):
            self.ev.undecide(f"{value.text} must be known", self.builder.span or self.ev.definition.span)
            weak = dtypes.weak(value.type(0), None) or dtypes.f32
            return self.placeholder(TileType((), weak), self.builder.span or self.ev.definition.span)
        if isinstance(value, Share):
            why = "what reduce_across gives is complete when all programs have run"
            raise KernelFault("TS406", f"{why}; store it, or return it, as it is")
        if isinstance(value, Panel):
            raise KernelFault(
                "TS402", f"{value.view.name} is loaded block by block; take one with load_partition(panel, k)"
            )
        raise KernelFault("TS105", f"a tile or number is needed here, not {type_name(value)}")

    def tile(self, value: Any) -> Value:
        """As `operand`, with numbers as rank-0 tiles."""
        found = self.operand(value)
        if isinstance(found, Value):
            return found
        dtype = dtypes.weak(0 if isinstance(found, Expr) else found, None)
        assert dtype is not None
        return self.tiles.scalar(found, dtype)

    def index(self, value: Any) -> Dim:
        """An integer as an index. Raises KernelFault."""
        if isinstance(value, Value):
            if value.type == INDEX:
                return self.coordinates.of_index(value)
            if isinstance(value.type, TileType) and not value.type.rank and value.type.dtype.is_integer:
                return self.coordinates.of_scalar(value)
        if isinstance(value, bool) or not isinstance(value, (int, Expr)):
            raise KernelFault("TS105", f"an integer or a coordinate is needed here, not {type_name(value)}")
        return value

    def matrix(self, value: Any) -> tuple[Value, Axes]:
        """An operand of mma: a shared tile as it is, anything else as a tile."""
        if isinstance(value, Shared):
            self._note_read(value)
            return value.value, value.axes
        found = self.tile(value)
        return found, self.tiles.identities.of(found)

    def _note_read(self, shared: Shared) -> None:
        if self.builder.span is not None:
            self.reads.append((shared, self.builder.span))

    def lift(self, value: Any, like: Type | None, span: Span) -> Value | None:
        if isinstance(value, Unknown) or value is None:
            return None
        with self.builder.at(span):
            try:
                if isinstance(value, Value) and (value.type == INDEX or not isinstance(like, TileType)):
                    return value
                if isinstance(value, Expr) and (like is None or like == INDEX):
                    return self.indices.emit(value)
                if like == INDEX:
                    return self.indices.emit(self.index(value))
                return self._like(value, like)
            except KernelFault as e:
                self.ev.error(e.code, e.message, span)
                return None

    def number(self, value: Any, dtype: DType, span: Span) -> Value | None:
        if isinstance(value, Value) and value.type == INDEX:
            with self.builder.at(span):
                value = self.coordinates.of_index(value)
        return self.lift(value, TileType((), dtype), span)

    def converted(self, value: Value, dtype: DType, span: Span) -> Value:
        with self.builder.at(span):
            return self.tiles.cast(value, dtype)

    def _like(self, value: Any, like: Type | None) -> Value:
        found = self.operand(value)
        if isinstance(found, Value):
            return found
        if isinstance(like, TileType):
            dtype = dtypes.weak(0 if isinstance(found, Expr) else found, like.dtype) or like.dtype
            return self.tiles.full(like.shape, found, dtype)
        return self.tile(found)

    # arithmetic
    def remember_both(self, out: Value, a: Any, b: Any) -> None:
        """`out` holds where both conditions hold."""
        self.conditions[out] = self.conditions.get(a, NOT_KNOWN) & self.conditions.get(b, NOT_KNOWN)

    def apply(self, name: str, *values: Any) -> Any:
        """An elementwise function over anything."""
        operands = [self.operand(v) for v in values]
        if name in ("maximum", "minimum") and all(isinstance(v, (int, Expr)) for v in operands):
            return (dims.dim_max if name == "maximum" else dims.dim_min)(*operands)
        if name == "where":
            return self.tiles.where(*operands)
        return self.tiles.map(name, *operands)

    def chosen(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition holds, else `b`; of tuples each part."""
        if is_sequence(a) and is_sequence(b) and len(a) == len(b):
            return type(a)(self.chosen(condition, x, y) for x, y in zip(a, b, strict=True))
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return UNKNOWN
        return self.tiles.where(condition, self.operand(a), self.operand(b))

    def primitive(self, definition: TilePrimitive, operands: Sequence[Any], attrs: dict[str, Any]) -> Value:
        """A call of a function with an op of its own. Raises KernelFault."""
        tiles = [self.tile(v) for v in operands]
        tiles = [
            v if n in definition.moves else self.tiles.compute(v)
            for n, v in zip(definition.operands, tiles, strict=True)
        ]
        tiles = [  # what is unsigned holds no -1, which stands for a place that does not exist
            self.tiles.cast(v, dtypes.int64)
            if definition.padding_of(n) < 0 and tile_type(v).dtype.kind == "uint"
            else v
            for n, v in zip(definition.operands, tiles, strict=True)
        ]
        known = {n: tuple(map(self.known, v)) if is_tuple(v) else self.known(v) for n, v in attrs.items()}
        for n, v in known.items():
            parts = v if is_tuple(v) else (v,)
            if not all(x is None or isinstance(x, (bool, int, float, str)) or _is_size(x) for x in parts):
                raise KernelFault("TS105", f"{n} of {definition.signature} is a number known at compile time")
        try:
            result = definition.result(*map(tile_type, tiles), **known)
        except (ValueError, dims.DimError) as e:
            raise KernelFault("TS402", f"{definition.name}: {e}") from None
        out = self.tiles.builder.value(definition.op, tiles, result, known)
        if result.shape == tile_type(tiles[0]).shape:
            return self.tiles.identities.like(out, tiles[0])
        own, rank = self.tiles.identities.of(tiles[0]), tile_type(tiles[0]).rank
        stay = definition.kept(rank, result.rank, **known)
        sizes = zip(result.shape, self._named_sizes(definition, tiles, known, result.shape), strict=True)
        moved = [Axis(size=named, inserted=d == 1) for d, named in sizes]
        return self.tiles.identities.set(out, tuple(own[stay[a]] if a in stay else m for a, m in enumerate(moved)))

    def _named_sizes(
        self, definition: TilePrimitive, tiles: Sequence[Value], attrs: dict[str, Any], shape: Shape
    ) -> Shape:
        """The shape of a result as the program says it: 2*N, also where the size of N is known."""

        def named(v: Value) -> TileType:
            t, axes = tile_type(v), self.tiles.identities.of(v)
            sizes = zip(t.shape, (a.size for a in axes), strict=True)
            return TileType(tuple(m if m is not None and self.known(m) == n else n for n, m in sizes), t.dtype)

        try:
            found = definition.result(*map(named, tiles), **attrs).shape
        except (ValueError, dims.DimError):  # sizes of two names that are equal here
            return shape
        return found if tuple(map(self.known, found)) == tuple(shape) else shape

    def reduce(self, name: str, x: Value, axis: Any, keepdim: bool) -> Value:
        """A reduction. Raises KernelFault where the axis is spread over programs."""
        identities = self.tiles.identities.of(x)
        axes = self.tiles.axes_of(x, axis)
        self.demand_whole(x, axes)
        if name != "mean":
            return self.tiles.reduce(name, x, axes, keepdim)
        count: Dim = 1
        for a in axes:
            origin, size = identities[a].origin, tile_type(x).shape[a]
            if isinstance(origin, Coordinate) and origin.extent is not None:
                size = dims.dim_min(size, origin.extent - origin.offset)  # the last block is shorter
            count = count * size
        total = self.tiles.reduce("sum", x, axes, keepdim)
        return self.tiles.map("div", total, count)

    def demand_whole(self, x: Value, axes: tuple[int, ...]) -> None:
        """Raises KernelFault where one of these axes is spread over programs."""
        for a in axes:
            if (origin := self.tiles.identities.of(x)[a].origin) in self.divided:
                assert isinstance(origin, Coordinate)
                dim = axis_text(Axis(origin.extent))
                why = f"axis {a} ({dim}) is divided among programs, so no program sees all of it"
                raise KernelFault("TS403", f"{why}; work along the last axis, or load the block with slices")

    # memory
    def index_tiles(self, index: Any) -> Any:
        """An index in which tiles are values."""
        if is_tuple(index):
            return tuple(map(self.index_tiles, index))
        if is_slice(index):
            return slice(self.index_tiles(index.start), self.index_tiles(index.stop), index.step)
        return self.operand(index) if isinstance(index, (TileWindow, Shared, Transposed)) else index

    def window_of(self, value: Any) -> TileWindow:
        if isinstance(value, View):
            return self.rows_of(value)
        how = (
            "; a tensor is subscripted, there are no pointers: x[i], x[i : i + 32]" if isinstance(value, Value) else ""
        )
        raise KernelFault("TS406", f"a block of a tensor is needed here, not {type_name(value)}{how}")

    def place_of(self, value: Any) -> Place:
        """What `load` and `store` are given: a block of a tensor, or its elements at computed indices."""
        if isinstance(value, TileWindow):
            return value
        if isinstance(value, Value) and value in self.elements:
            return self.elements[value]
        return self.window_of(value)

    def masked(self, place: Place, mask: Value) -> Place:
        """A place narrowed by an explicit mask. Raises KernelFault."""
        if tile_type(mask).dtype.kind != "bool":
            given = f"a mask is of bools, as comparisons give, not of {tile_type(mask).dtype}"
            raise KernelFault("TS301", f"{given}; load(place, mask=...) and store(place, value, mask=...) take one")
        shape = place.shape if isinstance(place, TileWindow) else tile_type(place.index[0]).shape
        if tile_type(mask).rank > len(shape):
            had, wanted = shape_text(tile_type(mask).shape), shape_text(shape)
            raise KernelFault("TS402", f"the mask {had} does not fit the block {wanted}")
        wide = self.tiles.fitted(mask, shape, place.axes)
        both = wide if place.mask is None else self.tiles.map("logical_and", place.mask, wide)
        return replace(place, mask=both) if isinstance(place, Elements) else replace(place, mask=both, shifted=None)

    # a parameter read as a whole: its row block
    def rows_of(self, view: View) -> TileWindow:
        """The rows of this program: leading axes are grid axes, the last one is whole.

        The widest tensor that the kernel reads as a whole says so first; a dim of it means the same in the others, so
        that w: ["B", "S"] beside x: ["B", "S", "D"] gives one value per row, and b: ["B"] one number.
        """
        rank = len(view.shape)
        known = self._roles()
        roles = [known.get(d) for d in view.shape]
        last: list[Role] = ["rows", "whole"]
        usual: list[Role] = [*["batch"] * (rank - 2), *last[max(2 - rank, 0) :]]  # type: ignore[list-item]
        if "rows" in roles:
            usual = ["whole" if r == "whole" else "batch" for r in usual]
        offsets: list[Dim] = []
        sizes: list[Dim] = []
        axes: list[Axis] = []
        kept: list[int] = []
        for a, extent in enumerate(view.shape):
            role = roles[a] or usual[a]
            if role == "batch":
                offsets.append(self.coordinates.batch_offset(view, a))
                sizes.append(1)
                continue
            kept.append(a)
            if role == "rows":
                name = f"rows_{size_text(extent)}"
                step, called = self._rows_per_program(view), size_text(extent)
                c = self.coordinates.on_grid(("rows", extent), name, extent, step, called=called)
                self.divided.add(c)
                offsets.append(c.offset)
                sizes.append(c.step)
                axes.append(c.axis)
            else:
                offsets.append(0)
                sizes.append(self.tiles.known(extent))
                axes.append(Axis(extent, extent))
        return TileWindow(view, tuple(offsets), tuple(sizes), tuple(kept), tuple(axes))

    def _roles(self) -> dict[Dim, Role]:
        """What the dims of the widest tensor that is read as a whole are: divided among programs, in rows, or whole."""
        views = [v for n in self.plan.whole if (v := self.views.get(n)) is not None and v.argument >= 0]
        widest = max(views, key=lambda v: len(v.shape), default=None)
        if widest is None or len(widest.shape) < 2:
            return {}
        shape = widest.shape
        out: dict[Dim, Role] = dict.fromkeys(shape[:-2], "batch")
        out |= {shape[-2]: "rows", shape[-1]: "whole"}
        return {d: role for d, role in out.items() if shape.count(d) == 1}

    def _rows_per_program(self, view: View) -> int:
        if "ROWS" in self.config:
            return self.setting("ROWS")
        width = self.tiles.known(view.shape[-1])
        return max(1, min(8, ROW_ELEMENTS // max(width, 1))) if isinstance(width, int) else 4


def _is_size(value: Any) -> bool:
    """Whether it is a size that an editor does not know and the compiler does."""
    return isinstance(value, Expr) and not marks(value)
