"""The roofline of a recording: every kernel as a point under the ceilings of the device it ran on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.profiler.kernel_stats import KernelStats, copies, kernel_stats
from tessera.profiler.machine import Ceiling, DeviceCeilings
from tessera.profiler.quantity import format_percent, format_time, format_value
from tessera.profiler.recording import Recording
from tessera.profiler.style import PALETTE, TEXT, Plot, empty_figure, escape, graph_objects, shorten, styled
from tessera.profiler.views.roofline import place, view

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Roofline(Plot):
    """`points` are the kernels with known flops, bytes and time, those of an unrolled loop as one; `missing` says why
    the others have none."""

    def __init__(self, recording: Recording) -> None:
        kernels = [whole for whole, _ in copies(kernel_stats(recording), recording)]
        self.points: list[KernelStats] = [kernel for kernel in kernels if kernel.intensity.value and kernel.rate.value]
        self.missing: dict[str, str] = {
            kernel.title: kernel.intensity.reason or kernel.rate.reason or "it does no arithmetic"
            for kernel in kernels
            if kernel not in self.points
        }
        self.machines: dict[str, DeviceCeilings] = {
            kernel.device: recording.machine(kernel.device) for kernel in kernels
        }

    def __str__(self) -> str:
        lines = ["Roofline:"]
        for machine in self.machines.values():
            lines.append(f"  {machine.name or machine.device}")
            if machine.reason:
                lines.append(f"    no ceilings: {machine.reason}")
            for ceiling in machine.ceilings:
                value = format_value(ceiling.value, ceiling.unit)
                lines.append(f"    {ceiling.name} {ceiling.kind}: {value} ({ceiling.source}: {ceiling.how})")
        for point in self.points:
            fraction = point.roof_fraction
            roof = f", {format_percent(fraction)} of the roof" if fraction is not None else ""
            rate = format_value(point.rate.value or 0, "FLOP/s")
            intensity = format_value(point.intensity.value or 0, "ops/byte")
            lines.append(f"  {point.title}: {rate} at {intensity}{roof}")
        lines += [f"  {kernel}: not shown, {reason}" for kernel, reason in self.missing.items()]
        lines += [] if self.points or self.missing else ["  no kernel was launched"]
        return "\n".join(lines)

    def view(self) -> str:
        ceilings = (c for machine in self.machines.values() for c in machine.ceilings)
        return view(self.points, self.missing, ceilings)

    def figure(self) -> go.Figure:
        """Rate over intensity, both logarithmic, with the ceilings as lines."""

        return roofline_figure(self.points, list(self.machines.values()))


# The roofline as a figure: operations per second over operations per byte, both logarithmic.

_DASHES = {"measured": "solid", "modelled": "dash", "static": "dot"}
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon")


def roofline_figure(points: Sequence[KernelStats], machines: Sequence[DeviceCeilings]) -> go.Figure:
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
        x, y = place(point)
        figure.add_trace(
            go.Scatter(
                x=[x],
                y=[y],
                error_y=_error_bar(point.rates),
                mode="markers",
                name=escape(shorten(point.title)),
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


def _error_bar(rates: tuple[float, float, float] | None) -> dict[str, Any]:
    """The middle half of the launches."""
    if rates is None:
        return {"visible": False}
    low, middle, high = rates
    return {"type": "data", "symmetric": False, "array": [high - middle], "arrayminus": [middle - low]}


def _add_ceilings(figure: go.Figure, machine: DeviceCeilings, low: float, high: float, named: bool) -> None:
    """Bandwidths rise until they meet the highest compute roof; compute roofs begin at the fastest memory."""
    go = graph_objects()
    slopes = sorted((c for c in machine.ceilings if c.kind == "bandwidth"), key=lambda c: -c.value)
    roofs = _distinct(c for c in machine.ceilings if c.kind == "compute")
    top = roofs[0].value if roofs else math.inf
    for ceiling in (*slopes, *roofs):
        sloped = ceiling.kind == "bandwidth"
        if sloped:
            start, end = low, min(high, top / ceiling.value)
        else:
            start, end = max(low, ceiling.value / slopes[0].value) if slopes else low, high
        heights = [start * ceiling.value, end * ceiling.value] if sloped else [ceiling.value] * 2
        name = f"{machine.device} {ceiling.name}" if named else ceiling.name
        label = escape(f"{name} {format_value(ceiling.value, ceiling.unit)} ({ceiling.source})")
        figure.add_trace(
            go.Scatter(
                x=[start, end],
                y=heights,
                mode="lines",
                line={"color": TEXT, "width": 2, "dash": _DASHES[ceiling.source]},
                showlegend=False,
                hovertemplate=f"{label}<br>{escape(ceiling.how)}<extra></extra>",
            )
        )
        above = ceiling in (slopes[:1] + roofs[:1])  # the others are named below their line
        if sloped:
            middle = (math.sqrt(start * end), math.sqrt(heights[0] * heights[1]))
            _label(figure, label, middle, "slope", 15 if above else -15)
        else:
            _label(figure, label, (end, heights[1]), "roof", 8 if above else -10)


def _distinct(roofs: Iterable[Ceiling]) -> list[Ceiling]:
    """Highest first; dtypes of one rate share a line."""
    found: dict[float, Ceiling] = {}
    for roof in roofs:
        known = found.setdefault(roof.value, roof)
        if known is not roof:
            other = roof.name if roof.source == known.source else f"{roof.name} {roof.source}"
            found[roof.value] = replace(known, name=f"{known.name}, {other}")
    return sorted(found.values(), key=lambda roof: -roof.value)


def _label(figure: go.Figure, text: str, place: tuple[float, float], name: str, shift: float) -> None:
    """Slopes are named in their middle, roofs at their right end; `shift` is in pixels above the line."""
    figure.add_annotation(
        text=text,
        x=math.log10(place[0]),
        y=math.log10(place[1]),
        name=name,
        xanchor="center" if name == "slope" else "right",
        yanchor="middle",
        xshift=0 if name == "slope" else -4,
        yshift=shift,
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
    return min(marks) / 8, max(marks) * 40


def _rate_range(points: Sequence[KernelStats], ceilings: Sequence[Ceiling]) -> tuple[float, float]:
    rates = [point.rate.value for point in points if point.rate.value]
    roofs = [ceiling.value for ceiling in ceilings if ceiling.kind == "compute"]
    return min([*rates, *(roof / 1000 for roof in roofs)]) / 3, max([*rates, *roofs]) * 3


def _log_range(low: float, high: float) -> list[float]:
    return [math.log10(low), math.log10(high)]


def _hover(point: KernelStats) -> str:
    lines = [
        f"<b>{escape(point.title)}</b>",
        f"{format_time(point.duration)}, {format_percent(point.share)} of kernel time ({point.source})",
        f"{format_value(point.intensity.value or 0, 'ops/byte')} ({point.intensity.source})",
        f"{format_value(point.rate.value or 0, 'FLOP/s')} ({point.rate.source})",
    ]
    if point.roof_fraction is not None:
        lines.append(f"{format_percent(point.roof_fraction)} of what the roofline allows")
    return "<br>".join(lines)
