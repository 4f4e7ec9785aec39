"""What the evaluator makes of each expression of a kernel, and what follows from it for a derivative."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, cast

from tessera.compiler.frontend.backward.inlined import written_out
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluation import settled
from tessera.compiler.frontend.kernel import races
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.layer import KernelLayer
from tessera.compiler.frontend.kernel.tiles import tile_type
from tessera.compiler.frontend.kernel.values import Axes, Coordinate, Lanes, Share, TileWindow, View, marks
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.values import Builtin, Unknown
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.errors import CompileError, Diagnostic, Span
from tessera.language.dims import Expr
from tessera.language.dtypes import DType

FIX = "write a rule by hand, @{}.vjp"


def refused(definition: Definition, node: ast.AST, why: str) -> CompileError:
    """TS355 at a place of the kernel's text."""
    span = definition.text.span(node) if hasattr(node, "lineno") else definition.span
    return refused_at(definition, span, why)


def refused_at(definition: Definition, span: Span, why: str) -> CompileError:
    said = f"the backward of {definition.name} is not derived: {why}; {FIX.format(definition.name)}"
    return CompileError(Diagnostic("TS355", said, span, function=definition.name))


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
        ev = _evaluated(definition)
        while (flat := written_out(ev.definition, getattr(ev, "seen", {}))) is not None:
            ev = _evaluated(flat)
        self.ev = ev
        self.definition = ev.definition  # with the grid's loops written out
        assert isinstance(ev.layer, KernelLayer)
        self.k = ev.layer
        self.values: dict[ast.AST, Any] = dict(getattr(ev, "seen", {}))
        self._tiles: dict[int, tuple[Any, Value]] = {}

    def refused(self, node: ast.AST, why: str) -> CompileError:
        return refused(self.definition, node, why)

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
        """The name of the function of ts.tile that is called."""
        callee = self.value(node.func)
        if isinstance(callee, Builtin) and callee.path.startswith("tessera.tile."):
            return callee.path.removeprefix("tessera.tile.")
        return None

    def window(self, node: ast.AST) -> TileWindow | None:
        """The block of a parameter that an expression reads."""
        value = self.value(node)
        if isinstance(value, View):
            return self.k.rows_of(value)
        return value if isinstance(value, TileWindow) else None

    def shared(self, window: TileWindow) -> list[Coordinate]:
        """The coordinates of the grid whose programs all read this block."""
        return [c for c in self.k.coordinates.grid if races.conflict(self.k, window, c) == "same"]

    def overlaps(self, window: TileWindow) -> bool:
        return any(races.conflict(self.k, window, c) == "overlap" for c in self.k.coordinates.grid)

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
