"""How long tiles took."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tessera.profiler.quantity import format_time
from tessera.profiler.recording import Recording
from tessera.profiler.slots import tile_extents
from tessera.profiler.views.style import PALETTE, empty_figure, escape, graph_objects, shorten, styled, time_unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BINS = 50
# A longest tile of so many medians would squeeze all others into a few bins of a linear axis.
_LOG_FROM = 5.0


def histogram_figure(recording: Recording) -> go.Figure:
    """Tile times, all phases of a tile together, one outline per kernel; logarithmic when some are far longer."""
    import numpy as np

    extents, _ = tile_extents(recording.tiles.records)
    if not len(extents):
        return empty_figure("Tile times", "no tile records: profile with tiles=True and launch a kernel")
    go = graph_objects()
    durations = np.maximum(extents["duration"], 1)  # a clock of coarse ticks gives zeros, which no logarithm has
    scale, unit = time_unit(float(np.median(durations)))
    spread = float(durations.max() / np.median(durations)) > _LOG_FROM
    shortest, longest = float(durations.min()), float(durations.max()) * 1.0001
    bins = min(_BINS, 10 + len(durations) // 10)
    edges = np.geomspace(shortest, longest, bins + 1) if spread else np.linspace(0, longest, bins + 1)
    kernels: dict[str, list[int]] = {}
    for launch in recording.launches:
        kernels.setdefault(launch.kernel, []).append(launch.launch)
    figure = go.Figure()
    for kernel, launches in kernels.items():
        mine = durations[np.isin(extents["launch"], launches)]
        if not len(mine):
            continue
        counts, _ = np.histogram(mine, bins=edges)
        bounds = [f"{format_time(low)} to {format_time(high)}" for low, high in itertools.pairwise(edges.tolist())]
        figure.add_trace(
            go.Scatter(
                x=edges / scale,
                y=[*counts.tolist(), 0],
                line={"shape": "hv", "width": 2, "color": PALETTE[len(figure.data) % len(PALETTE)]},
                fill="tozeroy",
                name=f"{escape(shorten(kernel))}, median {format_time(float(np.median(mine)))}",
                mode="lines",
                text=[*bounds, ""],
                hovertemplate=f"%{{y:,}} tiles of %{{text}}<extra>{escape(kernel)}</extra>",
            )
        )
    styled(figure, "Tile times", 320)
    figure.update_layout(showlegend=True)
    ends = [shortest / 1.5, longest * 1.5] if spread else [0, longest * 1.05]
    axis = {"type": "log", "dtick": "D2", "range": np.log10(np.array(ends) / scale).tolist()} if spread else {}
    figure.update_xaxes(title=f"time of a tile ({unit})", **(axis or {"range": [0, ends[1] / scale]}))
    few = max(max(trace.y) for trace in figure.data) <= 5 if figure.data else False
    figure.update_yaxes(title="tiles", rangemode="tozero", dtick=1 if few else None)
    return figure
