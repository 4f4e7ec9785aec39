"""What the loops of a kernel ask memory for before they read it.

A kernel of rows reads a row from memory once, and then works on it in a cache. Processors foresee reads that follow
each other, but not beyond a loop: while the later loops run, memory rests. So the loop that reads a row first asks for
the next one, or the loop after it does where it computes so much that it has time for that; of several arrays each of
the two asks for half, so that memory rests during neither. A last loop that stores past the caches asks for what lies
further on in what it reads itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.loops.elements import Coords
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.targets.cpu.loops.prefetch import LINE, GatheredPrefetch, GatheredRow, Prefetch
from tessera.compiler.tile.loops.axes import known_index, shape_of
from tessera.compiler.tile.loops.stages import Nest, memory_of, unit_axes
from tessera.language.dims import Dim, prod

AHEAD = 1 << 12
"""bytes from a row to the one that is asked for meanwhile, or one row where that is more"""
FURTHER = 1 << 10
"""bytes to what is asked for in a loop that stores past the caches: the processor itself looks further"""
NEAR, LONGEST = 1 << 12, 1 << 18
"""bytes of rows below which they go into the first-level cache, and up to which they are asked for at all"""
SHARED = 1 << 14
"""bytes of rows from which on two loops share what is asked for: the second one reads them in another cache"""
PIECE, APART = 1 << 10, 2
"""bytes of a piece of a row from which on the processor foresees its end, and elements from one to the next in it"""
HEAVY = 3
"""vector instructions from which on a loop computes so much: more than a sum of what is read"""
LONG = 8
"""the same for a loop during which memory rests, though no row is stored"""


def prefetches(body: NestBody, before: Sequence[NestBody], after: Nest | None) -> list[Prefetch | GatheredPrefetch]:
    """What the vector loop of `body` asks for. In each turn of the outer loops, the loops of `before` run before it,
    and that of `after` next."""
    vector = body.nest.vector
    if vector is None or body.nest.reduced not in (None, vector):
        return []
    found: list[Prefetch | GatheredPrefetch] = list(_gathered_rows(body, before, vector))
    if (before or after is not None) and not _memory_rests(body, vector):
        return found
    if not before and after is None:
        found += _rows_in_pieces(body, vector)
    seen = {op for b in before for op, _ in b.accesses}
    fresh = [(op, coords) for op, coords in _large_loads(body, vector) if op not in seen]
    if after is None:
        found += [r for op, coords in fresh if (r := _further_on(op, coords))] if body.streamed() else []
    else:
        found += _next_rows(body, fresh, vector, _FIRST if _leaves_it(body, after) else _ALL)
    if before and _leaves_it(before[-1], body.nest):
        seen = {op for b in before[:-1] for op, _ in b.accesses}
        loads = [(op, coords) for op, coords in _large_loads(before[-1], vector) if op not in seen]
        found += _next_rows(before[-1], loads, vector, _SECOND)
    return found


def _memory_rests(body: NestBody, vector: int) -> bool:
    """Whether a loop of the group stores along `vector` or computes much. Other loops are over before the processor,
    which foresees reads that follow each other, has all that it foresaw."""
    for nest in body.group.nests:
        stores = any(r.op is not None and r.op.name == "tile.store" and vector in r.classes for r in nest.roots)
        if nest.vector == vector and (stores or body.plan.work(nest) >= LONG):
            return True
    return False


def _leaves_it(body: NestBody, after: Nest) -> bool:
    """Whether the next loop, which computes more and reads less, asks for the rows after those that `body` reads."""
    return after.vector == body.nest.vector and after.reduced in (None, after.vector) and body.plan.work(after) >= HEAVY


def _large_loads(body: NestBody, vector: int) -> Iterator[tuple[Op, Coords]]:
    """The loads of contiguous vectors from arrays that are known to be too large to stay in the caches."""
    for op, coords in body.accesses:
        plain = op.name == "tile.load" and not op.attrs.get("masked") and _is_large(op, body)
        if plain and any(coords[a] == vector for a in unit_axes(op.operands[0])):
            yield op, coords


def _is_large(op: Op, body: NestBody) -> bool:
    size = _bytes(op)
    return isinstance(size, int) and size > body.ev.isa.cached_bytes


def _bytes(op: Op) -> Dim:
    """The size of the array that a load or a gather reads."""
    t = memory_of(op.operands[0]).type
    assert isinstance(t, ViewType)
    return prod(t.shape) * t.dtype.itemsize


def rows_of_sums(body: NestBody, vector: int) -> list[GatheredRow]:
    """The rows that a nest gathers from a large array and adds up: it asks for each a few rows before."""
    found: list[GatheredRow] = []
    for op, coords in body.gathers:
        outer = [c for c in coords if c in body.group.outer and c in body.ev.within]
        if vector in coords and body.nest.reduced in coords and not op.attrs.get("masked") and _is_far(op, body):
            found.append(GatheredRow(op, coords, outer[-1] if outer else None, 1))
    return found


def _is_far(op: Op, body: NestBody) -> bool:
    """Whether rows anywhere in the array are likely in no cache of the core's own: the processor foresees none."""
    size = _bytes(op)
    return not isinstance(size, int) or size > body.ev.isa.own_bytes


def _gathered_rows(body: NestBody, before: Sequence[NestBody], vector: int) -> Iterator[GatheredPrefetch]:
    """The next of the rows that are gathered from a large array, anywhere in it. Stores past the caches wait for the
    same buffers as what goes into the first-level cache."""
    extent = body.plan.extents[vector]
    near = 0 if body.streamed() else NEAR
    seen = {op for b in before for op, _ in b.gathers}
    for op, coords in body.gathers:
        size = extent * dtype_of(op.result).itemsize
        outer = [c for c in coords if c in body.group.outer and c in body.ev.within]
        if op in seen or not outer or vector not in coords or op.attrs.get("masked") or not _is_far(op, body):
            continue
        if isinstance(size, int) and 0 < size <= LONGEST:
            yield GatheredPrefetch(op, coords, outer[-1], -(-AHEAD // size), 1 if size < near else 2)


_ALL, _FIRST, _SECOND = (0, 2), (0, 1), (1, 2)
"""which halves of the arrays a loop asks for: from one to the other"""


def _next_rows(
    body: NestBody, loads: list[tuple[Op, Coords]], vector: int, halves: tuple[int, int]
) -> Iterator[Prefetch]:
    """The rows after those that `body` loads along `vector`, where their length is known."""
    extent = body.plan.extents[vector]
    rows = [(op, coords, axis) for op, coords in loads if (axis := _axis_of_rows(op, coords, vector, body)) is not None]
    if not isinstance(extent, int):
        return
    sizes = [extent * dtype_of(op.result).itemsize for op, _, _ in rows]
    if max(sizes, default=0) <= LONGEST:
        level = 1 if sum(sizes) < NEAR else 2
        if sum(sizes) < SHARED:
            halves = (0, 0) if halves == _FIRST else _ALL
        asked = slice(*(half * len(rows) // 2 for half in halves))
        for (op, coords, axis), size in zip(rows[asked], sizes[asked], strict=True):
            yield Prefetch(op, coords, axis, -(-AHEAD // size), level)


def _rows_in_pieces(body: NestBody, vector: int) -> Iterator[Prefetch]:
    """The row after one of which short pieces are read side by side, as by a pass of a Fourier transform: where each
    goes on, and that another row follows, is not foreseen. What lies in one line is asked for once."""
    ev, extent, asked = body.ev, body.plan.extents[vector], set[tuple[object, ...]]()
    for op, coords in body.accesses:
        view = op.operands[0]
        if op.name != "tile.load" or op.attrs.get("masked") or memory_of(view) not in ev.far or vector not in coords:
            continue
        steps, size = ev.view_strides(view), dtype_of(op.result).itemsize
        step, axis = steps[coords.index(vector)], _axis_of_rows(op, coords, vector, body)
        if not isinstance(extent, int) or not isinstance(step, int) or axis is None or coords[axis] is None:
            continue
        t = view.type
        assert isinstance(t, ViewType)
        pieces = [i for i, c, d in zip(op.operands[1:], coords, t.shape, strict=False) if c is None and d != 1]
        if not 0 < step <= APART or extent * step * size >= PIECE or not pieces:
            continue
        first, apart = ev.beside.get(view, (view, 0))
        line = (first, apart * size // LINE, *map(known_index, pieces))
        if line not in asked:
            asked.add(line)
            yield Prefetch(op, coords, axis, 1, 2)


def _axis_of_rows(op: Op, coords: Coords, vector: int, body: NestBody) -> int | None:
    """The axis of a load's view along which the next row follows."""
    t = op.operands[0].type
    assert isinstance(t, ViewType)
    axes = [a for a, c in enumerate(coords) if c != vector and t.shape[a] != 1]
    return axes[-1] if axes and not any(c in body.inner for c in coords if c != vector) else None


def _further_on(op: Op, coords: Coords) -> Prefetch | None:
    """The elements further on in memory that all programs together read from one end to the other."""
    view = op.operands[0]
    t, shape = view.type, shape_of(op.result)
    assert isinstance(t, ViewType)
    long = [a for a, d in enumerate(shape) if d != 1]
    if t.strides is not None or memory_of(view) is not view or any(shape[a] != t.shape[a] for a in long[1:]):
        return None
    return Prefetch(op, coords, long[-1], FURTHER // dtype_of(op.result).itemsize, 1)
