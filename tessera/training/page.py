"""A run in a notebook: one output of HTML that is drawn anew, and stays as it is in the saved notebook.

It is not a widget (docs/decisions/0025-the-panel-is-html.md): a notebook whose kernel has gone shows the last curves.
"""

from __future__ import annotations

import html
import math

import numpy as np
from IPython.display import display

from tessera.profiler.views.svg import STILL, still
from tessera.training.history import History
from tessera.training.views import Glance, rounded_steps, sparkline

_WIDTH, _HEIGHT = 380, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 26, 24
_MOST = 180
"""points of a curve; of more, each is the mean of several, before a band from the least to the greatest"""
_COLOURS = ("#2b7de9", "#e8590c", "#2f9e44", "#9c36b5", "#0c8599", "#c2255c")
_FAINT = "var(--jp-border-color2,#9994)"
_DIM = "var(--jp-ui-font-color2,#777)"


class Page:
    pause = 0.5

    def __init__(self) -> None:
        self._handle = display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)

    def draw(self, glance: Glance) -> None:
        if self._handle is not None:
            self._handle.update({"text/html": page(glance), "text/plain": plain(glance)}, raw=True)

    def close(self) -> None:
        pass


def plain(glance: Glance) -> str:
    lines = [f"{glance.heading}{f'; {glance.said}' if glance.said else ''}"]
    lines += [f"{name} {figure} {sparkline(glance.history[name], 40)}" for name, figure in glance.figures.items()]
    return "\n".join(lines)


def page(glance: Glance) -> str:
    font = "font-family:var(--jp-ui-font-family,sans-serif);font-size:13px;color:var(--jp-ui-font-color1,inherit)"
    charts = "".join(
        chart(glance.history, name, colour)
        for name, colour in zip(glance.history.names, _COLOURS, strict=False)  # of the first six
    )
    text = f'<div style="margin-top:4px"><b>{html.escape(glance.said)}</b></div>' if glance.said else ""
    return (
        f'<div class="tessera-run" style="{font}"><style>{STILL}</style>{_bar(glance)}'
        f"<div>{html.escape(glance.heading)}</div>{text}"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin-top:6px">{charts}</div></div>'
    )


def _bar(glance: Glance) -> str:
    if glance.part is None:
        return ""
    colour = "#2f9e44" if glance.part == 1 else "#2b7de9"
    return (
        f'<div role="progressbar" aria-valuenow="{glance.part * 100:.0f}" style="height:6px;max-width:{2 * _WIDTH}px;'
        f'border-radius:3px;background:{_FAINT};margin:4px 0"><div style="height:6px;border-radius:3px;'
        f'width:{glance.part * 100:.2f}%;background:{colour}"></div></div>'
    )


def chart(history: History, name: str, colour: str) -> str:
    """A curve over the steps: logarithmic where it is above 0 and spans more than a factor of 30."""
    values, steps = history[name], np.array(history.steps, float)
    fine = np.isfinite(values)
    values, steps = values[fine], steps[fine]
    label = f"{name} {history.last(name):.4g}"
    if not len(values):
        return _svg(label, "")
    logarithmic = bool((values > 0).all() and values.max() > 30 * values.min())
    heights = np.log10(values) if logarithmic else values
    low, high = float(heights.min()), float(heights.max())
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    first, last = float(steps[0]), float(max(steps[-1], steps[0] + 1))

    def x(step: np.ndarray) -> np.ndarray:
        return _LEFT + (step - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT)

    def y(height: np.ndarray) -> np.ndarray:
        return _TOP + (high - height) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_grid(y, low, high, logarithmic), _axis(x, first, last)]
    if len(values) > _MOST:
        cut = np.array_split(np.arange(len(values)), _MOST)
        at = x(np.array([steps[c].mean() for c in cut]))
        least, most = (y(np.array([f(heights[c]) for c in cut])) for f in (np.min, np.max))
        outline = [*zip(at, most, strict=True), *reversed(list(zip(at, least, strict=True)))]
        parts.append(f'<polygon points="{_points(outline)}" fill="{colour}" opacity="0.2"/>')
        line = list(zip(at, y(np.array([heights[c].mean() for c in cut])), strict=True))
    else:
        line = list(zip(x(steps), y(heights), strict=True))
    if len(line) > 1:
        parts.append(f'<polyline points="{_points(line)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    end_x, end_y = line[-1]
    parts.append(f'<circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="2.6" fill="{colour}"/>')
    return _svg(label, "".join(parts))


def _grid(y, low: float, high: float, logarithmic: bool) -> str:
    if logarithmic and high - low > 1.2:
        ticks = [float(i) for i in range(math.ceil(low), math.floor(high) + 1)]
    elif logarithmic:
        ticks = [math.log10(t) for t in rounded_steps(10**low, 10**high)]
    else:
        ticks = rounded_steps(low, high)
    out = []
    for tick in ticks:
        at = float(y(tick))
        text = f"{10**tick if logarithmic else tick:.3g}"
        out.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{_FAINT}"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="{_DIM}">{text}</text>')
    return "".join(out)


def _axis(x, first: float, last: float) -> str:
    ticks = [t for t in rounded_steps(first, last) if t == round(t)] or [first]
    return "".join(
        f'<text x="{float(x(t)):.1f}" y="{_HEIGHT - 6}" text-anchor="middle" fill="{_DIM}">{int(t):,}</text>'
        for t in ticks
    )


def _points(line) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in line)


def _svg(label: str, inside: str) -> str:
    label = html.escape(label)
    svg = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label}" '
        f'style="font-size:11px;max-width:100%"><text x="{_LEFT}" y="15" fill="currentColor" '
        f'style="font-size:13px;font-weight:600">{label}</text>{inside}</svg>'
    )
    return svg + still(svg, _WIDTH)
