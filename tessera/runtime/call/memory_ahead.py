"""Memory of results that is touched while the code that fills it is compiled.

The system finds and clears a page when it is first touched: of the results of a large model's gradient this takes a
good part of the time that compiling them does, and more in a virtual machine that has not used its memory yet.
Compiling leaves processors idle, so a thread touches the pages meanwhile. It stops where the compilation ends; the
launch takes the blocks, and touches what is left. See docs/decisions/0217-memory-ahead-of-a-launch.md.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tessera import knobs
from tessera.compiler.ir.types import TensorType
from tessera.compiler.unit import Unit
from tessera.runtime.arrays import host_memory

if TYPE_CHECKING:
    import numpy

WORTH = 16 << 20
"""bytes of results from which on a thread is started for them"""
PIECE = 16 << 20
"""bytes that are touched between looks at whether the compilation has ended. In between Python's lock is not wanted:
its other threads would hold it for milliseconds each time"""
MOST = 64
"""arrays that one call of the system is given at most"""


def large_results(unit: Unit) -> list[int]:
    """Bytes of the new arrays that a function gives, as far as they are known and large enough to be recycled. States
    lie in the arrays of their parameters."""
    if unit.is_kernel:
        return []
    given = unit.op.region.block.terminator.operands
    states: object = unit.op.attrs.get("states", ())
    own = given[: len(given) - len(states)] if isinstance(states, tuple) else given
    found: list[int] = []
    for value in dict.fromkeys(own):
        if value.op is None or not isinstance(value.type, TensorType):
            continue
        known = [d for d in value.type.shape if isinstance(d, int)]
        size = math.prod(known) * value.type.dtype.itemsize
        if len(known) == len(value.type.shape) and size >= host_memory.RECYCLED:
            found.append(size)
    return found


class MemoryAhead:
    """Touches blocks for results until it is told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._blocks: list[numpy.ndarray] = []

    def start(self, sizes: Iterable[int]) -> None:
        """Begins to touch memory for arrays of so many bytes, if that is worth a thread, and four times as much is
        free."""
        wanted = host_memory.missing(Counter(map(host_memory.block_size, sizes)))
        total = sum(wanted)
        free = host_memory.available()
        much = free is not None and total > free // 4
        if total < WORTH or knobs.num_threads() < 2 or much or not hasattr(os, "readv"):
            return
        self._thread = threading.Thread(target=self._touch, args=(wanted,), name="tessera-memory", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there may be no further thread
            self._thread = None

    def _touch(self, sizes: list[int]) -> None:
        """Has the system write zeros: one call for many blocks."""
        try:
            with open("/dev/zero", "rb", buffering=0) as zeros:
                for piece in self._pieces(sizes):
                    os.readv(zeros.fileno(), piece)
        except (MemoryError, OSError):  # the launch says so, if it is still so then
            return

    def _pieces(self, sizes: list[int]) -> Iterator[list[Any]]:
        """All of the blocks, a piece of many bytes at a time, until the compilation has ended."""
        piece: list[Any] = []
        left = PIECE
        for size in sizes:
            block = host_memory.aligned(size)
            self._blocks.append(block)
            start = 0
            while start < size:
                stop = min(size, start + left)
                piece.append(block[start:stop])
                left, start = left - (stop - start), stop
                if not left or len(piece) == MOST:
                    yield piece
                    if self._stop.is_set():
                        return
                    piece, left = [], PIECE
        yield piece

    def finish(self) -> list[numpy.ndarray]:
        """Stops, and gives the blocks."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        blocks, self._blocks = self._blocks, []
        return blocks


@contextmanager
def memory_ahead() -> Generator[MemoryAhead]:
    """Blocks that have been touched inside are there for the results of a launch behind it, unless that fails."""
    ahead = MemoryAhead()
    try:
        yield ahead
    except BaseException:
        ahead.finish()
        raise
    for block in ahead.finish():
        host_memory.keep(block)
