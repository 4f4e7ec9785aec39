"""What the pictures of a profile share: SVG of a few kilobytes that needs no library, in the colours of its page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from tessera.profiler.style import resource, time_unit
from tessera.profiler.views.markup import text

RIGHT = 14
"""what is left free beside a drawing"""


@dataclass(frozen=True, slots=True)
class PictureFrame:
    """The room that a picture is drawn for, in units of its own. tiles.js reads `left` from the picture."""

    width: int
    left: int
    letter: float
    """the width of a letter"""
    name: str

    @property
    def right(self) -> int:
        return self.width - RIGHT


WIDE = PictureFrame(760, 96, 6.4, "wide")
NARROW = PictureFrame(400, 92, 7.6, "narrow")
"""for a side panel, whose letters are no smaller for it: views.css shows one of the two"""
_HIDDEN = 'style="display:none" '
"""of the narrow one, where no style is left"""


def picture(
    name: str,
    label: str,
    height: int,
    draw: Callable[[PictureFrame], Sequence[str]],
    frames: Sequence[PictureFrame] = (WIDE, NARROW),
) -> str:
    """A figure with its caption, which is also what it is called for those who do not see it: drawn for each frame."""
    svgs = [
        f'<svg class="ts-for-{frame.name if len(frames) > 1 else "all"}" viewBox="0 0 {frame.width} {height}" '
        f'{_HIDDEN if frame is NARROW else ""}data-left="{frame.left}" role="img" aria-label="{text(label)}">'
        + "\n".join(draw(frame))
        + "</svg>"
        for frame in frames
    ]
    drawn = f"{''.join(svgs)}{still(svgs[0], frames[0].width, resource('picture.css'))}"
    return f'<figure class="ts-chart ts-{name}"><figcaption>{text(label)}</figcaption>{drawn}</figure>'


STILL = ".ts-still { display: none }"
"""for the style of what holds a picture and its `still`"""


def still(svg: str, width: int, style: str = "") -> str:
    """The picture as an image, dark on white: what is left of it where a notebook that is not trusted loses its SVG
    and its styles. Where there are styles, `STILL` hides it."""
    start = svg.index(">") + 1
    style = f"<style>svg{{background:#fff;color:#222;font-family:sans-serif}}{style}</style>"
    own = f'<svg xmlns="http://www.w3.org/2000/svg"{svg[len("<svg") : start]}{style}{svg[start:]}'
    return f'<img class="ts-still" alt="" width="{width}" src="data:image/svg+xml,{quote(own, safe=_UNQUOTED)}"/>'


def without_stills(markup: str) -> str:
    """For pages, which keep their SVG and their styles."""
    return re.sub('<img class="ts-still"[^>]*>', "", markup)


_UNQUOTED = " =/:;,()+-.!*~$@?{}[]|^`"


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis", more: str = "") -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" class="ts-{kind}"{more}/>'


def label(x: float, y: float, what: object, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{place}>{text(what)}</text>'


def time_axis(span: float, y: float, frame: PictureFrame) -> list[str]:
    """From 0 to `span` ns below a picture."""
    size, unit = time_unit(span)
    room = frame.right - frame.left
    step, scale = round_step(span / size / (room / 100)), room / span
    parts = [line(frame.left, y, frame.right, y)]
    for i in range(int(span / size / step) + 1):
        x = frame.left + i * step * size * scale
        parts += [line(x, y, x, y + 4), label(x, y + 16, f"{i * step:g}", "middle")]
    return [*parts, label(frame.right, y + 30, f"time ({unit})", "end")]


def round_step(rough: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
