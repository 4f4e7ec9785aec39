"""The cost model: a group's memory traffic and arithmetic, its expected time on a machine, and when fusing pays."""

from __future__ import annotations

from tessera.compiler.machines import Peaks
from tessera.immutable import immutable
from tessera.language.dims import Dim

MAX_OPERANDS = 24
MAX_OPS = 64
"""Beyond these a fused kernel runs out of registers and argument slots faster than it saves traffic."""


def worth_fusing(ops: int, operands: int) -> bool:
    """Fusing saves the traffic of every value that stays inside; only very large groups are split."""
    return ops <= MAX_OPS and operands <= MAX_OPERANDS


@immutable
class LaunchTime:
    """Seconds of a launch by a model, by what they go into. Never a measurement."""

    compute: float
    memory: float
    launch: float

    @property
    def least(self) -> float:
        """Where arithmetic and memory traffic overlap wholly."""
        return max(self.compute, self.memory) + self.launch

    @property
    def most(self) -> float:
        """Where they do not overlap."""
        return self.compute + self.memory + self.launch


def time_by_peaks(flops: Dim, bytes: Dim, peaks: Peaks) -> LaunchTime | None:
    """The roofline of one launch; None while sizes are symbolic."""
    if not isinstance(flops, int) or not isinstance(bytes, int):
        return None
    return LaunchTime(flops / (peaks.gflops * 1e9), bytes / (peaks.gbytes * 1e9), peaks.launch_us * 1e-6)
