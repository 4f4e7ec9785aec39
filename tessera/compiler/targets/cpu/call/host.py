"""Answers to a kernel that calls its host while it runs: tiles to print, and (in debug mode) tiles that must hold.

The kernel calls with the number of a site; the artefact's table of sites says what it is. Launches with sites run on
one thread, so that their prints come in order.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence

from tessera.compiler.targets.cpu.frame import Site
from tessera.compiler.tile.asserts import filled
from tessera.compiler.tile.printing import say
from tessera.errors import DebugCheckError, Diagnostic, Span
from tessera.language import dims, dtypes
from tessera.language.lazy import np

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Host:
    """Answers the callbacks of one loaded Program."""

    def __init__(self, sites: Sequence[Site], free: Sequence[str]) -> None:
        self.sites, self.free = sites, free
        self._shapes = [[dims.parse(s) for s in site["shape"]] for site in sites]
        self._running: dict[int, tuple[dict[str, int], list[DebugCheckError]]] = {}
        self._lock = threading.Lock()
        self._callback = _CALLBACK(self._answer)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def begin(self, frame: int, sizes: Sequence[int]) -> None:
        with self._lock:
            self._running[frame] = dict(zip(self.free, sizes, strict=True)), []

    def end(self, frame: int) -> None:
        """Raises the first failed assertion (DebugCheckError TS506)."""
        with self._lock:
            _, failed = self._running.pop(frame)
        if failed:
            raise failed[0]

    def _answer(self, frame: int, number: int, data: int, indices: int | None, program: int) -> None:
        site = self.sites[number]
        env, failed = self._running[frame]
        shape = [dims.evaluate(s, env) for s in self._shapes[number]]
        dtype = dtypes.BY_NAME[site["held"]]
        size = math.prod(shape) * dtype.itemsize
        values = np.frombuffer(ctypes.string_at(data, size), dtype.numpy).reshape(shape)
        if site["what"] == "print":
            grid = [dims.evaluate(dims.parse(g), env) for g in site["grid"]]
            where = tuple(int(i) for i in np.unravel_index(program, grid)) if grid else ()
            shown = values.astype(dtypes.BY_NAME[site["dtype"]].numpy)
            say(site["text"], where, shown)
        elif not failed and not values.all():
            message = site["text"] or "An assertion over a tile does not hold."
            if indices is not None:
                first = int(values.argmin())  # of bools: the first that is false
                index = ctypes.c_int64.from_address(indices + 8 * first).value
                message = filled(message, index, dims.parse(site["extent"]), env)
            failed.append(DebugCheckError(Diagnostic("TS506", message, Span(*site["span"]))))
