"""A tuning as a table, for terminals and notebooks."""

from __future__ import annotations

import html as escape
import io
from collections.abc import Iterator

from tessera.runtime.autotune.trials import Trial, Tuning, show

HEADS = ("configuration", "median", "spread", "rate", "", "why")

BUSY = 0.3
"""a spread that says that something else was running"""


def rows(tuning: Tuning) -> Iterator[tuple[Trial, tuple[str, ...]]]:
    """The cells of every configuration: timed ones by time, then the rest in the order of the space.

    Parameters that are the same in all of them stand in the headline alone.
    """
    shown = [t for t in tuning.trials if t.status != "same" or t.samples]
    names = dict.fromkeys(name for t in shown for name in t.config)
    telling = {n for n in names if len({repr(t.config.get(n)) for t in shown}) > 1} or set(names)
    for t in sorted(shown, key=lambda t: (t.seconds is None, t.seconds or 0.0)):
        status = "best" if t is tuning.best else t.status
        spread = "" if t.spread is None else f"{t.spread:.1%}"
        config = {k: v for k, v in t.config.items() if k in telling}
        yield t, (show(config), seconds_text(t.seconds), spread, rate_text(t.rate()), status, t.detail)


def headline(tuning: Tuning) -> str:
    chosen = show(tuning.config) if tuning.best else f"{show(tuning.config)} (the first one: nothing is timed yet)"
    return f"{tuning.name} on {tuning.target}: {chosen}"


def footnotes(tuning: Tuning) -> list[str]:
    kept = f"{tuning.measured} timed now" if tuning.measured else "nothing timed now"
    lines = [f"for {', '.join(tuning.arguments) or 'no arguments'}", f"on {tuning.device}", f"{kept}; {tuning.store}"]
    same = sum(t.status == "same" and not t.samples for t in tuning.trials)
    if same:
        lines.append(f"{same} more differ only in what nothing reads on {tuning.target}")
    if tuning.best and (tuning.best.spread or 0) > BUSY:
        lines.append(
            "The times spread widely, as on a machine that is busy. `tessera cache clear --tuning` forgets them."
        )
    return [*lines, *([tuning.note] if tuning.note else [])]


def text(tuning: Tuning) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADS, title=headline(tuning), title_justify="left", show_edge=False)
    for i in (1, 2, 3):
        table.columns[i].justify = "right"
        table.columns[i].no_wrap = True
    for _, cells in rows(tuning):
        table.add_row(*(cell.replace("[", "\\[") for cell in cells))
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    lines = (line.rstrip() for line in out.getvalue().rstrip().splitlines())
    return "\n".join([*lines, *footnotes(tuning)])


def html(tuning: Tuning) -> str:
    def cells(tag: str, texts: tuple[str, ...]) -> str:
        return "".join(f"<{tag}>{escape.escape(text)}</{tag}>" for text in texts)

    bold = ' style="font-weight:bold"'
    body = "".join(
        f"<tr{bold if trial is tuning.best else ''}>{cells('td', texts)}</tr>" for trial, texts in rows(tuning)
    )
    notes = "<br>".join(map(escape.escape, footnotes(tuning)))
    return (
        f'<div class="tessera-tuning"><b>{escape.escape(headline(tuning))}</b>'
        f"<table><tr>{cells('th', HEADS)}</tr>{body}</table><small>{notes}</small></div>"
    )


def seconds_text(seconds: float | None) -> str:
    """`12.3 us`."""
    if seconds is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def rate_text(rate: tuple[float, str] | None) -> str:
    if rate is None:
        return ""
    value, unit = rate
    for prefix in ("", "k", "M", "G", "T"):
        if value < 1000 or prefix == "T":
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    raise AssertionError
