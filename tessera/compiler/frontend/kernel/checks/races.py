"""Whether programs store to the same elements: every coordinate of the grid has to show in the place of each store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from tessera.compiler.frontend.kernel.access import Stored
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.values import Coordinate, TileWindow, marks, size_text
from tessera.compiler.ir.core import Op, Value
from tessera.language.dims import Dim, Expr, at_most, substitute


def check_races(k: KernelState) -> None:
    """Every grid axis must show in the place of every store; an outermost range that does not is a serial loop."""
    for stored, c, how in races(k):
        if c is k.speculated:
            k.retry = True
            return
        name, along = stored.view.name, "a leading axis" if c.batch else c.name
        where = f"programs along {along}" + (f" ({size_text(c.extent)})" if c.extent is not None else "")
        own = "ts.tile.each()" if c.batch else c.name
        if how == "same":
            one = "" if c.batch else f", store it in one of them (if {c.name} == 0:)"
            message = (
                f"all {where} store to the same place of {name}; index it with {own}{one}, or reduce over it in a loop"
            )
        elif how == "overlap":
            message = f"{where} store blocks of {name} that overlap; make them as wide as the step between programs"
        else:
            message = (
                f"programs {how} {where.removeprefix('programs ')} store to the same elements of {name}; "
                f"index it with {own}, or reduce over them in a loop"
            )
        k.ev.error("TS406", message, stored.span)
        return
    for first, second, c in crossings(k):
        if c is k.speculated:
            k.retry = True
            return
        message = (
            f"programs along {c.name} store to elements of {second.view.name} that others store to in line "
            f"{first.span.line}; give each of the two stores a tensor of its own, or loop over {c.name} with range_k"
        )
        k.ev.error("TS406", message, second.span)


def crossings(k: KernelState) -> Iterator[tuple[Stored, Stored, Coordinate]]:
    """Two stores to one tensor, of blocks that surely meet in different programs along a grid axis: `d_x[i - 1] = a`
    and `d_x[i] = b`. Which of the two stays would depend on which program is first."""
    whole = [s for s in k.memory.stores
             if s.window is not None and up_to_the_end(s.window.mask) and not conditional(s.op)]  # fmt: skip
    for n, second in enumerate(whole):
        for first in whole[:n]:
            if first.view.argument != second.view.argument or "across" in first.op.attrs or "across" in second.op.attrs:
                continue
            for c in k.coordinates.grid:
                if _cross(k, first.window, second.window, c):
                    yield first, second, c


def up_to_the_end(mask: Value | None) -> bool:
    """Whether a mask leaves out what lies behind the end of a tensor, and nothing else."""
    if mask is None:
        return True
    op = mask.op
    if op is None or op.name not in ("tile.lt", "tile.logical_and"):
        return False
    if op.name == "tile.logical_and":
        return all(map(up_to_the_end, op.operands))
    return len(op.operands) > 1 and _of_size(op.operands[1])  # else a number that the op holds


def _of_size(v: Value) -> bool:
    while v.op is not None and v.op.name in ("tile.broadcast", "tile.to_scalar"):
        v = v.op.operands[0]
    return v.op is not None and v.op.name == "tile.dim"


def conditional(op: Op) -> bool:
    block = op.block
    while block is not None and block.region is not None and (outer := block.region.op) is not None:
        if outer.name == "tile.if":
            return True
        block = outer.block
    return False


def _cross(k: KernelState, a: TileWindow | None, b: TileWindow | None, c: Coordinate) -> bool:
    """Whether the block that one store has in a program is in part that of the other in another program along `c`."""
    known, mark = k.tiles.known, str(c.offset)
    step = known(c.step)
    if a is None or b is None or not isinstance(step, int) or known(k.coordinates.count(c)) == 1:
        return False
    axes: list[tuple[int, int, int, int]] = []
    for x, y, m, n in zip(a.offsets, b.offsets, map(known, a.sizes), map(known, b.sizes), strict=True):
        (stride, start), (other, end) = (_along(o, mark) for o in (x, y))
        apart = end - start
        if x == y and m == n and not stride:
            continue  # the same place in all programs along `c`, whatever its size
        if stride is None or stride != other or not all(isinstance(v, int) for v in (apart, m, n)):
            return False
        axes.append((stride * step, cast(int, apart), cast(int, m), cast(int, n)))
    if not any(per for per, *_ in axes):
        return False  # found where each store is looked at alone
    farthest = max((abs(apart) + max(m, n)) // per + 1 for per, apart, m, n in axes if per > 0) if axes else 0
    return any(
        all(-n < apart + other * per < m for per, apart, m, n in axes)
        for other in range(-farthest, farthest + 1)
        if other
    )


def _along(offset: Dim, mark: str) -> tuple[int | None, Dim]:
    """`offset` as stride * mark + rest; stride None where it is not a constant."""
    if not isinstance(offset, Expr) or mark not in marks(offset):
        return 0, offset
    return linear(offset, mark)


def races(k: KernelState) -> Iterator[tuple[Stored, Coordinate, str]]:
    """Stores with which programs along one grid axis get into each other's way: (store, the axis' coordinate,
    how): see `conflict` and `_meeting`."""
    for s in k.memory.stores:
        for c in k.coordinates.grid:
            how = (conflict(k, s.window, c) or _meeting(k, s.window, c)) if s.window is not None else ""
            if how == "same" and ("across" in s.op.attrs or _in_one_program(k, s.op, c)):
                continue
            if how:
                yield s, c, how


def conflict(k: KernelState, window: TileWindow, c: Coordinate) -> str:
    """Whether programs along a grid axis have the "same" block, or blocks that "overlap"; "" where neither is so."""
    if k.tiles.known(k.coordinates.count(c)) == 1:
        return ""
    mark = str(c.offset)
    along = [a for a, offset in enumerate(window.offsets) if mark in marks(offset)]
    if not along:
        return "" if any(k.coordinates.decides(c, offset) for offset in window.offsets) else "same"
    return "overlap" if all(_overlap(k, c, window.offsets[a], window.sizes[a]) for a in along) else ""


def _overlap(k: KernelState, c: Coordinate, offset: Dim, size: Dim) -> bool:
    """Whether blocks of `size` that start a step of `c` apart share elements."""
    if not isinstance(offset, Expr):
        return False
    stride, _ = linear(offset, str(c.offset))
    step = k.tiles.known(c.step)
    return stride is not None and isinstance(step, int) and isinstance(size, int) and size > stride * step > 0


def _meeting(k: KernelState, window: TileWindow, c: Coordinate) -> str:
    """Two programs along a grid axis that store to one element: `h // 2` and `h % 8` come to the same places again."""
    mark, step, count = str(c.offset), k.tiles.known(c.step), k.tiles.known(k.coordinates.count(c))
    along = [(o, size) for o, size in zip(window.offsets, window.sizes, strict=True) if mark in marks(o)]
    for other in (1, *sorted({n for offset, _ in along for n in _divisors(offset)})):
        ways = [
            (substitute(offset, {mark: step * other}) - substitute(offset, {mark: 0}), size) for offset, size in along
        ]
        near = [way == 0 or (isinstance(way, int) and isinstance(n, int) and abs(way) < n) for way, n in ways]
        if along and all(near) and not at_most(count, other):
            return f"0 and {other}"
    return ""


def _divisors(d: Any) -> Iterator[int]:
    """Constants that parts of a place are taken modulo."""
    for monomial, _ in d.terms if isinstance(d, Expr) else ():
        for atom in monomial:
            if atom.op != "sym":
                of, by = atom.args
                yield from (by,) if atom.op == "%" and isinstance(by, int) else ()
                yield from (*_divisors(of), *_divisors(by))


def _in_one_program(k: KernelState, store: Op, c: Coordinate) -> bool:
    """Whether the store stands in an `if p == 0:`, which holds for one value of the coordinate at most."""
    block = store.block
    while block is not None and block.region is not None and (op := block.region.op) is not None:
        if op.name == "tile.if" and op.regions[0] is block.region and _holds_once(k, op.operands[0], c):
            return True
        block = op.block
    return False


def _holds_once(k: KernelState, condition: Value, c: Coordinate) -> bool:
    op = condition.op
    if op is None:
        return False
    if op.name == "tile.logical_and":
        return any(_holds_once(k, v, c) for v in op.operands)
    if op.name != "tile.eq":
        return False
    a, b = op.operands
    return (_one_to_one(k, a, c) and _fixed(b)) or (_one_to_one(k, b, c) and _fixed(a))


def _one_to_one(k: KernelState, v: Value, c: Coordinate) -> bool:
    """Whether a number is another one for each program along `c`: its index times a number, or displaced."""
    op = v.op
    if op is None or op is k.coordinates.counted(c):
        return op is not None
    if op.name == "tile.imul":  # steps of a grid are positive
        return any(_one_to_one(k, x, c) and _positive(y) for x, y in (op.operands, op.operands[::-1]))
    if op.name in ("tile.iadd", "tile.isub"):
        return any(_one_to_one(k, x, c) and _fixed(y) for x, y in (op.operands, op.operands[::-1]))
    return op.name == "tile.to_scalar" and _one_to_one(k, op.operands[0], c)


def _positive(v: Value) -> bool:
    dim = v.op.attrs["dim"] if v.op is not None and v.op.name == "tile.dim" else 0
    return isinstance(dim, int) and dim > 0


def _fixed(v: Value) -> bool:
    """Whether a number is the same in all programs: computed from sizes and constants."""
    if v.op is None or v.op.name in ("tile.program_id", "tile.load", "tile.gather"):
        return False
    return v.op.name in ("tile.constant", "tile.dim") or (bool(v.op.operands) and all(map(_fixed, v.op.operands)))
