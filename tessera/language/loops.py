"""What loops count, where Python runs a function's text: outside of functions and kernels both are Python's `range`."""

from __future__ import annotations

import builtins
from typing import Any


def static_range(*bounds: int) -> builtins.range:
    """`range` that is unrolled at compile time inside functions and kernels; plain `range` anywhere else."""
    return builtins.range(*bounds)


def range(*bounds: Any) -> builtins.range:
    """What a loop counts that runs when the program runs, `for i in ts.range(n)`, inside functions and kernels; plain
    `range` anywhere else, so that layers with loops can be called by themselves."""
    return builtins.range(*bounds)
