"""Launches summed per kernel and placed under the roofline.

The roofline (Williams, Waterman, Patterson 2009): a kernel that does F operations and must move B bytes takes at least
max(B / bandwidth, F / compute rate). B is the least traffic that the kernel needs, from the cost model, not a counter:
rates derived from it are therefore labelled modelled even where the time is measured.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tessera.compiler.predict import common
from tessera.language.lazy import np
from tessera.profiler.machine import DeviceCeilings
from tessera.profiler.quantity import Quantity, weakest
from tessera.profiler.recording import Recording
from tessera.runtime.events import LaunchEvent, Source

# From here on a kernel counts as held back by the roof above it; below, something else costs more than the roof does.
NEAR_ROOF = 0.6


_COPY = re.compile(r" \((\d+)\)$")


def without_copy(title: str) -> str:
    """`a @ w` for `a @ w (2)`: what an unrolled loop makes of one expression has one name."""
    return _COPY.sub("", title)


@dataclass(frozen=True, slots=True)
class KernelStats:
    """All launches of one kernel on one device. `duration` in ns; `share` is its part of all kernel time."""

    kernel: str
    target: str
    device: str
    dtype: str
    launches: tuple[LaunchEvent, ...]
    duration: int
    share: float
    flops: Quantity
    bytes: Quantity
    intensity: Quantity
    rate: Quantity
    bandwidth: Quantity
    memory_peak: Quantity
    compute_peak: Quantity
    """the ceiling for `dtype`"""
    ideal: Quantity
    """least time in ns under the roofline"""
    bound: str
    """"memory" or "compute" near that roof, "latency" below both, "unknown" with the reason in `ideal`"""

    @property
    def title(self) -> str:
        """The kernel as its reader knows it."""
        return self.launches[0].title

    @property
    def copy(self) -> int:
        """Which of those it is that an unrolled loop makes of one expression: `a @ w (2)` is the second."""
        found = _COPY.search(self.title)
        return int(found[1]) if found else 1

    @property
    def source(self) -> Source:
        return weakest(*(launch.source for launch in self.launches))

    @property
    def file(self) -> str:
        return str(self.launches[0].attributes.get("file", ""))

    @property
    def line(self) -> int:
        return int(self.launches[0].attributes.get("line", 0))

    @property
    def sizes(self) -> dict[str, int | None]:
        """The dims of its function; None for one in which its launches differ."""
        return common(launch.attributes.get("sizes", {}) for launch in self.launches)

    @property
    def typical(self) -> float:
        """The median of its launches' times, in ns."""
        return statistics.median(launch.duration or 0 for launch in self.launches)

    @property
    def usual(self) -> int:
        """ns that its launches take together where none of them is disturbed: what equal runs have in common."""
        usual = round(self.typical * len(self.launches))
        return self.duration if self.spread is None else min(self.duration, usual)

    @property
    def spread(self) -> float | None:
        """How far launches of one size differ, as a part of their time; None below three launches, which show none.

        The median distance from the median, times 1.4826: the standard deviation of a normal distribution, without
        the launches in which something else happened (Rousseeuw and Croux 1993).
        """
        if len(self.launches) < 3 or None in self.sizes.values() or not self.typical:
            return None
        away = statistics.median(abs((launch.duration or 0) - self.typical) for launch in self.launches)
        return 1.4826 * away / self.typical

    @property
    def rates(self) -> tuple[float, float, float] | None:
        """The quartiles of its launches' rates (FLOP/s); None below three launches, which show no spread."""
        found = [launch.flops / launch.duration * 1e9 for launch in self.launches if launch.flops and launch.duration]
        if len(found) < 3:
            return None
        low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
        return low, middle, high

    @property
    def written_by_hand(self) -> bool:
        """Whether it is a `@ts.kernel`, whose tiles its author chose. The kernels of functions carry other labels."""
        return self.launches[0].attributes.get("label", self.kernel) == self.kernel

    @property
    def bandwidth_fraction(self) -> Quantity:
        return _ratio(self.bandwidth, self.memory_peak, "")

    @property
    def compute_fraction(self) -> Quantity:
        return _ratio(self.rate, self.compute_peak, "")

    @property
    def roof_fraction(self) -> float | None:
        """Ideal over actual time: 1 on the roof. Above 1 when the data stayed in cache."""
        return self.ideal.value / self.duration if self.ideal.value is not None and self.duration else None


def kernel_stats(recording: Recording) -> list[KernelStats]:
    """One entry per (kernel, title, target, device, dtype), longest first. Launches that never ran are left out. Titles
    count, because a kernel of Tessera's own has one name in all functions.

    A kernel above a ceiling that no cache explains shows that the ceiling was measured too low: see `Recording.beaten`.
    """
    groups: dict[tuple[str, ...], list[LaunchEvent]] = {}
    for launch in recording.launches:
        if launch.duration is not None:
            dtype = str(launch.attributes.get("dtype", "f32"))
            key = (launch.kernel, launch.title, launch.target, launch.device, dtype)
            groups.setdefault(key, []).append(launch)
    total = sum(launch.duration or 0 for group in groups.values() for launch in group)

    def all_stats() -> list[KernelStats]:
        return [_stats(group, key[4], total, recording.machine(key[3])) for key, group in groups.items()]

    stats = all_stats()
    beaten = [(entry, *what) for entry in stats for what in _above(entry, recording.machine(entry.device))]
    for entry, kind, name, value in beaten:
        recording.beaten(entry.device, kind, name, value, entry.kernel)
    if beaten:
        stats = all_stats()
    return sorted(stats, key=lambda entry: -entry.duration)


def copies(stats: Sequence[KernelStats], recording: Recording) -> list[tuple[KernelStats, list[KernelStats]]]:
    """The same, with those in one entry that an unrolled loop makes of one expression, and what the entry is made of.

    They stand on one line, compute the same over as many operations and bytes, and are called `a @ w`, `a @ w (2)` ...
    """
    groups: dict[tuple[object, ...], list[KernelStats]] = {}
    for entry in stats:
        first = entry.launches[0]
        name, label = without_copy(entry.title), first.attributes.get("label", entry.kernel)
        key = (name, label, entry.file, entry.line, entry.target, entry.device, entry.dtype, first.flops, first.bytes)
        groups.setdefault(key, []).append(entry)
    total = sum(entry.duration for entry in stats)
    made: list[tuple[KernelStats, list[KernelStats]]] = []
    for group in groups.values():
        launches = sorted((x for entry in group for x in entry.launches), key=lambda x: x.start)
        machine = recording.machine(group[0].device)
        whole = group[0] if len(group) == 1 else _stats(launches, group[0].dtype, total, machine)
        made.append((whole, group))
    return sorted(made, key=lambda pair: -pair[0].duration)


def _above(entry: KernelStats, machine: DeviceCeilings) -> Iterator[tuple[str, str, float]]:
    """The ceilings that a kernel was faster than: kind, name, and the rate that it reached.

    Data that fit into the last cache need not come from memory, so that they may pass its bandwidth.
    """
    if entry.rate.value and entry.compute_peak.value and entry.rate.value > entry.compute_peak.value:
        yield "compute", entry.dtype, entry.rate.value
    smallest = min((launch.bytes or 0 for launch in entry.launches), default=0)
    large = smallest > machine.last_cache_bytes > 0
    if large and entry.bandwidth.value and entry.memory_peak.value and entry.bandwidth.value > entry.memory_peak.value:
        yield "bandwidth", "memory", entry.bandwidth.value


def roofline_time(flops: float, size: float, dtype: str, machine: DeviceCeilings) -> Quantity:
    """The least time in ns for `flops` operations and `size` bytes of memory traffic."""
    bandwidth = machine.ceiling("bandwidth", "memory")
    compute = machine.ceiling("compute", dtype)
    if bandwidth.value is None or (compute.value is None and flops):
        return Quantity(None, "ns", reason=bandwidth.reason or compute.reason)
    arithmetic = flops / compute.value if compute.value else 0.0
    source = weakest("modelled", bandwidth.source)
    return Quantity(max(size / bandwidth.value, arithmetic) * 1e9, "ns", source)


def _stats(group: list[LaunchEvent], dtype: str, total: int, machine: DeviceCeilings) -> KernelStats:
    first = group[0]
    duration = sum(launch.duration or 0 for launch in group)
    flops, size = _total(group, "flops", "FLOP"), _total(group, "bytes", "B")
    intensity = _ratio(flops, size, "ops/byte")
    seconds = Quantity(duration * 1e-9, "s", weakest(*(launch.source for launch in group)), "the launches took no time")
    rate = _ratio(flops, seconds, "FLOP/s")
    bandwidth = _ratio(size, seconds, "B/s")
    ideal = Quantity(None, "ns", reason=flops.reason or size.reason)
    if flops.value is not None and size.value is not None:
        ideal = roofline_time(flops.value, size.value, dtype, machine)
    memory = machine.ceiling("bandwidth", "memory")
    return KernelStats(
        kernel=first.kernel,
        target=first.target,
        device=first.device,
        dtype=dtype,
        launches=tuple(group),
        duration=duration,
        share=duration / total if total else 0.0,
        flops=flops,
        bytes=size,
        intensity=intensity,
        rate=rate,
        bandwidth=bandwidth,
        memory_peak=memory,
        compute_peak=machine.ceiling("compute", dtype),
        ideal=ideal,
        bound=_bound(ideal, duration, size, memory),
    )


def _bound(ideal: Quantity, duration: int, size: Quantity, memory: Quantity) -> str:
    if ideal.value is None or not duration or size.value is None or memory.value is None:
        return "unknown"
    if ideal.value / duration < NEAR_ROOF:
        return "latency"
    return "memory" if size.value / memory.value * 1e9 >= ideal.value * (1 - 1e-9) else "compute"


def _total(group: Iterable[LaunchEvent], name: str, unit: str) -> Quantity:
    total = 0
    for launch in group:
        value = getattr(launch, name)
        if value is None:
            return Quantity(None, unit, reason=launch.unavailable.get(name, f"the target does not report {name}"))
        total += value
    return Quantity(total, unit, "static")


def _ratio(above: Quantity, below: Quantity, unit: str) -> Quantity:
    if above.value is None or not below.value:
        return Quantity(None, unit, reason=above.reason or below.reason or "the divisor is zero")
    both_static = above.source == below.source == "static"
    source: Source = "static" if both_static else "modelled"
    return Quantity(above.value / below.value, unit, source)


def time_outside(recording: Recording) -> int:
    """Time of the region, in ns, in which no kernel ran, and nothing was compiled or recorded."""
    return sum(end - start for start, end in outside_spans(recording))


def outside_spans(recording: Recording) -> list[tuple[int, int]]:
    """The stretches of that time as (start, end), in order."""
    events = (*recording.compiles, *recording.profiling, *recording.launches)
    spans = [(event.start, event.duration or 0) for event in events]
    spans += [(replay.start, replay.end - replay.start) for replay in recording.replays]  # no host works in a graph
    start = np.array([recording.start, *(begin for begin, _ in spans), recording.end], np.int64)
    took = np.array([0, *(length for _, length in spans), 0], np.int64)
    if (calls := recording.calls_made) is not None:
        start, took = np.concatenate([start, calls.start]), np.concatenate([took, calls.duration])
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate((start + took)[order]).clip(recording.start)[:-1]
    following = start[order][1:].clip(max=recording.end)
    gaps = np.flatnonzero(following > reached)
    return list(zip(reached[gaps].tolist(), following[gaps].tolist(), strict=True))
