"""Memory over time as a picture, and who held it at the peak, with the calls in which it was allocated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tessera.profiler.quantity import format_bytes
from tessera.profiler.style import PALETTE
from tessera.profiler.views.markup import text
from tessera.profiler.views.svg import PictureFrame, label, line, picture, round_step, time_axis
from tessera.runtime.arrays.holders import Holder
from tessera.runtime.events import MemoryEvent

_TOP, _BASE = 18, 150
_MOST_STEPS = 600
"""of a curve: below that, steps share a pixel"""
_DASHES = ("", "7 3", "2 3")

Held = tuple[Holder, tuple[tuple[str, int, str], ...], str]
"""a holder, the stack of its allocation, and what is said of it"""


def view(events: Sequence[MemoryEvent], held: Sequence[Held]) -> str:
    """`events` in order of time; `held` at the peak, largest first."""
    if not events:
        return '<p class="ts-why">Nothing was allocated or released.</p>'
    return _picture(events) + _table(held)


def _picture(events: Sequence[MemoryEvent]) -> str:
    peak, left = (format_bytes(size) for size in (max(e.total for e in events), events[-1].total))
    title = f"Memory: peak {peak}, {left} held at the end"
    return picture("memory", title, _BASE + 34, lambda frame: _drawn(events, frame))


def _drawn(events: Sequence[MemoryEvent], frame: PictureFrame) -> list[str]:
    left, right = frame.left, frame.right
    first, peak = events[0].time, max(events, key=lambda e: e.total)
    span, most = max(1, events[-1].time - first), max(1, peak.total)
    scale = (right - left) / span
    parts: list[str] = []
    step = round_step(most / 3)
    for i in range(int(most / step) + 1):
        y = _height(i * step, most)
        parts += [line(left, y, right, y, "grid"), label(left - 6, y + 4, format_bytes(i * step), "end")]
    for n, device in enumerate(dict.fromkeys(e.device for e in events)):
        own = _steps([e for e in events if e.device == device])
        path = f"M{left} {_BASE}"
        for e in own:
            path += f"H{left + (e.time - first) * scale:.1f}V{_height(e.total, most):.1f}"
        dash = f' stroke-dasharray="{_DASHES[n % 3]}"' if n % 3 else ""
        colour = PALETTE[n % len(PALETTE)]
        parts.append(
            f'<path d="{path}H{right}V{_BASE}" stroke="{colour}" fill="{colour}" class="ts-steps"{dash}>'
            f"<title>{text(device)}</title></path>"
        )
    x = left + (peak.time - first) * scale
    said = f"▼ peak {format_bytes(peak.total)}: {peak.what}"
    return [*parts, label(x, _TOP - 5, said, "end" if x > frame.width / 2 else "start"), *time_axis(span, _BASE, frame)]


def _height(size: float, most: int) -> float:
    return _BASE - (_BASE - _TOP) * size / most


def _steps(events: Sequence[MemoryEvent]) -> list[MemoryEvent]:
    """The steps that a picture can show: of those that share a pixel the highest and the last."""
    if len(events) <= _MOST_STEPS:
        return list(events)
    first, span = events[0].time, max(1, events[-1].time - events[0].time)
    found: dict[int, list[MemoryEvent]] = {}
    for e in events:
        found.setdefault((e.time - first) * _MOST_STEPS // span, []).append(e)
    shown: list[MemoryEvent] = []
    for own in found.values():
        highest = max(own, key=lambda e: e.total)
        shown += [highest, own[-1]] if highest is not own[-1] else [highest]
    return shown


def _table(held: Sequence[Held]) -> str:
    """What was held at the peak: each entry opens to the calls that allocated it."""
    rows = ""
    for holder, stack, said in held:
        calls = "".join(f"<li>{text(Path(file).name)}:{at} in {text(function)}</li>" for file, at, function in stack)
        what = f"<details><summary>{text(said)}</summary><ol>{calls}</ol></details>" if calls else text(said)
        rows += f"<tr><th>{format_bytes(holder.nbytes)}</th><td>{what}</td></tr>"
    if not rows:
        return ""
    head = "<thead><tr><th>at the peak</th><th>held, and the calls that allocated it</th></tr></thead>"
    return f'<div class="ts-slow"><table>{head}<tbody>{rows}</tbody></table></div>'
