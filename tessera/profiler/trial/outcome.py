"""A hint that is tried: the change is made, the results compared, both sides timed by turns, and the outcome kept."""

from __future__ import annotations

import difflib
import html
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tessera.compiler import tried_edits
from tessera.compiler.machines import HOST
from tessera.compiler.structure import in_a_row
from tessera.language.lazy import np
from tessera.profiler.quantity import format_percent
from tessera.profiler.recording import Recording
from tessera.profiler.trial import blocks, ledger
from tessera.profiler.trial.calls import NotTried, call_of, on_host
from tessera.profiler.trial.fusing import fused
from tessera.profiler.trial.ledger import Entry
from tessera.profiler.trial.paired import PairedTimes, Timed, evict, paired, timed
from tessera.runtime import events
from tessera.runtime.events import LaunchEvent

TOLERANCE = 32
"""units in the last place of the largest result by which results may differ"""


@dataclass(frozen=True, slots=True)
class HintTrial:
    """How a hint is tried: `change` says what is done to the program of these launches."""

    recording: Recording
    launches: Sequence[LaunchEvent]
    change: Literal["larger", "smaller", "other", "one function", "by hand"]
    why: str = ""
    """why it is done by hand"""


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

    @property
    def verdict(self) -> str:
        """ "faster", "slower", "no gain", "unclear", "other results" or "not tried"."""
        if self.warm is None:
            return "other results" if self.results else "not tried"
        both = [side.verdict for side in (self.warm, self.cold) if side is not None]
        return next((v for v in both if v in ("faster", "slower")), "unclear" if "unclear" in both else "no gain")

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
            lines.append(f"  {self.verdict}: {self.reason or self.results}")
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
class _Made:
    """Both sides of a change, ready to be timed."""

    before: Timed
    after: Timed
    file: str
    old: str
    new: str
    results: str
    notes: tuple[str, ...]
    change: str
    """as a person would say it"""


@dataclass(frozen=True, slots=True)
class Advice:
    """What of a hint its outcome says, and the ledger keeps."""

    rule: str
    version: int
    title: str
    change: str
    predicted: tuple[float, float]


def attempt(trial: HintTrial, hint: Advice, budget: float) -> TriedHint:
    """Tries it for about `budget` seconds of measuring. What it finds goes into the ledger, and an edit that makes the
    program faster to editors."""
    with events.paused():  # a profiler that is open is not shown what is tried
        try:
            made = _made(trial)
        except NotTried as e:
            return TriedHint(hint.title, hint.change, hint.predicted, reason=str(e))
        diff = _diff(made)
        if made.results.startswith("other results"):
            return TriedHint(hint.title, hint.change, hint.predicted, diff, made.results, notes=made.notes)
        warm = paired(made.before, made.after, budget)
        size = _cached(trial)
        cold = paired(made.before, made.after, budget, evict(size)) if size else None
    saved = warm.saved
    measured, target = (saved.low, saved.middle, saved.high), trial.launches[0].target
    ledger.record(Entry(hint.rule, hint.version, hint.title, target, hint.predicted, measured, time.time()))
    tried = TriedHint(hint.title, hint.change, hint.predicted, diff, made.results, warm, cold, made.notes)
    if tried.verdict == "faster":
        title = f"{made.change} (tried: {format_percent(saved.middle)} less time)"
        tried_edits.record(made.file, made.old, made.new, title)
    return tried


def _made(trial: HintTrial) -> _Made:
    """Raises NotTried."""
    if trial.change == "by hand":
        raise NotTried(trial.why)
    if not trial.launches:
        raise NotTried("the profile holds no launch that it is about")
    launch = trial.launches[-1]
    if trial.change == "one function":
        if launch.device.partition(":")[0] != HOST:
            raise NotTried("calls are joined and timed on the CPU alone so far")
        both = fused(trial.recording, trial.launches, launch.target)
        results = _compared(both.before(), both.after())
        notes, change = _note(both.made_up), "Join the calls into one function"
        return _Made(timed(both.before), timed(both.after), both.file, both.old, both.new, results, notes, change)
    again = call_of(trial.recording, launch)
    chosen = blocks.choose(again, blocks.changes(again, trial.change), launch.target)
    notes = _note(again.made_up) + tuple(f"left out: {why}" for why in chosen.left_out)
    found = chosen.blocks
    file = again.program.definition().file
    change = f"Use {found.said} in {again.program.name}"
    return _Made(chosen.before, chosen.after, file, found.before, found.after, "equal bits", notes, change)


def _note(made_up: Sequence[str]) -> tuple[str, ...]:
    return (f"random numbers in the place of {', '.join(made_up)}, which are gone",) if made_up else ()


def _diff(made: _Made) -> str:
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


def _compared(before: Any, after: Any) -> str:
    pairs = list(zip(map(on_host, in_a_row(before)), map(on_host, in_a_row(after)), strict=True))
    if all(a is None or (a.dtype == b.dtype and a.tobytes() == b.tobytes()) for a, b in pairs):
        return "equal bits"
    worst = 0.0
    for a, b in pairs:
        if a is None:
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"other results: {a.dtype}{list(a.shape)} is {b.dtype}{list(b.shape)}"
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return "other results: whole numbers differ"
            continue
        wide, other = (x.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for x in (a, b))
        same = (wide == other) | (np.isnan(wide) & np.isnan(other))
        largest = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))
        away = float(np.max(np.where(same, 0.0, np.abs(wide - other)), initial=0.0))
        step = 2.0 ** -_mantissa(a.dtype)
        if not away <= TOLERANCE * step * largest:
            return f"other results: they differ by {away:.2g}, where the largest is {largest:.2g}"
        worst = max(worst, away / largest if largest else 0.0)
    return f"equal within rounding (at most {worst:.1e} of the largest result)"


def _mantissa(dtype: Any) -> int:
    """Bits behind the point of a floating-point number in memory, by how it rounds 1 + 2**-k."""
    one = np.ones((), dtype)
    return next((k - 1 for k in range(1, 60) if (one + np.asarray(2.0**-k, dtype)).astype(dtype) == one), 52)
