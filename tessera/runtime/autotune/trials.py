"""What is known of configurations: one `Trial` each, a `Tuning` for all of a program under one signature."""

from __future__ import annotations

import html as escape
import io
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tessera.errors import TesseraError
from tessera.immutable import immutable
from tessera.language.tuning import Metric

Status = Literal["timed", "stopped", "pruned", "failed", "bits", "same", "untried"]
"""timed; timed less often because it is clearly slower; not compiled for lack of resources; does not compile or run;
gives other bits than the first one; the same as another one; not looked at yet"""
TIE = 0.02
"""medians this close, relatively, count as equal: the earlier configuration wins, on every machine"""


class TuningError(TesseraError):
    """No configuration can be used."""

    default_code = "TS609"


@immutable
class Trial:
    """One configuration under one signature. `samples` are seconds per launch, in the order they were taken."""

    config: Mapping[str, Any]
    status: Status = "untried"
    samples: tuple[float, ...] = ()
    detail: str = ""
    """why there is no time, or fewer samples"""
    flops: int | None = None
    bytes: int | None = None

    @property
    def seconds(self) -> float | None:
        """The median time of one launch."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def spread(self) -> float | None:
        """The quartiles' distance relative to the median; None for fewer than four samples."""
        if len(self.samples) < 4:
            return None
        low, middle, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / middle if middle else None

    @property
    def usable(self) -> bool:
        """Whether it may be chosen."""
        return bool(self.samples) and self.status != "bits"

    def rate(self) -> tuple[float, str] | None:
        """Work done per second: FLOP/s where the kernel computes, else B/s."""
        seconds = self.seconds
        for work, unit in ((self.flops, "FLOP/s"), (self.bytes, "B/s")):
            if seconds and work:
                return work / seconds, unit
        return None


@dataclass(frozen=True)
class Tuning:
    """The outcome for one program and one signature. `best` is None until something has been timed."""

    name: str
    target: str
    device: str
    """what it ran on, for people"""
    arguments: tuple[str, ...]
    metric: Metric
    trials: tuple[Trial, ...]
    store: str
    """the file that keeps the timings"""
    measured: int = 0
    """configurations that were timed just now; 0 where all was known"""
    note: str = ""
    best: Trial | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "best", choose(self.trials, self.metric))

    @property
    def config(self) -> dict[str, Any]:
        """The configuration to run under: the best one, the first while none is known."""
        return dict((self.best or self.trials[0]).config)

    def __str__(self) -> str:

        return text(self)

    def __repr__(self) -> str:
        return f"<tuning of {self.name} for {self.target}: {show(self.config)}>"

    def _repr_html_(self) -> str:

        return html(self)


def choose(trials: Sequence[Trial], metric: Metric) -> Trial | None:
    """The best of the trials that have a time. A pure function of the trials: the same store, the same choice."""
    usable = [t for t in trials if t.usable]
    if not usable:
        return None
    costs = [cost(t, metric) for t in usable]
    least = min(costs)
    close = least if callable(metric) or math.isinf(least) else least * (1 + TIE)
    return next(t for t, c in zip(usable, costs, strict=True) if c <= close)


def cost(trial: Trial, metric: Metric) -> float:
    """What is minimised. The work of a signature is given, so the greatest throughput is the least time."""
    if not callable(metric):
        return trial.seconds or math.inf
    value = float(metric(trial))
    if math.isnan(value):
        raise TuningError(f"the metric of {show(trial.config)} is not a number")
    return value


def show(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in config.items()) or "as it is"


# A tuning as a table, for terminals and notebooks.

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
        why = "; ".join(filter(None, (lost(t, tuning.best), t.detail)))
        yield t, (show(config), seconds_text(t.seconds), spread, rate_text(t.rate()), status, why)


def lost(trial: Trial, best: Trial | None) -> str:
    """Why a configuration that was timed is not the best one, as far as its times tell."""
    if best is None or trial is best or trial.status != "timed" or not trial.seconds or not best.seconds:
        return ""
    ratio = trial.seconds / best.seconds
    if ratio <= 1 + TIE:
        return f"within {TIE:.0%} of the best, which comes first in the space" if ratio >= 1 - TIE else ""
    quarters = [statistics.quantiles(t.samples, n=4) if len(t.samples) > 1 else [t.seconds] * 3 for t in (best, trial)]
    unsure = ", less than the times spread" if quarters[1][0] <= quarters[0][2] else ""
    return f"takes {ratio:.2f} times as long{unsure}"


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
    from rich.console import Console  # slow: 20 ms, for who prints it
    from rich.table import Table  # slow: 20 ms, for who prints it

    table = Table(*HEADS, title=headline(tuning), title_justify="left", show_edge=False)
    for i in (1, 2, 3):
        table.columns[i].justify = "right"
        table.columns[i].no_wrap = True
    for _, cells in rows(tuning):
        table.add_row(*(cell.replace("[", "\\[") for cell in cells))
    out = io.StringIO()
    Console(file=out, width=120, force_jupyter=False).print(table)  # in a notebook it would display, not write
    lines = (line.rstrip() for line in out.getvalue().rstrip().splitlines())
    return "\n".join([*lines, *footnotes(tuning)])


def html(tuning: Tuning) -> str:
    names = (HEADS[0], "time", *HEADS[1:])

    def cells(markup: Sequence[str]) -> str:
        return "".join(f'<td data-h="{name}">{cell}</td>' for name, cell in zip(names, markup, strict=True))

    bold = ' style="font-weight:bold"'
    late = [statistics.quantiles(t.samples, n=4)[2] for t in tuning.trials if len(t.samples) > 1]
    longest = 1.1 * max([*late, *(t.seconds for t in tuning.trials if t.seconds)], default=0.0)
    body = "".join(
        f"<tr{bold if trial is tuning.best else ''}>{cells((first, bar(trial, longest), *rest))}</tr>"
        for trial, texts in rows(tuning)
        for first, *rest in [map(escape.escape, texts)]
    )
    notes = "<br>".join(map(escape.escape, footnotes(tuning)))
    return (
        f'<div class="tessera-tuning"><b>{escape.escape(headline(tuning))}</b>'
        f"<style>{_LOOK}</style><table><thead><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr></thead>"
        f"<tbody>{body}</tbody></table><small>{notes}</small></div>"
    )


_LOOK = """\
.tessera-tuning { container-type: inline-size } .tessera-tuning table { margin: 4px 0; border: 0; font-size: 12px }
.tessera-tuning.tessera-tuning tr :is(th, td) { text-align: left !important; white-space: normal; vertical-align: top; \
padding: 2px 12px 2px 0; max-width: none }
.tessera-tuning.tessera-tuning tr td:not(:last-child, :first-child) { white-space: nowrap } \
.tessera-tuning svg { max-width: 100% }
@container (max-width: 760px) {
.tessera-tuning :is(table, tbody, tr) { display: block } .tessera-tuning thead { display: none }
.tessera-tuning.tessera-tuning tr { text-align: left !important; background: none; padding: 4px 0; \
border-bottom: 1px solid rgba(128,128,128,.3) }
.tessera-tuning.tessera-tuning tr td { display: inline-block; overflow-wrap: anywhere } \
.tessera-tuning.tessera-tuning tr td:empty { display: none }
.tessera-tuning.tessera-tuning tr td:is(:first-child, :last-child) { display: block }
.tessera-tuning td:not(:first-child, :nth-child(2))::before { content: attr(data-h) " "; opacity: .65; \
font-size: 11px; font-weight: 400 } }"""
_WIDE = 150
"""pixels of `longest`"""


def bar(trial: Trial, longest: float) -> str:
    """The median as a bar, with those samples as strokes that lie near the others; a cross where there is none."""
    if trial.status == "untried":
        return ""
    if not trial.seconds:
        return f'<span title="{escape.escape(trial.detail)}">✕</span>'
    strokes = "".join(f"M{_WIDE * s / longest:.1f} 1v12" for s in trial.samples if s <= longest)
    return (
        f'<svg width="{_WIDE + 2}" height="14" role="img" aria-label="{seconds_text(trial.seconds)}">'
        f'<rect y="3" width="{_WIDE * trial.seconds / longest:.1f}" height="8" fill="#0072B2"/>'
        f'<path d="{strokes}" stroke="currentColor" stroke-opacity=".55"/></svg>'
    )


def seconds_text(seconds: float | None) -> str:
    """`12.3 µs`."""
    if seconds is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
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
