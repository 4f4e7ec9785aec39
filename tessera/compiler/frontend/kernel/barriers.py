"""Fixes of what is said of barriers: the one that was inserted is written down, the one that orders nothing goes."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from tessera.errors import Diagnostic, Edit, Fix, Span

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator


def with_fix(ev: Evaluator, d: Diagnostic) -> Diagnostic:
    """The finding with its fix, where its statement has a line of its own."""
    statement = _statement(ev, d.span)
    if statement is None:
        return d
    at = ev.definition.text.span(statement)
    indent = ev.definition.source.split("\n")[at.line - 1][: at.col - 1]
    if indent.strip():
        return d
    if d.code == "TS414":
        whole = Span(at.file, at.line, 1, at.end_line + 1, 1)
        return replace(d, fixes=(Fix("Leave the barrier out", (Edit(whole, ""),)),))
    before = Edit(replace(at, end_line=at.line, end_col=at.col), f"{_namespace(ev)}.barrier()\n{indent}")
    return replace(d, fixes=(Fix("Write the barrier", (before,)),))


def _statement(ev: Evaluator, span: Span) -> ast.stmt | None:
    """The innermost statement around a place; None for one of another function."""
    text, found = ev.definition.text, None
    for node in ast.walk(ev.definition.tree):  # outer statements come first
        if isinstance(node, ast.stmt) and span.file == text.file:
            at = text.span(node)
            if at.contains(span.line, span.col) and at.contains(span.end_line, span.end_col):
                found = node
    return None if found is ev.definition.tree else found


def _namespace(ev: Evaluator) -> str:
    """How the author spells `ts.tile`."""
    for node in ast.walk(ev.definition.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "alloc_shared":
            return ast.unparse(node.func.value)
    return "ts.tile"
