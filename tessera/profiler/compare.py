"""Two profiles side by side: which kernel became faster, and whether the samples allow to say so."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tessera.profiler.quantity import format_time
from tessera.profiler.recording import Recording
from tessera.profiler.views.markup import prose


@dataclass(frozen=True, slots=True)
class KernelChange:
    """One kernel before and after: median ns a launch, None where it was not launched."""

    kernel: str
    title: str
    """what its author wrote"""
    before: float | None
    after: float | None
    counts: tuple[int, int]
    separated: bool
    """the middle halves (between the quartiles) of the two sides do not overlap, with at least three launches each"""

    @property
    def speedup(self) -> float | None:
        return self.before / self.after if self.before is not None and self.after else None

    @property
    def verdict(self) -> str:
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        if self.speedup is None:
            return "not comparable"
        if min(self.counts) < 3:
            return "too few launches to tell"
        if not self.separated:
            return "no clear change"
        return "faster" if self.speedup > 1 else "slower"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All kernels of two recordings, those that took longest first."""

    changes: tuple[KernelChange, ...]
    before: int
    after: int
    """wall time of the two regions in ns"""

    def __str__(self) -> str:
        lines = [f"Region: {format_time(self.before)} -> {format_time(self.after)}"]
        for change in self.changes:
            times = " -> ".join("-" if t is None else format_time(t) for t in (change.before, change.after))
            factor = f" ({change.speedup:.2f}x)" if change.speedup is not None else ""
            lines.append(f"  {change.title}: {times}{factor}, {change.verdict}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return prose(self)


def compare(before: Recording, after: Recording) -> Comparison:
    """Matches kernels by name and device. Times are medians over the launches, so the first, cold one counts once."""
    sides = [_durations(before), _durations(after)]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    titles = {(launch.kernel, launch.device): launch.title for r in (before, after) for launch in r.launches}
    changes = [_change(key[0], titles[key], sides[0].get(key, []), sides[1].get(key, [])) for key in keys]
    changes.sort(key=lambda change: -((change.before or 0) * change.counts[0] + (change.after or 0) * change.counts[1]))
    return Comparison(tuple(changes), before.duration, after.duration)


def _change(kernel: str, title: str, old: list[int], new: list[int]) -> KernelChange:
    separated = len(old) >= 3 and len(new) >= 3 and _quartiles_apart(old, new)
    return KernelChange(
        kernel=kernel,
        title=title,
        before=statistics.median(old) if old else None,
        after=statistics.median(new) if new else None,
        counts=(len(old), len(new)),
        separated=separated,
    )


def _quartiles_apart(old: list[int], new: list[int]) -> bool:
    (old_low, _, old_high), (new_low, _, new_high) = (statistics.quantiles(side, n=4) for side in (old, new))
    return old_low > new_high or new_low > old_high


def _durations(recording: Recording) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for launch in recording.launches:
        if launch.duration is not None:
            found.setdefault((launch.kernel, launch.device), []).append(launch.duration)
    return found
