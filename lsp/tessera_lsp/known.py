"""What is known of each function of a document, with its places in the text as it is now.

While a text does not parse, the last analysis that there was goes on being shown: a function whose lines are still
there, wherever they have moved, keeps everything; the function that is being typed in keeps what stands above the
first changed line.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

from tessera.compiler.frontend.analysis import Analysis, ExprInfo
from tessera.compiler.frontend.files import FileAnalysis
from tessera.compiler.frontend.reparse import common_length
from tessera.compiler.ir.types import TensorType
from tessera.errors import Diagnostic, Span


@dataclass(frozen=True, slots=True)
class Known:
    """One function. Lines of `analysis.definition.tree` are `by` off; after line `last` (if any) nothing is known."""

    analysis: Analysis
    expressions: list[ExprInfo]
    diagnostics: list[Diagnostic]
    dims: dict[str, Span]
    by: int = 0
    last: int | None = None

    @property
    def tree(self) -> Any:
        return self.analysis.definition.tree

    @property
    def first_line(self) -> int:
        return self.analysis.definition.line + self.by

    @property
    def last_line(self) -> int:
        """Where it ends; the function that is being typed in goes on to the next one."""
        return (self.tree.end_lineno or 0) + self.by if self.last is None else 10**9

    def span(self, node: ast.AST) -> Span | None:
        """The place of a node of the tree now; None where its text may have changed."""
        return _moved(self.analysis.definition.text.span(node), self.by, self.last)

    def type_at(self, line: int, col: int) -> ExprInfo | None:
        """The innermost expression that covers a position."""
        found = [e for e in self.expressions if e.span.contains(line, col)]
        return min(found, key=lambda e: (e.span.end_line - e.span.line, e.span.end_col - e.span.col), default=None)

    def type_of(self, name: str, line: int, col: int) -> Any:
        """The type that a variable has at a position: that of its latest assignment above it."""
        found = [e for e in self.expressions if e.name == name and (e.span.line, e.span.col) < (line, col)]
        latest = max(found, key=lambda e: (e.kind != "param", e.span.line, e.span.col), default=None)
        return latest.type if latest is not None else None


def known_functions(files: FileAnalysis, good: list[str], now: list[str]) -> list[Known]:
    """`good`: the lines that `files.analyses` are about; `now`: the lines of the text as it is."""
    if good == now:
        return [Known(a, a.expressions, list(a.diagnostics), dict(a.dims)) for a in files.analyses]
    head = common_length(good, now)
    tail = min(common_length(good[::-1], now[::-1]), min(len(good), len(now)) - head)
    out: list[Known] = []
    for a in files.analyses:
        first, end = a.definition.line, a.definition.tree.end_lineno or a.definition.line
        if end <= head:
            out.append(_known(a, 0, None))
        elif first > len(good) - tail:
            out.append(_known(a, len(now) - len(good), None))
        elif (start := _find(good[first - 1 : end], now)) is not None:
            out.append(_known(a, start + 1 - first, None))
        elif first <= head:
            out.append(_known(a, 0, head))
    return out


def _known(a: Analysis, by: int, last: int | None) -> Known:
    expressions = [replace(e, span=s) for e in a.expressions if (s := _moved(e.span, by, last))]
    dims = {n: s for n, span in a.dims.items() if (s := _moved(span, by, last))}
    return Known(a, expressions, [d for old in a.diagnostics if (d := _said(old, by, last))], dims, by, last)


def _said(d: Diagnostic, by: int, last: int | None) -> Diagnostic | None:
    """A finding at its new place, without its fixes: these have been tried on the text that parsed."""
    span = _moved(d.span, by, last)
    if span is None:
        return None
    notes = tuple(replace(n, span=_moved(n.span, by, last)) if n.span else n for n in d.notes)
    return replace(d, span=span, notes=notes, fixes=())


def _moved(s: Span, by: int, last: int | None) -> Span | None:
    if last is not None and s.end_line > last:
        return None
    return replace(s, line=s.line + by, end_line=s.end_line + by) if by and s.line else s


def _find(block: list[str], lines: list[str]) -> int | None:
    """Where the same lines stand, if they do exactly once."""
    starts = range(len(lines) - len(block) + 1)
    found = [i for i in starts if lines[i] == block[0] and lines[i : i + len(block)] == block]
    return found[0] if len(found) == 1 else None


def is_tensor(type: Any) -> bool:
    """Whether it has a shape and a dtype: tensors, tiles, views, shared memory."""
    return hasattr(type, "shape") and hasattr(type, "dtype")


def policy_of(type: Any) -> str:
    """The numerics policy of a tensor, as it is written; "" where there is none."""
    return " ".join(map(str, type.policy.parts())) if isinstance(type, TensorType) and type.policy else ""
