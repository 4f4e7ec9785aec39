"""Tiles over time: the balance of every launch in words, and the Gantt chart."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tessera.language.lazy import np
from tessera.profiler.balance import Balance, PhaseStats, about_phases, balance, busy_map, phase_stats, too_short
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.profiler.style import (
    EDGE,
    HEAT,
    PALETTE,
    Plot,
    empty_figure,
    escape,
    graph_objects,
    shorten,
    styled,
    time_unit,
)
from tessera.profiler.views.lanes import Bars, bars_of
from tessera.profiler.views.tiles import missing_tiles, view
from tessera.runtime.events import LaunchEvent, TileBatch

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
        launches = {launch.launch: launch for launch in self.recording.launches}
        lines = ["Timeline:"]
        for launch, found in self.balances.items():
            lines.append(
                f"  {launches[launch].title}: {found.tiles:,} tiles on {found.lanes} lanes ({found.waves:.2f} waves) "
                f"in {format_time(found.makespan)}, {format_percent(found.idle)} idle, tail {format_time(found.tail)}"
            )
            lines += [f"    {parts}"] if (parts := _parts(launches[launch], self.recording.tiles_of(launch))) else []
        for launch in self.recording.launches:
            if too_short(launch, self.recording.tiles_of(launch.launch)):
                step = format_time(float(launch.attributes["clock_ns"]))
                lines.append(
                    f"  {launch.title}: its tiles are too short for the GPU's clock, which moves in steps of {step}"
                )
        lines += [f"  {missing}"] if (missing := missing_tiles(self.recording)) else []
        if not self.balances:
            lines.append("  no launch with all of its tile records" if missing else "  no tile records")
        return "\n".join(lines)

    def view(self) -> str:
        return view(self.recording)

    def figure(self) -> go.Figure:
        """Overview heatmap of all resources, and the tiles of the window as bars."""

        return gantt_figure(self.recording, self.window)

    def histogram(self) -> go.Figure:
        """How long tiles took, one curve per kernel."""

        return histogram_figure(self.recording)


_PARTS = 6


def _parts(launch: LaunchEvent, tiles: TileBatch) -> str:
    """The phases of a launch's tiles, the longest first; "" where they have one."""
    found = phase_stats(tiles)
    if len(found) < 2:
        return ""
    whole = max(1, sum(entry.total for entry in found))
    said = [f"{_with_line(entry)} {format_percent(entry.total / whole)}" for entry in found[:_PARTS]]
    more = [f"{len(found) - _PARTS} more"] if len(found) > _PARTS else []
    about = about_phases(launch)
    return ", ".join([*said, *more]) + (f" ({about})" if about else "")


def _with_line(entry: PhaseStats) -> str:
    known = len(entry.lines) == 1 and entry.lines[0] > 0 and "(line" not in entry.phase
    return f"{entry.phase} (line {entry.lines[0]})" if known else entry.phase


# Tiles over time as a figure of Plotly: a heatmap of all resources above, the tiles of a window as bars below.
#
# A browser draws a heatmap of any recording at once but chokes on ten thousand bars, so the bars are those of
# the window, the longest ones if there are too many.

_BINS = 600


def gantt_figure(recording: Recording, window: tuple[int, int] | None = None) -> go.Figure:
    """The overview and the bars of `window` (ns from the first tile's start; by default of all)."""
    return bars_figure(bars_of(recording), window)


def bars_figure(bars: Bars, window: tuple[int, int] | None = None) -> go.Figure:
    """`gantt_figure` from bars that are made already."""
    if not len(bars.start):
        return empty_figure("Tiles over time", "no tile records: profile with tiles=True and launch a kernel")
    window = window or (0, bars.span)
    scale, unit = time_unit(bars.span)
    shown = bars.within(window)
    figure = graph_objects().Figure()
    _overview(figure, bars, scale, unit)
    _tile_bars(figure, bars, shown, scale)
    count = len(bars.rows)
    height = 250 + min(max(count, 4) * 22, 380)
    figure.update_layout(xaxis2={"anchor": "y2"}, yaxis2={"anchor": "x2"})  # only axes that are there get the look
    styled(figure, "Tiles over time", height)
    split = 1 - 100 / height
    below = split - 66 / height  # room for the overview's axis and the caption
    left, right = window[0] / scale, window[1] / scale
    hidden = {"showticklabels": False, "ticks": "", "showgrid": False}
    figure.update_layout(
        barmode="overlay",
        showlegend=True,
        margin={"l": 130},
        xaxis={"anchor": "y", "range": [0, bars.span / scale], "showgrid": False},
        yaxis={"domain": [split, 1.0], "type": "category", "autorange": "reversed", **hidden},
        xaxis2={"range": [left, right], "title": {"text": f"time ({unit})"}},
        yaxis2={"domain": [0.0, below - 4 / height], "range": [count - 0.4, -0.6], **row_ticks(bars)},
    )
    figure.add_annotation(
        text=bars_caption(len(shown), len(bars.start)), showarrow=False, x=0, xref="paper", xanchor="left",
        y=below, yref="paper", yanchor="bottom", font={"size": 11},
    )  # fmt: skip
    figure.add_shape(
        type="rect", xref="x", yref="y domain", x0=left, x1=right, y0=0, y1=1, line={"color": PALETTE[4], "width": 2}
    )
    return figure


def _tile_bars(figure: go.Figure, bars: Bars, shown: np.ndarray, scale: float) -> None:
    """One trace for each group, so that the legend can hide it."""
    go = graph_objects()
    edge = 0.5 if len(bars.rows) <= 48 else 0  # thin rows would be all edge
    for index, name in enumerate(bars.groups):
        mine = shown[bars.group[shown] == index]
        figure.add_trace(
            go.Bar(
                orientation="h",
                base=bars.start[mine] / scale,
                x=bars.duration[mine] / scale,
                y=bars.row[mine],
                width=0.86,
                name=escape(shorten(name)),
                marker={"color": PALETTE[index % len(PALETTE)], "line": {"color": EDGE, "width": edge}},
                text=hover_texts(bars, mine),
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
                xaxis="x2",
                yaxis="y2",
            )
        )


def _overview(figure: go.Figure, bars: Bars, scale: float, unit: str) -> None:
    """Tiles in flight for each row, averaged over time slices. Phases inside a tile count once."""
    go = graph_objects()
    records = np.empty(len(bars.start), [("start", np.int64), ("duration", np.int64)])
    records["start"], records["duration"] = bars.start, bars.duration
    busy = np.minimum(busy_map(records, bars.row, len(bars.rows), 0, bars.span, _BINS), 1.0)
    figure.add_trace(
        go.Heatmap(
            z=busy.round(3),
            y=[escape(name) for name in bars.rows],
            x0=bars.span / _BINS / 2 / scale,
            dx=bars.span / _BINS / scale,
            zmin=0.0,
            zmax=1.0,
            colorscale=HEAT,
            colorbar={"title": {"text": "busy", "side": "top"}, "len": 110, "lenmode": "pixels", "thickness": 10,
                      "y": 1.0, "yanchor": "top", "tickvals": [0, 1], "ticktext": ["0%", "100%"]},
            hovertemplate="%{y}: %{z:.0%} busy at %{x:.4~g} " + unit + "<extra></extra>",
        )
    )  # fmt: skip


def row_ticks(bars: Bars, most: int = 16) -> dict[str, Any]:
    """Tick positions and labels for at most `most` rows, so that labels do not run into each other."""
    step = max(1, -(-len(bars.rows) // most))
    positions = list(range(0, len(bars.rows), step))
    return {"tickvals": positions, "ticktext": [escape(bars.rows[position]) for position in positions]}


def hover_texts(bars: Bars, indices: np.ndarray) -> list[str]:
    """What the pointer shows on a bar: tile, what it does, how long, where in the source, and how that is known."""
    columns = (bars.tile, bars.group, bars.row, bars.start, bars.duration, bars.line, bars.launch)
    return [
        f"tile {tile}: {escape(bars.groups[group])}<br>{escape(bars.launches[launch])}<br>{escape(bars.rows[row])}"
        f"<br>{duration:,} ns from {format_time(start)}" + (f"<br>line {line}" if line else "")
        for tile, group, row, start, duration, line, launch in zip(
            *(column[indices].tolist() for column in columns), strict=True
        )
    ]


def bars_caption(shown: int, total: int) -> str:
    """Says how many of the records are drawn."""
    if shown == total:
        return f"all {total:,} tile records"
    return f"{shown:,} of {total:,} tile records ({format_percent(shown / total)})"


# How long tiles took.

_HISTOGRAM_BINS = 50
# A longest tile of so many medians would squeeze all others into a few bins of a linear axis.
_LOG_FROM = 5.0


def histogram_figure(recording: Recording) -> go.Figure:
    """Tile times, all phases of a tile together, one outline per kernel; logarithmic when some are far longer."""
    extents, _ = recording.extents
    if not len(extents):
        return empty_figure("Tile times", "no tile records: profile with tiles=True and launch a kernel")
    go = graph_objects()
    durations = np.maximum(extents["duration"], 1)  # a clock of coarse ticks gives zeros, which no logarithm has
    scale, unit = time_unit(float(np.median(durations)))
    spread = float(durations.max() / np.median(durations)) > _LOG_FROM
    shortest, longest = float(durations.min()), float(durations.max()) * 1.0001
    bins = min(_HISTOGRAM_BINS, 10 + len(durations) // 10)
    edges = np.geomspace(shortest, longest, bins + 1) if spread else np.linspace(0, longest, bins + 1)
    kernels: dict[str, list[int]] = {}
    for launch in recording.launches:
        kernels.setdefault(launch.title, []).append(launch.launch)
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
