"""Realistic models with what a person should see written into them: `#: type` where a hint stands, several parted by
`|`; below a line, carets under what is underlined and its code. Lines without such marks have neither."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from tessera_lsp.features.inlay_hints import shown

from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.editor.functions import Known

MODELS = sorted((Path(__file__).parent / "markers").glob("*.py"))
HINTS = re.compile(r"  #: (.*)$")
FINDING = re.compile(r"^\s*# *(\^+) (TS\d+)$")


def expected(text: str) -> tuple[dict[int, list[str]], set[tuple[int, int, int, str]]]:
    """Types by line, and findings: line, columns, code."""
    hints: dict[int, list[str]] = {}
    findings: set[tuple[int, int, int, str]] = set()
    above = 0
    for number, line in enumerate(text.split("\n"), 1):
        if finding := FINDING.match(line):
            findings.add((above, finding.start(1) + 1, finding.end(1) + 1, finding[2]))
        else:
            above = number
            if marked := HINTS.search(line):
                hints[number] = marked[1].split(" | ")
    return hints, findings


def lines_of_plain_functions(text: str) -> set[int]:
    """Those of functions and methods that are no programs by themselves: what is shown there is known from calls."""
    top = ast.parse(text).body
    functions = [f for s in top for f in (s.body if isinstance(s, ast.ClassDef) else [s])]
    plain = [f for f in functions if isinstance(f, ast.FunctionDef) and not f.decorator_list]
    return {line for f in plain for line in range(f.lineno, (f.end_lineno or f.lineno) + 1)}


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_hints_and_findings_are_those_marked(path: Path) -> None:
    text = path.read_text()
    file = FileAnalysis(path.name)
    file.update(text)
    hints, findings = expected(text)
    found: dict[int, list[str]] = {}
    for e in sorted((e for a in file.analyses for e in shown(Known(a, file))), key=lambda e: (e.span.line, e.span.col)):
        found.setdefault(e.span.end_line, []).append(e.text)
    assert found == hints
    assert len(hints) > 12, "a model worth reading"
    assert {(d.span.line, d.span.col, d.span.end_col, d.code) for d in file.diagnostics} == findings


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
async def test_the_same_over_the_wire(editor, path: Path) -> None:
    """Exact places: a hint stands right behind its name, and its line is the one that is marked."""
    text = path.read_text()
    doc = editor.open(text, path.name)
    hints, findings = expected(text)
    lines = text.split("\n")
    found: dict[int, list[str]] = {}
    for h in sorted(await editor.inlay_hints(doc), key=lambda h: (h.position.line, h.position.character)):
        if h.kind is lsp.InlayHintKind.Parameter:
            continue  # before an index: tests/lsp/test_kernel_axes.py
        before = lines[h.position.line][: h.position.character]
        if h.label == "(default)":
            assert re.search(r"= \d+$", before), before
            continue
        assert re.search(r"[^\W\d]\w*$", before), before
        found.setdefault(h.position.line + 1, []).append(editor.label(h).removeprefix(": "))
    plain = lines_of_plain_functions(text)  # tests/lsp/test_inside.py
    assert {line: said for line, said in found.items() if line not in plain} == hints
    report = {
        (d.range.start.line + 1, d.range.start.character + 1, d.range.end.character + 1, d.code)
        for d in await editor.diagnostics(doc)
    }
    assert report == findings
