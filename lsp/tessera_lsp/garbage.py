"""When cyclic garbage is collected: all of it only while nobody types, for it takes longer than an answer may."""

from __future__ import annotations

import asyncio
import gc

PAUSE = 3.0
"""seconds without an analysis after which a person is taken to be thinking"""
NEVER = 1_000_000
_planned: asyncio.TimerHandle | None = None


def collect_when_idle() -> None:
    """To be called after each analysis, from the event loop. Young objects are collected as ever."""
    global _planned
    if gc.get_threshold()[2] != NEVER:
        gc.set_threshold(20_000, 20, NEVER)
    if _planned is not None:
        _planned.cancel()
    _planned = asyncio.get_running_loop().call_later(PAUSE, gc.collect)
