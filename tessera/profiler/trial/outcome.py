"""A hint that is tried: the change is made, the results compared, both sides timed by turns, and the outcome kept."""

from __future__ import annotations

import difflib
import html
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tessera.compiler import tried_edits
from tessera.compiler.machines import HOST
from tessera.errors import Fix
from tessera.profiler.quantity import format_percent
from tessera.profiler.trial import batching, blocks, fusing, layouts, ledger, narrowing
from tessera.profiler.trial.calls import NotTried
from tessera.profiler.trial.ledger import Entry
from tessera.profiler.trial.made import COARSER, HintTrial, MadeChange
from tessera.profiler.trial.paired import PairedTimes, evict, paired
from tessera.runtime import events


@dataclass(frozen=True, slots=True)
class TriedHint:
    """What came of a hint. `predicted` and what the pairs say are parts of the time that the hint speaks of."""

    title: str
    change: str
    predicted: tuple[float, float]
    diff: str = ""
    """the edit of the program, as a unified diff"""
    results: str = ""
    """"equal bits", "equal within rounding ..." or how they differ"""
    warm: PairedTimes | None = None
    """caches as the call before left them"""
    cold: PairedTimes | None = None
    """caches filled with something else; None where the data do not fit into them anyway"""
    notes: tuple[str, ...] = ()
    reason: str = ""
    """why it was not tried"""
    fix: Fix | None = None
    """the edit, where it made the program faster"""

    @property
    def verdict(self) -> str:
        """ "faster", "slower", "no gain", "unclear", "other results" or "not tried"."""
        if self.warm is None:
            return "other results" if self.results else "not tried"
        both = [side.verdict for side in (self.warm, self.cold) if side is not None]
        return next((v for v in both if v in ("faster", "slower")), "unclear" if "unclear" in both else "no gain")

    @property
    def why(self) -> str:
        """Why nothing was measured; "" where it was."""
        return (self.reason or self.results.removeprefix("other results: ")) if self.warm is None else ""

    @property
    def covered(self) -> bool | None:
        """Whether the predicted range and the measured interval meet; None where nothing was measured."""
        if self.warm is None:
            return None
        saved = self.warm.saved
        return saved.low <= self.predicted[1] and self.predicted[0] <= saved.high

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.change}"]
        if self.diff:
            lines += ["", *(f"    {line}" for line in self.diff.splitlines()), ""]
        if self.warm is None:
            lines.append(f"  {self.verdict}: {self.why}")
            return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
        lines += [f"  results: {self.results}", f"  warm: {self.warm}"]
        if self.cold is not None:
            lines.append(f"  cold: {self.cold}")
        low, high = (format_percent(part) for part in self.predicted)
        lines.append(f"  predicted: {low} to {high}; measured {'inside' if self.covered else 'outside'} of it")
        lines += [f"  {note}" for note in self.notes]
        more = ": needs more runs, try_it(budget=...)" if self.verdict == "unclear" else ""
        return "\n".join([*lines, f"  {self.verdict}{more}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, slots=True)
class Advice:
    """What of a hint its outcome says, and the ledger keeps."""

    rule: str
    version: int
    title: str
    change: str
    predicted: tuple[float, float]


def attempt(trial: HintTrial, hint: Advice, budget: float, tolerance: float | None = None) -> TriedHint:
    """Tries it for about `budget` seconds of measuring. What it finds goes into the ledger, and an edit that makes the
    program faster to editors."""
    with events.paused():  # a profiler that is open is not shown what is tried
        try:
            made = _made(trial, COARSER if tolerance is None else tolerance)
        except NotTried as e:
            return TriedHint(hint.title, hint.change, hint.predicted, reason=str(e))
        diff = _diff(made)
        if made.differs:
            return TriedHint(hint.title, hint.change, hint.predicted, diff, made.results, notes=made.notes)
        warm = paired(made.before, made.after, budget)
        size = _cached(trial)
        cold = paired(made.before, made.after, budget, evict(size)) if size else None
    saved = warm.saved
    measured, target = (saved.low, saved.middle, saved.high), trial.launches[0].target
    ledger.record(Entry(hint.rule, hint.version, hint.title, target, hint.predicted, measured, time.time()))
    tried = TriedHint(hint.title, hint.change, hint.predicted, diff, made.results, warm, cold, made.notes)
    if tried.verdict == "faster" and made.whole:
        title = f"{made.change} (tried: {format_percent(saved.middle)} less time)"
        tried_edits.record(made.file, made.old, made.new, title)
        tried = replace(tried, fix=Fix(title, tried_edits.edits_between(made.file, made.old, made.new)))
    return tried


def _made(trial: HintTrial, tolerance: float) -> MadeChange:
    """Raises NotTried."""
    if trial.change == "by hand":
        raise NotTried(trial.why)
    if not trial.launches:
        raise NotTried("the profile holds no launch that it is about")
    match trial.change:
        case "one function":
            return fusing.joined(trial)
        case "one batch":
            return batching.one_batch(trial)
        case "narrower products":
            return narrowing.narrower_products(trial, tolerance)
        case "narrower arrays":
            return narrowing.narrower_arrays(trial, tolerance)
        case "contiguous arrays":
            return layouts.contiguous_arrays(trial)
        case "frozen arrays":
            return layouts.frozen_arrays(trial)
        case "turned arrays":
            return layouts.turned_arrays(trial)
        case direction:
            return blocks.other_blocks(trial, direction)


def _diff(made: MadeChange) -> str:
    name = Path(made.file).name
    old, new = (text.splitlines() for text in (made.old, made.new))
    return "\n".join(difflib.unified_diff(old, new, name, f"{name} (tried)", lineterm="", n=1))


def _cached(trial: HintTrial) -> int:
    """Bytes of the last cache, where the data of the launches fit into it; else 0: no cache is ever warm for them."""
    launch = trial.launches[-1]
    if launch.device.partition(":")[0] != HOST:
        return 0
    size = trial.recording.machine(launch.device).last_cache_bytes
    return size if (launch.bytes or 0) <= size else 0
