"""Fixes of findings. Each is tried on the text, and offered only if it improves the function."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.syntax.parse import find_function, parse_module
from tessera.errors import CompileError, Diagnostic, Edit, Fix, Span
from tessera.immutable import immutable

TRIALS = 4
"""fixes tried per finding"""
OFFERED = 2
"""fixes offered per finding"""


@immutable
class CandidateFix:
    """A fix that has not been tried, and the line that offers it."""

    fix: Fix
    said: str = ""


Pending: TypeAlias = "list[tuple[int, list[CandidateFix]]]"
"""findings by number, each with what may mend it"""


def renumbered(pending: Pending, kept: list[int]) -> Pending:
    """What may mend the findings of these numbers, which become 0, 1, 2 ..."""
    number = {old: new for new, old in enumerate(kept)}
    return [(number[i], c) for i, c in pending if i in number]


def at_top(definition: Definition, line: str) -> Edit | None:
    """A statement before all others of a function, behind its documentation; None where they share its line."""
    body = definition.tree.body if isinstance(definition.tree, ast.FunctionDef) else []
    documented = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if documented and len(body) > 1 else body[0] if body else None
    if first is None:
        return None
    number = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
    text = definition.text.lines[number - 1]
    indent = text[: len(text) - len(text.lstrip())]
    if len(indent.encode()) != first.col_offset:
        return None
    return Edit(Span(definition.file, number, 1, number, 1), f"{indent}{line}\n")


def expression_at(definition: Definition, span: Span) -> ast.expr | None:
    """The outermost expression of a function that stands exactly there."""
    source = definition.text
    if span.file != source.file:
        return None
    for node in ast.walk(definition.tree):
        if isinstance(node, ast.expr) and node.lineno == span.line and source.span(node) == span:
            return node
    return None


def tried(
    definition: Definition,
    found: list[Diagnostic],
    pending: Pending,
    analyse: Callable[[Definition], list[Diagnostic]],
) -> list[Diagnostic]:
    """The findings, each with those of its fixes under which it is gone and no other shape is wrong: one that is surely
    meant, or a few to choose from."""
    waiting = dict(pending)
    out: list[Diagnostic] = []
    for i, d in enumerate(found):
        candidates = [*(CandidateFix(f) for f in d.fixes), *waiting.get(i, ())]
        d = replace(d, fixes=())
        for c in candidates[:TRIALS]:
            changed = _edited(definition, c.fix)
            if changed is None or not _better(d, c.fix, found, analyse(changed)):
                continue
            d = replace(d, message=f"{d.message}\n{c.said}" if c.said else d.message, fixes=(*d.fixes, c.fix))
            if c.said or d.severity != "error" or len(d.fixes) == OFFERED:
                break
        out.append(d)
    return out


def _better(d: Diagnostic, fix: Fix, before: list[Diagnostic], after: list[Diagnostic]) -> bool:
    """The finding is gone and no shape is wrong that was not.

    What was unknown before an error was mended may show other mistakes, elsewhere; with a warning mended there is no
    new error.
    """
    known = {(o.code, o.message) for o in before}
    lines = ((before, d.span.line), (after, _line_after(fix, d.span)))
    alike = [sum(o.code == d.code and o.span.line == line for o in some) for some, line in lines]
    gone = alike[1] < alike[0]
    new = [o for o in after if o.severity == "error" and (o.code, o.message) not in known]
    if d.severity == "error":
        new = [o for o in new if o.code.startswith("TS2") or o.span.line == d.span.line]
    return gone and not new


def _line_after(fix: Fix, span: Span) -> int | None:
    """The line that a place is in once the fix is applied; None where that takes it out."""
    line = span.line
    for e in fix.edits:
        start, end = (e.span.line, e.span.col), (e.span.end_line, e.span.end_col)
        if end <= (span.line, span.col):
            line += e.text.count("\n") - (e.span.end_line - e.span.line)
        elif start <= (span.line, span.col) and (span.end_line, span.end_col) <= end and not e.text:
            return None
    return line


def _edited(definition: Definition, fix: Fix) -> Definition | None:
    """The definition with the fix applied to its text; None where that is not possible, or no longer parses."""
    if any(e.span.file != definition.file for e in fix.edits):
        return None
    text = apply(definition.source, fix)
    end = definition.tree.end_lineno or definition.line
    own = not definition.problems  # which are those of the text as it is
    if own and all(definition.line <= e.span.line and e.span.end_line <= end for e in fix.edits):
        return _with_body(definition, text, end + text.count("\n") - definition.source.count("\n"))
    return definition.scope.edited(definition, text)


def _with_body(definition: Definition, text: str, end: int) -> Definition | None:
    """The same definition with other lines: only these are parsed."""
    lines = text.split("\n")[definition.line - 1 : end]
    indented = lines[0][:1] in (" ", "\t")
    if indented and definition.line == 1:
        return None
    before = "\n" * (definition.line - 2) + "if True:\n" if indented else "\n" * (definition.line - 1)
    try:
        module, notes = parse_module(before + "\n".join(lines) + "\n", definition.file)
    except CompileError:
        return None
    tree = find_function(module, definition.line, definition.name)
    return replace(definition, tree=tree, source=text, notes=notes) if tree is not None else None


def apply(text: str, fix: Fix) -> str:
    """`text` with the fix's edits made, last first so that earlier places stay valid."""
    lines = text.split("\n")
    for edit in sorted(fix.edits, key=lambda e: (e.span.line, e.span.col), reverse=True):
        s = edit.span
        before, after = lines[s.line - 1][: s.col - 1], lines[s.end_line - 1][s.end_col - 1 :]
        lines[s.line - 1 : s.end_line] = (before + edit.text + after).split("\n")
    return "\n".join(lines)
