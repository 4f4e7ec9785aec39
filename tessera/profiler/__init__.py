"""Where the time went: recording, analysis, views and exporters over the runtime's events."""

from __future__ import annotations

import sys
from types import ModuleType

from tessera.profiler.performance import PerformanceAnalysis, analyze_performance
from tessera.profiler.session import Profiler, profile_memory, profiler
from tessera.profiler.trial.lines import side_by_side
from tessera.profiler.trial.timing import benchmark

__all__ = [
    "PerformanceAnalysis",
    "Profiler",
    "analyze_performance",
    "benchmark",
    "profile_memory",
    "profiler",
    "side_by_side",
]


class _CallableModule(ModuleType):
    """`ts.profiler` is this package as soon as anything has imported it, and `with ts.profiler()` must still work."""

    __call__ = staticmethod(profiler)


sys.modules[__name__].__class__ = _CallableModule
