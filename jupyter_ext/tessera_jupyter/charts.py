"""Tiles over time and the roofline as SVG: a few kilobytes that need no library and stay readable in a saved notebook.

The figures of `prof.timeline()` and `prof.roofline()` are the interactive ones; these show the same data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.language.lazy import np
from tessera.profiler.kernel_stats import KernelStats
from tessera.profiler.machine import Ceiling
from tessera.profiler.quantity import format_percent, format_time, format_value
from tessera.profiler.recording import Recording
from tessera.profiler.roofline import Roofline
from tessera.profiler.style import PALETTE, shorten, time_unit
from tessera.profiler.timeline import Bars, bars_of
from tessera_jupyter.markup import text

_WIDTH, _LEFT, _RIGHT = 760, 96, 14
_ROW = 20
_MOST_BARS = 160
_MOST_TILES = 20_000
_MOST_ROWS = 24


def gantt(recording: Recording) -> str:
    """The tiles of each lane as bars; tiles too short to be told apart share one."""
    bars = bars_of(recording)
    if not len(bars.start):
        return '<p class="ts-why">No tile records: this run was recorded without tiles, or launched no kernel.</p>'
    rows = bars.rows[:_MOST_ROWS]
    top, height = 22, 22 + _ROW * len(rows) + 34
    scale = (_WIDTH - _LEFT - _RIGHT) / bars.span
    parts = [
        f'<text x="{_LEFT - 8}" y="{top + _ROW * i + 14}" text-anchor="end">{text(r)}</text>'
        for i, r in enumerate(rows)
    ]
    parts += _legend(bars)
    drawn = [run for run in _runs(bars, scale) if run.row < len(rows)]
    drawn = sorted(drawn, key=lambda run: run.start - run.end)[:_MOST_BARS]
    parts += [_bar(bars, run, scale, top) for run in drawn]
    parts += _time_axis(bars.span, scale, top + _ROW * len(rows))
    total, count, lanes = len(bars.start), sum(run.count for run in drawn), len(bars.rows)
    shown = f"{total:,}" if count == total else f"{count:,} of {total:,}"
    label = f"Tiles over time: {shown} on {lanes} lane{'s' * (lanes != 1)} in {format_time(bars.span)}"
    return _svg("gantt", label, height, parts)


@dataclass(slots=True)
class _Run:
    """Tiles of one kernel or phase that follow each other on one lane, from `start` to `end` (ns)."""

    row: int
    group: int
    start: int
    end: int
    first: int
    count: int = 1


def _runs(bars: Bars, scale: float) -> list[_Run]:
    """The tiles, those joined that would be less than two pixels wide and stand less than one apart."""
    longest = np.argsort(-bars.duration, kind="stable")[:_MOST_TILES]
    out: list[_Run] = []
    for i in longest[np.lexsort((bars.start[longest], bars.row[longest]))].tolist():
        start, end = int(bars.start[i]), int(bars.start[i] + bars.duration[i])
        run = _Run(int(bars.row[i]), int(bars.group[i]), start, end, i)
        last = out[-1] if out else None
        narrow = min(end - start, (last.end - last.start) / last.count if last else 0) * scale < 2
        if last and (last.row, last.group) == (run.row, run.group) and narrow and (start - last.end) * scale < 1:
            last.end, last.count = max(last.end, end), last.count + 1
        else:
            out.append(run)
    return out


def _bar(bars: Bars, run: _Run, scale: float, top: int) -> str:
    line = f", line {bars.line[run.first]}" if bars.line[run.first] else ""
    tiles = f"tile {bars.tile[run.first]}" if run.count == 1 else f"{run.count} tiles"
    name, took = shorten(bars.groups[run.group]), format_time(run.end - run.start)
    x, y, width = _LEFT + run.start * scale, top + _ROW * run.row + 2, max((run.end - run.start) * scale, 0.5)
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 4}" fill="{PALETTE[run.group % len(PALETTE)]}">'
        f"<title>{text(f'{tiles}: {name}, {took} from {format_time(run.start)}{line}')}</title></rect>"
    )


def _legend(bars: Bars) -> list[str]:
    """What colours stand for, as far as it fits into one row; tooltips have the rest."""
    parts, x = [], float(_LEFT)
    for i, name in enumerate(bars.groups):
        label = shorten(name)
        if i == len(PALETTE) or x + 110 + 6.6 * len(label) > _WIDTH:
            return [*parts, f'<text x="{x:.0f}" y="14">and {len(bars.groups) - i} more</text>']
        parts.append(f'<rect x="{x:.0f}" y="5" width="10" height="10" fill="{PALETTE[i]}"/>')
        parts.append(f'<text x="{x + 14:.0f}" y="14">{text(label)}</text>')
        x += 30 + 6.6 * len(label)
    return parts


def _time_axis(span: int, scale: float, y: int) -> list[str]:
    unit_size, unit = time_unit(span)
    step = _round_step(span / unit_size / 6)
    parts = [f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" class="ts-axis"/>']
    for i in range(int(span / unit_size / step) + 1):
        x = _LEFT + i * step * unit_size * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}" class="ts-axis"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 16}" text-anchor="middle">{i * step:g}</text>')
    return [*parts, f'<text x="{_WIDTH - _RIGHT}" y="{y + 30}" text-anchor="end">time ({unit})</text>']


def _round_step(rough: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)


def roofline(found: Roofline) -> str:
    """Rate over intensity, both logarithmic, kernels as points under the machine's ceilings."""
    ceilings = [c for machine in found.machines.values() for c in machine.ceilings]
    if not found.points:
        why = "; ".join(f"{kernel}: {reason}" for kernel, reason in found.missing.items()) or "no kernel has run"
        return f'<p class="ts-why">No roofline: {text(why)}.</p>'
    return _Plane(found.points, ceilings).draw()


class _Plane:
    """The chart's two logarithmic axes and what is drawn on them."""

    height, top, bottom = 300, 16, 40

    def __init__(self, points: Sequence[KernelStats], ceilings: Sequence[Ceiling]) -> None:
        self.points = points
        self.slopes = sorted((c for c in ceilings if c.kind == "bandwidth"), key=lambda c: -c.value)
        roofs = sorted((c for c in ceilings if c.kind == "compute"), key=lambda c: -c.value)
        used = {p.dtype for p in points}
        self.roofs = [c for c in roofs if c.name in used] or roofs[:1]
        xs = [p.intensity.value or 1 for p in points] + [r.value / s.value for r in self.roofs for s in self.slopes]
        ys = [p.rate.value or 1 for p in points] + [r.value for r in self.roofs]
        self.x0, self.x1 = math.log10(min(xs) / 4), math.log10(max(xs) * 12)
        self.y0, self.y1 = math.log10(min(ys) / 4), math.log10(max(ys) * 2.5)

    def x(self, value: float) -> float:
        return _LEFT + (math.log10(value) - self.x0) / (self.x1 - self.x0) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        part = (math.log10(value) - self.y0) / (self.y1 - self.y0)
        return self.height - self.bottom - part * (self.height - self.top - self.bottom)

    def draw(self) -> str:
        parts = [*self.axes(), *self.ceiling_lines(), *map(self.point, range(len(self.points))), *self.names()]
        known = "; ".join(f"{c.name} {format_value(c.value, c.unit)} {c.source}" for c in (*self.slopes, *self.roofs))
        return _svg("roofline", f"Roofline ({known})", self.height, parts)

    def axes(self) -> list[str]:
        base, right = self.height - self.bottom, _WIDTH - _RIGHT
        parts = []
        for e in range(math.ceil(self.x0), math.floor(self.x1) + 1):
            x = self.x(10.0**e)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{base}" class="ts-grid"/>')
            parts.append(f'<text x="{x:.1f}" y="{base + 15}" text-anchor="middle">{10.0**e:g}</text>')
        for e in range(math.ceil(self.y0), math.floor(self.y1) + 1):
            y = self.y(10.0**e)
            parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="ts-grid"/>')
            label = format_value(10.0**e, "FLOP/s").replace(".00", "").replace(".0", "")
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        return [*parts, f'<text x="{right}" y="{base + 32}" text-anchor="end">arithmetic intensity (ops/byte)</text>']

    def ceiling_lines(self) -> list[str]:
        left, right = 10.0**self.x0, 10.0**self.x1
        peak = self.roofs[0].value if self.roofs else 10.0**self.y1
        steepest = self.slopes[0].value if self.slopes else 0.0
        parts: list[str] = []
        for c in self.slopes:
            begin = max(left, 10.0**self.y0 / c.value)  # where the slope enters the plane
            parts.append(self._line(c, (begin, begin * c.value), (peak / c.value, peak)))
            parts.append(self._slope_label(c, begin))
        for c in self.roofs:
            parts.append(self._line(c, (c.value / steepest if steepest else left, c.value), (right, c.value)))
            place = f'x="{_WIDTH - _RIGHT - 4}" y="{self.y(c.value) - 5:.1f}" text-anchor="end"'
            parts.append(f"<text {place}>{text(c.name)}</text>")
        return parts

    def _slope_label(self, c: Ceiling, begin: float) -> str:
        """Below the start of its slope, which rises away from it; the caption has the figures."""
        return f'<text x="{self.x(begin) + 6:.1f}" y="{self.y(begin * c.value) + 14:.1f}">{text(c.name)}</text>'

    def _line(self, c: Ceiling, start: tuple[float, float], end: tuple[float, float]) -> str:
        dash = "" if c.source == "measured" else ' stroke-dasharray="6 4"'
        x1, y1, x2, y2 = self.x(start[0]), self.y(start[1]), self.x(end[0]), self.y(end[1])
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        title = f"{c.name}: {format_value(c.value, c.unit)} ({c.source}: {c.how})"
        return f'<line {ends} class="ts-roof"{dash}><title>{text(title)}</title></line>'

    def place(self, p: KernelStats) -> tuple[float, float]:
        assert p.intensity.value is not None and p.rate.value is not None  # that makes it a point
        return self.x(p.intensity.value), self.y(p.rate.value)

    def point(self, i: int) -> str:
        p, (x, y) = self.points[i], self.place(self.points[i])
        of_roof = f", {format_percent(p.roof_fraction)} of the roof" if p.roof_fraction is not None else ""
        rate = f"{format_value(p.rate.value or 0, 'FLOP/s')} ({p.rate.source})"
        title = f"{p.title}: {rate} at {format_value(p.intensity.value or 0, 'ops/byte')}{of_roof}"
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{PALETTE[i % len(PALETTE)]}" class="ts-point">'
        return f"{circle}<title>{text(title)}</title></circle>"

    def names(self) -> list[str]:
        """Beside the points, the longest kernels first; a name that would lie on another is left to its tooltip."""
        parts: list[str] = []
        taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in map(self.place, self.points)]
        for p in sorted(self.points, key=lambda p: -p.duration):
            (x, y), label = self.place(p), shorten(p.title)
            width = 6.4 * len(label)
            for left, baseline in ((x + 10, y + 4), (x - 10 - width, y + 4), (x + 4, y + 20), (x + 4, y - 10)):
                box = (left, baseline - 10, left + width, baseline + 3)
                inside = left > _LEFT and left + width < _WIDTH - _RIGHT and box[3] < self.height - self.bottom
                if inside and not any(_overlap(box, other) for other in taken):
                    parts.append(f'<text x="{left:.1f}" y="{baseline:.1f}">{text(label)}</text>')
                    taken.append(box)
                    break
        return parts


_Box = tuple[float, float, float, float]


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _svg(name: str, label: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<figure class="ts-chart ts-{name}"><figcaption>{text(label)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{text(label)}">{"".join(parts)}</svg></figure>'
    )
