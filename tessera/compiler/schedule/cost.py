"""The cost model: a group's memory traffic and arithmetic, its expected time on a machine, and when fusing pays."""

from __future__ import annotations

from tessera.compiler.machines import Peaks
from tessera.language.dims import Dim

MAX_OPERANDS = 24
MAX_OPS = 64
"""Beyond these a fused kernel runs out of registers and argument slots faster than it saves traffic."""


def worth_fusing(ops: int, operands: int) -> bool:
    """Fusing saves the traffic of every value that stays inside; only very large groups are split."""
    return ops <= MAX_OPS and operands <= MAX_OPERANDS


def predicted_us(flops: Dim, bytes: Dim, peaks: Peaks) -> float | None:
    """Roofline time of one launch in microseconds; None while sizes are symbolic. A model, never a measurement."""
    if not isinstance(flops, int) or not isinstance(bytes, int):
        return None
    parts = parts_us(flops, bytes, peaks)
    return max(parts["compute"], parts["memory"]) + parts["launches"]


def sequential_us(flops: Dim, bytes: Dim, peaks: Peaks) -> float | None:
    """The same where arithmetic and memory traffic do not overlap: the longer end of what the roofline allows."""
    if not isinstance(flops, int) or not isinstance(bytes, int):
        return None
    return sum(parts_us(flops, bytes, peaks).values())


def parts_us(flops: int, bytes: int, peaks: Peaks) -> dict[str, float]:
    """The time of a launch by each of its bounds, in microseconds: "compute", "memory", and "launches" itself."""
    return {
        "compute": flops / (peaks.gflops * 1e3),
        "memory": bytes / (peaks.gbytes * 1e3),
        "launches": peaks.launch_us,
    }
