"""Launches of kernels that are the same code, as rows of a table that `run` walks through.

A model of many layers makes hundreds of launches. Each would be a function that LLVM compiles in half a millisecond.
A row says which code runs how many programs, and where in the frame the addresses of its arrays are::

    code, programs, grain, arrays, then for each array: slot, bytes from there

The code gets them behind the frame, in memory that the rows share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.frame import POOL, RUN, FrameLayout
from tessera.compiler.targets.cpu.kernel.function import PARAMS, QUICK, KernelFunction
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule, SpanLine
from tessera.compiler.targets.cpu.llvm.values import I64, PTR, Val
from tessera.compiler.tile.program import BufferArg, Launch, Step
from tessera.immutable import mutable

HEAD = 4
"""numbers of a row before those of its arrays"""


@mutable
class Row:
    """`grain`: how many programs a worker takes at a time."""

    name: str
    launch: Launch
    code: KernelFunction
    programs: int
    grain: int

    @property
    def arrays(self) -> list[BufferArg]:
        return [a for a in self.launch.args if isinstance(a, BufferArg)]

    def numbers(self, frame: FrameLayout, code: int) -> list[int]:
        """The row itself, with the number of its code."""
        found = [code, self.programs, self.grain, len(self.arrays)]
        for arg, given in zip(self.launch.code.region.block.args, self.launch.args, strict=True):
            if isinstance(given, BufferArg):
                assert isinstance(arg.type, ViewType) and isinstance(given.offset, int)
                found += [frame.buffer_slot(given.buffer), given.offset * arg.type.dtype.itemsize]
        return found


@mutable
class LaunchTable:
    """`rows`: of the launches that have one, by their id. `order`: the rows in the order in which `run` reads them."""

    module: LLVMModule
    frame: FrameLayout
    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    order: list[Row] = field(default_factory=list[Row])
    codes: dict[str, int] = field(default_factory=dict[str, int])
    """the numbers of functions, by name"""
    size: int = 0
    """numbers in all rows of `order`"""
    call: Val | None = None
    """memory for the frame, and behind it the addresses of a launch's arrays"""

    def has(self, step: Step) -> bool:
        return id(step) in self.rows

    def walk(self, fn: LLVMFunction, steps: Iterable[Step], watch: Val) -> None:
        """Writes the loop over some launches into `run`."""
        rows, frame = [self.rows[id(step)] for step in steps], fn.param(0)
        run, pool = (self.frame.load_slot(fn, frame, slot, PTR) for slot in (RUN, POOL))
        if self.call is None:
            self.call = fn.alloca("ptr", 1 + max(len(row.arrays) for row in self.rows.values()), 8)
            fn.entry.append(f"  store ptr {frame.ref}, ptr {self.call.ref}, align 8")
        first = fn.gep(Val("@launches", PTR), self.size, "i64")
        with fn.loop(0, len(rows), carried=[first]) as loop:
            (row,) = loop.carried
            code, programs, grain, arrays = (fn.load(fn.gep(row, i, "i64"), I64, 8) for i in range(HEAD))
            entry = fn.load(fn.gep(Val("@launched", PTR), code, "ptr"), PTR, 8)
            places = fn.gep(row, HEAD, "i64")
            with fn.loop(0, arrays) as each:
                place = fn.gep(places, fn.mul(each.index, 2), "i64")
                slot, offset = fn.load(place, I64, 8), fn.load(fn.gep(place, 1, "i64"), I64, 8)
                base = fn.load(fn.gep(frame, slot, "i64"), PTR, 8)
                fn.store(fn.gep(base, offset, "i8"), fn.gep(self.call, fn.add(each.index, 1), "ptr"), 8)
            given = ", ".join(map(repr, (pool, entry, self.call, programs, grain, watch)))
            fn.do(f"call void {run.ref}({given})")
            loop.next = [fn.gep(places, fn.mul(arrays, 2), "i64")]
        for row in rows:
            self.size += HEAD + 2 * len(row.arrays)
            if row.code.fn.name not in self.codes:
                self.codes[row.code.fn.name] = len(self.codes)
                self._entry(row)
        self.order += rows

    def _entry(self, row: Row) -> None:
        """The function that a worker calls: it passes the addresses behind the frame to the code."""
        fn = LLVMFunction(self.module, f"{row.code.fn.name}.launched", [("call", PTR), *PARAMS[1:]])
        fn.at, fn.attributes = row.launch.span, QUICK
        call, *programs = (fn.param(i) for i in range(len(PARAMS)))
        frame, *arrays = (fn.load(fn.gep(call, i, "ptr"), PTR, 8) for i in range(len(row.arrays) + 1))
        fn.do(f"call void @{row.code.fn.name}({', '.join(map(repr, (frame, *programs, *arrays)))})")

    def write(self) -> None:
        """The table itself, once all launches are in it."""
        if not self.order:
            return
        entries = ", ".join(f"ptr @{name}.launched" for name in self.codes)
        lines = [f"@launched = private unnamed_addr constant [{len(self.codes)} x ptr] [{entries}]"]
        lines.append(f"@launches = private unnamed_addr constant [{self.size} x i64] [")
        for i, row in enumerate(self.order):
            numbers = row.numbers(self.frame, self.codes[row.code.fn.name])
            end = "," if i + 1 < len(self.order) else ""
            line = SpanLine(f"  {', '.join(f'i64 {n}' for n in numbers)}{end}  ; {row.name}")
            line.at = row.launch.span
            lines.append(line)
        self.module.globals += [*lines, "]"]
