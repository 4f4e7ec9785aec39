"""What the pictures of a profile share: SVG of a few kilobytes that needs no library, in the colours of its page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera.profiler.style import time_unit
from tessera.profiler.views.markup import text

WIDTH, LEFT, RIGHT = 760, 96, 14


def picture(name: str, label: str, height: int, parts: Sequence[str]) -> str:
    """A figure with its caption, which is also what it is called for those who do not see it."""
    return (
        f'<figure class="ts-chart ts-{name}"><figcaption>{text(label)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(label)}">{"".join(parts)}</svg></figure>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis", more: str = "") -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" class="ts-{kind}"{more}/>'


def label(x: float, y: float, what: object, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{place}>{text(what)}</text>'


def time_axis(span: float, y: float) -> list[str]:
    """From 0 to `span` ns below a picture."""
    size, unit = time_unit(span)
    step, scale = round_step(span / size / 6), (WIDTH - LEFT - RIGHT) / span
    parts = [line(LEFT, y, WIDTH - RIGHT, y)]
    for i in range(int(span / size / step) + 1):
        x = LEFT + i * step * size * scale
        parts += [line(x, y, x, y + 4), label(x, y + 16, f"{i * step:g}", "middle")]
    return [*parts, label(WIDTH - RIGHT, y + 30, f"time ({unit})", "end")]


def round_step(rough: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
