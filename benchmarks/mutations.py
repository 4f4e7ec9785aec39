"""How much stays known while a text is broken: every small mistake in realistic models, one after the other.

Every token of the marker files (tests/lsp/markers) is deleted, every bracket and quote put between any two tokens,
every line cut off in its middle, every indent taken, given and exchanged with the next line's. Each text is given to a
`FileAnalysis` that knows the right one, as an editor's is:

- nothing crashes (no TS900), and the right text afterwards is known as before;
- a text that parses is known as from scratch: the same findings, the same hints;
- of one that does not, no hint is lost but those of the broken statement and of what depends on it, and none differs
  from the right text's; its findings of TS101 are those from scratch.

python -m benchmarks mutations [--sample 1000] [--seed 0] [--save]
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import random
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.record import ROOT, save
from tessera.compiler.frontend.analysis import Analysis
from tessera.compiler.frontend.files import FileAnalysis
from tessera.compiler.frontend.reparse import parsed

MODELS = sorted((ROOT / "tests" / "lsp" / "markers").glob("*.py"))
INSERTED = "()[]{}\"'"

Hints = dict[tuple[int, str], str]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A text with one mistake. `first` to `last`: the lines of the right text that it touches; `by`: how many lines
    more there are behind it."""

    kind: str
    first: int
    last: int
    by: int
    text: str


def mutations(text: str) -> Iterator[Mutation]:
    """Every mutation of a text, in the order of the text for each kind."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for t in tokens:
        start, end = starts[t.start[0] - 1] + t.start[1], starts[t.end[0] - 1] + t.end[1]
        if end > start and t.type != tokenize.COMMENT:
            gone = text[start:end].count("\n")
            last = min(t.end[0] + (gone and t.type in (tokenize.NEWLINE, tokenize.NL)), len(lines))
            yield Mutation("delete a token", t.start[0], last, -gone, text[:start] + text[end:])
    for t in tokens:
        at = starts[t.start[0] - 1] + t.start[1]
        if t.type not in (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT):
            for added in INSERTED:
                yield Mutation(f"insert {added}", t.start[0], t.start[0], 0, text[:at] + added + text[at:])
    for i, line in enumerate(lines):
        code = line.partition("#")[0].rstrip()
        if not code:
            continue
        indent = len(code) - len(code.lstrip())
        others = {
            "truncate": code[: indent + (len(code) - indent) // 2],
            "indent more": f"    {code}",
            "indent less": code.removeprefix("    "),
        }
        for kind, other in others.items():
            if other != code:
                yield Mutation(kind, i + 1, i + 1, 0, "".join([*lines[:i], other + "\n", *lines[i + 1 :]]))
        if i + 1 < len(lines) and (below := lines[i + 1]).strip():
            further = len(below) - len(below.lstrip())
            if further != indent:
                pair = [" " * further + line.lstrip(), " " * indent + below.lstrip()]
                yield Mutation("swap indents", i + 1, i + 2, 0, "".join([*lines[:i], *pair, *lines[i + 2 :]]))


def hints(file: FileAnalysis) -> Hints:
    """The types of assigned names and parameters, by line."""
    shown = (e for a in file.analyses for e in a.expressions if e.kind in ("assign", "param"))
    return {(e.span.line, e.name): e.text for e in shown}


def everything(analysis: Analysis) -> object:
    infos = sorted(
        (e.span.line, e.span.col, e.span.end_line, e.span.end_col, e.kind, e.text) for e in analysis.expressions
    )
    return analysis.name, analysis.definition.line, infos, analysis.diagnostics, dict(analysis.dims)


class Model:
    """The right text, what is known of it, and what depends on each of its lines."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.file = FileAnalysis(path.name)
        self.file.update(self.text)
        self.hints = hints(self.file)
        self.whole = [everything(a) for a in self.file.analyses]
        self._tree = ast.parse(self.text)

    def statements(self, first: int, last: int) -> list[ast.stmt]:
        """The innermost statements that lines belong to: of a compound one, its head only."""
        found: list[ast.stmt] = []
        for s in ast.walk(self._tree):
            if isinstance(s, ast.stmt):
                body = getattr(s, "body", None)
                top = min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", []))])
                end = body[0].lineno - 1 if body else s.end_lineno or s.lineno
                if top <= last and end >= first:
                    found.append(s)
        return found

    def lines_of(self, broken: list[ast.stmt]) -> set[int]:
        out: set[int] = set()
        for s in broken:
            body = getattr(s, "body", None)
            out |= set(range(s.lineno, (body[0].lineno if body else (s.end_lineno or s.lineno) + 1)))
        return out

    def dependants(self, broken: list[ast.stmt]) -> set[int]:
        """Lines whose hints depend on the statements: through the names that they assign, and through functions."""
        names: set[str] = set()
        for s in broken:
            if isinstance(s, ast.Return):  # what the function gives
                names |= {f.name for f in ast.walk(self._tree) if isinstance(f, ast.FunctionDef) and s in ast.walk(f)}
            names |= {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            names |= {a.arg for n in ast.walk(s) for a in [n] if isinstance(a, ast.arg)}
            names |= {a.asname or a.name for a in getattr(s, "names", []) if isinstance(a, ast.alias)}
            names |= {s.name} if isinstance(s, (ast.FunctionDef, ast.ClassDef)) else set()
        out: set[int] = set()
        size = -1
        while size != len(names) + len(out):
            size = len(names) + len(out)
            for s in ast.walk(self._tree):
                if not isinstance(s, ast.stmt) or isinstance(s, (ast.ClassDef, ast.If, ast.With)):
                    continue
                if isinstance(s, ast.FunctionDef):
                    inside = {n.id for n in ast.walk(s) if isinstance(n, ast.Name)}
                    if inside & names:
                        names.add(s.name)
                    continue
                if {n.id for n in ast.walk(s) if isinstance(n, ast.Name)} & names:
                    out |= set(range(s.lineno, (s.end_lineno or s.lineno) + 1))
                    names |= {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return out


@dataclass
class Score:
    """Counts over mutations; `faults` are broken promises."""

    texts: Counter[str] = field(default_factory=Counter[str])
    broken: Counter[str] = field(default_factory=Counter[str])
    kept: Counter[str] = field(default_factory=Counter[str])
    there: Counter[str] = field(default_factory=Counter[str])
    places: Counter[int] = field(default_factory=Counter[int])
    faults: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def summary(self) -> dict[str, object]:
        def percent(part: float, whole: float) -> float:
            return round(100 * part / whole, 2) if whole else 100.0

        kinds = sorted(self.texts)
        return {
            "texts": sum(self.texts.values()), "broken": sum(self.broken.values()), "faults": len(self.faults),
            "hints_kept_percent": percent(sum(self.kept.values()), sum(self.there.values())),
            "one_finding_percent": percent(self.places[1], sum(self.places.values())),
            "milliseconds_each": round(1e3 * self.seconds / max(sum(self.texts.values()), 1), 2),
            "by_kind": {
                k: {"texts": self.texts[k], "broken": self.broken[k], "kept": percent(self.kept[k], self.there[k])}
                for k in kinds
            },
        }  # fmt: skip


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def try_one(model: Model, m: Mutation, score: Score) -> None:
    """Checks everything that is promised about one mutation."""
    started = time.perf_counter()
    model.file.update(m.text)
    score.seconds += time.perf_counter() - started
    score.texts[m.kind] += 1
    where = f"{model.file.file}:{m.first} {m.kind}: {m.text.splitlines()[m.first - 1] if m.text else ''!r}"
    if any(d.code == "TS900" for d in model.file.diagnostics):
        score.faults.append(f"{where}: it crashed")
    if model.file.problems != parsed(m.text, model.file.file).problems:
        score.faults.append(f"{where}: other findings of TS101 than from scratch")
    if bool(model.file.problems) == parses(m.text):
        score.faults.append(f"{where}: Python's parser has another opinion")
    if not model.file.problems:
        fresh = FileAnalysis(model.file.file)
        fresh.update(m.text)
        if [everything(a) for a in model.file.analyses] != [everything(a) for a in fresh.analyses]:
            score.faults.append(f"{where}: known otherwise than from scratch")
    else:
        score.broken[m.kind] += 1
        score.places[len(model.file.problems)] += 1
        _compare(model, m, score, where)
    model.file.update(model.text)
    if [everything(a) for a in model.file.analyses] != model.whole:
        score.faults.append(f"{where}: the right text is not known as before")


def _compare(model: Model, m: Mutation, score: Score, where: str) -> None:
    statements = model.statements(m.first, m.last)
    own, dependants = model.lines_of(statements), model.dependants(statements)
    wanted = {(line + m.by * (line > m.first), name): (line, t) for (line, name), t in model.hints.items()}
    now = hints(model.file)
    for place, (line, type) in wanted.items():
        if line in own:
            continue
        score.there[m.kind] += 1
        score.kept[m.kind] += now.get(place) == type
        if place not in now and line not in dependants:
            score.faults.append(f"{where}: {place[1]} in line {line} is lost")
    for place, type in now.items():
        if place not in wanted or wanted[place][1] != type:
            line = place[0] - m.by * (place[0] > m.first)
            if line not in own and line not in dependants:
                score.faults.append(f"{where}: {place[1]} in line {line} is {type}")


def run(sample: int | None = None, seed: int = 0, progress: bool = False) -> Score:
    """Tries all mutations of all models, or so many of them, chosen by the seed."""
    score = Score()
    everywhere = [(Model(p), list(mutations(p.read_text(encoding="utf-8")))) for p in MODELS]
    total = sum(len(found) for _, found in everywhere)
    rng = random.Random(seed)
    done = 0
    for model, found in everywhere:
        chosen = found if sample is None else rng.sample(found, min(len(found), sample * len(found) // total))
        for m in chosen:
            try_one(model, m, score)
            done += 1
            if progress and done % 500 == 0:
                print(f"\r{done} of {sample or total}", end="", file=sys.stderr, flush=True)
    if progress:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return score


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="try so many, spread over the models (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="keep the score in benchmarks/results/mutations.json")
    options = parser.parse_args()
    score = run(options.sample, options.seed, progress=sys.stderr.isatty())
    print(json.dumps(score.summary(), indent=1))
    for fault in score.faults[:40]:
        print(fault)
    if options.save:
        print(f"kept in {save('mutations', score.summary())}")
    return 1 if score.faults else 0


if __name__ == "__main__":
    sys.exit(main())
