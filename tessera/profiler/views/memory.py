"""Bytes held over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tessera.profiler.quantity import format_bytes
from tessera.profiler.views.style import PALETTE, empty_figure, escape, graph_objects, styled, time_unit
from tessera.runtime.events import MemoryEvent

if TYPE_CHECKING:
    import plotly.graph_objects as go


def memory_figure(events: Sequence[MemoryEvent]) -> go.Figure:
    """One step line per device; the peak is marked, and each step says what was allocated or released where."""
    if not events:
        return empty_figure("Memory", "nothing was allocated or released")
    go = graph_objects()
    first, last = min(event.time for event in events), max(event.time for event in events)
    scale, unit = time_unit(last - first)
    figure = go.Figure()
    for index, device in enumerate(dict.fromkeys(event.device for event in events)):
        mine = sorted((event for event in events if event.device == device), key=lambda event: event.time)
        colour = PALETTE[index % len(PALETTE)]
        figure.add_trace(
            go.Scatter(
                x=[(event.time - first) / scale for event in mine],
                y=[event.total for event in mine],
                mode="lines+markers" if len(mine) <= 200 else "lines",
                marker={"size": 5},
                line={"shape": "hv", "color": colour, "width": 2},
                fill="tozeroy",
                name=escape(device),
                text=[_describe(event) for event in mine],
                hovertemplate="%{text}<extra></extra>",
            )
        )
        peak = max(mine, key=lambda event: event.total)
        figure.add_annotation(
            text=f"peak {format_bytes(peak.total)}", x=(peak.time - first) / scale, y=peak.total, showarrow=False,
            yanchor="bottom", xanchor="right" if peak.time - first > (last - first) / 2 else "left", font={"size": 11},
        )  # fmt: skip
    styled(figure, "Memory", 300)
    figure.update_xaxes(title=f"time ({unit})")
    figure.update_yaxes(title="held", tickformat="~s", ticksuffix="B", rangemode="tozero")
    figure.update_layout(showlegend=len(figure.data) > 1)
    return figure


def _describe(event: MemoryEvent) -> str:
    sign = "+" if event.delta >= 0 else "-"
    place = f"<br>{escape(event.file)}:{event.line}" if event.line else ""
    return f"{sign}{format_bytes(abs(event.delta))} {escape(event.what)}<br>{format_bytes(event.total)} held{place}"
