"""Changes of a function that people can ask for. Each has been tried on the text before it is offered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.definitions import definitions
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.result import Analysis
from tessera.editor.functions import Known
from tessera.editor.open_file import OpenFile
from tessera.errors import Diagnostic, Edit, Fix, Span


@dataclass(frozen=True, slots=True)
class Selection:
    """What the person has selected, as a Span counts; an empty one is the cursor's place."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str = ""

    def touches(self, span: Span | None) -> bool:
        if span is None:
            return False
        return (span.line, span.col) <= self.end and self.start <= (span.end_line, span.end_col)

    def holds(self, span: Span | None) -> bool:
        if span is None:
            return False
        return self.start <= (span.line, span.col) and (span.end_line, span.end_col) <= self.end


@dataclass(frozen=True, slots=True)
class Offer:
    """`disabled` says why it cannot be done; then there are no edits."""

    title: str
    kind: str
    edits: tuple[Edit, ...] = ()
    disabled: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """What the analysis says of a function after a change, and which findings are new."""

    analysis: Analysis
    found: tuple[Diagnostic, ...]

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.found if d.severity == "error"]


def edited(known: Known, edits: Iterable[Edit]) -> Definition | None:
    """The function in the changed text, which may have moved down; None where that does not parse."""
    definition, edits = known.analysis.definition, tuple(edits)
    text = apply(definition.source, Fix("", edits))
    down = sum(e.text.count("\n") for e in edits if e.span.end_line <= definition.line)
    return definition.scope.edited(replace(definition, line=definition.line + down), text)


def tried(known: Known, edits: Iterable[Edit]) -> Tried | None:
    """None where the text would no longer parse, or less be known of the function than before."""
    changed = edited(known, edits)
    if changed is None:
        return None
    after = analyse(changed)
    if known.analysis.op is not None and after.op is None and after.ok:
        return None
    before = {(d.code, d.message) for d in known.diagnostics}
    return Tried(after, tuple(d for d in after.diagnostics if (d.code, d.message) not in before))


def spread(document: OpenFile, known: Known, edits: Iterable[Edit], name: str) -> list[Diagnostic]:
    """The errors that a change brings to functions in which `name` is written, callers or `name` itself; of a method
    to all, for calls of an object need not write its name."""
    changed = edited(known, edits)
    if changed is None or not isinstance(changed.scope, TextScope):
        return []
    before = {(d.code, d.message) for d in document.diagnostics}
    word, lines = re.compile(rf"\b{re.escape(name)}\b"), changed.source.split("\n")
    method = known.analysis.definition.owner is not None and name == known.analysis.name
    concerned = (
        d for d in definitions(changed.scope)
        if method or word.search("\n".join(lines[d.line - 1 : d.tree.end_lineno]))
    )  # fmt: skip
    found = (e for d in concerned for e in analyse(d).diagnostics)
    return [e for e in found if e.severity == "error" and (e.code, e.message) not in before]


def insertion(span: Span, at_end: bool, text: str) -> Edit:
    line, col = (span.end_line, span.end_col) if at_end else (span.line, span.col)
    return Edit(Span(span.file, line, col, line, col), text)


def header_end(known: Known) -> Span | None:
    """The place of the colon that ends `def f(...) -> ...`: the first outside brackets."""
    lines = known.analysis.definition.text.lines
    depth, started = 0, False
    first = known.tree.lineno
    for number in range(first, min(known.tree.body[0].lineno, len(lines)) + 1):
        quote = ""
        for col, c in enumerate(lines[number - 1], 1):
            if quote:
                quote = "" if c == quote else quote
            elif c in "\"'":
                quote = c
            elif c == "#":
                break
            elif c in "([{":
                depth, started = depth + 1, True
            elif c in ")]}":
                depth -= 1
            elif c == ":" and not depth and started:
                return Span(known.analysis.definition.file, number, col, number, col)
    return None


def statements(known: Known) -> list[ast.stmt]:
    """All statements of the function, also those in blocks."""
    return [n for s in known.tree.body for n in ast.walk(s) if isinstance(n, ast.stmt)]


def names_of(nodes: Sequence[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {n.id for s in nodes for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
