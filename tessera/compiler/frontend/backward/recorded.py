"""Records the value of each expression of a kernel, and answers questions about them for derivatives."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.compiler.frontend.backward.inlined import written_out
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluation import settled
from tessera.compiler.frontend.kernel.calls import function_of
from tessera.compiler.frontend.kernel.checks import races
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.layer import KernelLayer
from tessera.compiler.frontend.kernel.tiles import tile_type
from tessera.compiler.frontend.kernel.values import Axes, Coordinate, Lanes, Share, TileWindow, View, marks
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.values import Builtin, Counting, Unknown, is_sequence
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.errors import CompileError, Diagnostic, Span
from tessera.language.dims import Dim, Expr
from tessera.language.dims.algebra import Atom
from tessera.language.dtypes import DType

FIX = "write a rule by hand, @{}.vjp"


def refused(definition: Definition, node: ast.AST, why: str) -> CompileError:
    """TS355 at a place of the kernel's text."""
    span = definition.text.span(node) if hasattr(node, "lineno") else definition.span
    return refused_at(definition, span, why)


def refused_at(definition: Definition, span: Span, why: str) -> CompileError:
    message = f"the backward of {definition.name} is not derived: {why}; {FIX.format(definition.name)}"
    return CompileError(Diagnostic("TS355", message, span, function=definition.name))


class RecordingEvaluator(Evaluator):
    """An evaluator that keeps the value of each expression; of one that is evaluated several times, the last."""

    def eval(self, node: ast.expr) -> Any:
        if not hasattr(self, "seen"):
            self.seen: dict[ast.AST, Any] = {}
        value = super().eval(node)
        self.seen[node] = value
        return value


def _evaluated(definition: Definition) -> RecordingEvaluator:
    analysis, ev = settled(definition, RecordingEvaluator)
    errors = [d for d in analysis.diagnostics if d.severity == "error"]
    if errors:
        raise CompileError(errors)
    return cast(RecordingEvaluator, ev)


class KernelRecord:
    """A kernel that has been read by its annotations."""

    def __init__(self, definition: Definition) -> None:
        """Raises CompileError with what is wrong with the kernel itself."""
        self.read(definition)
        while (flat := written_out(self.definition, self.values)) is not None:
            self.read(flat)

    def read(self, definition: Definition) -> None:
        self.ev = _evaluated(definition)
        self.definition = self.ev.definition  # with the grid's loops written out
        assert isinstance(self.ev.layer, KernelLayer)
        self.k = self.ev.layer
        self.values: dict[ast.AST, Any] = dict(getattr(self.ev, "seen", {}))
        self.loops: list[tuple[frozenset[str], Counting]] = []
        """the loops that a program runs: their counters, and what they count"""
        self.constants: set[str] = set()
        """names of tiles that count as constants: running maxima"""
        self._tiles: dict[int, tuple[Any, Value]] = {}

    def refused(self, node: ast.AST, why: str) -> CompileError:
        return refused(self.definition, node, why)

    def renamed(self, node: Any, env: Mapping[str, str]) -> Any:
        """A copy in the names that are assigned once, with what has been recorded of each part."""
        if isinstance(node, list):
            return [self.renamed(n, env) for n in cast("list[Any]", node)]
        if not isinstance(node, ast.AST):
            return node
        new = type(node)(**{f: self.renamed(getattr(node, f, None), env) for f in node._fields})
        if isinstance(new, ast.Name):
            new.id = env.get(new.id, new.id)
        ast.copy_location(new, node)
        if node in self.values:
            self.values[new] = self.values[node]
        return new

    def value(self, node: ast.AST) -> Any:
        return self.values.get(node)

    def tile(self, node: ast.AST) -> Value | None:
        """The tile that an expression stands for; None for numbers and sizes."""
        value = self.value(node)
        if isinstance(value, Share):
            value = value.tile
        if isinstance(value, Value):
            return value if isinstance(value.type, TileType) else None
        if not self.k.is_tile(value) or isinstance(value, Lanes):
            return None
        held = self._tiles.get(id(value))
        if held is None:
            self._tiles[id(value)] = held = value, self.k.tile(value)
        return held[1]

    def moves(self, node: ast.AST) -> bool:
        """Whether an expression has a derivative: a tile of floats."""
        bare = node
        while isinstance(bare, ast.Subscript):
            bare = bare.value
        if isinstance(bare, ast.Name) and bare.id in self.constants:
            return False
        tile = self.tile(node)
        if tile is not None and tile_type(tile).dtype.is_complex:
            raise self.refused(node, "it has no rule for complex numbers")
        return tile is not None and tile_type(tile).dtype.is_float

    def dtype(self, node: ast.AST) -> DType:
        tile = self.tile(node)
        assert tile is not None
        return tile_type(tile).dtype

    def rank(self, node: ast.AST) -> int:
        tile = self.tile(node)
        return tile_type(tile).rank if tile is not None else 0

    def shape(self, node: ast.AST) -> tuple[Any, ...]:
        tile = self.tile(node)
        return tile_type(tile).shape if tile is not None else ()

    def axes(self, node: ast.AST) -> Axes:
        tile = self.tile(node)
        return self.k.tiles.identities.of(tile) if tile is not None else ()

    def places(self, operands: Sequence[ast.AST]) -> list[tuple[int, ...]]:
        """For each operand of an elementwise function, which axes of the result its axes are."""
        tiles = [self.k.tile(v) if isinstance(v := self.value(n), Lanes) else self.tile(n) for n in operands]
        wide = [t for t in tiles if t is not None and tile_type(t).rank]
        found = iter(self.k.tiles.identities.together(wide)[1]) if wide else iter(())
        return [next(found) if t is not None and tile_type(t).rank else () for t in tiles]

    def function(self, node: ast.Call) -> str | None:
        """The name of the function of ts.tile that is called, by its own name or by Python's, as `abs` and `max`."""
        callee = self.value(node.func)
        if not isinstance(callee, Builtin):
            return None
        if callee.path.startswith("tessera.tile."):
            return callee.path.removeprefix("tessera.tile.")
        items = any(is_sequence(self.value(a)) for a in node.args)
        return None if items else function_of(callee.path, len(node.args))

    def reduced(self, node: ast.Call, rank: int) -> tuple[list[int], bool]:
        """The axes along which a call reduces a tile of some rank, and whether they stay."""
        function = self.function(node) or ""
        given = {k.arg: k.value for k in node.keywords}
        if function.startswith(("row_", "col_")):
            if rank > 2:
                raise self.refused(node, f"it has no rule for {function} of a tile with {rank} axes")
            keep = given.get("keepdim") or (node.args[1] if len(node.args) > 1 else None)
            return ([rank - 1] if function.startswith("row_") else [0]), keep is not None and bool(self.literal(keep))
        said = given.get("axis") or (node.args[1] if len(node.args) > 1 else None)
        keep = given.get("keepdim") or given.get("keepdims") or (node.args[2] if len(node.args) > 2 else None)
        kept = keep is not None and bool(self.literal(keep))
        value = None if said is None else self.literal(said)
        axes = range(rank) if value is None else (value,) if isinstance(value, int) else value
        return sorted(a % rank for a in axes) if rank else [], kept

    def literal(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError:
            return self.value(node)

    def window(self, node: ast.AST) -> TileWindow | None:
        """The block of a parameter that an expression reads."""
        value = self.value(node)
        if isinstance(value, View):
            return self.k.rows_of(value)
        return value if isinstance(value, TileWindow) else None

    def shared(self, window: TileWindow) -> list[Coordinate]:
        """The coordinates of the grid whose programs read this block too: all, or those whose loops get there."""
        return [c for c in self.k.coordinates.grid if self.conflict(window, c) == "same"]

    def overlaps(self, window: TileWindow) -> bool:
        return any(self.conflict(window, c) == "overlap" for c in self.k.coordinates.grid)

    def conflict(self, window: TileWindow, c: Coordinate) -> str:
        """As for what is stored, but loops whose bounds a program decides come to blocks of other programs too."""
        found = races.conflict(self.k, window, c)
        places = frozenset[str]().union(*map(marks, window.offsets))
        if not found and str(c.offset) in places:
            found = self.together(window, c)
        if found or str(c.offset) in places or self.k.tiles.known(self.k.coordinates.count(c)) == 1:
            return found
        decided = [m for o in window.offsets for m in marks(o) if self.k.coordinates.decides(c, o)]
        loops = [x for walks, x in self.loops if walks & places]
        if not loops or any(not any(m in walks for walks, _ in self.loops) for m in decided):
            return found
        return "same" if not any(self.begins(x.start, c) for x in loops) else self.ranges(loops, c)

    def together(self, window: TileWindow, c: Coordinate) -> str:
        """Whether several programs along a coordinate come to one block although it moves the block: heads of a group
        to the keys that they share."""
        mark = str(c.offset)
        along = [o for o in window.offsets if isinstance(o, Expr) and mark in marks(o)]
        if self.k.tiles.known(self.k.coordinates.count(c)) == 1 or any(linear(o, mark)[0] is not None for o in along):
            return ""
        if self.group(window, c) is not None:
            return "same"
        inside = {
            a.op for o in along for m, _ in o.terms for a in m if a.op != "sym" and mark in marks(Expr((((a,), 1),)))
        }
        return "" if {"//", "%"} <= inside else "overlap"  # quotient and remainder tell every program

    def group(self, window: TileWindow, c: Coordinate) -> tuple[int, Dim] | None:
        """(axis, n) where the block's place along an axis is c // n, and c moves it along no other one."""
        mark = str(c.offset)
        axes = [a for a, o in enumerate(window.offsets) if mark in marks(o)]
        offset = window.offsets[axes[0]] if len(axes) == 1 else 0
        if (
            not isinstance(offset, Expr)
            or c.kind != "grid"
            or self.k.tiles.known(c.step) != 1
            or axes[0] in window.kept
        ):
            return None
        match offset.terms:
            case (((Atom(op="//", args=(of, int() | Expr() as count)),), 1),) if of == c.offset and not marks(count):
                return axes[0], count
            case _:
                return None

    def grouped(self, window: TileWindow) -> bool:
        return any(self.group(window, c) is not None for c in self.k.coordinates.grid)

    def of_data(self, offset: Any) -> bool:
        """Whether a place is computed from what is read."""
        found = [self.k.indices.values[m] for m in marks(offset) if m in self.k.indices.values]
        seen: set[Value] = set()
        while found:
            v = found.pop()
            if v in seen or v.op is None:
                continue
            if v.op.name == "tile.load":
                return True
            seen.add(v)
            found += v.op.operands
        return False

    def begins(self, start: Any, c: Coordinate) -> bool:
        """Whether the bound of a loop depends on a coordinate."""
        return isinstance(start, Expr) and (str(c.offset) in marks(start) or self.k.coordinates.decides(c, start))

    def ranges(self, loops: list[Counting], c: Coordinate) -> str:
        """Loops that begin where the program does: "" where they end before the next program's begins."""
        for x in loops:
            if isinstance(x.start, Expr) and str(c.offset) in marks(x.start):
                stride, _ = linear(x.start, str(c.offset))
                length, step = x.stop - x.start, self.k.tiles.known(c.step)
                if stride is not None and isinstance(length, int) and isinstance(step, int) and length <= stride * step:
                    return ""
        return "overlap"

    def apart(self, window: TileWindow, marks_of: frozenset[str], step: Any) -> bool:
        """Whether a loop with these marks comes to blocks that share no element, one after the other."""
        for offset, size in zip(window.offsets, window.sizes, strict=True):
            for mark in marks(offset) & marks_of:
                stride, _ = linear(offset, mark) if isinstance(offset, Expr) else (None, 0)
                width, steps = self.k.tiles.known(size), self.k.tiles.known(step)
                if stride is not None and (width == steps * stride or (isinstance(width, int) and isinstance(steps, int)
                                           and 0 < width <= stride * steps)):  # fmt: skip
                    return True
        return False

    def static(self, node: ast.AST) -> bool | None:
        """What a condition is known to be; None where the program finds out."""
        value = self.value(node)
        if value is None or isinstance(value, Unknown) or self.k.owns(value):
            return None
        return bool(value)
