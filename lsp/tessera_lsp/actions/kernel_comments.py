"""Comments of a selection, which go with what they are about into the kernel."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.analysis import Analysis
from tessera.compiler.ir.core import Op

_PRAGMA = re.compile(r"#\s*(noqa|type:|pyright:|fmt:|ruff:|pylint:)")
"""what tools are told about the text as it was"""


@dataclass(slots=True)
class Comments:
    """`above` and `behind`: what is still to be written, by the first line of the statement that it belongs to."""

    file: str = ""
    statements: Sequence[tuple[int, int]] = ()
    """their first and last lines, inner ones behind those they stand in"""
    above: dict[int, list[str]] = field(default_factory=dict[int, "list[str]"])
    behind: dict[int, str] = field(default_factory=dict[int, str])
    last: dict[int, Op] = field(default_factory=dict[int, Op])

    def statement(self, line: int) -> int | None:
        """The first line of the innermost statement at a line."""
        return next((a for a, b in reversed(self.statements) if a <= line <= b), None)

    def settle(self, ops: Iterable[Op]) -> None:
        """Says which ops there are, in order: a comment behind a statement stands where its last one is said."""
        self.last = {line: op for op in ops if (line := self._line(op)) is not None}

    def _line(self, op: Op) -> int | None:
        return self.statement(op.span.line) if op.span.file == self.file else None

    def take(self, op: Op, inlined: Sequence[Op]) -> tuple[list[str], str]:
        """What belongs above and behind the line that says an op, and others in its expression; each once."""
        above: list[str] = []
        for o in sorted((*inlined, op), key=lambda o: o.span.line):
            line = self._line(o)
            if line is None:
                continue
            above += self.above.pop(line, [])
            if o is not op and self.last.get(line) is o and line in self.behind:
                above.append(self.behind.pop(line))
        own = self._line(op)
        return above, self.behind.pop(own, "") if own is not None and self.last.get(own) is op else ""


def comments_of(alone: Analysis, func: Op) -> Comments:
    """The comments in the body of a function with this graph.

    A statement of which nothing is left in the graph leaves its comments to the next one that has something.
    """
    definition = alone.definition
    tree: Any = definition.tree
    body: list[ast.stmt] = tree.body
    first, last = tree.lineno, tree.end_lineno
    out = Comments(definition.file)
    nodes = sorted((n for s in body for n in ast.walk(s) if isinstance(n, ast.stmt)), key=lambda n: n.lineno)
    out.statements = [(n.lineno, n.end_lineno or n.lineno) for n in nodes]
    ends = dict(out.statements)
    said = {out.statement(op.span.line) for op in func.walk() if op.span.file == out.file and op is not func}
    left = [a for a in ends if a in said] or [body[0].lineno]
    for line, text in _comments(definition.text.lines[first - 1 : last], first):
        within = out.statement(line)
        about = next((a for a in left if a >= (within or line)), left[-1])
        if within == about and about not in out.behind and line == ends[about]:
            out.behind[about] = text
        else:
            out.above.setdefault(about, []).append(text)
    return out


def _comments(lines: Sequence[str], first: int) -> Iterable[tuple[int, str]]:
    """The line and text of each comment that is for people."""
    reader = io.StringIO("\n".join(lines)).readline
    try:
        for token in tokenize.generate_tokens(reader):
            if token.type == tokenize.COMMENT and not _PRAGMA.match(token.string):
                yield token.start[0] + first - 1, token.string
    except (tokenize.TokenError, SyntaxError):  # a dialect that Python does not read
        return
