"""Where the time of a region went: kernels, compiling, and everything between them."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.profiler.hints import Hint, hints
from tessera.profiler.kernel_stats import kernel_stats
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.runtime.events import Source

_BOUND = {
    "memory": "memory bandwidth",
    "compute": "arithmetic",
    "latency": "neither roof: latency, balance or launch cost",
    "unknown": "not known",
}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """One consumer of time. `duration` in ns, `share` of the region's wall time; kernels may run side by side."""

    what: str
    duration: int
    share: float
    bound: str
    source: Source
    hints: tuple[Hint, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.what}: {format_time(self.duration)} ({format_percent(self.share)} of the run), {self.bound}"]
        return "\n".join(lines + [f"  - Suggestion: {hint.change}" for hint in self.hints])


def find_bottlenecks(recording: Recording) -> list[Bottleneck]:
    """Kernels, compilation and the time outside both, largest first."""
    region = recording.duration or 1
    advice = hints(recording)
    found = []
    for kernel in kernel_stats(recording):
        own = tuple(hint for hint in advice if hint.kernel == kernel.kernel)
        share = kernel.duration / region
        found.append(Bottleneck(kernel.kernel, kernel.duration, share, _BOUND[kernel.bound], kernel.source, own))
    for what, spans, bound, kind in (
        ("compilation", _compiling(recording, instrumented=False), "the compiler", "compilation"),
        ("profiling", _compiling(recording, instrumented=True), "compiling kernels that record tiles", ""),
        ("outside kernels", _outside(recording), "Python, transfers and launching", "launch overhead"),
    ):
        if spans:
            own = tuple(hint for hint in advice if hint.kind == kind)
            found.append(Bottleneck(what, spans, spans / region, bound, "measured", own))
    return sorted(found, key=lambda entry: -entry.duration)


def _compiling(recording: Recording, instrumented: bool) -> int:
    """Time spent compiling for the program, or (`instrumented`) only because somebody profiles it."""
    found = [e for e in recording.compiles if bool(e.attributes.get("instrumented")) == instrumented]
    return _covered(recording, [(event.start, event.start + event.duration) for event in found])


def _outside(recording: Recording) -> int:
    busy = [(event.start, event.start + event.duration) for event in recording.compiles]
    busy += [(event.start, event.start + (event.duration or 0)) for event in recording.launches]
    return recording.duration - _covered(recording, busy)


def _covered(recording: Recording, spans: list[tuple[int, int]]) -> int:
    """Length of the union of the spans, within the region."""
    total, reached = 0, recording.start
    for start, end in sorted(spans):
        start, end = max(start, reached), min(end, recording.end)
        if end > start:
            total += end - start
            reached = end
    return total
