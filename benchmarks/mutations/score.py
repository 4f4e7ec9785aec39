"""What is promised of a text with a mistake, and how far it is kept."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from benchmarks.mutations.dependence import Dependence, Part
from benchmarks.mutations.scratch import Scratch
from benchmarks.mutations.texts import Mutation, Typing, right
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis

Hints = dict[tuple[int, str], str]
Codes = set[tuple[int, str]]
PROMISES = ("no crash", "from scratch", "right text", "no hint lost", "no wrong hint", "no wrong finding")


def hints(file: FileAnalysis) -> Hints:
    """The types of assigned names and parameters, by line."""
    shown = (e for a in file.analyses for e in a.expressions if e.kind in ("assign", "param"))
    return {(e.span.line, e.name): e.text for e in shown}


def codes(file: FileAnalysis, called: Collection[int] = ()) -> Codes:
    """Findings by line, without those that say where the text does not parse, or that come of calls in lines."""
    found = [d for d in file.diagnostics if d.code != "TS101"]
    return {(d.span.line, d.code) for d in found if not any(n.span and n.span.line in called for n in d.notes)}


def everything(analysis: Analysis) -> object:
    infos = sorted(
        (e.span.line, e.span.col, e.span.end_line, e.span.end_col, e.kind, e.text) for e in analysis.expressions
    )
    return analysis.name, analysis.definition.line, infos, analysis.diagnostics, dict(analysis.dims)


@dataclass
class Score:
    """Counts over texts; `faults` are broken promises, `worst` texts in which many hints are lost."""

    of: int = 0
    """how many texts there are, of which `texts` have been tried"""
    seed: int = 0
    """of the order in which they are tried"""
    texts: Counter[str] = field(default_factory=Counter[str])
    broken: Counter[str] = field(default_factory=Counter[str])
    kept: Counter[str] = field(default_factory=Counter[str])
    there: Counter[str] = field(default_factory=Counter[str])
    places: Counter[int] = field(default_factory=Counter[int])
    faults: list[str] = field(default_factory=list[str])
    promises: Counter[str] = field(default_factory=Counter[str])
    """how often each was broken"""
    worst: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    """lost hints, findings of TS101, where"""
    seconds: float = 0.0

    def add(self, other: Score) -> None:
        for name in ("texts", "broken", "kept", "there", "places", "faults", "promises", "worst", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def fault(self, promise: str, said: str) -> None:
        self.promises[promise] += 1
        self.faults.append(said)

    def report(self, worst: int = 40) -> str:
        """The figures, the faults and the texts in which most is lost."""
        lost = [f"{hints} hints lost, {n} findings: {where}" for hints, n, where in sorted(self.worst, reverse=True)]
        return "\n".join([json.dumps(self.summary(), indent=1), *sorted(self.faults), *lost[:worst]])

    def summary(self) -> dict[str, object]:
        def percent(part: float, whole: float) -> float:
            return round(100 * part / whole, 3) if whole else 100.0

        return {
            "texts": sum(self.texts.values()), "of": self.of, "seed": self.seed, "broken": sum(self.broken.values()),
            "faults": len(self.faults), "faults_by_promise": {p: self.promises[p] for p in PROMISES},
            "hints_kept_percent": percent(sum(self.kept.values()), sum(self.there.values())),
            "one_finding_percent": percent(self.places[1], sum(self.places.values())),
            "milliseconds_each": round(1e3 * self.seconds / max(sum(self.texts.values()), 1), 2),
            "by_kind": {
                k: {"texts": self.texts[k], "broken": self.broken[k], "kept": percent(self.kept[k], self.there[k])}
                for k in sorted(self.texts)
            },
        }  # fmt: skip


class Model:
    """A right text, what is known of it, and what depends on each of its lines."""

    def __init__(self, name: str) -> None:
        self.name, self.text = name, right(name).text
        self.file = FileAnalysis(name)
        self.file.update(self.text)
        self.hints, self.codes = hints(self.file), codes(self.file)
        self.whole = [everything(a) for a in self.file.analyses]
        self._right = self.file.analyses
        self._scratch = Scratch(self.text, name)
        self._dependence = Dependence(self.text)
        self._concerned: dict[tuple[int, int], tuple[set[int], set[int]]] = {}

    def concerned(self, first: int, last: int) -> tuple[set[int], set[int]]:
        """The lines of the statements that these lines belong to, and those that depend on them."""
        key = first, last
        if key not in self._concerned:
            parts: list[Part] = self._dependence.broken(first, last)
            own = {line for p in parts for line in range(p.first, p.last + 1)}
            self._concerned[key] = own, self._dependence.dependants(parts)
        return self._concerned[key]

    # one mistake
    def try_one(self, m: Mutation, score: Score) -> None:
        """Checks everything that is promised about one mutation."""
        text = m.of(self.text)
        line = text.splitlines()[m.first - 1] if len(text.splitlines()) >= m.first else ""
        where = f"{self.name}:{m.first} {m.kind}: {line!r}"
        self._given(text, m.kind, where, score)
        if self.file.syntax_errors:
            score.broken[m.kind] += 1
            score.places[len(self.file.syntax_errors)] += 1
            self._compare(m, text.count("\n") - self.text.count("\n"), where, score)
        self.file.update(self.text)
        if not self._as_before():
            score.fault("right text", f"{where}: the right text is not known as before")

    def _as_before(self) -> bool:
        """Whether the right text is known as it was; what is the same object need not be looked into."""
        now = self.file.analyses
        same = len(now) == len(self.whole) and all(
            (a.expressions is was.expressions and a.diagnostics is was.diagnostics and a.dims is was.dims
             and a.definition.line == was.definition.line) or everything(a) == whole
            for a, was, whole in zip(now, self._right, self.whole, strict=True)
        )  # fmt: skip
        self._right = now if same else self._right
        return same

    def _given(self, text: str, kind: str, where: str, score: Score) -> None:
        """Gives the file a text; what is said of it must not depend on what was there before."""
        file = self.file
        started = time.perf_counter()
        file.update(text)
        score.seconds += time.perf_counter() - started
        score.texts[kind] += 1
        if any(d.code == "TS900" for d in file.diagnostics):
            score.fault("no crash", f"{where}: it crashed")
        problems, parses = self._scratch.problems(text)
        if file.syntax_errors != problems:
            score.fault("from scratch", f"{where}: other findings of TS101 than from scratch")
        if bool(file.syntax_errors) == parses:
            score.fault("from scratch", f"{where}: Python's parser has another opinion")
        if not file.syntax_errors:
            fresh = FileAnalysis(file.file)
            fresh.update(text)
            if [everything(a) for a in file.analyses] != [everything(a) for a in fresh.analyses]:
                score.fault("from scratch", f"{where}: known otherwise than from scratch")

    def _compare(self, m: Mutation, by: int, where: str, score: Score) -> None:
        own, dependants = self.concerned(m.first, m.last)
        before = min(m.first, m.last)
        moved = {line: line + by * (line > before) for line, _ in (*self.hints, *self.codes)}
        wanted = {(moved[line], name): (line, t) for (line, name), t in self.hints.items()}
        now, lost = hints(self.file), 0
        for place, (line, type) in wanted.items():
            if line in own:
                continue
            score.there[m.kind] += 1
            score.kept[m.kind] += now.get(place) == type
            lost += now.get(place) != type
            if place not in now and line not in dependants:
                score.fault("no hint lost", f"{where}: {place[1]} in line {line} is lost")
        known = {(moved[line], code) for line, code in self.codes}
        others = [(place, t) for place, t in now.items() if wanted.get(place, (0, ""))[1] != t]
        said = [("no wrong hint", place, f"{place[1]} is {t}") for place, t in others]
        blocks = self._dependence.blocks(m.first, m.last) if "indent" in m.kind else set[int]()
        new_ones = (p for p in codes(self.file) if p not in known and p[0] not in blocks)
        said += [("no wrong finding", place, f"{place[1]} is said") for place in new_ones]
        for promise, place, what in said:
            line = place[0] - by * (place[0] > before)
            new = m.last < m.first <= place[0] < m.first + by
            if not new and line not in own and line not in dependants:
                score.fault(promise, f"{where}: {what} in line {line}")
        if lost or len(self.file.syntax_errors) > 1:
            score.worst.append((lost, len(self.file.syntax_errors), where))

    # typing
    def try_typing(self, typing: Typing, kind: str, score: Score) -> None:
        """Types a function, and checks at each key that nothing else flickers."""
        _, dependants = self.concerned(typing.first, typing.first)
        inside = range(typing.first, typing.last + 1)
        outside = {p: t for p, t in self.hints.items() if p[0] not in inside and p[0] not in dependants}
        said = {(line, code) for line, code in self.codes if line not in inside}
        body = next((p.last + 1 for p in self._dependence.broken(typing.first, typing.first)), typing.first)
        last_good: Hints = {}
        for text, line in typing.texts(self.text, kind):
            typed = text.split("\n")[line - 1]
            where = f"{self.name}:{line} {kind} {typing.name}: {typed!r}"
            self._given(text, kind, where, score)
            score.broken[kind] += bool(self.file.syntax_errors)
            if (line <= typing.definition and not text.split("\n")[line - 1].strip()) or line < typing.definition:
                continue  # decorators, so far those of the function below
            by = text.count("\n") - self.text.count("\n")
            finished = {p: t for p, t in self.hints.items() if body < line and typing.first <= p[0] < line}
            now = hints(self.file)
            if not self.file.syntax_errors:  # what a line of a kernel is may depend on those below it
                finished = {p: now.get(p, t) for p, t in finished.items()}
            elif last_good:  # unless the lines that are there already make it what it will be
                finished = {p: t if now.get(p) == t else last_good.get(p, t) for p, t in finished.items()}
            last_good = finished
            self._keeps({**outside, **finished}, typing.last, by, kind, where, score)
            called = {*range(typing.first, typing.last + by + 1), *(n + by * (n > typing.last) for n in dependants)}
            for at, code in codes(self.file, called):
                before = at - by * (at > typing.last + by)
                if (
                    (at < typing.first or at > typing.last + by)
                    and before not in dependants
                    and (before, code) not in said
                ):
                    score.fault("no wrong finding", f"{where}: {code} is said in line {at}")
        self.file.update(self.text)
        self._right = self.file.analyses

    def _keeps(self, wanted: Hints, last: int, by: int, kind: str, where: str, score: Score) -> None:
        now, lost = hints(self.file), 0
        for (at, name), t in wanted.items():
            there = now.get((at + by * (at > last), name))
            score.there[kind] += 1
            score.kept[kind] += there == t
            lost += there != t
            if there is not None and there != t:
                score.fault("no wrong hint", f"{where}: {name} in line {at} is {there} and not {t}")
        if lost:
            score.worst.append((lost, len(self.file.syntax_errors), where))


def run_mutations(model: Model, chosen: Iterable[Mutation]) -> Score:
    score = Score()
    for m in chosen:
        model.try_one(m, score)
    if [everything(a) for a in model.file.analyses] != model.whole:
        score.fault("right text", f"{model.name}: after {sum(score.texts.values())} texts it is not known as before")
    return score
