"""The buffer in which the programs of a launch leave the tiles that they print: its format (see print.cuh), its size,
and showing what came back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.tile.printing import say
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.lazy import np

HEADER = 16
MOST_BYTES = 64 << 20
"""a launch's buffer at most; what does not fit is counted"""
UNKNOWN_TRIPS = 64
"""steps that room is made for where a loop's length is not known"""


@immutable
class PrintSite:
    """One `tile.print`. `bytes`: what a program writes there, in all steps of the loops around it."""

    label: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int

    def describe(self) -> list[object]:
        return [self.label, list(self.shape), self.dtype, self.bytes]


def prints(kernel: Op) -> bool:
    return any(op.name == "tile.print" for op in kernel.walk())


def times(op: Op) -> int:
    """How often a program gets to an op, as far as its loops say."""
    out, inner = 1, op.parent
    while inner is not None:
        if inner.name in ("tile.for", "tile.pipeline"):
            lower, upper, step = (_known(v) for v in inner.operands[:3])
            if lower is None or upper is None or not step:
                out *= UNKNOWN_TRIPS
            else:
                out *= len(range(lower, upper, step))
        elif inner.name == "tile.while":
            out *= UNKNOWN_TRIPS
        inner = inner.parent
    return out


def _known(v: Value) -> int | None:
    dim = v.op.attrs.get("dim") if v.op is not None and v.op.name == "tile.dim" else None
    return dim if isinstance(dim, int) else None


def room(sites: Sequence[Sequence[Any]], grid: int) -> tuple[int, int]:
    """Bytes of one program's part, and how many programs get one."""
    each = min(HEADER + sum(site[3] for site in sites), MOST_BYTES)
    return each, min(grid, MOST_BYTES // each)


def buffer(sites: Sequence[Sequence[Any]], grid: int) -> bytes:
    """A launch's buffer before it starts."""
    each, programs = room(sites, grid)
    return np.array([each, programs], np.int64).tobytes() + bytes(each * programs)


def show(data: bytes, sites: Sequence[Sequence[Any]], grid: Sequence[int]) -> None:
    """Shows what the programs of a launch left in its buffer, in their order."""
    each, programs = np.frombuffer(data, np.int64, 2).tolist()
    for number in range(programs):
        where = tuple(int(i) for i in np.unravel_index(number, grid)) if grid else ()
        start = HEADER + number * each
        used, lost = np.frombuffer(data, np.int64, 2, start).tolist()
        at = start + HEADER
        while at < start + used:
            label, shape, name, _ = sites[int(np.frombuffer(data, np.int64, 1, at)[0])]
            dtype = dtypes.BY_NAME[name]
            values = np.frombuffer(data, dtype.numpy, math.prod(shape), at + HEADER).reshape(shape)
            say(label, where, values)
            at += HEADER + -(-values.nbytes // 16) * 16
        if lost:
            print(f"... {lost} more of program {where}: a launch keeps {MOST_BYTES:,} bytes")
    if left := math.prod(grid) - programs:
        print(f"... and those of {left} more programs: a launch keeps {MOST_BYTES:,} bytes")
