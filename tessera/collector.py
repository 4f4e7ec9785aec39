"""Python's collector of cycles, out of the way of those who make many objects that all stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

MANY = 10_000
"""objects from which on looking through them takes milliseconds: the first call of a process makes 35,000"""
MOST = 1_000_000
"""objects that may wait for the next full collection: some 100 MB"""


@contextmanager
def collector_paused(old: bool = False) -> Generator[None]:
    """No cyclic garbage collection: trees and IR are many small objects, all in use until the end.

    `old`: what was made is old from then on. Only a full collection looks through it, and none of young objects, which
    would come at once."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if old:
                _age()
            gc.enable()


_waiting = [0, 0]
"""objects that became old since the last full collection, and the number of that one"""


def _age() -> None:
    """Makes young objects old, without looking at them."""
    made, full = gc.get_count()[0], gc.get_stats()[-1]["collections"]
    if made < MANY or gc.get_freeze_count():  # what is frozen is somebody's who wants it to stay so
        return
    if _waiting[1] != full:
        _waiting[:] = 0, full
    _waiting[0] += made
    gc.freeze()
    gc.unfreeze()
    if _waiting[0] > MOST:
        gc.collect()
