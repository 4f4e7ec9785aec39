"""Fixes of what is said of barriers: the one that was inserted is written down, the one that orders nothing goes."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from tessera.errors import Diagnostic, Edit, Fix, Span

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator


def with_fix(ev: Evaluator, d: Diagnostic) -> Diagnostic:
    """The finding with what may mend it, where its statement has a line of its own."""
    at = _line_of(ev, d.span)
    if at is None:
        return d
    if d.code == "TS414":
        whole = Span(at.file, at.line, 1, at.end_line + 1, 1)
        return replace(d, fixes=(Fix("Leave the barrier out", (Edit(whole, ""),)),))
    barrier = f"{namespace(ev)}.barrier()"
    before = Edit(replace(at, end_line=at.line, end_col=at.col), f"{barrier}\n{_indent(ev, at)}")
    fixes = [Fix("Write the barrier", (before,))]
    # A step of the loop over an implicit coordinate begins where its name is first used: a barrier before is outside.
    for read in (_line_of(ev, note.span) for note in d.notes if note.span is not None):
        if read is not None:
            behind = Edit(replace(read, line=read.end_line, col=read.end_col), f"\n{_indent(ev, read)}{barrier}")
            fixes.append(Fix("Write the barrier behind the line that reads it", (behind,)))
    return replace(d, fixes=tuple(fixes))


def _line_of(ev: Evaluator, span: Span) -> Span | None:
    """The innermost statement around a place, if nothing stands before it in its line."""
    statement = _statement(ev, span)
    at = ev.definition.text.span(statement) if statement is not None else None
    return at if at is not None and not _indent(ev, at).strip() else None


def _indent(ev: Evaluator, at: Span) -> str:
    return ev.definition.text.lines[at.line - 1][: at.col - 1]


def _statement(ev: Evaluator, span: Span) -> ast.stmt | None:
    """The innermost statement around a place; None for one of another function."""
    text, found = ev.definition.text, None
    for node in ast.walk(ev.definition.tree):  # outer statements come first
        if isinstance(node, ast.stmt) and span.file == text.file:
            at = text.span(node)
            if at.contains(span.line, span.col) and at.contains(span.end_line, span.end_col):
                found = node
    return None if found is ev.definition.tree else found


_TELLING = ("alloc_shared", "linear_id", "program_id", "range", "range_k", "context", "zeros", "full", "mma")
"""functions of `ts.tile` that kernels start with"""


def namespace(ev: Evaluator) -> str:
    """How the author spells `ts.tile`."""
    for node in ast.walk(ev.definition.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TELLING:
            return ast.unparse(node.func.value)
    return "ts.tile"
