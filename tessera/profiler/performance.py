"""`ts.analyze_performance(f, x)`: a call under the profiler, and what there is to say of it in one report."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessera.profiler.bottlenecks import Bottleneck
from tessera.profiler.hints import Hint
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.session import Profiler
from tessera.tracebacks import outward

SHOWN = 5
"""bottlenecks in a report, the largest first"""


@dataclass(frozen=True, slots=True)
class PerformanceAnalysis:
    """What was recorded of a call: `profile` answers everything else."""

    name: str
    profile: Profiler

    @property
    def bottlenecks(self) -> list[Bottleneck]:
        """Where the time went, largest first."""
        return self.profile.find_bottlenecks()

    @property
    def hints(self) -> list[Hint]:
        """What to change, largest possible saving first."""
        return self.profile.hints()

    def report(self) -> str:
        """Bottlenecks, each with what bounds it and what would change it, then what there is to gain."""
        found, hints = self.bottlenecks, self.hints
        lines = [f"Performance Analysis of {self.name}:", "", "  Bottlenecks:"]
        for number, one in enumerate(found[:SHOWN], 1):
            lines.append(f"    {number}. {one.what}: {one.part}, {format_time(one.duration)}, {one.bound}")
            for hint in one.hints:
                lines += [f"       - Cause: {hint.cause}", f"       - Suggestion: {hint.change}"]
        rest = len(found) - SHOWN
        if rest > 0:
            lines.append(f"    and {rest} more, each of {format_percent(found[SHOWN].share)} at most")
        lines += ["", "  Optimization Opportunities:"]
        for hint in hints:
            low, high = (format_percent(part) for part in hint.whole_run)
            lines.append(f"    - {hint.title or 'whole run'}: {hint.change}: saves {low} to {high} of the run")
        tries = "print(analysis.hints[0].try_it()) tries the first one"
        lines.append(f"    {tries if hints else 'nothing that stands out'}")
        return "\n".join(lines)

    __str__ = report

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.report())}</pre>"


@outward
def analyze_performance(function: Callable[..., Any], *args: Any, **kwargs: Any) -> PerformanceAnalysis:
    """Calls `function` on these arguments, so that it is compiled, then records three more calls, or one if it is long.

    `function` is anything that calls functions and kernels: one of them, a model, plain Python. Its exceptions pass.
    """

    def call() -> object:
        return function(*args, **kwargs)

    with Profiler():  # compiles, also what records tiles
        call()
    profile = Profiler()
    profile.repeat(call)
    name = getattr(function, "__name__", None) or type(function).__name__
    return PerformanceAnalysis(str(name), profile)
