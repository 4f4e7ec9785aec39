"""Tiles over time: the balance of every launch in words, and the Gantt chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.profiler.tiles import Balance, balance
from tessera.profiler.views.display import Plot

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Timeline(Plot):
    """`balances` maps launch ids to their `Balance`; launches without tile records are left out."""

    def __init__(self, recording: Recording, window: tuple[int, int] | None = None) -> None:
        self.recording = recording
        self.window = window
        found = ((launch.launch, balance(launch, recording.tiles_of(launch.launch))) for launch in recording.launches)
        self.balances: dict[int, Balance] = {launch: result for launch, result in found if result is not None}

    def __str__(self) -> str:
        names = {launch.launch: launch.kernel for launch in self.recording.launches}
        lines = ["Timeline:"]
        for launch, found in self.balances.items():
            lines.append(
                f"  {names[launch]}: {found.tiles:,} tiles on {found.lanes} lanes ({found.waves:.2f} waves) "
                f"in {format_time(found.makespan)}, {format_percent(found.idle)} idle, tail {format_time(found.tail)}"
            )
        if not self.balances:
            lines.append("  no tile records")
        return "\n".join(lines)

    def figure(self) -> go.Figure:
        """Overview heatmap of all resources, and the tiles of the window as bars."""
        from tessera.profiler.views.gantt import gantt_figure

        return gantt_figure(self.recording, self.window)

    def histogram(self) -> go.Figure:
        """How long tiles took, one curve per kernel."""
        from tessera.profiler.views.histogram import histogram_figure

        return histogram_figure(self.recording)
