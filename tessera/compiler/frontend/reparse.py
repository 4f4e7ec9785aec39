"""The tree of an edited text from the tree of the text before: only the top-level statements that changed are parsed.

Parsing is most of what an editor waits for after a keystroke. What stands before and after the changed lines is kept
when the lines between parse by themselves; where they do not (an open bracket or string, a dangling `else`), the
whole text is parsed, which also gives the right message.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.definition import parse_module
from tessera.errors import CompileError


@dataclass(slots=True)
class Parsed:
    """A text, its lines and its tree. `placed` keeps the nodes with a place of statements that have moved once."""

    text: str
    lines: list[str]
    tree: ast.Module
    placed: dict[ast.stmt, list[Any]] = field(default_factory=dict[ast.stmt, "list[Any]"])


def parsed(text: str, file: str, old: Parsed | None = None) -> Parsed:
    """The tree of `text`. It takes over statements of `old`, whose tree must not be used afterwards.

    Raises CompileError (TS101) where the text does not parse; then `old` is still good.
    """
    lines = text.split("\n")
    if old is not None and "\r" not in text and "\f" not in text:
        body = _merged(lines, file, old)
        if body is not None:
            kept = old.placed
            return Parsed(text, lines, ast.Module(body, []), {s: kept[s] for s in body if s in kept})
    return Parsed(text, lines, parse_module(text, file)[0])


def _merged(lines: list[str], file: str, old: Parsed) -> list[ast.stmt] | None:
    same_head = common_length(lines, old.lines)
    limit = min(len(lines), len(old.lines)) - same_head
    same_tail = min(common_length(lines[::-1], old.lines[::-1]), limit)
    body = old.tree.body
    head = 0
    while head < len(body) and (body[head].end_lineno or 0) <= same_head:
        head += 1
    tail = len(body)
    while tail > head and first_line(body[tail - 1]) > len(old.lines) - same_tail:
        tail -= 1
    start = (body[head - 1].end_lineno or 0) if head else 0
    by = len(lines) - len(old.lines)
    end = first_line(body[tail]) - 1 + by if tail < len(body) else len(lines)
    if start > end or (head and tail < len(body) and _shares_line(body, head, tail)):
        return None
    try:
        middle, _ = parse_module("\n" * start + "\n".join(lines[start:end]) + "\n", file)
    except CompileError:
        return None
    if by:
        for statement in body[tail:]:
            _shift(statement, by, old.placed)
    return [*body[:head], *middle.body, *body[tail:]]


def common_length(a: list[str], b: list[str]) -> int:
    """How many items two lists have in common from their start."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def first_line(node: ast.stmt) -> int:
    """The line a statement starts at, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _shares_line(body: list[ast.stmt], head: int, tail: int) -> bool:
    """Two statements on one line (`a = 1; b = 2`) of which one would be kept and one not."""
    return any(a.end_lineno == first_line(b) for a, b in ((body[head - 1], body[head]), (body[tail - 1], body[tail])))


def _shift(statement: ast.stmt, by: int, placed: dict[ast.stmt, list[Any]]) -> None:
    nodes = placed.get(statement)
    if nodes is None:
        nodes = placed[statement] = [n for n in ast.walk(statement) if hasattr(n, "lineno")]
    for node in nodes:
        node.lineno += by
        node.end_lineno += by
