"""Tile records: a variant of each kernel that notes when every program ran, on which worker.

A record is four i64: launch << 40 | program, phase, first tick, last tick of the time-stamp counter. Each worker has a
region of its own: a count on one cache line, then the records; what does not fit is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tessera.compiler.targets.cpu.emit import Function
from tessera.compiler.targets.cpu.frame import RECORD_CAPACITY, RECORD_STRIDE, RECORDS
from tessera.compiler.targets.cpu.values import I64, PTR, Index, Val

if TYPE_CHECKING:
    from tessera.compiler.targets.cpu.kernel import KernelFunction

RECORD_BYTES = 32
HEADER_BYTES = 64
LAUNCH_SHIFT = 40


class Recording:
    """Writes profiled kernels; `phases` names what the records' phase numbers mean."""

    def __init__(self) -> None:
        self.phases: list[str] = ["tile"]

    def write(self, kernel: KernelFunction, launch: int, name: str) -> None:
        fn = kernel.fn
        region = self._region(kernel)

        def around(program: Index, body: Callable[[], None]) -> None:
            start = tick(fn)
            body()
            self._store(fn, region, fn.add(program, launch << LAUNCH_SHIFT), 0, start, tick(fn))

        kernel.write(around)

    def _region(self, kernel: KernelFunction) -> tuple[Val, Val]:
        fn, frame = kernel.fn, kernel.fn.param(0)
        base = kernel.frame.load_slot(fn, frame, RECORDS, PTR)
        stride = kernel.frame.load_slot(fn, frame, RECORD_STRIDE, I64)
        capacity = kernel.frame.load_slot(fn, frame, RECORD_CAPACITY, I64)
        return fn.gep(base, fn.mul(fn.param(3), stride), "i8"), capacity

    def _store(self, fn: Function, region: tuple[Val, Val], tile: Index, phase: int, start: Val, end: Val) -> None:
        base, capacity = region
        at = fn.load(fn.here(base), I64)
        with fn.when(fn.icmp("slt", at, capacity)):
            p = fn.gep(base, fn.add(fn.mul(at, RECORD_BYTES), HEADER_BYTES), "i8")
            for i, v in enumerate((fn.index(tile), fn.index(phase), start, end)):
                fn.store(v, fn.gep(p, i, "i64"))
            fn.store(fn.index(fn.add(at, 1)), base)


def tick(fn: Function) -> Val:
    fn.module.declare("declare i64 @llvm.readcyclecounter()")
    return fn.effect("call i64 @llvm.readcyclecounter()", I64)
