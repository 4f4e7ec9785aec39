"""Rows of a parameter that are read by numbers: `table[ids[i : i + 8], :]`, `x[start[p] : start[p] + 4]`.

Programs read the same rows, so that none of them can store the gradient of one. Each stores the cotangents of the rows
that it has read where their numbers stand, and the rule sums those with one number (`segment_sum`): in ascending order,
without atomics. Numbers that the kernel computes are stored beside them.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import cast

from tessera.compiler.frontend.backward.code import expression, name, number, operation
from tessera.compiler.frontend.backward.items import LoopStatement
from tessera.compiler.frontend.backward.places import ArrayAxis, Places, subscript, together
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.backward.statements import KernelReading
from tessera.compiler.frontend.kernel.tiles import tile_type
from tessera.compiler.frontend.kernel.values import Coordinate, Lanes, TileWindow, View, marks
from tessera.immutable import immutable
from tessera.language.dims import Expr

COMPUTED = "it reads at computed places, and not rows"


@immutable
class GatheredRows:
    """`numbers`: the parameter that says which rows, "" where `value` computes them. `place`: where they stand; `rest`:
    the other axes. `dims`: those of computed numbers, whose type is `dtype`. `window`: the block at that place, which
    other programs or steps read too."""

    table: str
    numbers: str
    place: tuple[ast.expr, ...]
    rest: tuple[ast.expr, ...]
    value: ast.expr | None = None
    dims: tuple[str, ...] = ()
    dtype: str = ""
    window: TileWindow | None = None

    def of(self, array: str) -> ast.Subscript:
        return subscript(array, (*self.place, *self.rest))

    def of_numbers(self, array: str) -> ast.Subscript:
        return subscript(array, self.place)


class Gathers:
    def __init__(self, rec: KernelRecord, reading: KernelReading, places: Places, tile: str) -> None:
        self.rec, self.reading, self.places, self.tile = rec, reading, places, tile

    def rows(self, node: ast.Subscript, around: list[LoopStatement]) -> GatheredRows:
        """What a read at computed places reads, under loops. Raises CompileError TS355 where it is not rows."""
        assert isinstance(node.value, ast.Name)
        rec = self.rec
        first, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        view = rec.k.views[node.value.id]
        if len(view.shape) != 1 + len(rest) or not all(isinstance(x, ast.Slice) for x in rest):
            raise rec.refused(node, COMPUTED)
        starts = [rec.value(x.lower) for x in cast("list[ast.Slice]", rest) if x.lower is not None]
        if any(isinstance(s, Expr) and rec.of_data(s) for s in starts):
            raise rec.refused(node, COMPUTED)
        walked = frozenset[str]().union(*(marks(s) for s in starts if isinstance(s, Expr)))
        if isinstance(first, ast.Slice):
            return self.computed(node, self.counted(node, first), rest, walked, around, self.length(node))
        tile = rec.tile(first)
        if tile is None or rec.rank(first) > 1 or not tile_type(tile).dtype.is_integer:
            raise rec.refused(node, "which rows it reads is not said by whole numbers along one axis")
        block, parameters = self.block_of(first), {p.name for p in rec.k.arguments}
        if isinstance(block, ast.Subscript) and isinstance(block.value, ast.Name) and block.value.id in parameters:
            return self.said(node, block, rest, walked, around)
        return self.computed(node, first, rest, walked, around, None)

    def said(
        self,
        node: ast.Subscript,
        block: ast.Subscript,
        rest: list[ast.expr],
        walked: frozenset[str],
        around: list[LoopStatement],
    ) -> GatheredRows:
        """Rows whose numbers are a block of a parameter."""
        rec, at = self.rec, self.rec.window(block)
        assert isinstance(node.value, ast.Name) and isinstance(block.value, ast.Name) and at is not None
        own = block.slice.elts if isinstance(block.slice, ast.Tuple) else [block.slice]
        found = GatheredRows(node.value.id, block.value.id, (*own,), (*rest,))
        again = any(not (rec.apart(at, x.marks, x.counting.step) or x.marks & walked) for x in around)
        if rec.overlaps(at):
            raise rec.refused(node, f"programs read parts of {block.value.id} that overlap")
        if not again and all(str(c.offset) in walked for c in rec.shared(at)):
            return found
        if any(c.batch for c in rec.shared(at)):
            return self.computed(node, block, rest, walked, around, None)
        table, wide = rec.k.views[node.value.id], len(at.offsets)
        shape = rec.shape(node)
        starts = [0 if x.lower is None else rec.value(x.lower) for x in cast("list[ast.Slice]", rest)]
        view = replace(table, shape=(*at.view.shape, *table.shape[1:]))
        kept = (*at.kept, *range(wide, wide + len(rest)))
        sizes = (*at.sizes, *shape[len(shape) - len(rest) :])
        return replace(found, window=TileWindow(view, (*at.offsets, *starts), sizes, kept, rec.axes(node)))

    def computed(
        self,
        node: ast.Subscript,
        value: ast.expr,
        rest: list[ast.expr],
        walked: frozenset[str],
        around: list[LoopStatement],
        length: int | None,
    ) -> GatheredRows:
        """Rows whose numbers each program stores, in each step of its loops. `length`: how many, where the axes of
        `value` do not say it."""
        rec, k = self.rec, self.rec.k
        assert isinstance(node.value, ast.Name)
        axes = rec.axes(value) if length is None else ()
        own = frozenset[str]().union(*(o.walks for a in axes if isinstance(o := a.origin, Coordinate))) | walked
        found: list[ArrayAxis | None] = []
        for c in k.coordinates.grid:
            if c.batch or not c.walks & own:
                if not c.batch and k.tiles.known(c.step) != 1:
                    raise rec.refused(node, f"several programs read rows of {node.value.id} by the same numbers")
                found.append(self.places.of_program(c))
        for x in reversed(around):
            if not x.marks & own:
                known = k.tiles.known
                if known(x.counting.start) != 0 or known(x.counting.step) != 1:
                    raise rec.refused(node, f"steps of a loop read rows of {node.value.id} by the same numbers")
                assert isinstance(x.head.target, ast.Name)
                found.append(ArrayAxis(str(x.counting.stop), name(x.head.target.id)))
        found += [self.places.of_axis(a, n) for a, n in zip(axes, rec.shape(value), strict=True)] if axes else []
        found += [] if length is None else [ArrayAxis(str(length), ast.Slice())]
        laid = together(found)
        if laid is None or not laid[1]:
            raise rec.refused(
                node, f"where each program may store the numbers of its rows of {node.value.id} is not known"
            )
        dtype = "int32" if length is not None else rec.dtype(value).name
        return GatheredRows(node.value.id, "", laid[1], (*rest,), value, laid[0], dtype)

    def counted(self, node: ast.Subscript, block: ast.Slice) -> ast.expr:
        """The numbers of the rows of `x[start[p] : start[p] + 4]`."""
        if block.lower is None or block.step is not None:
            raise self.rec.refused(node, COMPUTED)
        arange = ast.Call(expression(f"{self.tile}.arange"), [number(0), number(self.length(node))], [])
        return operation("add", block.lower, arange)

    def length(self, node: ast.Subscript) -> int:
        window = self.rec.window(node)
        size = self.rec.k.tiles.known(window.sizes[0]) if window is not None else None
        if not isinstance(size, int):
            raise self.rec.refused(node, COMPUTED)
        return size

    def block_of(self, node: ast.expr) -> ast.expr:
        """The block of a parameter that a name stands for."""
        while isinstance(node, ast.Name) and (found := self.reading.definition(node.id)) is not None:
            node = found.value
        return node

    def own(self, node: ast.Subscript) -> bool:
        """Whether each lane reads in a line of its own: `x[i, label[i]]`."""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(isinstance(v := self.rec.value(i), Lanes) and v.launch is not None for i in index)


def is_gather(rec: KernelRecord, node: ast.expr) -> bool:
    """Whether an expression reads a parameter at places that are tiles."""
    if not isinstance(node, ast.Subscript) or not isinstance(rec.value(node.value), View):
        return False
    if rec.window(node) is not None:
        return False
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(rec.tile(i) is not None for i in index if not isinstance(i, ast.Slice))
