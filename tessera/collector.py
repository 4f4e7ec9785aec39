"""Python's collector of cycles, out of the way of those who make many objects that all stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None]:
    """No cyclic garbage collection: trees and IR are many small objects, all in use until the end."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
