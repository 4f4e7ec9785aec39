"""A hint: measured value, ideal, cause, change, and a range for the saving; and what several rules ask."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.profiler.kernel_stats import roofline_time
from tessera.profiler.machine import DeviceCeilings
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.profiler.trial.made import Change, HintTrial
from tessera.profiler.trial.outcome import Advice, TriedHint, attempt
from tessera.runtime.events import LaunchEvent, Source

# Raised when a rule changes what it predicts: outcomes of before no longer count for or against it.
VERSION = 2
_ROUNDED = "results differ by how operands are rounded: they are compared, see try_it(tolerance=...)"
LEGALITY: dict[Change, str] = {
    "by hand": "",
    "one function": "nothing else happens between the calls; results are equal within rounding",
    "one batch": "no call reads what another one gives; results are equal within rounding",
    "narrower products": _ROUNDED,
    "narrower arrays": _ROUNDED,
    "contiguous arrays": "nothing is stored to the array between the calls; results keep their bits",
    "frozen arrays": "nothing is stored to the weights between the calls; results keep their bits",
    "turned arrays": "all callers give the array transposed; results keep their bits",
}


@dataclass(frozen=True, slots=True)
class Hint:
    """One piece of advice. `saving` is (low, high) in ns over the whole recording."""

    kind: str
    kernel: str
    """the kernel it is about; "" for the whole region"""
    measured: str
    ideal: str
    cause: str
    change: str
    saving: tuple[float, float]
    local_time: int
    """ns that the saving is taken from: the kernel's launches, or the run"""
    region_time: int
    """ns of the profiled region without what went into recording it"""
    source: Source
    """how the saving was obtained"""
    file: str = ""
    line: int = 0
    title: str = ""
    """the kernel as its reader knows it; "" for the whole region"""
    trial: HintTrial | None = field(default=None, compare=False, repr=False)
    """how it can be tried"""

    def try_it(self, budget: float = 1.0, tolerance: float | None = None) -> TriedHint:
        """Makes the change, compares results, and times both by turns for about `budget` seconds, warm and, where the
        data fit into the caches, cold. `print` what comes of it; no file is changed. What was predicted and what was
        measured are kept: see `tessera hints`. `tolerance`, for hints that make numbers narrower: the part of the
        largest result by which results may differ, 0.01 if it is not given."""
        trial = self.trial or HintTrial(Recording(), (), "by hand", "it was made by a rule that has no change for it")
        text = f"{self.kind}: {self.change}"
        return attempt(
            trial, Advice(self.kind, VERSION, self.title or "whole run", text, self.local), budget, tolerance
        )

    @property
    def legality(self) -> str:
        """What has to hold for the change; "" for one that is made by hand."""
        return (
            "" if self.trial is None else LEGALITY.get(self.trial.change, "results keep their bits, or it is left out")
        )

    @property
    def local(self) -> tuple[float, float]:
        """The saving as parts (0..1) of `local_time`."""
        return _parts(self.saving, self.local_time)

    @property
    def whole_run(self) -> tuple[float, float]:
        """The saving as parts (0..1) of the whole run."""
        return _parts(self.saving, self.region_time)

    def __str__(self) -> str:
        low, high = self.saving
        legality = f"  legality: {self.legality}\n" if self.legality else ""
        where = f" ({self.file}:{self.line})" if self.file and self.line else ""
        return (
            f"{self.title or 'whole region'}{where}: {self.kind}\n"
            f"  measured: {self.measured}; ideal: {self.ideal}\n"
            f"  cause: {self.cause}\n"
            f"  change: {self.change}\n"
            f"{legality}"
            f"  saves {format_time(low)} to {format_time(high)}: {_range(self.local)} of it, "
            f"{_range(self.whole_run)} of the whole run ({self.source})"
        )


def roof(flops: float, size: float, dtype: str, machine: DeviceCeilings) -> float | None:
    """The least time in ns, where data that fit into the last cache may come from there; None if it is not known."""
    found = roofline_time(flops, size, dtype, machine).value
    cache = machine.ceiling("bandwidth", "cache").value
    if found is None or cache is None or size > machine.last_cache_bytes:
        return found
    return min(found, max(size / cache * 1e9, roofline_time(flops, 0, dtype, machine).value or 0.0))


def function_of(launch: LaunchEvent) -> str:
    return str(launch.attributes.get("function", launch.kernel))


def one_call(first: LaunchEvent, second: LaunchEvent) -> bool:
    run = first.attributes.get("run")
    return run is not None and run == second.attributes.get("run")


def _parts(saving: tuple[float, float], of: int) -> tuple[float, float]:
    return (saving[0] / of, saving[1] / of) if of else (0.0, 0.0)


def _range(parts: tuple[float, float]) -> str:
    low, high = (format_percent(part) for part in parts)
    return low if low == high else f"{low} to {high}"
