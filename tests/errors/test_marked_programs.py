"""Programs with their findings written into them: what is underlined, which code, what is said, and the mended line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tessera import knobs
from tessera.codes import CODES
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.errors import Diagnostic

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
MARK = re.compile(r"^\s*#\s*(\^+) (TS\d+)(?: (.*))?$")
SAYS = re.compile(r"^\s*# says: (.*)$")
TARGET = re.compile(r"^# target: (\S+)$", re.M)
FIX = re.compile(r"^\s*# fix( of the line above)?: (.*)$")


@dataclass
class Expected:
    line: int
    col: int
    end: int
    code: str
    label: str
    says: list[str] = field(default_factory=list)
    fix: str = ""
    fix_line: int = 0


def expectations(text: str) -> Iterator[Expected]:
    """Marks belong to the nearest line above that is no mark."""
    line, current = 0, None
    for number, content in enumerate(text.split("\n"), 1):
        if m := MARK.match(content):
            current = Expected(line, m.start(1) + 1, m.end(1) + 1, m[2], m[3] or "")
            yield current
        elif current and (m := SAYS.match(content)):
            current.says.append(m[1])
        elif current and (m := FIX.match(content)):
            current.fix, current.fix_line = m[2], line - bool(m[1])
        else:
            line, current = number, None


def analysed(name: str, text: str) -> FileAnalysis:
    """For the target that a line of the program names, if one does."""
    file, target = FileAnalysis(name), TARGET.search(text)
    with knobs.target.override(target[1] if target else None):
        file.update(text)
    return file


def place(d: Diagnostic) -> tuple[int, int, int, str]:
    return (d.span.line, d.span.col, d.span.end_col, d.code)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_findings_are_those_marked(path: Path) -> None:
    text = path.read_text()
    file = analysed(path.name, text)
    expected = {(e.line, e.col, e.end, e.code): e for e in expectations(text)}
    found = {place(d): d for d in file.diagnostics}
    assert expected, "the program marks nothing"
    said = "\n\n".join(d.render() for p, d in found.items() if p not in expected)
    assert set(found) == set(expected), f"not marked:\n{said}\nnot found: {sorted(set(expected) - set(found))}"
    for key, e in expected.items():
        d = found[key]
        assert not e.label or d.label == e.label
        everything = d.render()
        for words in e.says:
            assert words in everything, everything
        if e.fix:
            assert d.fixes, f"no fix for\n{everything}"
            mended = apply(text, d.fixes[0])
            assert mended.split("\n")[e.fix_line - 1].strip() == e.fix
            left = [x.code for x in analysed(path.name, mended).diagnostics].count(e.code)
            assert left < [x.code for x in file.diagnostics].count(e.code), "the fix does not mend it"


def test_every_finding_is_of_the_catalogue_and_says_where() -> None:
    for path in PROGRAMS:
        file = analysed(str(path), path.read_text())
        for d in file.diagnostics:
            assert d.code in CODES and d.code != "TS900", d.render()
            assert d.span.line and d.message and d.function
            assert f"{d.span.line} |" in d.render()


def test_every_code_of_the_front_end_has_a_program() -> None:
    """Codes that only files, live objects or both can raise are tested beside this."""
    elsewhere = {"TS101", "TS107", "TS109", "TS210"}
    marked = {e.code for p in PROGRAMS for e in expectations(p.read_text())}
    raised: set[str] = set()
    frontend = Path(__file__).parents[2] / "tessera" / "compiler" / "frontend"
    for source in frontend.rglob("*.py"):
        if source.relative_to(frontend).parts[0] not in ("kernel", "syntax"):
            raised |= set(re.findall(r'"(TS[1-4]\d\d)"', source.read_text()))
    assert raised - marked - elsewhere == set()
