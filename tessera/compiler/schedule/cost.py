"""The cost model: what a group moves and computes, what it should take on a machine, and when fusing is worth it."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.language.dims import Dim

MAX_OPERANDS = 24
MAX_OPS = 64
"""Beyond these a fused kernel runs out of registers and argument slots faster than it saves traffic."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Ceilings used for predictions: GFLOP/s, GB/s, and the cost of one launch in microseconds."""

    gflops: float
    gbytes: float
    launch_us: float


MACHINES: dict[str, Machine] = {
    "cpu": Machine(100.0, 20.0, 1.0),
    "sm_75": Machine(8_100, 320, 4.0),
    "sm_80": Machine(19_500, 1_555, 4.0),
    "sm_86": Machine(35_600, 936, 4.0),
    "sm_89": Machine(82_600, 1_008, 4.0),
    "sm_90a": Machine(66_900, 3_350, 3.0),
    "sm_100": Machine(80_000, 8_000, 3.0),
    "sm_120": Machine(104_800, 1_792, 3.0),
}
"""Published f32 and memory peaks of the usual card of each architecture (T4, A100, A10, 4090, H100, B200, 5090)."""


def worth_fusing(ops: int, operands: int) -> bool:
    """Fusing saves the traffic of every value that stays inside; only very large groups are split."""
    return ops <= MAX_OPS and operands <= MAX_OPERANDS


def predicted_us(flops: Dim, bytes: Dim, machine: Machine) -> float | None:
    """Roofline time of one launch in microseconds; None while sizes are symbolic. A model, never a measurement."""
    if not isinstance(flops, int) or not isinstance(bytes, int):
        return None
    return max(flops / (machine.gflops * 1e3), bytes / (machine.gbytes * 1e3)) + machine.launch_us
