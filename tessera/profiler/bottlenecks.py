"""Where the time of a region went: kernels, compiling, and everything between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.profiler.hints import Hint, hints
from tessera.profiler.kernel_stats import covered, kernel_stats, time_outside
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.runtime.events import CompileEvent, ProfilingEvent, Source

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
        share = kernel.duration / (recording.represented or 1)
        found.append(Bottleneck(kernel.title, kernel.duration, share, _BOUND[kernel.bound], kernel.source, own))
    for what, spans, bound, kind in (
        ("compilation", _compiling(recording), "the compiler", "compilation"),
        ("profiling", _profiling(recording), "recording, and compiling kernels that record tiles", ""),
        (
            "outside kernels",
            time_outside(recording),
            "Python, transfers and launching",
            "launch overhead, outside kernels",
        ),
    ):
        if spans:
            own = tuple(hint for hint in advice if kind and hint.kind in kind)
            found.append(Bottleneck(what, spans, spans / region, bound, "measured", own))
    return sorted(found, key=lambda entry: -entry.duration)


def _compiling(recording: Recording) -> int:
    return covered(recording, _spans([e for e in recording.compiles if not e.attributes.get("instrumented")]))


def _profiling(recording: Recording) -> int:
    """Recording, and compiling that is done only because somebody profiles the program."""
    ours = [e for e in recording.compiles if e.attributes.get("instrumented")]
    return covered(recording, _spans([*ours, *recording.profiling]))


def _spans(found: Sequence[CompileEvent | ProfilingEvent]) -> list[tuple[int, int]]:
    return [(event.start, event.start + event.duration) for event in found]
