"""Where the time of a region went: kernels, compiling, and everything between them."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.profiler.hints import Hint, hints
from tessera.profiler.kernel_stats import kernel_stats, time_outside
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
    """One consumer of time. `duration` in ns, `share` of the run's; kernels may run side by side. The run is the region
    without recording, which is beside it."""

    what: str
    duration: int
    share: float
    bound: str
    source: Source
    hints: tuple[Hint, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.what}: {format_time(self.duration)} ({self.part}), {self.bound}"]
        return "\n".join(lines + [f"  - Suggestion: {hint.change}" for hint in self.hints])

    @property
    def part(self) -> str:
        """`12.1% of the run`"""
        return f"{format_percent(self.share)} of the run" if self.what != _RECORDING else "beside the run"


_RECORDING = "profiling"


def find_bottlenecks(recording: Recording) -> list[Bottleneck]:
    """Kernels, compilation and the time outside both, largest first."""
    run = recording.run_time or 1
    advice = hints(recording)
    found = []
    for kernel in kernel_stats(recording):
        own = tuple(hint for hint in advice if hint.kernel == kernel.kernel)
        share = kernel.duration / (recording.represented or 1)
        found.append(Bottleneck(kernel.title, kernel.duration, share, _BOUND[kernel.bound], kernel.source, own))
    for what, spans, bound, kind in (
        ("compilation", _compiling(recording), "the compiler", "compilation"),
        (_RECORDING, recording.duration - recording.run_time, "recording, and compiling kernels that record tiles", ""),
        (
            "outside kernels",
            time_outside(recording),
            "Python, transfers and launching",
            "launch overhead, outside kernels",
        ),
    ):
        if spans:
            own = tuple(hint for hint in advice if kind and hint.kind in kind)
            found.append(Bottleneck(what, spans, spans / run, bound, "measured", own))
    return sorted(found, key=lambda entry: -entry.duration)


def _compiling(recording: Recording) -> int:
    own = [e for e in recording.compiles if not e.attributes.get("instrumented")]
    return recording.covered((e.start, e.start + e.duration) for e in own)
