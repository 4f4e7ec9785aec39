"""Kernels under the ceilings of the machine, as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tessera.profiler.kernel_stats import KernelStats
from tessera.profiler.machine import Ceiling
from tessera.profiler.quantity import format_percent, format_value
from tessera.profiler.style import PALETTE, shorten
from tessera.profiler.views.markup import text
from tessera.profiler.views.svg import NARROW, WIDE, PictureFrame, label, line, picture


def view(points: Sequence[KernelStats], missing: Mapping[str, str], ceilings: Iterable[Ceiling]) -> str:
    """Rate over intensity, both logarithmic, kernels as points with the spread of their launches."""
    if not points:
        why = "; ".join(f"{kernel}: {reason}" for kernel, reason in missing.items()) or "no kernel has run"
        return f'<p class="ts-why">No roofline: {text(why)}.</p>'
    roofs = list(ceilings)
    planes = {frame: _Plane(points, roofs, frame) for frame in (WIDE, NARROW)}
    title = f"Roofline, with the middle half of the launches ({planes[WIDE].known})"
    return picture("roofline", title, _Plane.height, lambda frame: planes[frame].draw())


def place(point: KernelStats) -> tuple[float, float]:
    """Its intensity, and the rate of its median launch; of all launches together where they are too few for that."""
    assert point.intensity.value is not None and point.rate.value is not None  # that makes it a point
    return point.intensity.value, point.rates[1] if point.rates else point.rate.value


class _Plane:
    """The chart's two logarithmic axes and what is drawn on them."""

    height, top, bottom = 300, 16, 40

    def __init__(self, points: Sequence[KernelStats], ceilings: Sequence[Ceiling], frame: PictureFrame) -> None:
        self.points, self.frame = points, frame
        self.taken: list[_Box] = []
        """where names of ceilings stand"""
        self.slopes = sorted((c for c in ceilings if c.kind == "bandwidth"), key=lambda c: -c.value)
        roofs = sorted((c for c in ceilings if c.kind == "compute"), key=lambda c: -c.value)
        used = {p.dtype for p in points}
        self.roofs = [c for c in roofs if c.name in used] or roofs[:1]
        xs = [p.intensity.value or 1 for p in points] + [r.value / s.value for r in self.roofs for s in self.slopes]
        ys = [place(p)[1] for p in points] + [r.value for r in self.roofs]
        self.x0, self.x1 = math.log10(min(xs) / 4), math.log10(max(xs) * 12)
        self.y0, self.y1 = math.log10(min(ys) / 4), math.log10(max(ys) * 2.5)

    def x(self, value: float) -> float:
        part = (math.log10(value) - self.x0) / (self.x1 - self.x0)
        return self.frame.left + part * (self.frame.right - self.frame.left)

    def y(self, value: float) -> float:
        part = (math.log10(value) - self.y0) / (self.y1 - self.y0)
        return self.height - self.bottom - part * (self.height - self.top - self.bottom)

    @property
    def known(self) -> str:
        """The ceilings with their figures."""
        return "; ".join(f"{c.name} {format_value(c.value, c.unit)} {c.source}" for c in (*self.slopes, *self.roofs))

    def draw(self) -> list[str]:
        return [*self.axes(), *self.ceiling_lines(), *map(self.point, range(len(self.points))), *self.names()]

    def axes(self) -> list[str]:
        base, left, right = self.height - self.bottom, self.frame.left, self.frame.right
        parts = []
        for e in range(math.ceil(self.x0), math.floor(self.x1) + 1):
            x = self.x(10.0**e)
            parts += [line(x, self.top, x, base, "grid"), label(x, base + 15, f"{10.0**e:g}", "middle")]
        for e in range(math.ceil(self.y0), math.floor(self.y1) + 1):
            y = self.y(10.0**e)
            rate = format_value(10.0**e, "FLOP/s").replace(".00", "").replace(".0", "")
            parts += [line(left, y, right, y, "grid"), label(left - 6, y + 4, rate, "end")]
        return [*parts, label(right, base + 32, "arithmetic intensity (ops/byte)", "end")]

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
            parts.append(self._ceiling_label(self.frame.right - 4, self.y(c.value) - 5, c.name, "end"))
        return parts

    def _slope_label(self, c: Ceiling, begin: float) -> str:
        """Below the start of its slope, which rises away from it, and above the axis; the caption has the figures."""
        y = self.y(begin * c.value)
        if y + 14 > self.height - self.bottom:
            return self._ceiling_label(self.x(begin) + 20, y - 4, c.name)
        return self._ceiling_label(self.x(begin) + 6, y + 14, c.name)

    def _ceiling_label(self, x: float, y: float, name: str, anchor: str = "start") -> str:
        left = x - (anchor == "end") * self.frame.letter * len(name)
        self.taken.append((left, y - 10, left + self.frame.letter * len(name), y + 3))
        return label(x, y, name, anchor)

    def _line(self, c: Ceiling, start: tuple[float, float], end: tuple[float, float]) -> str:
        dash = "" if c.source == "measured" else ' stroke-dasharray="6 4"'
        x1, y1, x2, y2 = self.x(start[0]), self.y(start[1]), self.x(end[0]), self.y(end[1])
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        title = f"{c.name}: {format_value(c.value, c.unit)} ({c.source}: {c.how})"
        return f'<line {ends} class="ts-roof"{dash}><title>{text(title)}</title></line>'

    def place(self, p: KernelStats) -> tuple[float, float]:
        intensity, rate = place(p)
        return self.x(intensity), self.y(rate)

    def point(self, i: int) -> str:
        p, (x, y) = self.points[i], self.place(self.points[i])
        of_roof = f", {format_percent(p.roof_fraction)} of the roof" if p.roof_fraction is not None else ""
        rate = f"{format_value(p.rate.value or 0, 'FLOP/s')} ({p.rate.source})"
        title = f"{p.title}: {rate} at {format_value(p.intensity.value or 0, 'ops/byte')}{of_roof}"
        bar = ""
        if p.rates is not None:
            low, _, high = (self.y(max(rate, 10.0**self.y0)) for rate in p.rates)
            ends = "".join(line(x - 5, at, x + 5, at, "spread") for at in (low, high))
            bar = line(x, low, x, high, "spread") + ends
            quarters = " to ".join(format_value(p.rates[q], "FLOP/s") for q in (0, 2))
            title += f"; half of its {len(p.launches)} launches at {quarters}"
        circle = bar + f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{PALETTE[i % len(PALETTE)]}" class="ts-point">'
        return f"{circle}<title>{text(title)}</title></circle>"

    def names(self) -> list[str]:
        """Beside the points, the longest kernels first; a name that would lie on another is left to its tooltip."""
        parts: list[str] = []
        taken = [*self.taken, *((x - 6, y - 6, x + 6, y + 6) for x, y in map(self.place, self.points))]
        for p in sorted(self.points, key=lambda p: -p.duration):
            (x, y), name = self.place(p), shorten(p.title)
            width = self.frame.letter * len(name)
            for left, baseline in ((x + 10, y + 4), (x - 10 - width, y + 4), (x + 4, y + 20), (x + 4, y - 10)):
                box = (left, baseline - 10, left + width, baseline + 3)
                inside = left > self.frame.left and box[2] < self.frame.right and box[3] < self.height - self.bottom
                if inside and not any(_overlap(box, other) for other in taken):
                    parts.append(label(left, baseline, name))
                    taken.append(box)
                    break
        return parts


_Box = tuple[float, float, float, float]


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
