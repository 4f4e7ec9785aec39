"""The roofline as a figure: operations per second over operations per byte, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tessera.profiler.kernels import KernelStats
from tessera.profiler.machine import Ceiling, Machine
from tessera.profiler.quantity import format_percent, format_time, format_value
from tessera.profiler.views.style import PALETTE, TEXT, empty_figure, escape, graph_objects, shorten, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DASHES = {"measured": "solid", "modelled": "dash", "static": "dot"}
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon")


def roofline_figure(points: Sequence[KernelStats], machines: Sequence[Machine]) -> go.Figure:
    """Kernels as points whose area grows with their time, ceilings as labelled lines (dashed when modelled)."""
    ceilings = [ceiling for machine in machines for ceiling in machine.ceilings]
    if not points and not any(ceiling.kind == "compute" for ceiling in ceilings):
        reasons = "; ".join(machine.reason for machine in machines if machine.reason)
        return empty_figure("Roofline", reasons or "no kernel with known operations and bytes has run")
    go = graph_objects()
    figure = go.Figure()
    low, high = _intensity_range(points, ceilings)
    for machine in machines:
        _add_ceilings(figure, machine, low, high, len(machines) > 1)
    total = sum(point.duration for point in points)
    for index, point in enumerate(points):
        x, y = point.intensity.value, point.rate.value
        if not x or not y:
            continue
        figure.add_trace(
            go.Scatter(
                x=[x],
                y=[y],
                mode="markers",
                name=escape(shorten(point.kernel)),
                marker={
                    "size": 9 + 17 * math.sqrt(point.duration / total),
                    "symbol": _SYMBOLS[index % len(_SYMBOLS)],
                    "color": PALETTE[index % len(PALETTE)],
                    "line": {"color": TEXT, "width": 1},
                },
                hovertemplate=_hover(point) + "<extra></extra>",
            )
        )
    styled(figure, "Roofline", 440)
    rates = _rate_range(points, ceilings)
    figure.update_xaxes(type="log", dtick=1, title="arithmetic intensity (ops/byte)", range=_log_range(low, high))
    figure.update_yaxes(type="log", dtick=1, title="rate (FLOP/s)", tickformat="~s", range=_log_range(*rates))
    _turn_labels(figure, (math.log10(high / low), math.log10(rates[1] / rates[0])))
    figure.update_layout(showlegend=bool(points), legend={"y": 1.0})
    return figure


def _add_ceilings(figure: go.Figure, machine: Machine, low: float, high: float, named: bool) -> None:
    go = graph_objects()
    prefix = f"{machine.device} " if named else ""
    top = max((ceiling.value for ceiling in machine.ceilings if ceiling.kind == "compute"), default=math.inf)
    slowest = min((ceiling.value for ceiling in machine.ceilings if ceiling.kind == "bandwidth"), default=1.0)
    for ceiling in machine.ceilings:
        sloped = ceiling.kind == "bandwidth"
        # A bandwidth matters up to the highest compute roof, a compute roof from the fastest memory on.
        ends = (low, min(high, top / ceiling.value)) if sloped else (min(ceiling.value / slowest, high) * 1e-3, high)
        ends = (max(ends[0], low), ends[1])
        if ends[1] <= ends[0]:
            continue
        heights = [end * ceiling.value if sloped else ceiling.value for end in ends]
        label = f"{prefix}{ceiling.name} {format_value(ceiling.value, ceiling.unit)} ({ceiling.source})"
        figure.add_trace(
            go.Scatter(
                x=list(ends),
                y=heights,
                mode="lines",
                line={"color": TEXT, "width": 2, "dash": _DASHES[ceiling.source]},
                showlegend=False,
                hovertemplate=f"{escape(label)}<br>{escape(ceiling.how)}<extra></extra>",
            )
        )
        _label(figure, escape(label), ends, heights, sloped)


def _label(figure: go.Figure, text: str, ends: tuple[float, float], heights: list[float], sloped: bool) -> None:
    """Compute roofs are named at their right end, bandwidths along the middle of their slope; all above the line."""
    x, y = (math.log10(ends[1]), math.log10(heights[1]))
    if sloped:
        x, y = ((x + math.log10(ends[0])) / 2, (y + math.log10(heights[0])) / 2)
    figure.add_annotation(
        text=text,
        x=x,
        y=y,
        name="slope" if sloped else "roof",
        xanchor="center" if sloped else "right",
        yanchor="middle" if sloped else "bottom",
        xshift=0 if sloped else -4,
        yshift=15 if sloped else 0,
        showarrow=False,
        font={"size": 11},
    )


def _turn_labels(figure: go.Figure, decades: tuple[float, float]) -> None:
    """Turns the labels of slopes along their lines, for a plot of usual width: a line of slope 1 in decades."""
    width, height = 760, figure.layout.height - 120
    angle = -math.degrees(math.atan2(height / decades[1], width / decades[0]))
    figure.for_each_annotation(lambda label: label.update(textangle=angle), selector={"name": "slope"})


def _intensity_range(points: Sequence[KernelStats], ceilings: Sequence[Ceiling]) -> tuple[float, float]:
    """From well left of every point to well right of the ridge, where memory and compute roofs meet."""
    compute = [ceiling.value for ceiling in ceilings if ceiling.kind == "compute"]
    memory = [ceiling.value for ceiling in ceilings if ceiling.kind == "bandwidth"]
    ridges = [roof / slope for roof in compute for slope in memory]
    marks = [*ridges, *(point.intensity.value for point in points if point.intensity.value), 1.0]
    return min(marks) / 8, max(marks) * 8


def _rate_range(points: Sequence[KernelStats], ceilings: Sequence[Ceiling]) -> tuple[float, float]:
    rates = [point.rate.value for point in points if point.rate.value]
    roofs = [ceiling.value for ceiling in ceilings if ceiling.kind == "compute"]
    return min([*rates, *(roof / 1000 for roof in roofs)]) / 3, max([*rates, *roofs]) * 3


def _log_range(low: float, high: float) -> list[float]:
    return [math.log10(low), math.log10(high)]


def _hover(point: KernelStats) -> str:
    lines = [
        f"<b>{escape(point.kernel)}</b>",
        f"{format_time(point.duration)}, {format_percent(point.share)} of kernel time ({point.source})",
        f"{format_value(point.intensity.value or 0, 'ops/byte')} ({point.intensity.source})",
        f"{format_value(point.rate.value or 0, 'FLOP/s')} ({point.rate.source})",
    ]
    if point.roof_fraction is not None:
        lines.append(f"{format_percent(point.roof_fraction)} of what the roofline allows")
    return "<br>".join(lines)
