"""`tile.philox_part`: draws of 16 bits, of which eight elements in a row share a block of the generator."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.elementary.philox import philox
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.llvm.values import I64, Val, const, ty
from tessera.compiler.targets.cpu.loops.axes import shape_of
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Affine, Cell, Coord
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.targets.cpu.loops.plan import Planner

BLOCKS = 16
"""of the generator that are computed together"""
EACH = 8
"""elements that share a block"""
WORD = ty("i", 16)


@writes("philox_part")
def write_draws(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """Into scratch memory. Where numbers go up by one along the last axis, each block is computed once."""
    ev, fn, shape, classes = k.ev, k.fn, shape_of(op.result), plan.spaces.of(op.result)
    sizes = [int(d) for d in shape]  # type: ignore[call-overload]
    place = k.raw((prod(sizes) + BLOCKS * EACH) * 2)  # the last row is written beyond its end
    cell = ev.cells[op.result] = Cell(place, ev.packed_strides(shape), dtype_of(op.result))
    last, saved, memo = classes[-1] if classes else None, dict(ev.env), ev.memo
    floor, ev.mem.floor = ev.mem.floor, fn.depth

    def number() -> tuple[Val, Val]:
        ev.memo = {}
        found = [ev.element(v, classes) for v in op.operands]
        assert isinstance(found[0], Val) and isinstance(found[1], Val)
        return found[0], found[1]

    def line() -> None:
        if last is None:
            _alone(k, cell, classes, *number())
            return
        ev.env[last] = Coord(0, 0, 2)
        if isinstance(number()[0], Affine):
            blocks = min(BLOCKS, 1 << (-(-(sizes[-1] + EACH - 1) // EACH) - 1).bit_length())
            blocks = max(blocks, 2)
            with fn.loop(0, sizes[-1], EACH * (blocks - 1)) as loop:
                ev.env[last] = Coord(loop.index)
                _shared(k, cell, classes, blocks, *number())
            return
        with fn.loop(0, sizes[-1]) as loop:
            ev.env[last] = Coord(loop.index)
            _alone(k, cell, classes, *number())

    def rows(axis: int, do: Callable[[], None]) -> None:
        if axis == len(sizes) - 1 or not sizes:
            do()
        elif (c := classes[axis]) is None:
            rows(axis + 1, do)
        else:
            with fn.loop(0, sizes[axis]) as loop:
                ev.env[c] = Coord(loop.index)
                rows(axis + 1, do)

    rows(0, line)
    ev.env, ev.memo, ev.mem.floor = saved, memo, floor


def _shared(k: KernelFunction, cell: Cell, classes: tuple[int | None, ...], blocks: int, first: Val, key: Val) -> None:
    """The draws of elements `first` to first + 8 (blocks - 1) - 1, which need not begin a block."""
    fn, lanes = k.fn, I64.wide(blocks)
    counters = fn.binary("add", fn.splat(fn.binary("lshr", first, const(3, I64)), blocks), fn.lane_numbers(lanes))
    low, high = philox(fn, counters, key)
    turns = [i // 2 + (i % 2) * blocks for i in range(2 * blocks)]
    drawn = fn.alloca("i64", 2 * blocks)
    fn.store(fn.shuffle(low, high, turns), drawn, 8)
    begin = fn.gep(drawn, fn.binary("and", first, const(7, I64)), "i16")
    t = WORD.wide(EACH * (blocks - 1))
    found = fn.effect(f"load {t.text}, ptr {begin.ref}, align 2", t)
    fn.store(found, _place(k, cell, classes), 2)


def _alone(k: KernelFunction, cell: Cell, classes: tuple[int | None, ...], number: Val, key: Val) -> None:
    """The draw of one element."""
    fn = k.fn
    low, high = philox(fn, fn.binary("lshr", number, const(3, I64)), key)
    half = fn.compare("icmp ne", fn.binary("and", number, const(4, I64)), const(0, I64))
    turn = fn.binary("shl", fn.binary("and", number, const(3, I64)), const(4, I64))
    found = fn.convert("trunc", fn.binary("lshr", fn.select(half, high, low), turn), WORD)
    fn.store(found, _place(k, cell, classes), 2)


def _place(k: KernelFunction, cell: Cell, classes: tuple[int | None, ...]) -> Val:
    coords = [k.ev.coord(c) for c in classes]
    return k.ev.mem.address(cell.ptr, cell.dtype, coords, cell.strides)[0]
