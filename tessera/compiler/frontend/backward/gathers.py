"""Rows of a parameter that are read by numbers: `table[ids[i : i + 8], :]`.

Programs read the same rows, so that none of them can store the gradient of one. Each stores the cotangents of the rows
that it has read where their numbers stand, and the rule sums those with one number (`segment_sum`): in ascending order,
without atomics.
"""

from __future__ import annotations

import ast
from typing import cast

from tessera.compiler.frontend.backward.code import name
from tessera.compiler.frontend.backward.items import LoopStatement
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.backward.statements import KernelReading
from tessera.compiler.frontend.kernel.tiles import tile_type
from tessera.compiler.frontend.kernel.values import View, marks
from tessera.compiler.frontend.syntax.trees import clone
from tessera.immutable import immutable
from tessera.language.dims import Expr


@immutable
class GatheredRows:
    """`numbers`: the parameter that says which rows. `place`: where it does, and the other axes."""

    table: str
    numbers: str
    place: ast.Tuple

    def of(self, array: str) -> ast.Subscript:
        return ast.Subscript(name(array), clone(self.place), ast.Load())


def gathered(
    rec: KernelRecord, reading: KernelReading, node: ast.Subscript, around: list[LoopStatement]
) -> GatheredRows:
    """What a read at computed places reads. Raises CompileError TS355 where it is not the rows of such numbers."""
    assert isinstance(node.value, ast.Name)
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    rest = index[1:]
    rows = _block_of(reading, index[0])
    at = rec.window(rows)
    if at is None or rec.rank(rows) > 1 or not all(isinstance(x, ast.Slice) for x in rest) or len(
        rec.k.views[node.value.id].shape
    ) != len(index):  # fmt: skip
        raise rec.refused(node, "it reads at computed places, and not rows whose numbers are a block of a parameter")
    assert isinstance(rows, ast.Subscript) and isinstance(rows.value, ast.Name)
    tile = rec.tile(rows)
    if rows.value.id not in {p.name for p in rec.k.arguments} or tile is None or tile_type(tile).dtype.is_float:
        raise rec.refused(node, "which rows it reads is not said by a parameter")
    starts = [rec.value(x.lower) for x in cast("list[ast.Slice]", rest) if x.lower is not None]
    walked = frozenset[str]().union(*(marks(s) for s in starts if isinstance(s, Expr)))
    if rec.overlaps(at) or any(str(c.offset) not in walked for c in rec.shared(at)):
        raise rec.refused(node, f"several programs read rows by the same places of {rows.value.id}")
    if any(not (rec.apart(at, x.marks, x.counting.step) or x.marks & walked) for x in around):
        raise rec.refused(node, f"steps of a loop read rows by the same places of {rows.value.id}")
    own = rows.slice.elts if isinstance(rows.slice, ast.Tuple) else [rows.slice]
    return GatheredRows(node.value.id, rows.value.id, ast.Tuple([*own, *rest], ast.Load()))


def _block_of(reading: KernelReading, node: ast.expr) -> ast.expr:
    """The block of a parameter that a name stands for."""
    while isinstance(node, ast.Name) and (found := reading.definition(node.id)) is not None:
        node = found.value
    return node


def is_gather(rec: KernelRecord, node: ast.expr) -> bool:
    """Whether an expression reads a parameter at places that are tiles."""
    if not isinstance(node, ast.Subscript) or not isinstance(rec.value(node.value), View):
        return False
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(rec.tile(i) is not None for i in index if not isinstance(i, ast.Slice))
