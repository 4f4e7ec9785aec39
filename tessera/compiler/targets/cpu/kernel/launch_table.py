"""Launches of kernels that are the same code, as rows of a table that `run` walks through.

A model of many layers makes hundreds of launches. Each would be a function that LLVM compiles in half a millisecond.
A row says which code runs how many programs, and where in the frame the addresses of its arrays are::

    code, programs, grain, arrays, then for each array: slot, bytes from there

The code gets them behind the frame, in memory that the rows share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
            self.call = fn.alloca("ptr", self.longest, 8)
            fn.entry.append(f"  store ptr {frame.ref}, ptr {self.call.ref}, align 8")
        call = self.call

        def launch(number: Val, entry: Val, numbers: Sequence[Val]) -> None:
            given = ", ".join(map(repr, (pool, entry, call, *numbers, watch)))
            fn.do(f"call void {run.ref}({given})")

        self._each(fn, rows, lambda number: call, launch)

    def calls(self, fn: LLVMFunction, rows: Sequence[Row]) -> list[Val]:
        """Writes what fills memory for each launch, with the frame and the addresses of its arrays, into `run`: what a
        worker gives to the function `entry`."""
        if not rows:
            return []
        calls, frame = fn.alloca("ptr", len(rows) * self.longest, 8), fn.param(0)

        def place(number: Val) -> Val:
            call = fn.gep(calls, fn.mul(number, self.longest), "ptr")
            fn.store(frame, call, 8)
            return call

        def nothing(number: Val, entry: Val, numbers: Sequence[Val]) -> None:
            pass

        self._each(fn, rows, place, nothing)
        return [fn.gep(calls, i * self.longest, "ptr") for i in range(len(rows))]

    def entry(self, launch: Launch) -> str:
        """The function that runs programs of a launch that has a row."""
        return f"{self.rows[id(launch)].code.fn.name}.launched"

    @property
    def longest(self) -> int:
        """Words of what is filled for a launch, at most."""
        return 1 + max(len(row.arrays) for row in self.rows.values())

    def _each(
        self,
        fn: LLVMFunction,
        rows: Sequence[Row],
        place: Callable[[Val], Val],
        then: Callable[[Val, Val, Sequence[Val]], None],
    ) -> None:
        """A loop over rows. It puts the addresses of each one's arrays behind the first word at `place(number)`, then
        does something with its number, its entry, and how many programs it has and a worker takes at a time."""
        first = fn.gep(Val("@launches", PTR), self.size, "i64")
        with fn.loop(0, len(rows), carried=[first]) as loop:
            (row,) = loop.carried
            code, programs, grain, arrays = (fn.load(fn.gep(row, i, "i64"), I64, 8) for i in range(HEAD))
            entry = fn.load(fn.gep(Val("@launched", PTR), code, "ptr"), PTR, 8)
            places, call = fn.gep(row, HEAD, "i64"), place(loop.index)
            with fn.loop(0, arrays) as each:
                at = fn.gep(places, fn.mul(each.index, 2), "i64")
                slot, offset = fn.load(at, I64, 8), fn.load(fn.gep(at, 1, "i64"), I64, 8)
                base = fn.load(fn.gep(fn.param(0), slot, "i64"), PTR, 8)
                fn.store(fn.gep(base, offset, "i8"), fn.gep(call, fn.add(each.index, 1), "ptr"), 8)
            then(loop.index, entry, (programs, grain))
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
