"""Arrays between pages that nothing may touch: an access outside ends the process, or is seen by the emulator."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """Memory of its own for one array, whose end (or beginning) lies at the edge of a page that nothing may touch."""

    def __init__(self, source: Any, at_end: bool) -> None:
        source = np.ascontiguousarray(source)
        pages = max(1, -(-source.nbytes // PAGE))
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for edge in (0, pages + 1):
            if _libc.mprotect(ctypes.c_void_p(self.start + edge * PAGE), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = PAGE + (pages * PAGE - source.nbytes if at_end else 0)
        flat = np.frombuffer(self.memory, source.dtype, source.size, offset) if source.size else source.ravel()
        self.array = flat.reshape(source.shape)
        self.array[...] = source
        self.address = self.start + offset
