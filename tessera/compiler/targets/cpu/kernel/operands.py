"""Matrices in memory that products read."""

from __future__ import annotations

from dataclasses import replace

from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.kernel.packing.scattered import Walk
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import Index, Val
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType

RUN = 8
"""neighbours that are worth reading together"""
LONG = 1 << 30
"""a run of neighbours of unknown length"""


@immutable
class MatrixOperand:
    """A matrix in memory: address of element (0, 0), strides in elements, storage dtype."""

    ptr: Val
    strides: tuple[Index, Index]
    dtype: DType
    large: bool = False
    """a part of a large matrix, or of one of unknown size"""
    far: bool = False
    """a part of a matrix that is known to be too large for the caches"""
    walks: tuple[Walk, Walk] | None = None
    """where rows or columns are several axes: those of either; then `ptr` is the address of the whole matrix, and"""
    start: tuple[Index, Index] = (0, 0)
    """the row and the column to begin at"""
    halves: bool = False
    """of bf16 in the upper halves of f32"""

    @property
    def value(self) -> DType:
        """What its elements are."""
        return dtypes.bf16 if self.halves else self.dtype

    @property
    def turned(self) -> MatrixOperand:
        """The transposed matrix."""
        (a, b), (x, y) = self.strides, self.start
        walks = None if self.walks is None else (self.walks[1], self.walks[0])
        return replace(self, strides=(b, a), walks=walks, start=(y, x))

    def moved(self, fn: LLVMFunction, axis: int, by: Index) -> MatrixOperand:
        """What follows from a row or column on."""
        if self.walks is not None:
            return replace(self, start=(by, 0) if axis == 0 else (0, by))
        return replace(self, ptr=fn.gep(self.ptr, fn.mul(by, self.strides[axis]), memory_element(self.dtype)))

    @property
    def axes(self) -> tuple[int, int]:
        """How many strided axes rows and columns are."""
        return (1, 1) if self.walks is None else (len(self.walks[0]), len(self.walks[1]))

    @property
    def along(self) -> int | None:
        """The axis to read neighbours along: that with the longer run of them."""
        if self.walks is None:
            return int(self.unit) if self.unit else None
        runs = {i: walk[-1][0] for i, walk in enumerate(self.walks) if walk[-1][1] == 1}
        return max(runs, key=lambda i: run if isinstance(run := runs[i], int) else LONG, default=None)

    def skips(self, own: int) -> bool:
        """Whether to read every second element along the axis `own`, as there are only short runs of neighbours."""
        if self.walks is None or self.dtype.itemsize * 8 not in (16, 32):
            return False
        run, step = self.walks[own][-1]
        near = self.along
        short = near is None or (isinstance(k := self.walks[near][-1][0], int) and k < RUN)
        return short and step == 2 and isinstance(run, int) and run >= RUN

    def arguments(self, own: int) -> list[Index]:
        """What a packed product takes for it; `own`: which axis is not k."""
        if self.walks is None:
            return [self.ptr, *self.strides]
        numbers = [number for walk in (self.walks[own], self.walks[1 - own]) for axis in walk for number in axis]
        return [self.ptr, self.start[own], *numbers]

    @property
    def unit(self) -> str:
        """Which axis has stride 1: "0", "1" or ""."""
        return "1" if self.strides[1] == 1 else "0" if self.strides[0] == 1 else ""
