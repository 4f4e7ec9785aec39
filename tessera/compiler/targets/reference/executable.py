"""Runs a Program on host memory through the Tile IR interpreter, with poisoned outputs and race detection."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.base import TileRecorder
from tessera.compiler.tile.interpret.interpreter import InterpreterOptions, run_kernel
from tessera.compiler.tile.interpret.memory import NOBODY, WatchedView, poison
from tessera.compiler.tile.program import (
    Branch,
    Buffer,
    BufferArg,
    Launch,
    Loop,
    Program,
    ScalarArg,
    Step,
    come_home,
    exchanges,
    turn,
)
from tessera.errors import DebugCheckError, Diagnostic
from tessera.immutable import mutable
from tessera.language.dims import evaluate, prod
from tessera.language.lazy import np
from tessera.language.rounding import rounded_number


@mutable(eq=False)
class BufferMemory:
    """The memory of a buffer when the Program begins, which loops may give to another one. `written` is None for
    buffers that came with data."""

    buffer: Buffer
    data: Any
    written: Any


class ReferenceExecutable:
    """Follows `targets.base.Executable`. Sequential, deterministic, slow; every access is checked."""

    def __init__(self, program: Program, options: InterpreterOptions) -> None:
        self.program, self.options = program, options

    def run(
        self,
        pointers: Sequence[int],
        scalars: Sequence[bool | int | float | complex],
        dims: Sequence[int],
        *,
        stream: int = 0,
        record: TileRecorder | None = None,
    ) -> None:
        """Raises DebugCheckError (TS506) at the source line of the op that failed."""
        program = self.program
        sizes = dict(zip(program.free, dims, strict=True))
        given = iter(pointers)
        memory = {b.id: self.memory(b, sizes, given) for b in program.buffers}
        by_param = dict(zip((i for i, p in enumerate(program.params) if p.shape is None), scalars, strict=True))
        home = memory.copy()
        self.steps(program.steps, memory, by_param, sizes, record)
        for exchange in exchanges(program):
            come_home(exchange, memory, home, _copy)
        for number in program.outputs:
            self.demand_written(memory[number])

    def steps(
        self,
        steps: Sequence[Step],
        memory: dict[int, BufferMemory],
        scalars: Mapping[int, Any],
        sizes: Mapping[str, int],
        record: TileRecorder | None,
    ) -> None:
        for step in steps:
            match step:
                case Launch():
                    self.launch(step, memory, scalars, sizes, record)
                case Branch(cond, then, orelse):
                    self.steps(then if memory[cond].data[0] else orelse, memory, scalars, sizes, record)
                case Loop(cond, head, body, turns):
                    self.steps(head, memory, scalars, sizes, record)
                    while memory[cond].data[0]:
                        self.steps(body, memory, scalars, sizes, record)
                        turn(memory, turns)
                        self.steps(head, memory, scalars, sizes, record)

    def memory(self, b: Buffer, sizes: Mapping[str, int], given: Any) -> BufferMemory:
        count = evaluate(prod(b.shape), sizes)
        if b.role in ("input", "output"):
            data = at_address(next(given), count, b)
        elif b.role == "constant":
            data = np.frombuffer(b.data or b"", b.dtype.numpy).copy()
        else:
            data = np.empty(count, b.dtype.numpy)
        if b.role in ("input", "constant"):
            return BufferMemory(b, data, None)
        data[...] = poison((count,), b.dtype)
        return BufferMemory(b, data, np.zeros(count, bool))

    def launch(
        self,
        launch: Launch,
        memory: dict[int, BufferMemory],
        scalars: Mapping[int, Any],
        sizes: Mapping[str, int],
        record: TileRecorder | None,
    ) -> None:
        kernel = launch.kernel
        touched: set[int] = set()
        for i in cast("tuple[int, ...]", kernel.attrs.get("writes", ())):
            if isinstance(arg := launch.args[i], BufferArg):
                touched.add(arg.buffer)
        marks = {n: [np.full(memory[n].data.size, NOBODY, np.int32) for _ in range(2)] for n in touched}
        args: list[Any] = []
        for value, arg in zip(kernel.region.block.args, launch.args, strict=True):
            if isinstance(arg, ScalarArg):
                args.append(rounded_number(scalars[arg.param], arg.dtype))
            else:
                args.append(self.view(value, arg, memory[arg.buffer], marks.get(arg.buffer), sizes))
        clock, options = TileClock(), self.options
        if record is not None:
            options = replace(options, on_program=clock.program)
        run_kernel(kernel, args, sizes, options)
        if record is not None:
            number = next(i for i, each in enumerate(self.program.launches) if each is launch)
            record.record({**clock.columns(), "launch": number})

    def view(
        self, value: Value, arg: BufferArg, m: BufferMemory, marks: list[Any] | None, sizes: Mapping[str, int]
    ) -> WatchedView:
        """The window of a buffer that a launch passes to its kernel."""
        t = value.type
        assert isinstance(t, ViewType)
        shape = [evaluate(d, sizes) for d in t.shape]
        strides = [evaluate(d, sizes) for d in t.strides] if t.strides is not None else contiguous(shape)
        offset = evaluate(arg.offset, sizes)
        end = offset + sum(max(n - 1, 0) * s for n, s in zip(shape, strides, strict=True)) + 1
        if 0 not in shape and (offset < 0 or end > m.data.size):
            raise DebugCheckError(f"The view of {m.buffer.name} reaches element {end - 1} of {m.data.size}.")

        def window(flat: Any) -> Any:
            if flat is None:
                return None
            step = flat.itemsize
            raw = flat[offset:].view(f"V{step}")  # as_strided does not know every small float
            return np.lib.stride_tricks.as_strided(raw, shape, [s * step for s in strides]).view(flat.dtype)

        writer, reader = marks or (None, None)
        return WatchedView(m.buffer.name, window(m.data), window(m.written), window(writer), window(reader))

    def demand_written(self, m: BufferMemory) -> None:
        if m.written is not None and not m.written.all():
            missing = int(m.written.size - np.count_nonzero(m.written))
            where = self.program.span or self.program.launches[-1].span
            raise DebugCheckError(
                Diagnostic(
                    "TS506", f"{missing} of the {m.written.size} elements of {m.buffer.name} were never written.", where
                )
            )


def _copy(to: BufferMemory, source: BufferMemory) -> None:
    to.data[...] = source.data
    if to.written is not None:
        to.written[...] = True if source.written is None else source.written


class TileClock:
    """Times programs as they finish; all on one worker."""

    def __init__(self) -> None:
        self.times, self.numbers = [time.perf_counter_ns()], list[int]()

    def program(self, number: int) -> None:
        self.times.append(time.perf_counter_ns())
        self.numbers.append(number)

    def columns(self) -> dict[str, Any]:
        times = np.asarray(self.times, np.int64)
        count = len(times) - 1
        zeros = np.zeros(count, np.int32)
        tiles = np.asarray(self.numbers, np.int64)
        return {"tile": tiles, "resource": zeros, "phase": zeros, "start": times[:-1], "duration": np.diff(times)}


def contiguous(shape: Sequence[int]) -> list[int]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return strides[::-1]


def at_address(address: int, count: int, b: Buffer) -> Any:
    """The memory at `address` as a flat array of the buffer's dtype; the caller keeps it alive."""
    if not count:
        return np.empty(0, b.dtype.numpy)
    raw = (ctypes.c_char * (count * b.dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, b.dtype.numpy)
