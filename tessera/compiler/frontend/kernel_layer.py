"""The kernel layer: a `@ts.kernel`'s body becomes one `tile.func`.

Rules live in their own modules: `kernel_grid` (what the text says about the grid), `kernel_coordinates`, `kernel_access`
(subscripts), `kernel_tiles` (arithmetic), `kernel_control` (masks and loops), `kernel_outputs` (where results go) and
`kernel_builtins` (the functions of `ts.tile`). A broken rule raises KernelFault; here it becomes a finding at the node.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend import kernel_captures, kernel_control, kernel_operators, kernel_outputs
from tessera.compiler.frontend.definition import Definition
from tessera.compiler.frontend.frame import Flow
from tessera.compiler.frontend.inlining import assigned_names
from tessera.compiler.frontend.kernel_access import Memory, Place
from tessera.compiler.frontend.kernel_builtins import TILE_FUNCTIONS, signature
from tessera.compiler.frontend.kernel_coordinates import Coordinates
from tessera.compiler.frontend.kernel_grid import PREFIX, REGISTER, SERIAL, Plan, plan
from tessera.compiler.frontend.kernel_index import Indices
from tessera.compiler.frontend.kernel_tiles import NUMBERS, KernelFault, Tiles, tile_type
from tessera.compiler.frontend.kernel_values import (
    Axes, Context, Coordinate, Lanes, Panel, Shared, Transposed, View, Window, marked, marks,
)  # fmt: skip
from tessera.compiler.frontend.layer import Layer
from tessera.compiler.frontend.signature import definition_signature
from tessera.compiler.frontend.values import MISSING, UNKNOWN, Builtin, Counting, LayerValue, Method, Number, OperatorRef, Unknown, type_name
from tessera.compiler.ir.core import Op, Region, Value
from tessera.compiler.ir.types import INDEX, Shape, TensorType, TileType, Type, ViewType
from tessera.compiler.tile.dialect import TileBuilder
from tessera.compiler.tile.passes.check_rescale import check_rescale
from tessera.compiler.tile.passes.place_barriers import place_barriers
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.compiler.tile.program import Param
from tessera.errors import Edit, Fix, Note, Span
from tessera.language import dims, dtypes
from tessera.language.annotations import Annotation, TensorAnn, TileAnn, TupleAnn
from tessera.language.dims import Dim, Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator

DEFAULTS: dict[str, Any] = {
    "BM": 64, "BN": 64, "BK": 32, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "BLOCK": 1024, "BLOCK_SIZE": 1024,
    "num_warps": 4, "warps": 4, "num_stages": 2, "stages": 2, "vector": 4,
}  # fmt: skip
"""the schedule's parameters where neither the autotuner nor `with_config` says anything"""
PYTHON_NAMES = {"abs": "abs", "max": "maximum", "min": "minimum", "round": "round", "pow": "pow"}
PROPERTIES = ("T", "shape", "dtype", "ndim")


def configuration(definition: Definition) -> dict[str, Any]:
    """The schedule's parameters: what the decorator or `with_config` chose; `DEFAULTS` fill in the rest."""
    return dict(definition.options.get("config") or {})


def _returned_dims(definition: Definition) -> frozenset[str]:
    returns = definition_signature(definition).returns
    items = returns.items if isinstance(returns, TupleAnn) else (returns,)
    return frozenset(str(d) for a in items for d in getattr(a, "shape", None) or ())


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A layer hook whose first argument is the node: a KernelFault becomes a finding there."""

    @functools.wraps(method)
    def run(self: KernelLayer, node: ast.AST, *args: Any) -> Any:
        try:
            return method(self, node, *args)
        except KernelFault as e:
            return self.ev.error(e.code, e.message, node, notes=e.notes)

    return run


class KernelLayer(Layer):
    """State of one kernel. `sizes` are the dims that are known; `grid_loop`: the outermost range is a grid axis."""

    prefix = "tile"

    def __init__(self, ev: Evaluator, grid_loop: bool = True) -> None:
        super().__init__(ev)
        self.plan: Plan = plan(ev.definition, _returned_dims(ev.definition))
        ev.definition = self.plan.definition
        ev.frame.locals = assigned_names(ev.definition.tree)
        self.config, self.grid_loop = configuration(ev.definition), grid_loop
        self.sizes: dict[str, int] = dict(ev.sizes)
        self.builder = TileBuilder(ev.block, span=ev.definition.span)
        ev.builder = self.builder
        self.indices = Indices(self.builder, self.sizes)
        self.coordinates = Coordinates(ev.block, self.indices, ev.definition.span)
        self.tiles = Tiles(self.builder, self.indices)
        self.memory = Memory(self.tiles, self.coordinates)
        self.conditions: dict[Value, tuple[frozenset[tuple[Dim, Dim]], bool]] = {}
        self.views: dict[str, View] = {}
        self.arguments: list[Param] = []
        self.captured: list[View] = []
        self.capture_nodes: list[ast.AST] = []
        self.loaded: dict[Window, Value] = {}
        self.filled: set[Value] = set()
        self.reads: list[tuple[Shared, Span]] = []
        self.divided: set[Coordinate] = set()
        self.results: list[int] = []
        self.speculated: Coordinate | None = None
        self.stages = 0
        self.retry = False
        """the outermost range turned out not to tell programs apart: evaluate again with it serial"""

    def again(self) -> Callable[[Evaluator], Layer] | None:
        if self.speculated is None or not (self.retry or self.ev.findings.errors):
            return None
        return lambda ev: KernelLayer(ev, grid_loop=False)

    # parameters
    def parameter(self, name: str, type: TensorType, annotation: Annotation, span: Span) -> Any:
        self._name_dims()
        argument = len(self.arguments)
        if type.rank == 0 and not isinstance(annotation, (TensorAnn, TileAnn)):
            self.arguments.append(Param(name, None, type.dtype))
            return self.ev.block.add_arg(TileType((), type.dtype), name)
        shape = self._symbolic_shape(type.shape, annotation)
        concrete = tuple(map(self.tiles.known, shape))
        self.arguments.append(Param(name, concrete, type.dtype, optional=bool(getattr(annotation, "optional", False))))
        value = self.ev.block.add_arg(ViewType(concrete, type.dtype), name)
        self.views[name] = View(name, value, shape, type.dtype, argument)
        return self.views[name]

    def _name_dims(self) -> None:
        """In a kernel the name of a dim stays symbolic, so that axes keep their identity; its size is known beside it."""
        for name, size in self.ev.frame.dims.items():
            if isinstance(size, int):
                self.sizes[name] = size
                self.ev.frame.names[name] = dims.symbol(name)

    def _symbolic_shape(self, actual: Shape, annotation: Annotation) -> Shape:
        """Dims as annotated, so that axes keep their identity; sizes without a name get a symbol for that size."""
        wanted: Sequence[Any] = getattr(annotation, "shape", None) or (...,)
        if ... in wanted:
            at = list(wanted).index(...)
            spare = len(actual) - len(wanted) + 1
            wanted = [*wanted[:at], *[None] * spare, *wanted[at + 1 :]]
        out: list[Dim] = []
        for a, (want, have) in enumerate(zip(wanted, actual, strict=True)):
            if isinstance(want, Expr):
                if isinstance(have, int) and not isinstance(rest := dims.substitute(want, self.sizes), int):
                    self.indices.given[rest] = have
                out.append(want)
            elif isinstance(have, int):
                name = f"{have}'{len(actual) - a}"
                self.sizes[name] = have
                out.append(dims.symbol(name))
            else:
                out.append(have)
        return tuple(out)

    def params(self) -> Sequence[Param]:
        return [replace(p, writes=i in self.memory.written) for i, p in enumerate(self.arguments)]

    def adopt(self, name: str, value: Any, node: ast.AST) -> Any:
        return kernel_captures.capture(self, name, value, node)

    def capture_names(self) -> Sequence[str]:
        return [ast.unparse(n) if isinstance(n, (ast.Name, ast.Attribute)) else "" for n in self.capture_nodes]

    # names
    def dims(self) -> dict[str, Dim]:
        return {n: dims.symbol(n) for n in self.ev.dims}

    def setting(self, name: str) -> int:
        """A schedule parameter that is an integer. Raises KernelFault."""
        value = self.config.get(name, DEFAULTS.get(name))
        if not isinstance(value, int) or value <= 0:
            raise KernelFault("TS404", f"the configuration's {name} must be a positive integer, not {value!r}")
        return value

    def free_name(self, name: str, node: ast.Name) -> Any:
        if name in (SERIAL, REGISTER):
            return Builtin(kernel_control.IMPLICIT if name == SERIAL else f"tessera.tile.{REGISTER}")
        if name not in self.plan.coordinates or not isinstance(self.ev.frame.scope.lookup(name), type(MISSING)):
            return MISSING
        found = self._coordinate(node, name)
        if isinstance(found, Unknown):
            self.ev.frame.names[name] = found  # said once
        return found

    def known_names(self) -> Sequence[str]:
        return [PREFIX + n.lower() for n in self.ev.dims]

    @guarded
    def _coordinate(self, node: ast.Name, name: str) -> Any:
        """`tile_m`: the grid coordinate over the dim M."""
        extent = self._dim_of(name)
        return self.named_coordinate(extent, self._width(name), name).offset

    def named_coordinate(self, extent: Dim, step: Dim, name: str = "") -> Coordinate:
        """The grid coordinate over a dim, whichever way the program names it."""
        c = self.coordinates.on_grid(("tile", extent), name or f"{PREFIX}{extent}".lower(), extent, step, self.builder.span)
        if c.step != step:
            raise KernelFault("TS403", f"{c.name} walks {extent} in steps of {c.step} and of {step}; use one width")
        return c

    def _dim_of(self, name: str) -> Dim:
        wanted = name.removeprefix(PREFIX).lower()
        for known in self.ev.dims:
            if known.lower() == wanted:
                return dims.symbol(known)
        named = ", ".join(self.ev.dims) or "none"
        raise KernelFault("TS403", f"{name} walks the dim {wanted.upper()}, which no annotation binds (bound: {named})")

    def _width(self, name: str) -> Dim:
        """How far the coordinate goes in one step: the width of the slice that it starts."""
        s = self.plan.widths.get(name)
        if s is None:
            return 1
        assert s.upper is not None
        names, symbol = self.ev.frame.names, marked(name)
        saved = names.get(name, MISSING)
        names[name] = symbol
        try:
            upper = self.ev.eval(s.upper)
        finally:
            names.pop(name)
            if saved is not MISSING:
                names[name] = saved
        width = self.known(upper - symbol) if isinstance(upper, (int, Expr)) else UNKNOWN
        if not isinstance(width, (int, Expr)) or marks(width) or (isinstance(width, int) and width <= 0):
            raise KernelFault("TS403", f"the slice that {name} starts must have a width that is known at compile time")
        return width

    def _serial_range(self, name: str) -> Counting:
        return Counting(0, self._dim_of(name), self._width(name), kernel_control.IMPLICIT)

    def output_dims(self) -> set[Dim]:
        stored = [self.views[n].shape for n in self.plan.stored if n in self.views]
        if stored:
            return set().union(*map(kernel_outputs.dims_of, stored))
        returns = self.ev.returns
        items = returns.items if isinstance(returns, TupleAnn) else (returns,)
        return set().union(*(kernel_outputs.dims_of(getattr(a, "shape", None)) for a in items))

    # values
    def owns(self, value: Any) -> bool:
        return isinstance(value, (Value, Expr, LayerValue))

    def type_of(self, value: Any) -> Any:
        if isinstance(value, (Value, Shared)):
            return value.type
        if isinstance(value, Expr):
            return INDEX if marks(value) else value
        if isinstance(value, View):
            return ViewType(tuple(d if "'" not in str(d) else self.tiles.known(d) for d in value.shape), value.dtype)
        if isinstance(value, Window):
            return TileType(value.shape, value.view.dtype)
        if isinstance(value, Lanes):
            return TileType(value.shape, dtypes.int64)
        if isinstance(value, Transposed):
            return replace(value.of.type, shape=tuple(reversed(value.of.type.shape)))
        return None

    def known(self, d: Any) -> Any:
        """A size with what is known put in; anything else as it is."""
        return self.tiles.known(d) if isinstance(d, Expr) else d

    def settle(self, value: Any) -> Any:
        return self.known(value)

    def count(self, shape: Shape) -> Dim:
        return self.tiles.known(dims.prod(shape))

    def is_tile(self, value: Any) -> bool:
        return isinstance(value, (Value, Window, Lanes, Shared, Transposed, View))

    def operand(self, value: Any) -> Any:
        """A value of the program as a tile, or a number or size that adapts to the tiles beside it."""
        if isinstance(value, Value):
            return self.coordinates.of_index(value) if value.type == INDEX else value
        if isinstance(value, (*NUMBERS, Expr)):
            return value
        if isinstance(value, Lanes):
            return self.memory.tile_of(value)
        if isinstance(value, Window):
            return self.loaded[value] if value in self.loaded else self.memory.load(value)
        if isinstance(value, Shared):
            self._note_read(value)
            return self.tiles.load_shared(value.value, value.axes)
        if isinstance(value, Transposed):
            return self.tiles.transpose(self.operand(value.of))
        if isinstance(value, View):
            return self.memory.load(kernel_outputs.rows_of(self, value))
        if isinstance(value, Number):
            self.ev.undecide(f"{value.text} must be known", self.builder.span or self.ev.definition.span)
            weak = dtypes.weak(value.type(0), None) or dtypes.f32
            return self.placeholder(TileType((), weak), self.builder.span or self.ev.definition.span)
        if isinstance(value, Panel):
            raise KernelFault("TS402", f"{value.view.name} is loaded block by block; take one with load_partition(panel, k)")
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

    def _like(self, value: Any, like: Type | None) -> Value:
        found = self.operand(value)
        if isinstance(found, Value):
            return found
        if isinstance(like, TileType):
            dtype = dtypes.weak(0 if isinstance(found, Expr) else found, like.dtype) or like.dtype
            return self.tiles.full(like.shape, found, dtype)
        return self.tile(found)

    def counter(self) -> Type:
        return INDEX

    # operators
    @guarded
    def binary(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        return kernel_operators.binary(self, node, symbol, left, right)

    @guarded
    def unary(self, node: ast.AST, symbol: str, operand: Any) -> Any:
        return kernel_operators.unary(self, symbol, operand)

    @guarded
    def logical(self, node: ast.AST, symbol: str, values: list[Any]) -> Any:
        return kernel_operators.logical(self, symbol, values)

    def condition(self, node: ast.AST, value: Any) -> Value | None:
        try:
            return kernel_control.condition(self, node, value)
        except KernelFault as e:
            self.ev.error(e.code, e.message, node)
            return None

    def remember_both(self, out: Value, a: Any, b: Any) -> None:
        """`out` holds where both conditions hold."""
        nothing: tuple[frozenset[tuple[Dim, Dim]], bool] = (frozenset(), False)
        (x, exact), (y, both) = self.conditions.get(a, nothing), self.conditions.get(b, nothing)
        self.conditions[out] = (x | y, exact and both)

    def apply(self, name: str, *values: Any) -> Any:
        """An elementwise function over anything."""
        operands = [self.operand(v) for v in values]
        if name in ("maximum", "minimum") and all(isinstance(v, (int, Expr)) for v in operands):
            return (dims.dim_max if name == "maximum" else dims.dim_min)(*operands)
        if name == "where":
            return self.tiles.where(*operands)
        return self.tiles.map(name, *operands)

    def reduce(self, name: str, x: Value, axis: Any, keepdim: bool) -> Value:
        """A reduction. Raises KernelFault where the axis is spread over programs."""
        identities = self.tiles.identities.of(x)
        axes = self.tiles.axes_of(x, axis)
        for a in axes:
            if (origin := identities[a].origin) in self.divided:
                assert isinstance(origin, Coordinate)
                raise KernelFault("TS403", f"axis {a} ({origin.extent}) is divided among programs, so no program sees all of it; "
                                           "reduce along the last axis, or load the block with slices")  # fmt: skip
        if name != "mean":
            return self.tiles.reduce(name, x, axes, keepdim)
        count: Dim = 1
        for a in axes:
            origin, size = identities[a].origin, tile_type(x).shape[a]
            whole = size if not isinstance(origin, Coordinate) or origin.extent is None else dims.dim_min(size, origin.extent - origin.offset)
            count = count * whole
        total = self.tiles.reduce("sum", x, axes, keepdim)
        return self.tiles.map("div", total, count)

    # memory
    @guarded
    def subscript(self, node: ast.AST, value: Any, index: Any) -> Any:
        if isinstance(value, View):
            place = self.memory.place(value, self._index(index))
            found = self.memory.load(place)
            if not isinstance(place, Window):
                return found
            self.loaded[place] = found  # as it is now: a later store does not change it
            return place
        if isinstance(value, Expr):
            raise KernelFault("TS105", f"the size {value} has no elements")
        items = list(index) if isinstance(index, tuple) else [index]
        if isinstance(value, Lanes) and value.rank == 1 and sorted(map(str, items)) == sorted(["None", str(slice(None))]):
            return replace(value, rank=2, position=items.index(slice(None)))
        return self._new_axes(self.tile(value), items)

    def _index(self, index: Any) -> Any:
        """An index whose tiles are values."""
        if isinstance(index, tuple):
            return tuple(map(self._index, index))
        if isinstance(index, slice):
            return slice(self._index(index.start), self._index(index.stop), index.step)
        return self.operand(index) if isinstance(index, (Window, Shared, Transposed)) else index

    def _new_axes(self, x: Value, items: list[Any]) -> Value:
        t = tile_type(x)
        plain = [i for i in items if i is not None and i is not ...]
        if any(i != slice(None) for i in plain) or len(plain) > t.rank:
            raise KernelFault("TS402", f"a tile {t.pretty()} is subscripted with `:` and None only (x[:, None]); take parts of it when loading")
        if any(i is ... for i in items):
            at = items.index(...)
            items = [*items[:at], *[slice(None)] * (t.rank - len(plain)), *items[at + 1 :]]
        return self.tiles.insert_axes(x, [p for p, i in enumerate(items) if i is None])

    @guarded
    def store(self, node: ast.AST, value: Any, index: Any, item: Any) -> None:
        span = self.ev.span(node)
        if isinstance(value, Shared):
            TILE_FUNCTIONS["store"](self, value, item)
            return
        if not isinstance(value, View):
            raise KernelFault("TS406", f"{type_name(value)} cannot be stored to; assign the name, or store to a parameter")
        self.memory.store(self.memory.place(value, self._index(index), storing=True), self.operand(item), span)

    def window_of(self, value: Any) -> Window:
        if isinstance(value, View):
            return kernel_outputs.rows_of(self, value)
        raise KernelFault("TS406", f"a block of a tensor is needed here, not {type_name(value)}")

    def place_of(self, value: Any) -> Place:
        return self.window_of(value)

    def masked(self, place: Place, mask: Value) -> Place:
        """A place narrowed by an explicit mask."""
        shape = place.shape if isinstance(place, Window) else tile_type(place.index[0]).shape
        like = self.tiles.identities.set(self.tiles.full(shape, False, dtypes.bool_), place.axes)
        (wide, _), _ = self.tiles.together([self.tiles.truth(mask), like])
        both = wide if place.mask is None else self.tiles.map("logical_and", place.mask, wide)
        return replace(place, mask=both)

    def own_place(self, view: View, value: Any) -> Window:
        return kernel_outputs.own_place(self, view, value)

    def panel(self, view: View, shape: Shape, prefetch: int) -> Any:
        return kernel_outputs.panel(self, view, shape, prefetch)

    def partition(self, panel: Panel, at: Sequence[Any]) -> Window:
        return kernel_outputs.partition(self, panel, at)

    # attributes and calls
    def attribute(self, node: ast.AST, value: Any, name: str) -> Any:
        if isinstance(value, Context):
            return self._context(value, name)
        if isinstance(value, Expr):
            return MISSING
        if name in PROPERTIES:
            return self._property(node, value, name)
        return Method(value, "cast" if name in ("to", "astype", "type") else name) if name in self.attributes(value) else MISSING

    @guarded
    def _property(self, node: ast.AST, value: Any, name: str) -> Any:
        if name == "T":
            return TILE_FUNCTIONS["transpose"](self, value)
        if isinstance(value, View):
            return {"shape": value.shape, "dtype": value.dtype, "ndim": len(value.shape)}[name]
        t = self.type_of(value)
        return {"shape": t.shape, "dtype": t.dtype, "ndim": len(t.shape)}[name]

    def _context(self, value: Context, name: str) -> Any:
        if name in value.config:
            return value.config[name]
        return value.sizes.get(name, DEFAULTS.get(name, MISSING))

    def attributes(self, value: Any) -> Sequence[str]:
        if isinstance(value, Context):
            return [*value.config, *value.sizes, *DEFAULTS]
        return [*PROPERTIES, *TILE_FUNCTIONS, "to", "astype", "type"]

    def method(self, node: ast.Call, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self._tile_call(node, method.name, [method.owner, *args], kwargs)

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, OperatorRef):
            return self._graph_form(node, callee.name)
        path: str = callee.path
        if path == kernel_control.IMPLICIT:
            return self._serial_call(node, str(args[0]))
        if path == f"tessera.tile.{REGISTER}":
            return self._register(node, args[0])
        if path.startswith("tessera.tile."):
            return self._tile_call(node, callee.name, args, kwargs)
        return self._python_call(node, callee.name, args, kwargs)

    @guarded
    def _serial_call(self, node: ast.AST, name: str) -> Counting:
        return self._serial_range(name)

    @guarded
    def _register(self, node: ast.AST, value: Any) -> Value:
        return self.tiles.compute(self.tile(value))

    def _graph_form(self, node: ast.AST, name: str) -> Any:
        fixes: tuple[Fix, ...] = ()
        hint = "; a kernel uses the functions of ts.tile"
        if name in TILE_FUNCTIONS:
            hint = f"; use ts.tile.{name} here"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = self.ev.span(node.func.value)
                at = Span(owner.file, owner.end_line, owner.end_col, owner.end_line, owner.end_col)
                fixes = (Fix(f"Use the tile function {name}", (Edit(at, ".tile"),)),)
        return self.ev.error("TS401", f"{name} works on whole tensors and cannot be used in a kernel{hint}", node, fixes=fixes)

    @guarded
    def _tile_call(self, node: ast.AST, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        f = TILE_FUNCTIONS.get(name)
        if f is None:
            close = difflib.get_close_matches(name, TILE_FUNCTIONS, 1, 0.6)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            return self.ev.error("TS104", f"ts.tile has no function {name!r}{hint}", node)
        try:
            bound = inspect.signature(f).bind(self, *args, **kwargs)
        except TypeError as e:
            raise KernelFault("TS105", f"{signature(name)}: {e}") from None
        out = f(*bound.args, **bound.kwargs)
        return out

    @guarded
    def _python_call(self, node: ast.AST, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Python's builtins over tiles, lanes and sizes."""
        known = [self.known(a) for a in args]
        if name in ("int", "float", "bool", "complex") and len(args) == 1:
            if isinstance(known[0], NUMBERS):
                return {"int": int, "float": float, "bool": bool, "complex": complex}[name](known[0])
            if name == "int" and isinstance(args[0], Expr):
                return args[0]
            return self.tiles.cast(self.tile(args[0]), {"int": dtypes.int64, "bool": dtypes.bool_}.get(name, dtypes.f32))
        if name in PYTHON_NAMES and len(args) == (1 if name in ("abs", "round") else 2):
            return self.apply(PYTHON_NAMES[name], *args)
        if name in ("max", "min", "sum", "any", "all", "print") and args:
            return self._tile_call(node, name, args, kwargs)
        if name == "len" and isinstance(args[0], View):
            return args[0].shape[0]
        raise KernelFault("TS105", f"{name} does not take {type_name(args[0]) if args else 'nothing'} in a kernel")

    # control flow
    def branch(self, node: ast.If, condition: Any) -> Flow:
        return self._flow(node, kernel_control.branch, condition)

    def loop(self, node: ast.For, counting: Counting) -> Flow:
        return self._flow(node, kernel_control.loop, counting)

    def repeat(self, node: ast.While, condition: Any) -> Flow:
        return self._flow(node, kernel_control.repeat, condition)

    def _flow(self, node: ast.stmt, rule: Callable[..., Flow], value: Any) -> Flow:
        try:
            return rule(self, node, value)
        except KernelFault as e:
            self.ev.error(e.code, e.message, node)
            return Flow.NEXT

    def choose(self, node: ast.IfExp, condition: Any) -> Any:
        return self._choose(node, condition)

    @guarded
    def _choose(self, node: ast.IfExp, condition: Any) -> Any:
        return self.tiles.where(self.operand(condition), self.operand(self.ev.eval(node.body)), self.operand(self.ev.eval(node.orelse)))

    def assertion(self, node: ast.Assert, value: Any) -> None:
        message = node.msg.value if isinstance(node.msg, ast.Constant) else ast.unparse(node.test)
        self._tile_call(node, "debug_assert", [value, str(message)], {})

    # the end
    def returned(self, value: Any, span: Span, annotation: Annotation | None) -> Any:
        items = value if isinstance(value, tuple) else () if value is None else (value,)
        wanted = annotation.items if isinstance(annotation, TupleAnn) else (annotation,) * max(len(items), 1)
        if isinstance(annotation, TupleAnn) and len(wanted) != len(items):
            self.ev.error("TS201", f"Expected: {len(wanted)} values   (the return annotation)\nReceived: {len(items)} values", span)
            return value
        for i, item in enumerate(items):
            if isinstance(item, Unknown):
                continue
            try:
                self._result(item, span, wanted[i], i, len(items))
            except KernelFault as e:
                self.ev.error(e.code, e.message, span)
        return value

    def _result(self, item: Any, span: Span, wanted: Annotation | None, i: int, count: int) -> None:
        if self.builder.block is not self.ev.block:
            raise KernelFault("TS102", "a kernel returns once, at its end")
        if isinstance(item, View) and item.argument in self.memory.written:
            self.results.append(item.argument)
            return
        with self.builder.at(span):
            tile = self.tile(item)
            shape = getattr(wanted, "shape", None)
            dtype = getattr(wanted, "dtype", None) or tile_type(tile).dtype
            if shape is None or ... in shape:
                shape = kernel_outputs.inferred_shape(self, tile)
            view = kernel_outputs.allocate(self, shape, dtype, "result" if count == 1 else f"result{i}")
            self.memory.store(self.own_place(view, tile), tile, span)
        self.results.append(view.argument)

    def finish(self, value: Any) -> Op | None:
        ev = self.ev
        ev.infos = {key: info for key, info in ev.infos.items() if not info.name or info.name.isidentifier()}
        for name, named in ev.frame.names.items():
            if isinstance(named, Shared):
                named.value.hint = name
        for shared, span in self.reads:
            if shared.value not in self.filled:
                ev.error("TS407", "this shared tile is read, but the kernel never writes to it", span,
                         notes=[Note("allocated here", shared.span)])  # fmt: skip
        for name, statement in self.plan.overwritten:
            ev.error("TS403", f"every step of {name} overwrites this place; accumulate with +=, or index it with {name}", statement)
        if not self.memory.written and not isinstance(value, Unknown) and not ev.findings.errors:
            ev.error("TS406", "the kernel stores to nothing and returns nothing", ev.definition.span)
        try:
            grid = tuple(map(self.tiles.known, self.coordinates.finish()))
            self._check_races()
        except KernelFault as e:
            ev.error(e.code, e.message, ev.definition.span)
            return None
        if self.retry or ev.findings.errors or isinstance(value, Unknown):
            return None
        ev.block.append(Op("tile.return", (), (), ev.frame.return_span or ev.definition.span))
        attrs: dict[str, Any] = {
            "sym_name": ev.definition.name,
            "grid": grid,
            "arg_names": tuple(a.hint for a in ev.block.args),
            "writes": tuple(sorted(self.memory.written)),
            "returns": tuple(self.results),
            "num_warps": self._launch_setting("num_warps", "warps"),
            "num_stages": max(self._launch_setting("num_stages", "stages"), self.stages),
        }
        kernel = Op("tile.func", (), (), ev.definition.span, attrs, [Region([ev.block])])
        remove_dead(kernel)
        for finding in (*place_barriers(kernel), *check_rescale(kernel)):
            ev.findings.add(finding)
        return kernel

    def _launch_setting(self, *names: str) -> int:
        return next((self.setting(n) for n in names if n in self.config), DEFAULTS[names[0]])

    def _check_races(self) -> None:
        for stored, c in kernel_outputs.races(self):
            if c is self.speculated:
                self.retry = True
                return
            where = f"programs along {c.name} ({c.extent})" if c.extent is not None else f"programs along {c.name}"
            self.ev.error("TS406", f"all {where} store to the same place of {stored.view.name}; index it with {c.name}, "
                                   f"or reduce over {c.name} in a loop", stored.span)  # fmt: skip
