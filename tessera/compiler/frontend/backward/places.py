"""The positions of a kernel's blocks: those of its results, in the names of its text, and those that a store leaves
unchanged."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from tessera.compiler.frontend.backward.code import name, number
from tessera.compiler.frontend.backward.items import StoreStatement
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.kernel import outputs
from tessera.compiler.frontend.kernel.access import Stored
from tessera.compiler.frontend.kernel.results import writes_all
from tessera.compiler.frontend.kernel.values import PRIVATE, Axis, Coordinate, Lanes, TileWindow, View, marks
from tessera.compiler.frontend.syntax.trees import clone
from tessera.errors import Span
from tessera.immutable import immutable
from tessera.language.dims import Dim, Expr


@immutable
class ArrayAxis:
    """Where values stand along an axis of an array of their own: its dim, and the index; None for axes that no index
    mentions."""

    dim: str
    index: ast.expr | None


def together(places: Iterable[ArrayAxis | None]) -> tuple[tuple[str, ...], tuple[ast.expr, ...]] | None:
    """The dims and the index of an array of such axes; None where one of them is not known."""
    found = [*places]
    known = [p for p in found if p is not None]
    if len(known) != len(found):
        return None
    dims = [p.dim for i, p in enumerate(known) if p.dim != "..." or i == 0]
    return (*dims,), tuple(p.index for p in known if p.index is not None)


def subscript(array: str, index: Sequence[ast.expr]) -> ast.Subscript:
    found = clone(index[0] if len(index) == 1 else ast.Tuple([*index], ast.Load()))
    return ast.Subscript(name(array), found, ast.Load())


class Places:
    def __init__(self, rec: KernelRecord, tree: ast.FunctionDef) -> None:
        self.rec, self.k, self.tree = rec, rec.k, tree
        self.texts = self.slices()

    def own_block(self, node: ast.stmt, v: ast.expr, given: str, i: int) -> ast.expr:
        """This program's block of the cotangent of what is returned."""
        tile, view = self.rec.tile(v), self.result(i)
        assert tile is not None
        window = outputs.own_place(self.k, view, tile)
        divided = [c for c in self.k.divided if any(str(c.offset) in marks(o) for o in window.offsets)]
        if divided or not any(marks(o) for o in window.offsets):
            whole = [n for n in self.k.plan.whole if n in self.k.views]
            if whole and len(window.kept) == min(len(view.shape), 2):
                return name(given)
        batches = [marks(c.offset) for c in self.k.coordinates.grid if c.batch]
        index: list[ast.expr] = []
        for a, (offset, size) in enumerate(zip(window.offsets, window.sizes, strict=True)):
            if a not in window.kept and marks(offset) in batches:
                continue
            found = self.slice_at(offset, size, view.shape[a], a in window.kept)
            if found is None:
                raise self.rec.refused(node, f"where axis {a} of its result goes is not written; store it to a place")
            index.append(found)
        whole_index = index[0] if len(index) == 1 else ast.Tuple(index, ast.Load())
        return ast.Subscript(name(given), whole_index, ast.Load())

    def result(self, i: int) -> View:
        """The array that is made for what is returned."""
        return next(a for a in self.k.allocated if a.argument == self.k.results[i])

    def slices(self) -> list[tuple[Dim, ast.expr, bool]]:
        """The places that the text indexes parameters at: their starts, how they are written, whether as slices."""
        found: list[tuple[Dim, ast.expr, bool]] = []
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Subscript) or not isinstance(self.rec.window(node), TileWindow):
                continue
            for i in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                if isinstance(i, ast.Slice):
                    start = self.rec.value(i.lower) if i.lower is not None else 0
                    if i.lower is not None and isinstance(start, (int, Expr)):
                        found.append((start, i, True))
                else:
                    value = self.rec.value(i)
                    if isinstance(value, Lanes):
                        found.append((value.base, i, True))
                    elif isinstance(value, (int, Expr)):
                        found.append((value, i, False))
        return found

    def slice_at(self, offset: Dim, size: Dim, extent: Dim, kept: bool) -> ast.expr | None:
        known = self.k.tiles.known
        if offset == 0 and known(size) == known(extent):
            return ast.Slice()
        return next((clone(node) for start, node, sliced in self.texts if start == offset and sliced == kept), None)

    def of_program(self, c: Coordinate) -> ArrayAxis | None:
        """An axis with an element for each program along a coordinate."""
        extent = c.extent if c.extent is not None or c.batch else self.k.coordinates.extent(c)
        if c.batch:
            return ArrayAxis("..." if PRIVATE in str(extent) else str(extent), None)
        at = self.slice_at(c.offset, 1, extent or 1, False)
        return ArrayAxis(str(extent), at) if at is not None else None

    def of_axis(self, axis: Axis, size: Dim) -> ArrayAxis | None:
        """An axis like one of a tile."""
        origin, dim = axis.origin, axis.dim
        if dim is None and size == 1:
            return ArrayAxis("1", ast.Slice())
        if dim is None and isinstance(origin, Coordinate) and origin.kind == "program":
            dim = self.k.coordinates.extent(origin)
        at = (
            self.slice_at(origin.offset if isinstance(origin, Coordinate) else 0, size, dim, True)
            if dim is not None
            else None
        )
        return ArrayAxis(str(dim), at) if at is not None else None

    def implicit(self, c: Coordinate) -> tuple[str, ast.expr] | None:
        """The name and the step of an implicit coordinate, as slices that begin there say them, or an index alone."""
        for start, node, sliced in self.texts:
            alone = not sliced and self.k.tiles.known(c.step) == 1
            if start == c.offset and alone and isinstance(node, ast.Name) and node.id.startswith("tile_"):
                return node.id, number(1)
            if start == c.offset and isinstance(node, ast.Slice) and isinstance(node.lower, ast.Name):
                upper = node.upper
                if node.lower.id.startswith("tile_") and isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
                    return node.lower.id, clone(upper.right)
        return None

    def window_of(self, target: ast.expr) -> TileWindow | None:
        """Of a place that is stored to, which the evaluator keeps with the store."""
        return next((s.window for s in self.k.memory.stores if s.window is not None and self.is_of(target, s)), None)

    def is_of(self, target: ast.expr, s: Stored) -> bool:
        return _within(self.rec.definition.text.span(target), s.span)

    def overwritten(self, item: StoreStatement) -> bool:
        """Whether nothing of what was there before is left."""
        found = [s for s in self.k.memory.stores if s.view.name == item.parameter]
        alone = item.mask is None and len(found) == 1 and self.is_of(item.target, found[0])
        return alone and writes_all(self.k, found[0])

    def reads(self, parameter: str) -> bool:
        """Whether the kernel reads a parameter, or what it has stored to it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id == parameter and isinstance(node.ctx, ast.Load):
                inside = [s for s in ast.walk(self.tree) if isinstance(s, ast.Subscript) and s.value is node]
                if any(isinstance(s.ctx, ast.Load) for s in inside):
                    return True
        return parameter in self.k.plan.whole


def _within(inner: Span, outer: Span) -> bool:
    starts = (outer.line, outer.col) <= (inner.line, inner.col)
    return starts and (inner.end_line, inner.end_col) <= (outer.end_line, outer.end_col)
