"""The kernel layer: a `@ts.kernel`'s body becomes one `tile.func`.

Here are the evaluator's hooks. The rules live in their own modules: `grid` (what the text says about the grid),
`names` and `coordinates`, `access` (subscripts), `tiles` (arithmetic), `operators`,
`control` (branches and loops), `outputs` and `results` (where results go), `builtins` (the
functions of `ts.tile`). A broken rule raises KernelFault, which becomes a finding at the node.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.evaluate import asserts
from tessera.compiler.frontend.evaluate.machine import Layer
from tessera.compiler.frontend.evaluate.returns import claimed
from tessera.compiler.frontend.evaluate.suggested_fixes import around_index, rewritten
from tessera.compiler.frontend.kernel import calls, names, operators, outputs, results
from tessera.compiler.frontend.kernel.access import Place
from tessera.compiler.frontend.kernel.builtins import BUILTINS
from tessera.compiler.frontend.kernel.builtins.memory import store_part
from tessera.compiler.frontend.kernel.builtins.subscripts import part, stored
from tessera.compiler.frontend.kernel.checks import reduce_across
from tessera.compiler.frontend.kernel.control import branches, loop_exits, loops
from tessera.compiler.frontend.kernel.grid import PREFIX, REGISTER, SERIAL
from tessera.compiler.frontend.kernel.places import zip_indices
from tessera.compiler.frontend.kernel.state import DEFAULTS, KernelState
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import (
    Lanes,
    LanesType,
    LaunchContext,
    Share,
    Shared,
    TileWindow,
    Transposed,
    View,
    marks,
    shown,
    size_text,
    unmarked,
)
from tessera.compiler.frontend.names.frame import Flow
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    Counting,
    LayerValue,
    Method,
    OperatorRef,
    Unknown,
    is_slice,
    is_tuple,
    type_name,  # fmt: skip
)
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, TensorType, TileType, Type, ViewType
from tessera.compiler.unit import Param
from tessera.errors import Span
from tessera.language import dtypes
from tessera.language.annotations import Annotation, TensorAnn, TileAnn
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluate.machine import Evaluator
    from tessera.compiler.frontend.names.frame import Path

PROPERTIES = ("T", "mT", "shape", "dtype", "ndim")
CONVERSIONS = ("to", "astype", "type")
"""PyTorch's and NumPy's names of `cast`"""


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A layer hook whose first argument is the node: a KernelFault becomes a finding there."""

    @functools.wraps(method)
    def run(self: KernelLayer, node: ast.AST, *args: Any) -> Any:
        try:
            return method(self, node, *args)
        except KernelFault as e:
            before = len(self.ev.findings.items)
            self.ev.error(e.code, e.message, node, notes=e.notes)
            if e.rewrites and len(self.ev.findings.items) > before:
                tried = [rewritten(self.ev, operands(self, node), *r) for r in e.rewrites]
                self.ev.pending.append((before, [c for c in tried if c is not None]))
            if e.indices and isinstance(node, ast.Subscript) and len(self.ev.findings.items) > before:
                own = names.namespace(self.ev)
                ways = ((m, b.replace("ts.tile", own), behind) for m, b, behind in e.indices)
                self.ev.pending.append((before, [around_index(self.ev, node, *way) for way in ways]))
            return UNKNOWN

    return run


def operands(k: KernelState, node: ast.AST) -> list[ast.expr]:
    """What an operation works on, as its fixes count it; of a store that is what is stored."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call):
        return node.args
    stores = (s for s in ast.walk(k.ev.definition.tree) if isinstance(s, ast.Assign) and node in s.targets)
    return [s.value for s in stores]


def _called(value: Any) -> str:
    """What messages call a value."""
    return f"the index {shown(value)}" if isinstance(value, Expr) and marks(value) else type_name(value)


class KernelLayer(KernelState):
    """What the evaluator asks while it reads a kernel."""

    prefix = "tile"
    functions = ".tile"

    def again(self) -> Callable[[Evaluator], Layer] | None:
        if (self.left, self.laned) != (self.rolled, self.read_by_lanes):
            return lambda ev: KernelLayer(ev, self.grid_loop, self.left, self.laned)
        if self.speculated is None or not (self.retry or self.ev.findings.errors):
            return None
        return lambda ev: KernelLayer(ev, False, self.rolled, self.laned)

    @property
    def closer(self) -> bool:
        return bool(self.rolled or self.read_by_lanes)

    def rolls(self, node: ast.While) -> bool:
        """Also one that this reading has just found to be left when the kernel runs: at compile time it has no end."""
        return (node.lineno, node.col_offset) in self.left

    # parameters and names
    def parameter(self, name: str, type: TensorType, annotation: Annotation, span: Span) -> Any:
        return names.parameter(self, name, type, annotation)

    def params(self) -> Sequence[Param]:
        return [replace(p, writes=i in self.memory.written) for i, p in enumerate(self.arguments)]

    def adopt(self, name: str, value: Any, node: ast.AST) -> Any:
        return names.capture(self, name, value, node)

    def capture_names(self) -> Sequence[str]:
        return [ast.unparse(n) if isinstance(n, (ast.Name, ast.Attribute)) else "" for n in self.capture_nodes]

    def free_name(self, name: str, node: ast.Name) -> Any:
        if name in (SERIAL, REGISTER):
            return Builtin(f"tessera.tile.{name}")
        if name not in self.plan.coordinates or self.ev.frame.scope.lookup(name) is not MISSING:
            return MISSING
        if not self.ev.frame.scope.live:
            self.ev.depend(name, MISSING)  # a text may come to define it
        found = self._coordinate(node, name)
        if isinstance(found, Unknown):
            self.ev.frame.names[name] = found  # said once
        return found

    @guarded
    def _coordinate(self, node: ast.Name, name: str) -> Any:
        return names.implicit(self, name).offset

    def known_names(self) -> Sequence[str]:
        return [PREFIX + n.lower() for n in self.ev.dims]

    def wording(self, message: str) -> str:
        return unmarked(message)

    # values
    def owns(self, value: Any) -> bool:
        return isinstance(value, (Value, Expr, LayerValue))

    def type_of(self, value: Any) -> Any:
        if isinstance(value, (Value, Shared)):
            return value.type
        if isinstance(value, Expr):
            return INDEX if marks(value) else value
        if isinstance(value, View):
            return ViewType(names.shown_shape(self, value.shape), value.dtype)
        if isinstance(value, TileWindow):
            return TileType(value.shape, value.view.dtype)
        if isinstance(value, Lanes):
            launch = value.launch
            if launch is not None and value.rank == 1 and value.base == launch.offset:
                return LanesType(value.size, functools.partial(self.coordinates.end, launch))
            return TileType(value.shape, dtypes.int64)
        if isinstance(value, Share):
            return value.tile.type
        if isinstance(value, Transposed):
            return replace(value.of.type, shape=tuple(reversed(value.of.type.shape)))
        return None

    def counter(self) -> Type:
        return INDEX

    # operators
    @guarded
    def binary(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        return operators.binary(self, node, symbol, left, right)

    @guarded
    def unary(self, node: ast.AST, symbol: str, operand: Any) -> Any:
        return operators.unary(self, symbol, operand)

    @guarded
    def logical(self, node: ast.AST, symbol: str, values: list[Any]) -> Any:
        return operators.logical(self, symbol, values)

    def condition(self, node: ast.AST, value: Any) -> Value | None:
        try:
            return branches.condition(self, node, value)
        except KernelFault as e:
            self.ev.error(e.code, e.message, node)
            return None

    # memory
    @guarded
    def subscript(self, node: ast.AST, value: Any, index: Any) -> Any:
        if isinstance(value, View):
            written: list[Any] = list(index) if is_tuple(index) else [index]
            if any(i is None for i in written):
                return self._with_new_axes(node, value, written)
            place = self._place(node, value, index)
            found = self.memory.load(place)
            if not isinstance(place, TileWindow):
                self.elements[found] = place
                return found
            self.loaded[place] = found  # as it is now: a later store does not change it
            return place
        if isinstance(value, Expr):
            raise KernelFault("TS105", f"the size {value} has no elements")
        items: list[Any] = list(index) if is_tuple(index) else [index]
        if isinstance(value, Lanes) and value.rank == 1 and items in ([None, slice(None)], [slice(None), None]):
            return replace(value, rank=2, position=items.index(slice(None)))
        return part(self, self.tile(value), [self.index_tiles(i) for i in items])

    def _with_new_axes(self, node: ast.AST, view: View, written: list[Any]) -> Value:
        """`x[a, None, b]` is `x[a, b][:, None, :]`."""
        indices = [self.index_tiles(i) for i in written]
        plain = tuple(i for i in indices if i is not None) or (...,)
        tiles = [i for i in plain if isinstance(i, Value) and i.type != INDEX and tile_type(i).rank]
        lanes = [i for i in plain if isinstance(i, Lanes)]
        if len(tiles) + len(lanes) > 1 or any(tile_type(i).rank > 1 for i in tiles) or any(i.rank > 1 for i in lanes):
            raise KernelFault(
                "TS402",
                f"a None beside several index tiles leaves open where their axes go; write {view.name}[...][:, None]",
            )
        found = self.tile(self.subscript(node, view, plain))
        kept = [i if i is None or i is ... else slice(None) for i in indices if i is None or self._is_axis(i)]
        return part(self, found, kept)

    @staticmethod
    def _is_axis(index: Any) -> bool:
        """Whether what an index takes has an axis for it: slices and lanes do, numbers do not."""
        if isinstance(index, Value):
            return index.type != INDEX and tile_type(index).rank == 1
        return index is ... or isinstance(index, Lanes) or is_slice(index)

    def iterate(self, node: ast.AST, value: Any) -> list[Any] | None:
        """The parts of a tile along its first axis, for loops at compile time and for `a, b = t`."""
        shape = () if isinstance(value, Expr) else getattr(self.type_of(value), "shape", ())
        if not shape:
            size = isinstance(value, Expr) and not marks(value)
            hint = f"; did you mean range({value})?" if size else ""
            self.ev.error("TS105", f"{_called(value)} cannot be iterated{hint}", node)
            return None
        count = self.tiles.known(shape[0])
        if not isinstance(count, int):
            self.ev.undecide(f"the size {size_text(count)} must be known to iterate over it", node)
            return None
        return [self.subscript(node, value, i) for i in range(count)]

    def _place(self, node: ast.AST, view: View, index: Any, storing: bool = False) -> Place:
        """The place that a subscript means; where each index stands is kept for editors."""
        place = self.memory.place(view, self.index_tiles(index), storing)
        if isinstance(node, ast.Subscript):
            written = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            written = [w for w in written if not (isinstance(w, ast.Constant) and w.value is None)]
            for part, found in zip_indices(written, self.memory.indexed):
                self.ev.record_index(part, found)
        return place

    @guarded
    def store(self, node: ast.AST, value: Any, index: Any, item: Any) -> None:
        if isinstance(value, Shared):
            store_part(self, value, index, self.operand(item))
            return
        if isinstance(value, (TileWindow, Lanes)) or (isinstance(value, Value) and value.type != INDEX):
            self._store_to_tile(node, value, index, item)
            return
        if not isinstance(value, View):
            advice = "assign the name, or store to a parameter"
            raise KernelFault("TS406", f"{_called(value)} cannot be stored to; {advice}")
        place = self._place(node, value, index, storing=True)
        if isinstance(item, Share):
            reduce_across.store(self, place, item, self.ev.span(node))
            return
        self.memory.store(place, self.operand(item), self.ev.span(node))

    def _store_to_tile(self, node: ast.AST, value: Any, index: Any, item: Any) -> None:
        """`t[0:8] = u`: tiles are values, so the name stands for a new one from here on."""
        held = node.value if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            held = node.target.value
        if not isinstance(held, ast.Name):
            raise KernelFault("TS406", "only a tile that has a name can be changed in part; assign it to a name before")
        if held.id not in self.ev.frame.names:
            raise KernelFault(
                "TS406",
                f"{held.id} belongs to the function around this one; change it there",
            )
        items: list[Any] = list(index) if is_tuple(index) else [index]
        at = [self.index_tiles(i) for i in items]
        self.parted.append(held.id)
        self.ev.assign_name(held.id, stored(self, self.tile(value), at, self.operand(item)), held)

    # attributes and calls
    def attribute(self, node: ast.AST, value: Any, name: str) -> Any:
        if isinstance(value, LaunchContext):
            self.settings_read.add(name)
            return value.config[name] if name in value.config else value.sizes.get(name, DEFAULTS.get(name, MISSING))
        if isinstance(value, Expr) or name not in self.attributes(value):
            return MISSING
        if name in PROPERTIES:
            if not isinstance(value, View) and not hasattr(self.type_of(value), "shape"):
                return MISSING  # a number that each program has its own of, such as program_id
            return self._property(node, value, name)
        return Method(value, "cast" if name in CONVERSIONS else name)

    @guarded
    def _property(self, node: ast.AST, value: Any, name: str) -> Any:
        if name == "T":
            return BUILTINS["transpose"].build(self, value)
        t: Any = value if isinstance(value, View) else self.type_of(value)
        if name == "mT":
            rank = len(t.shape)
            if rank < 2:
                raise KernelFault("TS402", f"mT turns the last two axes, and {type_name(value)} has {rank}")
            order = (*range(rank - 2), rank - 1, rank - 2) if rank > 2 else ()
            return BUILTINS["transpose"].build(self, value, *order)
        return {"shape": t.shape, "dtype": t.dtype, "ndim": len(t.shape)}[name]

    def has_function(self, name: str) -> bool:
        return name in BUILTINS

    def attributes(self, value: Any) -> Sequence[str]:
        if isinstance(value, LaunchContext):
            return [*value.config, *value.sizes, *DEFAULTS]
        return [*PROPERTIES, *BUILTINS, *CONVERSIONS]

    def method(self, node: ast.Call, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self._call(node, calls.tile_call, method.name, [method.owner, *args], kwargs)

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, OperatorRef):
            return calls.graph_form(self, node, callee.name)
        if callee.path.startswith("tessera.tile."):
            name = callee.path.removeprefix("tessera.tile.")  # of another package with its module
            return self._call(node, calls.tile_call, name, args, kwargs)
        return self._call(node, calls.python_call, callee.name, args, kwargs)

    @guarded
    def _call(self, node: ast.AST, rule: Callable[..., Any], name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return rule(self, node, name, args, kwargs)

    # control flow
    def branch(self, node: ast.If, condition: Any) -> Flow:
        return self._flow(node, branches.branch, condition)

    def loop(self, node: ast.For, counting: Counting) -> Flow:
        return self._flow(node, loops.loop, counting)

    def repeat(self, node: ast.While, condition: Any) -> Flow:
        return self._flow(node, loops.repeat, condition)

    def leave(self, paths: list[Path]) -> bool:
        return loop_exits.leave(self, paths)

    def _flow(self, node: ast.stmt, rule: Callable[..., Flow], value: Any) -> Flow:
        try:
            return rule(self, node, value)
        except KernelFault as e:
            self.ev.error(e.code, e.message, self.ev.header(node))
            return Flow.NEXT

    def choose(self, node: ast.IfExp, condition: Any) -> Any:
        return self._choose(node, condition)

    @guarded
    def _choose(self, node: ast.IfExp, condition: Any) -> Any:
        return self.chosen(self.operand(condition), self.ev.eval(node.body), self.ev.eval(node.orelse))

    def assertion(self, node: ast.Assert, value: Any) -> None:
        """Of sizes: a fact, checked at launch. Of anything else: checked in debug mode."""
        sizes = asserts.compared(self.ev, node.test)
        if sizes is not None and all(isinstance(v, (int, Expr)) and not marks(v) for v in sizes):
            return asserts.assert_sizes(self.ev, node)
        message = node.msg.value if isinstance(node.msg, ast.Constant) else ast.unparse(node.test)
        self._call(node, calls.tile_call, "debug_assert", [value, str(message)], {})

    # results
    def declared(self, node: ast.AnnAssign) -> None:
        found = claimed(self.ev, node)
        if isinstance(found, (TensorAnn, TileAnn)):
            self._declare(node, found)
        elif found is None and isinstance(node.target, ast.Name):
            self.ev.frame.names[node.target.id] = UNKNOWN  # what is wrong has been said

    @guarded
    def _declare(self, node: ast.AnnAssign, annotation: Annotation) -> None:
        results.declare(self, node, annotation)

    def returned(self, value: Any, span: Span, annotation: Annotation | None) -> Any:
        outputs.returned(self, value, span, annotation)
        return value

    def finish(self, value: Any) -> Op | None:
        return outputs.finish(self, value)
