"""A profile as one HTML page that needs nothing else: no server, no network, no notebook."""

from __future__ import annotations

import html
from importlib.resources import files
from pathlib import Path

from tessera.compiler.predict import sizes_text
from tessera.profiler.hints import Hint
from tessera.profiler.kernel_stats import KernelStats
from tessera.profiler.memory import MemoryReport
from tessera.profiler.quantity import format_percent, format_time, format_value
from tessera.profiler.recording import Recording
from tessera.profiler.roofline import Roofline
from tessera.profiler.style import resource
from tessera.profiler.summary import Summary
from tessera.profiler.views import tiles
from tessera.runtime.events import LaunchEvent

_MOST_ROWS = 1000
# The page may run what it brings and load nothing: a profile from elsewhere cannot call home.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_page(recording: Recording, path: Path) -> Path:
    """Writes the page."""
    path.write_text(page(recording), encoding="utf-8")
    return path


def page(recording: Recording) -> str:
    """The page as text."""
    summary = Summary(recording)
    views = {
        "timeline": tiles.view(recording, tiles.IN_PAGE),
        "roofline": Roofline(recording).view(),
        "memory": MemoryReport(recording.memory, recording.held).view(),
    }
    shown = "".join(f'<section id="{name}">{markup}</section>' for name, markup in views.items())
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Tessera profile</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><style>{_style()}{resource("views.css")}</style></head>'
        f"<body><main><h1>Tessera profile</h1>{_headline(summary, recording)}{_hints(summary.hints)}{shown}"
        f"<section><h2>Launches</h2>{_launches(recording.launches)}</section>"
        f"<section><details><summary>As text</summary><pre>{html.escape(str(summary))}</pre></details></section>"
        f"</main><script>{resource('tiles.js')}</script></body></html>"
    )


def _headline(summary: Summary, recording: Recording) -> str:
    kernels = sum(kernel.duration for kernel in summary.kernels)
    records = f"{len(recording.tiles):,} tile record{'s' if len(recording.tiles) != 1 else ''}"
    facts = [f"{format_time(summary.region)} recorded", f"{format_time(kernels)} in kernels"]
    count = len(recording.launches)
    facts += [f"{count:,} launch{'es' if count != 1 else ''}", records, str(summary.overhead)]
    rows = "".join(
        f'<tr><th title="{html.escape(kernel.title)}">{_title(kernel, parts)}</th>'
        f"<td>{format_time(kernel.duration)}</td><td>{_meter(kernel.share)}</td>"
        f"<td>{len(kernel.launches):,}</td><td>{html.escape(sizes_text(kernel.sizes))}</td>"
        f"<td>{_optional(kernel.intensity.value, 'ops/byte')}</td>"
        f"<td>{_optional(kernel.bandwidth.value, 'B/s')}</td><td>{_optional(kernel.rate.value, 'FLOP/s')}</td>"
        f"<td>{'-' if kernel.roof_fraction is None else format_percent(kernel.roof_fraction)}</td>"
        f"<td>{kernel.bound}</td><td>{kernel.source}</td></tr>"
        for kernel, parts in summary.rows
    )
    titles = ("kernel", "time", "share", "launches", "sizes", "intensity", "bandwidth", "rate", "of roof", "bound by")
    table = _table((*titles, "time is"), rows) if rows else "<p>No launch.</p>"
    return f'<p class="facts">{html.escape(" · ".join(facts))}</p><section class="scroll">{table}</section>'


def _title(kernel: KernelStats, parts: list[KernelStats]) -> str:
    """What an unrolled loop makes of one expression is one row, which opens."""
    name = html.escape(kernel.title)
    if len(parts) == 1:
        return name
    each = "".join(f"<li>{html.escape(part.title)}: {format_time(part.duration)}</li>" for part in parts[:_MOST_ROWS])
    return f"<details><summary>{name} × {len(parts)}</summary><ul>{each}</ul></details>"


def _hints(hints: list[Hint]) -> str:
    if not hints:
        return ""
    items = "".join(
        f"<li><b>{html.escape(hint.title or 'whole run')}: {html.escape(hint.kind)}</b> "
        f"<span>saves {format_time(hint.saving[0])} to {format_time(hint.saving[1])}, up to "
        f"{format_percent(hint.whole_run[1])} of the run ({hint.source})</span><br>"
        f"{html.escape(hint.measured)}; ideal {html.escape(hint.ideal)}; {html.escape(hint.cause)}.<br>"
        f"<em>{html.escape(hint.change)}</em></li>"
        for hint in hints
    )
    return f"<section><h2>Hints</h2><ol>{items}</ol></section>"


def _launches(launches: list[LaunchEvent]) -> str:
    rows = "".join(
        f"<tr><td>{launch.launch}</td><th>{html.escape(launch.title)}</th><td>{html.escape(launch.device)}</td>"
        f"<td>{html.escape(sizes_text(launch.attributes.get('sizes', {})))}</td>"
        f"<td>{'×'.join(map(str, launch.grid))}</td>"
        f"<td>{_optional(launch.duration, 'ns')}</td>"
        f"<td>{_optional(launch.flops, 'FLOP')}</td><td>{_optional(launch.bytes, 'B')}</td>"
        f"<td>{launch.source}</td><td>{html.escape(_place(launch))}</td></tr>"
        for launch in launches[:_MOST_ROWS]
    )
    more = f"<p>The first {_MOST_ROWS:,} of {len(launches):,}.</p>" if len(launches) > _MOST_ROWS else ""
    titles = ("id", "kernel", "device", "sizes", "grid", "time", "FLOP", "bytes", "time is", "source")
    return f'<div class="scroll">{_table(titles, rows)}</div>{more}'


def _table(titles: tuple[str, ...], rows: str) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _place(launch: LaunchEvent) -> str:
    file, line = launch.attributes.get("file"), launch.attributes.get("line")
    return f"{file}:{line}" if file and line else str(file or "")


def _optional(value: float | None, unit: str) -> str:
    return "-" if value is None else format_value(value, unit)


def _meter(share: float) -> str:
    return f'<span class="meter"><i style="width:{min(share, 1) * 100:.1f}%"></i></span>{format_percent(share)}'


def _style() -> str:
    return files("tessera.profiler.export").joinpath("page.css").read_text(encoding="utf-8")
