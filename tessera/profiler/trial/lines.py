"""Two versions of a program, line by line: which became slower or faster, and which only seem so.

Lines are joined by their texts: those that both versions have, and of what was edited the first with the first. A line
is flagged where the interval of its ratio lies beyond `SAME` on one side. All intervals of a comparison hold together
with probability `CONFIDENCE`, however many lines there are (Bonferroni), so that of a hundred comparisons of equal
programs at most one flags anything.
"""

from __future__ import annotations

import difflib
import linecache
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from tessera.fitted import fitted
from tessera.profiler.quantity import format_time
from tessera.profiler.recording import Recording
from tessera.profiler.trial.intervals import MedianInterval, median_interval
from tessera.profiler.trial.paired import SAME, repeats, timed
from tessera.profiler.views.markup import table, table_alone, text
from tessera.runtime import events

CONFIDENCE = 0.99
LEAST, MOST = 20, 200
"""repetitions: twenty let a line be flagged among fifty others"""

Place = tuple[str, int]
"""file and line"""


@dataclass(slots=True)
class Repetitions:
    """Seconds, one figure a repetition: of whole calls, and of the kernels of each line in them."""

    total: list[float] = field(default_factory=list[float])
    lines: dict[Place, list[float]] = field(default_factory=dict["Place", "list[float]"])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """of the files that the lines stand in"""

    def add(self, seconds: float, lines: Mapping[Place, float]) -> None:
        """A line that took no time in some repetition took 0."""
        before = len(self.total)
        self.total.append(seconds)
        for place in {**self.lines, **lines}:
            self.lines.setdefault(place, [0.0] * before).append(lines.get(place, 0.0))


def seconds_by_line(recording: Recording) -> dict[Place, float]:
    """The kernels' time, in seconds, by the line that they compute."""
    found: dict[Place, float] = {}
    for launch in recording.launches:
        place = (str(launch.attributes.get("file", "")), int(launch.attributes.get("line", 0)))
        if launch.duration is not None and place[1]:
            found[place] = found.get(place, 0.0) + launch.duration * 1e-9
    return found


def repetitions_of(recording: Recording) -> Repetitions:
    """The calls of a profile as repetitions: as many as of the function that was called least."""
    calls: dict[str, dict[object, Recording]] = {}
    for launch in recording.launches:
        one = calls.setdefault(str(launch.attributes.get("function", launch.kernel)), {})
        one.setdefault(launch.attributes.get("run", launch.launch), Recording()).launches.append(launch)
    out = Repetitions(texts=dict(recording.texts))
    for runs in zip(*(list(found.values()) for found in calls.values()), strict=False):
        lines: dict[Place, float] = {}
        for run in runs:
            for place, seconds in seconds_by_line(run).items():
                lines[place] = lines.get(place, 0.0) + seconds
        out.add(sum(lines.values()), lines)
    return out


@dataclass(slots=True)
class Repeated:
    """A call that is made again and again: its time as it is, then that of each line, with tiles recorded."""

    call: Callable[[], object]
    found: Repetitions = field(default_factory=Repetitions)
    turns: int = 0

    def once(self) -> None:
        if not self.turns:
            self._recorded()  # compiles what records tiles
            self.turns = repeats(timed(self.call))
        seconds = timed(self.call)(self.turns)
        self.found.add(seconds, self._recorded())

    def _recorded(self) -> dict[Place, float]:
        recording = Recording()
        token = events.subscribe(recording.add, tiles=True)
        try:
            self.call()
            events.drain()
        finally:
            events.unsubscribe(token)
        lines = seconds_by_line(recording)
        self.found.texts |= texts_of((file for file, _ in lines), self.found.texts)
        return lines


def texts_of(files: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The texts of files, as far as they can be read."""
    return {file: "".join(linecache.getlines(file)) for file in set(files) if file and file not in (known or {})}


@fitted
def side_by_side(before: Callable[[], object], after: Callable[[], object], budget: float = 2.0) -> LineComparison:
    """Calls both by turns for about `budget` seconds, at least 20 times each, and compares them line by line.

    Both have to do the same work: they are called without arguments, and what they give is not looked at.
    """
    sides = (Repeated(before), Repeated(after))
    by_turns((sides[0].once, sides[1].once), budget)
    return compare_lines(sides[0].found, sides[1].found, by_turn=True)


def by_turns(sides: tuple[Callable[[], None], Callable[[], None]], budget: float) -> None:
    """Repetitions of both, the first of a pair alternating."""
    until, done = perf_counter() + budget, 0
    while done < LEAST or (done < MOST and perf_counter() < until):
        for i in (0, 1) if done % 2 == 0 else (1, 0):
            sides[i]()
        done += 1


@dataclass(frozen=True, slots=True)
class LineChange:
    """One line before and after; `ratio` is after over before, None where one side has no such line."""

    file: str
    before: int | None
    after: int | None
    text: str
    seconds: tuple[float | None, float | None]
    """medians"""
    ratio: MedianInterval | None
    edited: bool

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "new" if self.before is None else "gone"
        if self.ratio.low > 1 + SAME:
            return "slower"
        return "faster" if self.ratio.high < 1 - SAME else ""


@dataclass(frozen=True, slots=True)
class LineComparison:
    """All lines that took time on either side, those that took longest first, and the whole."""

    changes: tuple[LineChange, ...]
    total: LineChange
    by_turn: bool
    """whether both ran by turns; if not, a machine that was slower meanwhile shows as a slower program"""
    pairs: int

    @property
    def flagged(self) -> tuple[LineChange, ...]:
        return tuple(change for change in self.changes if change.verdict)

    def __str__(self) -> str:
        rows = [_cells(change) for change in (*self.changes, self.total)]
        widths = [max(len(row[i]) for row in (_HEADS, *rows)) for i in range(len(_HEADS) - 1)]
        how = "by turns" if self.by_turn else "one after the other: what else the machine did counts as well"
        lines = [f"{self.pairs} repetitions, {how}; intervals hold together at {CONFIDENCE:.0%}"]
        for row in (_HEADS, *rows):
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks and the panel: what is flagged is also said in words. Names of files are
        left out where there is one."""
        alone = len({change.file for change in self.changes}) == 1
        rows: list[list[str]] = []
        for change in (*self.changes, self.total):
            line, *figures, verdict, code = map(text, _cells(change))
            line = line.partition(":")[2] if alone and change.file else line
            said = f"<b>{verdict}</b>" if change.verdict else verdict
            rows.append([line.replace("&gt;", " → "), *figures, said, f"<code>{code}</code>" if code else ""])
        markup = table(_HEADS, rows) + f"<small>{text(str(self).partition(chr(10))[0])}</small>"
        return table_alone("tessera-lines", markup)


_HEADS = ("line", "before", "after", "ratio", "interval", "", "text")


def _cells(change: LineChange) -> tuple[str, ...]:
    if change.file:
        moved = f"{change.before or '-'}>{change.after or '-'}" if change.before != change.after else f"{change.after}"
        line = f"{Path(change.file).name}:{moved}"
    else:
        line = "whole"
    before, after = ("-" if s is None else format_time(s * 1e9) for s in change.seconds)
    ratio, interval = "", ""
    if change.ratio is not None:
        r = change.ratio
        ratio, interval = f"{r.middle:.2f}x", f"{r.low:.2f} to {r.high:.2f}"
    text = " ".join([change.verdict, "edited" if change.edited else ""]).strip()
    return line, before, after, ratio, interval, text, change.text


def compare_lines(before: Repetitions, after: Repetitions, by_turn: bool) -> LineComparison:
    """`by_turn`: the repetitions of both sides belong together, the first to the first, and are compared in pairs."""
    joined = list(_joined(before, after))
    confidence = 1 - (1 - CONFIDENCE) / (len(joined) + 1)
    changes: list[LineChange] = []
    for (file, old, new), edited in joined:
        a = before.lines.get((file[0], old or 0))
        b = after.lines.get((file[1], new or 0))
        text = (_lines(after, file[1]) if new else _lines(before, file[0])).get(new or old or 0, "").strip()
        changes.append(_change(file[1] or file[0], old, new, text, a, b, edited, confidence, by_turn))
    changes.sort(key=lambda c: -max(c.seconds[0] or 0, c.seconds[1] or 0))
    total = _change("", 0, 0, "", before.total, after.total, False, confidence, by_turn)
    return LineComparison(tuple(changes), total, by_turn, min(len(before.total), len(after.total)))


def _change(
    file: str, old: int | None, new: int | None, text: str, a: list[float] | None, b: list[float] | None,
    edited: bool, confidence: float, by_turn: bool,
) -> LineChange:  # fmt: skip
    seconds = (statistics.median(a) if a else None, statistics.median(b) if b else None)
    ratio = _ratio(a, b, confidence, by_turn) if a and b else None
    return LineChange(file, old if a else None, new if b else None, text, seconds, ratio, edited)


def _ratio(a: list[float], b: list[float], confidence: float, by_turn: bool) -> MedianInterval:
    """After over before. Of samples that do not belong together, from the intervals of both medians."""
    if by_turn:
        ratios = [y / x if x else float("inf") if y else 1.0 for x, y in zip(a, b, strict=False)]
        return median_interval(ratios, confidence)
    x, y = (median_interval(side, (1 + confidence) / 2) for side in (a, b))
    return MedianInterval(
        max(y.low, 0.0) / x.high if x.high else 0.0,
        y.middle / x.middle if x.middle else float("inf"),
        y.high / x.low if x.low > 0 else float("inf"),
        confidence,
    )


Joined = tuple[tuple[tuple[str, str], int | None, int | None], bool]
"""the names of the file on both sides, the line on both, and whether it was edited"""


def _joined(before: Repetitions, after: Repetitions) -> Iterable[Joined]:
    for pair in _files(before, after):
        old, new = (
            [t.rstrip() for t in side.texts.get(f, "").splitlines()]
            for side, f in zip((before, after), pair, strict=True)
        )
        found = {line for file, line in before.lines if file == pair[0]}
        rest = {line for file, line in after.lines if file == pair[1]}
        i0 = k0 = 0
        if pair[0] == pair[1] and old == new and found and rest and not found & rest:  # two functions of one text
            i0, k0 = min(found) - 1, min(rest) - 1
            old, new = old[i0 : max(found)], new[k0 : max(rest)]
        to_new: dict[int, tuple[int, bool]] = {}
        for what, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if what in ("equal", "replace"):
                to_new |= {i0 + i + n + 1: (k0 + k + n + 1, what == "replace") for n in range(min(j - i, m - k))}
        for line in sorted(found):
            other, edited = to_new.get(line, (None, True))
            if not old and not new:
                other, edited = line, False  # texts that nobody knows: lines are what they were
            yield (pair, line, other), edited
            rest.discard(other or 0)
        back = {other: (line, edited) for line, (other, edited) in to_new.items()}
        for line in sorted(rest):
            other, edited = back.get(line, (None, True))
            yield (pair, other, line), edited


def _files(before: Repetitions, after: Repetitions) -> list[tuple[str, str]]:
    """Files of one name belong together; where each side has one more, these do."""
    old, new = ({file for file, _ in side.lines} for side in (before, after))
    pairs = [(file, file) for file in sorted(old & new)]
    left, right = sorted(old - new), sorted(new - old)
    if len(left) == len(right) == 1:
        return [*pairs, (left[0], right[0])]
    return [*pairs, *((file, "") for file in left), *(("", file) for file in right)]


def _lines(side: Repetitions, file: str) -> dict[int, str]:
    return {n: line.rstrip() for n, line in enumerate(side.texts.get(file, "").splitlines(), 1)}
