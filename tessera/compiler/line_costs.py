"""What each line of a program should cost, known without running it: the times of its launches, by their lines."""

from __future__ import annotations

from tessera.compiler.machines import MACHINES
from tessera.compiler.tile.program import Program
from tessera.compiler.timing.launches import launch_times
from tessera.immutable import immutable


@immutable
class LineCost:
    """The launches of one line: microseconds from full overlap of arithmetic and memory traffic to none, modelled; the
    operations and the least bytes, static. A round of a loop counts once."""

    file: str
    line: int
    launches: int
    us: float
    most_us: float
    flops: int
    bytes: int
    at_least: bool = False
    """whether a kernel is in it whose blocks its author chose: the model takes them for as good as any"""

    @property
    def middle(self) -> float:
        """Microseconds, by which lines and variants of them are put in order."""
        return (self.us + self.most_us) / 2


def line_costs(program: Program, target: str, threads: int | None = None) -> list[LineCost]:
    """By line, the costliest first. Launches whose sizes only a call tells are left out; empty where there is no model
    of the target's machine."""
    machine = MACHINES.get(target)
    if machine is None or machine.peaks is None or program.free:
        return []
    times = launch_times(program, machine, threads)
    found: dict[tuple[str, int], LineCost] = {}
    for launch in program.launches:
        time = times.get(id(launch))
        if time is None or not isinstance(launch.flops, int) or not isinstance(launch.bytes, int):
            continue
        key = (launch.span.file, launch.span.line)
        known = found.get(key, LineCost(*key, 0, 0.0, 0.0, 0, 0))
        found[key] = LineCost(
            *key, known.launches + 1, known.us + time.least * 1e6, known.most_us + time.most * 1e6,
            known.flops + launch.flops, known.bytes + launch.bytes, known.at_least or launch.by_hand,
        )  # fmt: skip
    return sorted(found.values(), key=lambda cost: -cost.middle)
