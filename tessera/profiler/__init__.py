"""Where the time went: recording, analysis, views and exporters over the runtime's events."""

from __future__ import annotations

from tessera.profiler.session import Profiler, profiler

__all__ = ["Profiler", "profiler"]
