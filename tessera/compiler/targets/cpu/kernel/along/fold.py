"""`tile.fold`: elements along an axis, combined two at a time in memory by the function of its region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.elementary.convert import Pair
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.kernel.primitives import LoopElements
from tessera.compiler.targets.cpu.llvm.values import Index
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.language.order import pairs


@writes("fold")
def write_fold(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """The operands' elements are copied, and overwritten step by step. Axes behind the folded one are the inner loops,
    for there elements are neighbours in memory."""
    fn, c = k.fn, LoopElements(k)
    axis, prefixes = int(op.attrs["axis"]), bool(op.attrs.get("prefixes"))  # type: ignore[call-overload]
    shape = tuple(int(n) for n in shape_of(op.operands[0]))  # type: ignore[arg-type]
    cells: list[Cell] = []
    for v in op.operands:
        kept = held(dtype_of(v))
        cells.append(Cell(k.raw(prod(shape) * kept.itemsize), k.ev.packed_strides(shape), kept))
        writer.write(plan.copy(v, cells[-1]))

    def each(sizes: Sequence[int], do: Callable[[list[Index]], None]) -> None:
        def deeper(at: list[Index]) -> None:
            if len(at) == len(sizes):
                do(at)
                return
            with fn.loop(0, sizes[len(at)]) as loop:
                deeper([*at, loop.index])

        deeper([])

    def line(before: list[Index]) -> None:
        for first, apart, count in pairs(shape[axis], prefixes):
            with fn.loop(0, count) as pair:
                left = fn.add(fn.mul(pair.index, 2 * apart), first)
                right = fn.add(left, apart)
                target = right if prefixes else left
                each(
                    shape[axis + 1 :],
                    lambda rest, left=left, right=right, target=target: _combine(
                        k, c, op, cells, *([*before, i, *rest] for i in (left, right, target))
                    ),
                )

    each(shape[:axis], line)
    for r, cell in zip(op.results, cells, strict=True):
        steps = cell.strides if prefixes else (*cell.strides[:axis], *cell.strides[axis + 1 :])
        if steps:
            k.ev.cells[r] = Cell(cell.ptr, steps, cell.dtype)
            continue
        floor, k.ev.mem.floor = k.ev.mem.floor, fn.depth
        found = c.read(cell, [0] * len(shape)).value
        k.set_registers(r, [found.re, found.im] if isinstance(found, Pair) else [found])
        k.ev.mem.floor = floor


def _combine(
    k: KernelFunction,
    c: LoopElements,
    op: Op,
    cells: Sequence[Cell],
    left: list[Index],
    right: list[Index],
    target: list[Index],
) -> None:
    """Elements at two places of each operand become one, at one of the places."""
    ev, block = k.ev, op.region.block
    floor, ev.mem.floor = ev.mem.floor, k.fn.depth
    ev.memo = {}
    read = [c.read(cell, at).value for at in (left, right) for cell in cells]
    for arg, x in zip(block.args, read, strict=True):
        k.set_registers(arg, [x.re, x.im] if isinstance(x, Pair) else [x])
    found = [ev.element(v, ()) for v in block.terminator.operands]
    for cell, x in zip(cells, found, strict=True):
        k.ev.mem.store(x, c.address(cell, target), cell.dtype, 0, 1, None)
    ev.memo = {}
    ev.mem.floor = floor
