"""How many rows a map computes at a time: several where they read the same rows, as steps of stencils do.

A row that lies between others is then read once for all of them, and is in a register when the next ones need it. One
row after the other would read each again for each neighbour, from the second-level cache if rows are long.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.llvm.values import Index, text
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.tile.loops.axes import AxisId

MOST = 4
"""rows at a time: of five points they read 14 vectors, not 20"""
DEAREST = 20
"""vector instructions of one row from which on reading is little beside computing"""


def rows_at_a_time(body: NestBody, along: AxisId, extent: Index) -> int:
    """How many rows, which follow each other on axis `along`, are computed together; 1 where none shares what it reads.

    `extent`: how far the axis runs. All rows have to be inside their views there, as nothing else is tested for all.
    """
    vector = body.nest.vector
    if along is None or vector is None or body.reductions or body.gathers or body.kept:
        return 1
    if body.inner != [vector] or body.nest.also or body.price() > DEAREST or not _inside(body, along, extent):
        return 1
    if body.streamed() or not _shared(body, along, vector):  # memory takes the lines of one row after the other faster
        return 1
    return MOST


def _inside(body: NestBody, along: int, extent: Index) -> bool:
    """Whether no row up to the extent leaves a view."""
    for op, coords in body.accesses:
        for c, (lo, hi) in zip(coords, body.ev.extents(op), strict=True):
            if c == along and (lo is not None or (hi is not None and text(hi) != text(extent))):
                return False
    return True


def _shared(body: NestBody, along: int, vector: int) -> bool:
    """Whether rows of two loads, which are up to `MOST` rows apart, are the same memory."""
    ev, places = body.ev, dict[object, list[int]]()
    for op, coords in body.accesses:
        view = op.operands[0]
        if op.name != "tile.load" or view not in ev.beside or not {along, vector} <= set(coords):
            continue
        first, apart = ev.beside[view]
        steps = ev.view_strides(view)
        step = steps[coords.index(along)]
        if not isinstance(step, int) or step == 0 or steps[coords.index(vector)] != 1 or not ev.unchanging(view):
            continue
        for other in places.setdefault((first, step), []):
            if apart != other and (apart - other) % step == 0 and abs((apart - other) // step) < MOST:
                return True
        places[first, step].append(apart)
    return False
