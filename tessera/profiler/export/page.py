"""A profile as one HTML page that needs nothing else: no server, no network, no notebook."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tessera.profiler.analyses.critical_path import CriticalPath
from tessera.profiler.hints import Hint
from tessera.profiler.memory import MemoryReport
from tessera.profiler.quantity import format_percent, format_time, format_value
from tessera.profiler.recording import Recording, replay_of
from tessera.profiler.roofline import Roofline
from tessera.profiler.style import resource, style_of_views
from tessera.profiler.summary import Summary
from tessera.profiler.views import tiles
from tessera.profiler.views.accesses import access_tables
from tessera.profiler.views.kernels import kernel_table, sizes_note
from tessera.profiler.views.markup import hinted, table, text
from tessera.profiler.views.spills import spill_tables
from tessera.profiler.views.svg import without_stills
from tessera.runtime.code.assembly import spilled_or_why
from tessera.runtime.compiled import Compiled
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
    shown = "".join(f'<section id="{name}">{without_stills(markup)}</section>' for name, markup in views.items())
    plain = f"{text(summary)}\n\n{text(CriticalPath(recording))}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Tessera profile</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><style>{_style()}</style></head>'
        f"<body><main><h1>Tessera profile</h1>{_headline(summary, recording)}{_hints(summary.hints)}{shown}"
        f"{_traffic(summary)}{_accesses(recording)}{_spills(recording)}<section><h2>Launches</h2>{_launches(recording.launches)}</section>"
        f"<section><details><summary>As text</summary><pre>{plain}</pre></details></section>"
        f"</main><script>{resource('tiles.js')}</script></body></html>"
    )


def _headline(summary: Summary, recording: Recording) -> str:
    kernels = sum(kernel.duration for kernel in summary.kernels)
    records = f"{len(recording.tiles):,} tile record{'s' if len(recording.tiles) != 1 else ''}"
    facts = [summary.took, f"{format_time(kernels)} in kernels"]
    count = len(recording.launches)
    facts += [f"{count:,} launch{'es' if count != 1 else ''}", records, str(summary.overhead)]
    facts += summary.calls.lines(recording.start)[:1] if summary.calls is not None else []
    facts += [*summary.graphs, *([summary.gpu_times] if summary.gpu_times else [])]
    return (
        f'<p class="facts">{text(" · ".join(facts))}</p><section class="scroll">{kernel_table(summary.rows)}</section>'
    )


def _traffic(summary: Summary) -> str:
    rows = summary.traffic.table()
    return f"<section><h2>Bytes by array</h2>{rows}</section>" if rows else ""


def _called(recording: Recording) -> list[Compiled]:
    """The programs that the recording called, as their last calls ran."""
    programs = {id(program): program for call in recording.calls if (program := call.program()) is not None}
    return [compiled for program in programs.values() if (compiled := Compiled.of_last_call(program)) is not None]


def _spills(recording: Recording) -> str:
    """Registers that did not suffice, where a target tells."""
    titles = {launch.kernel: launch.title for launch in recording.launches}
    tables = dict.fromkeys(spill_tables(spilled_or_why(made.artifact), titles) for made in _called(recording))
    return f"<section><h2>Spilled registers</h2>{''.join(tables)}</section>" if any(tables) else ""


def _accesses(recording: Recording) -> str:
    """Where the targets tell."""
    found = [a for compiled in _called(recording) if hasattr(compiled.target, "accesses") for a in compiled.accesses()]
    titles = {launch.kernel: launch.title for launch in recording.launches}
    return f"<section><h2>Sectors of memory</h2>{access_tables(found, titles)}</section>" if found else ""


def _hints(hints: list[Hint]) -> str:
    if not hints:
        return ""
    items = "".join(
        f"<li><b>{text(hint.title or 'whole run')}: {text(hint.kind)}</b> "
        f"<span>saves {format_time(hint.saving[0])} to {format_time(hint.saving[1])}, up to "
        f"{format_percent(hint.whole_run[1])} of the run ({hint.source})</span><br>"
        f"{text(hint.measured)}; ideal {text(hint.ideal)}; {text(hint.cause)}.<br>"
        f"<em>{text(hint.change)}</em>{f'<br>legality: {text(hint.legality)}' if hint.legality else ''}.</li>"
        for hint in hints
    )
    return f"<section><h2>Hints</h2><ol>{items}</ol></section>"


def _launches(launches: list[LaunchEvent]) -> str:
    heads = ("number", "device", "grid", "time", "FLOP", "bytes", "time is", "line")
    rows = [
        (
            f"{text(launch.title)}{sizes_note(launch.attributes.get('sizes', {}))}{_graph(launch)}",
            str(launch.launch),
            text(launch.device),
            "×".join(map(str, launch.grid)),
            _optional(launch.duration, "ns"),
            _optional(launch.flops, "FLOP"),
            _optional(launch.bytes, "B"),
            launch.source,
            _place(launch),
        )
        for launch in launches[:_MOST_ROWS]
    ]
    more = f"<p>The first {_MOST_ROWS:,} of {len(launches):,}.</p>" if len(launches) > _MOST_ROWS else ""
    return f'<div class="scroll">{table(("kernel", *heads), rows, heads)}</div>{more}'


def _graph(launch: LaunchEvent) -> str:
    if replay_of(launch) is None:
        return ""
    return f'<small class="ts-sizes">{text("graph {graph}, replay {replay}".format_map(launch.attributes))}</small>'


def _place(launch: LaunchEvent) -> str:
    """File and line; the file's folder is in the tooltip."""
    file, line = str(launch.attributes.get("file", "")), launch.attributes.get("line")
    return hinted(text(f"{Path(file).name}:{line}"), file) if file and line else text(file)


def _optional(value: float | None, unit: str) -> str:
    return "-" if value is None else format_value(value, unit)


def _style() -> str:
    own = files("tessera.profiler.export").joinpath("page.css").read_text(encoding="utf-8")
    return own + resource("rows.css") + style_of_views()
