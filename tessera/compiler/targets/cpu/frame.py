"""The frame: one block of 8-byte slots that holds all data of a call, passed by address to every generated function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import I64, PTR, Ty, Val
from tessera.compiler.tile.program import Program
from tessera.immutable import immutable

POOL, RUN, SCRATCH, SCRATCH_STRIDE, RECORDS, RECORD_STRIDE, RECORD_CAPACITY, HOST, WATCH, FIRST = range(10)
"""slots: the pool's cell and its entry point, the workers' scratch memory, tile records, the
host's callback, the call's watch (see interrupts.py); then buffers, scalars (two
slots each), sizes of free dims"""

WORKERS = 7 * 64
"""bytes from the beginning of a pool to the number of its workers (call/threads.py)"""

Site = Mapping[str, Any]
"""a place where a kernel calls its host, as a row of the artefact's table: plain data"""


@immutable
class FrameLayout:
    """The layout of a Program's frame."""

    buffers: Mapping[int, int]
    """the places of buffers in their row, by number"""
    scalars: tuple[int, ...]
    free: tuple[str, ...]

    @staticmethod
    def of(program: Program) -> FrameLayout:
        scalars = tuple(i for i, p in enumerate(program.params) if p.shape is None)
        return FrameLayout({b.id: i for i, b in enumerate(program.buffers)}, scalars, program.free)

    def buffer_slot(self, buffer: int) -> int:
        return FIRST + self.buffers[buffer]

    def scalar_slot(self, param: int) -> int:
        return FIRST + len(self.buffers) + 2 * self.scalars.index(param)

    def dim_slot(self, name: str) -> int:
        return FIRST + len(self.buffers) + 2 * len(self.scalars) + self.free.index(name)

    @property
    def size(self) -> int:
        """Slots."""
        return FIRST + len(self.buffers) + 2 * len(self.scalars) + len(self.free)

    # code that reads it
    def load_slot(self, fn: LLVMFunction, frame: Val, slot: int, t: Ty) -> Val:
        return fn.load_pure(fn.gep(frame, slot, "i64"), t, 8)

    def load_buffer(self, fn: LLVMFunction, frame: Val, buffer: int) -> Val:
        return self.load_slot(fn, frame, self.buffer_slot(buffer), PTR)

    def load_dim(self, fn: LLVMFunction, frame: Val, name: str) -> Val:
        return self.load_slot(fn, frame, self.dim_slot(name), I64)

    def scalar_address(self, fn: LLVMFunction, frame: Val, param: int) -> Val:
        return fn.gep(frame, self.scalar_slot(param), "i64")
