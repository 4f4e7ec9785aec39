"""Cyclic garbage of the server: collected behind answers, never during one.

An analysis makes some ten thousand objects that the next one replaces. Looking through the youngest takes 5 ms, through
those of several analyses 20 ms, through all 0.3 s. The first two are done a moment after an analysis, the last while
nobody types.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

SOON = 0.05
"""seconds after an analysis, when what clients ask about it has been answered"""
PAUSE = 3.0
"""seconds without an analysis after which a person is taken to be thinking"""
MANY = 200_000
"""young objects that are looked through at once, wherever that is: nobody has paused for so long"""
SEVERAL = 5
"""analyses whose objects are looked through together"""
NEVER = 1_000_000


class Garbage:
    """Of one server. `analysed` is called after each analysis."""

    def __init__(self) -> None:
        self._young: asyncio.TimerHandle | None = None
        self._all: asyncio.TimerHandle | None = None
        self._frozen = False

    def analysed(self) -> None:
        if gc.get_threshold()[2] != NEVER:
            gc.set_threshold(MANY, NEVER, NEVER)
        self._young = self._young or _later(SOON, self._collect_young)
        if self._all is not None:
            self._all.cancel()
        self._all = _later(PAUSE, self._collect_all)

    def _collect_young(self) -> None:
        self._young = None
        gc.collect(1 if gc.get_count()[1] >= SEVERAL else 0)

    def _collect_all(self) -> None:
        self._all = None
        gc.collect()
        if not self._frozen:  # by now all modules that answers need are loaded, and stay
            self._frozen = True
            gc.freeze()


def _later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)
