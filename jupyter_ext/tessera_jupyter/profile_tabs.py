"""The Profile and Hints tabs: where the time of a run went, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.display import display

from tessera.errors import Diagnostic
from tessera.profiler import Profiler
from tessera.profiler.hints import Hint
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.trial.outcome import TriedHint
from tessera.profiler.views.kernels import kernel_table
from tessera.profiler.views.markup import origin, table, table_alone, text
from tessera_jupyter.actions import bundle, shown_hints
from tessera_jupyter.findings import as_html, fix_html

_NOT_RUN = "Not run yet: <code>%tessera profile {}</code> fills this tab."


def profile_tab(profile: Profiler | None, example: str, since: str = "") -> str:
    """`since`: what the last edit of a watched cell did, or what the cell waits for."""
    said = f"<p><b>{text(since[:1].upper() + since[1:])}</b></p>" if since else ""
    if profile is None:
        return said or f'<p class="ts-why">{_NOT_RUN.format(text(example))}</p>'
    summary = profile.summary()
    busy = sum(kernel.duration for kernel in summary.kernels)
    launches, tiles = len(profile.recording.launches), len(profile.recording.tiles)
    facts = f"{summary.took} · {format_time(busy)} in kernels · "
    facts += f"{_count(launches, 'launch', 'es')} · {_count(tiles, 'tile')}"
    facts += "".join(f" · {line}" for line in (*summary.graphs, summary.gpu_times) if line)
    told = (summary, profile.timeline(), profile.critical_path())
    in_words = "\n\n".join(map(text, told))
    plain = f"<summary>As text</summary><pre>{in_words}</pre>"
    traffic = summary.traffic.table()
    arrays = f'<details class="ts-plain"><summary>Bytes by array</summary>{traffic}</details>' if traffic else ""
    return (
        f"{said}<p>{text(facts)} · {text(summary.overhead)}</p>{kernel_table(summary.rows)}"
        f"{profile.timeline().view()}{profile.roofline().view()}{profile.memory().view()}{arrays}"
        f'<details class="ts-plain">{plain}</details>'
    )


def _count(n: int, what: str, plural: str = "s") -> str:
    return f"{n:,} {what}{plural * (n != 1)}"


def hints_tab(profile: Profiler | None, remarks: Sequence[Diagnostic], example: str) -> str:
    """What the analysis remarks about the program, then what its last run shows."""
    said = as_html(remarks)
    if profile is None:
        return said + f'<p class="ts-why">{_NOT_RUN.format(text(example))}</p>'
    shown = shown_hints(profile)
    items = "".join(f"<li>{_hint(h)}{_tried(shown.tried.get(i))}</li>" for i, h in enumerate(shown.hints))
    return said + (f'<ol class="ts-hints">{items}</ol>' if items else "<p>Nothing worth changing in this run.</p>")


def _hint(hint: Hint) -> str:
    low, high = hint.saving
    place = f" <small>line {hint.line}</small>" if hint.line else ""
    share = f"up to {format_percent(hint.whole_run[1])} of the run"
    legality = f"<br><small>legality: {text(hint.legality)}</small>" if hint.legality else ""
    return (
        f"<b>{text(hint.title or 'whole run')}: {text(hint.kind)}</b>{place} "
        f"<span>saves {format_time(low)} to {format_time(high)}, {share} {origin(hint.source)}</span><br>"
        f"{text(hint.measured)}; ideal {text(hint.ideal)}; {text(hint.cause)}.<br>"
        f"<em>{text(hint.change)}</em>{legality}"
    )


def show_outcome(outcome: TriedHint) -> None:
    """Displays what came of a hint, with the edit to apply where it made the program faster."""
    markup = f"<b>{text(outcome.title or 'whole run')}</b>: <em>{text(outcome.change)}</em>{_tried(outcome)}"
    fixes = [] if outcome.fix is None else [outcome.fix]
    display(bundle(table_alone("tessera-tried", markup), str(outcome), fixes), raw=True)


def _tried(outcome: TriedHint | None) -> str:
    """What was predicted beside what was measured, both as parts of the time that the hint speaks of."""
    if outcome is None:
        return ""
    reason = f" <small>{text(outcome.why)}</small>" if outcome.warm is None else ""
    tried = "" if outcome.verdict == "not tried" else "tried: "
    said = f'<div class="ts-tried">{tried}<b>{text(outcome.verdict)}</b>{reason}'
    if outcome.warm is not None:
        low, high = map(format_percent, outcome.predicted)
        rows = [("predicted", f"{low} to {high}", "", "", "")]
        for name, pairs in (("warm", outcome.warm), ("cold", outcome.cold)):
            if pairs is not None:
                before, after = (format_time(seconds * 1e9) for seconds in pairs.usual)
                saved = pairs.saved
                interval = f"{format_percent(saved.low)} to {format_percent(saved.high)}"
                rows.append((f"measured, {name}", format_percent(saved.middle), interval, before, after))
        heads = ("saving", "95 % interval", "before", "after")
        said += table(("", *heads), rows, heads)
        inside = "inside" if outcome.covered else "outside"
        said += f"<small>{text(outcome.results)}; measured {inside} of what was predicted</small>"
    said += "".join(f"<br><small>{text(note)}</small>" for note in outcome.notes)
    if outcome.fix is not None:
        return f"{said}{fix_html(outcome.fix)}</div>"
    is_open = " open" * (outcome.verdict == "faster")
    edit = f"<details{is_open}><summary>The edit</summary><pre>{text(outcome.diff)}</pre></details>"
    return f"{said}{edit if outcome.diff else ''}</div>"
