"""Values that take over the scratch memory of one that nobody reads any more.

Softmax of a block of scores, for example, is three matrices: the products, the scores, the weights. In one place they
stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.compiler.ir.core import Value
from tessera.compiler.targets.cpu.loops.elements import ElementEmitter
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import held
from tessera.compiler.tile.loops.axes import LAZY, AxisId, moves, operand_coords, shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import LoopGroup, Nest

Coords = tuple[AxisId, ...]


def replaced(v: Value, nest: Nest, group: LoopGroup, plan: Planner, ev: ElementEmitter) -> Value | None:
    """A value whose memory `v`, which `nest` keeps, may take: it has the same form, nobody reads it after this nest,
    which reads each of its elements only where that of `v` is computed."""
    place = plan.spaces.of(v)
    if len(shape_of(v)) != 2 or None in place:
        return None
    for u in {u: None for u, _ in _reads(v, place, ev, top=True)}:
        cell = ev.cells[u]
        alike = shape_of(u) == shape_of(v) and cell.dtype == held(dtype_of(v)) and cell.strides[-1] == 1
        if alike and cell.strides[0] and u not in ev.replaced and _ends(u, place, nest, group, plan, ev):
            return u
    return None


def _ends(u: Value, place: Coords, nest: Nest, group: LoopGroup, plan: Planner, ev: ElementEmitter) -> bool:
    """Whether `nest` is the last one to read `u`, and reads it at `place` alone."""
    if u.op is None or u.op.block is not plan.block:
        return False
    kept = [r.value for r in nest.roots if r.op is None] + nest.also
    own = [(r.value, r.classes) for r in nest.roots if r.op is not None] + [(v, plan.spaces.of(v)) for v in kept]
    places = {at for v, classes in own for x, at in _reads(v, classes, ev, v in kept) if x is u}
    return places == {place} and _readers_until(nest, group, plan).issuperset(plan.users(u))


def _readers_until(nest: Nest, group: LoopGroup, plan: Planner) -> set[object]:
    """What has been computed once `nest` is done: roots, kept values and other ops."""
    before = plan.stages[: plan.stages.index(group)]
    nests = [n for stage in before if isinstance(stage, LoopGroup) for n in stage.nests]
    nests += [nest] if group.outer else group.nests[: group.nests.index(nest) + 1]
    return {*before, *(r.op or r.value for n in nests for r in n.roots), *(v for n in nests for v in n.also)}


def _reads(v: Value, coords: Coords, ev: ElementEmitter, top: bool) -> Iterator[tuple[Value, Coords]]:
    """The values in scratch memory from which an element of `v` is computed, and at which coordinates. `top`: `v` is
    not read but computed."""
    op = v.op
    if v in ev.cells and not top:
        yield v, coords
    elif op is not None and op.name in LAZY and not moves(op):
        for i, x in enumerate(op.operands):
            if shape_of(x):
                yield from _reads(x, operand_coords(op, i, coords), ev, top=False)
