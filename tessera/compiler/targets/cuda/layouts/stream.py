"""Which ops of a block run in which pass over axes that are too long for registers.

A tile with such an axis exists only a chunk at a time. Loads and elementwise ops are repeated in every pass that needs
them; a reduction along the axis ends its pass, and what depends on its result runs in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cuda.layouts.groups import LayoutGrouping, TileLine, is_tile
from tessera.errors import Diagnostic, TargetError
from tessera.immutable import mutable

EFFECTS = ("tile.store", "tile.scatter")


@mutable
class ChunkPass:
    """One loop over the chunks of `line`: `nodes` inside, then the `folds` (reductions along it) are completed."""

    line: TileLine
    nodes: list[Op | ChunkPass]
    folds: list[Op] = field(default_factory=list[Op])


def lines_of(op: Op, grouping: LayoutGrouping) -> set[TileLine]:
    """The chunked axes of the tiles that `op` takes and gives."""
    tiles = [v for v in (*op.operands, *op.results) if is_tile(v)]
    return {line for v in tiles for line in grouping.of(v).lines if line.chunk is not None}


def folded_line(op: Op, grouping: LayoutGrouping) -> TileLine | None:
    """The chunked axis that a reduction runs along."""
    if op.name != "tile.reduce" or not is_tile(op.operands[0]):
        return None
    row, col = grouping.of(op.operands[0]).lines
    axis = grouping.reduced(op)
    if axis == "all":
        both = [line for line in (row, col) if line.chunk is not None]
        if len(both) > 1:
            refuse(op, "reduces two axes at once that are both too long for registers")
        return both[0] if both else None
    line = col if axis == 1 else row if axis == 0 else None
    if axis == "other" and lines_of(op, grouping):
        refuse(op, "reduces an axis in the middle of a tile that is too large for registers")
    return line if line is not None and line.chunk is not None else None


def refuse(op: Op, why: str) -> None:
    message = f"{op.name} {why}.\nUse a smaller tile, or fix its size so that it fits the registers of the block."
    raise TargetError(Diagnostic("TS602", message, op.span))


def plan(ops: Sequence[Op], grouping: LayoutGrouping) -> list[Op | ChunkPass]:
    """The ops in an order that walks every chunked axis chunk by chunk."""
    lines = list(dict.fromkeys(line for op in ops for line in sorted(lines_of(op, grouping), key=id)))
    for op in ops:
        if lines_of(op, grouping) and (op.regions or not grouping.streamable(op)):
            refuse(op, "needs the whole of a tile that is too large for registers")
    return _plan(list(ops), lines, grouping)


def _plan(ops: list[Op], lines: list[TileLine], grouping: LayoutGrouping) -> list[Op | ChunkPass]:
    if not lines:
        return list(ops)
    folded = {line for op in ops if (line := folded_line(op, grouping)) is not None}
    parallel = next((line for line in lines if line not in folded), None)
    if parallel is not None:
        inside = [op for op in ops if parallel in lines_of(op, grouping)]
        rest = [op for op in ops if op not in inside]
        if len(lines) == 1 or all(not lines_of(op, grouping) for op in rest):
            return _sequence(rest, inside, parallel, lines, grouping)
    return _passes(ops, parallel if len(lines) == 1 and parallel else _serial(lines, folded), lines, grouping)


def _serial(lines: list[TileLine], folded: set[TileLine]) -> TileLine:
    return next(line for line in lines if line in folded) if folded else lines[0]


def _sequence(
    rest: list[Op], inside: list[Op], line: TileLine, lines: list[TileLine], grouping: LayoutGrouping
) -> list[Op | ChunkPass]:
    """Nothing is folded along the axis: ops that do not run along it come first, if they do not depend on ops that
    do."""
    return [*rest, ChunkPass(line, _plan(inside, [x for x in lines if x is not line], grouping))]


def _passes(ops: list[Op], line: TileLine, lines: list[TileLine], grouping: LayoutGrouping) -> list[Op | ChunkPass]:
    level: dict[Op, int] = {}
    for op in ops:
        inputs = [v.op for v in op.operands if v.op is not None and v.op in level]
        level[op] = max((level[x] + (folded_line(x, grouping) is line) for x in inputs), default=0)
    _check_order(ops, level, line, grouping)
    out: list[Op | ChunkPass] = []
    others = [x for x in lines if x is not line]
    for n in range(max(level.values(), default=0) + 1):
        roots: list[Op] = []
        for op in ops:
            if level[op] != n:
                continue
            if line not in lines_of(op, grouping):
                out.append(op)
            elif op.name in EFFECTS or folded_line(op, grouping) is line:
                roots.append(op)
        if roots:
            needed = _needed(roots, line, grouping)
            body = [op for op in ops if op in needed]
            folds = [op for op in roots if op.name not in EFFECTS]
            out.append(ChunkPass(line, _plan(body, others, grouping) if others else list(body), folds))
    return out


def _needed(roots: list[Op], line: TileLine, grouping: LayoutGrouping) -> set[Op]:
    """The roots and everything along the axis that they are computed from."""
    found: set[Op] = set()
    stack = list(roots)
    while stack:
        op = stack.pop()
        if op in found:
            continue
        found.add(op)
        stack += [v.op for v in op.operands if _along(v, line, grouping) and v.op is not None]
    return found


def _along(v: Value, line: TileLine, grouping: LayoutGrouping) -> bool:
    return is_tile(v) and line in grouping.of(v).lines


def _check_order(ops: list[Op], level: dict[Op, int], line: TileLine, grouping: LayoutGrouping) -> None:
    """A load that a later pass repeats must not be moved behind a store that it preceded."""
    last = max(level.values(), default=0)
    for i, op in enumerate(ops):
        if op.name not in ("tile.load", "tile.gather") or line not in lines_of(op, grouping):
            continue
        for store in ops[i + 1 :]:
            if store.name not in EFFECTS or store.operands[0] is not op.operands[0] or level[store] >= last:
                continue
            if any(level[u] > level[store] for u in _users(op)):
                refuse(
                    op, "would be read again after it has been overwritten, because the tile is too large for registers"
                )


def _users(op: Op) -> set[Op]:
    found: set[Op] = set()
    stack = list(op.result.users)
    while stack:
        user = stack.pop()
        if user not in found:
            found.add(user)
            stack += [u for r in user.results for u in r.users]
    return found
