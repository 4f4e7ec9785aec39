"""Tile records: a variant of each kernel that notes when every program ran, on which worker, phase by phase.

A record is four i64: launch << 40 | program, phase | line << 16, first and last tick of the time-stamp counter. Each
worker has a region of its own: a cache line with the counts of records written and of records that did not fit, then
the records.

Phases are the stages of the kernel's outermost block, neighbours of one kind taken together. A kernel of a single
stage, or of more than LIMIT phases (where the records would cost what they measure), has one phase, "tile".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.frame import RECORD_CAPACITY, RECORD_STRIDE, RECORDS
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import I64, PTR, Index, Val
from tessera.compiler.tile.loops.stages import LoopGroup, Stage

if TYPE_CHECKING:
    from tessera.compiler.targets.cpu.kernel.function import KernelFunction

RECORD_BYTES = 32
HEADER_BYTES = 64
LAUNCH_SHIFT = 40
LINE_SHIFT = 16
LIMIT = 4


class RecordWriter:
    """Writes profiled kernels; `phases` names what the records' phase numbers mean."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def write(self, kernel: KernelFunction, launch: int) -> None:
        fn = kernel.fn
        region = self._region(kernel)
        found: list[tuple[str, int]] = []
        ticks: list[Val] = []

        def planned(stages: Sequence[Stage]) -> Callable[[int], None]:
            starts = phases_of(stages, kernel.kernel.span.file)
            found[:] = list(starts.values())
            ticks.clear()

            def before(i: int) -> None:
                if i in starts and i:
                    ticks.append(tick(fn))

            return before

        def around(program: Index, body: Callable[[], None]) -> None:
            first = tick(fn)
            body()
            labels = found or [("tile", kernel.kernel.span.line)]
            whats = [self._number(phase) | line << LINE_SHIFT for phase, line in labels]
            store_records(fn, region, fn.add(program, launch << LAUNCH_SHIFT), whats, [first, *ticks, tick(fn)])

        kernel.planned = planned
        kernel.write(around)

    def _number(self, phase: str) -> int:
        if phase not in self.phases:
            self.phases.append(phase)
        return self.phases.index(phase)

    def _region(self, kernel: KernelFunction) -> tuple[Val, Val]:
        fn, frame = kernel.fn, kernel.fn.param(0)
        base = kernel.frame.load_slot(fn, frame, RECORDS, PTR)
        stride = kernel.frame.load_slot(fn, frame, RECORD_STRIDE, I64)
        capacity = kernel.frame.load_slot(fn, frame, RECORD_CAPACITY, I64)
        return fn.gep(base, fn.mul(fn.param(3), stride), "i8"), capacity


def store_records(
    fn: LLVMFunction, region: tuple[Val, Val], tile: Index, whats: Sequence[int], ticks: Sequence[Val]
) -> None:
    """Appends a record per phase to a worker's region (its address, and how many records it can hold)."""
    base, capacity = region
    at = fn.load(fn.here(base), I64)
    after = fn.add(at, len(whats))
    with fn.when(fn.icmp("sle", after, capacity)):
        p = fn.gep(base, fn.add(fn.mul(at, RECORD_BYTES), HEADER_BYTES), "i8")
        for i, what in enumerate(whats):
            for j, v in enumerate((fn.index(tile), fn.index(what), ticks[i], ticks[i + 1])):
                fn.store(v, fn.gep(p, 4 * i + j, "i64"))
        fn.store(fn.index(after), base)
    with fn.when(fn.icmp("sgt", after, capacity)):
        dropped = fn.gep(base, 1, "i64")
        fn.store(fn.index(fn.add(fn.load(fn.here(dropped), I64), len(whats))), dropped)


def phases_of(stages: Sequence[Stage], file: str) -> dict[int, tuple[str, int]]:
    """Phase and line of the kernel's file by the index of the stage that starts it, 0 for what stands in another file;
    empty for kernels that are one phase."""
    out: dict[int, tuple[str, int]] = {}
    last = ""
    for i, stage in enumerate(stages):
        name = stage.name[5:] if isinstance(stage, Op) else _kind(stage)
        if name != last:
            out[i] = name, _line(stage, file)
            last = name
    return out if 2 <= len(out) <= LIMIT else {}


def _kind(group: LoopGroup) -> str:
    ops = [r.op.name for n in group.nests for r in n.roots if r.op is not None]
    return "reduce" if "tile.reduce" in ops else "store" if ops else "compute"


def _line(stage: Stage, file: str) -> int:
    if isinstance(stage, Op):
        op = stage
    else:
        root = stage.nests[0].roots[0]
        op = root.op or root.value.op
    return op.span.line if op is not None and op.span.file == file else 0


def tick(fn: LLVMFunction) -> Val:
    fn.module.declare("declare i64 @llvm.readcyclecounter()")
    return fn.effect("call i64 @llvm.readcyclecounter()", I64)
