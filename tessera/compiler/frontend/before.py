"""The tree before an edit: what stood where a text does not parse."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tessera.compiler.frontend.broken import Broken
from tessera.compiler.frontend.trees import first_line, suites


@dataclass(slots=True)
class Before:
    """The tree before an edit, and how its lines were: `head` and `tail` of them, at both ends, are still the same."""

    body: list[ast.stmt]
    lines: int
    head: int
    tail: int

    def range(self, start: int, end: int, lines: int) -> tuple[int, int]:
        """Where the lines from `start` to `end` (from 0) of a text of so many lines were before."""
        by = self.lines - lines
        if not by:  # line for line, also where it is changed
            return start, end
        first = start if start < self.head else start + by if start >= lines - self.tail else self.head
        last = end if end <= self.head else end + by if end > lines - self.tail else self.lines - self.tail
        return first, last

    def statements(self, start: int, end: int) -> list[ast.stmt]:
        """The statements that began between these lines, each as it could be read last."""
        out: list[ast.stmt] = []
        pending = list(reversed(self.body))
        while pending:
            s = pending.pop()
            first, last = first_line(s) - 1, s.end_lineno or s.lineno
            if start <= first < end:
                out += s.was if isinstance(s, Broken) else [s]
            elif first < end and last > start:
                pending += [inner for block in reversed(suites(s)) for inner in reversed(block)]
        return out
