"""What is known of each function of a document: its analysis, and its places in the text."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.compiler.frontend.called.inside import Inside
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis, ExprInfo
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TensorType
from tessera.errors import Diagnostic, Span


@dataclass(frozen=True, slots=True)
class Known:
    """One function. What could not be read of it counts as it was, but has no place."""

    analysis: Analysis
    file: FileAnalysis
    inside: Inside | None = None
    """where it is shown what its calls tell of it: by which"""

    @property
    def expressions(self) -> Sequence[ExprInfo]:
        return self.analysis.expressions

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        return self.analysis.diagnostics

    @property
    def dims(self) -> Mapping[str, Span]:
        return {n: s for n, s in self.analysis.dims.items() if not self.file.in_gap(s)}

    @property
    def tree(self) -> Any:
        return self.analysis.definition.tree

    @property
    def first_line(self) -> int:
        return self.analysis.definition.line

    @property
    def last_line(self) -> int:
        return self.tree.end_lineno or self.tree.lineno

    def span(self, node: ast.AST) -> Span | None:
        """The place of a node of the tree; None where it is not in the text as it is now."""
        span = self.analysis.definition.text.span(node)
        return None if self.file.in_gap(span) else span

    def type_at(self, line: int, col: int) -> ExprInfo | None:
        """The innermost expression that covers a position."""
        return self.analysis.type_at(line, col)

    def type_of(self, name: str, line: int, col: int) -> Any:
        """The type that a variable has at a position: that of its latest assignment above it."""
        found = [e for e in self.expressions if e.name == name and (e.span.line, e.span.col) < (line, col)]
        latest = max(found, key=lambda e: (e.kind != "param", e.span.line, e.span.col), default=None)
        return latest.type if latest is not None else None


def is_tensor(type: Any) -> bool:
    """Whether it has a shape and a dtype: tensors, tiles, views, shared memory."""
    return hasattr(type, "shape") and hasattr(type, "dtype")


def policy_of(type: Any) -> str:
    """The numerics policy of a tensor, as it is written; "" where there is none."""
    return " ".join(map(str, type.policy.parts())) if isinstance(type, TensorType) and type.policy else ""


def takes_gradients(analysis: Analysis) -> bool:
    """Whether a function has a backward pass inside."""
    op = analysis.op
    return op is not None and op.name != "tile.func" and any(o.origin.order for o in op.walk())


def where(op: Op) -> tuple[Span, ...]:
    """Where the operators of a program stand: they move with the text, while the program stays."""
    return tuple(o.span for o in op.walk())
