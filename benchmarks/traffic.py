"""What a call has to read and write, as a call that does nothing else: what memory allows a row of a benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts


def traffic(*reads: Any, result: bool = True) -> Callable[[], object]:
    """Reads one or two arrays of a shape once, and stores a result of that shape past the caches, or none."""

    @ts.function
    def copy(x):
        return x * 2.0

    @ts.function
    def add(x, y):
        return x + y

    @ts.function
    def largest(x):
        return x.max()

    if not result:
        whole = reads[0].view(np.int32)  # floats would be looked at for NaN
        return lambda: largest(whole)
    return lambda: (copy if len(reads) == 1 else add)(*reads)
