"""The analysis of a function that stands some lines further down than when it was made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import overload

from tessera.compiler.frontend.analysis import Analysis, ExprInfo
from tessera.compiler.frontend.definition import Definition
from tessera.compiler.frontend.values import Closure
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import kernel_of, outside_kernels
from tessera.errors import Diagnostic, Span


class Moved(Sequence[ExprInfo]):
    """Expressions some lines further down, made when somebody looks: of a long file few functions are on the screen."""

    __slots__ = ("_found", "_lines", "_was")

    def __init__(self, was: Sequence[ExprInfo], lines: int) -> None:
        self._was, self._lines = was, lines
        self._found: list[ExprInfo] | None = None

    @classmethod
    def by(cls, was: Sequence[ExprInfo], lines: int) -> Moved:
        """However often a function has moved, its expressions are moved once."""
        return cls(was._was, was._lines + lines) if isinstance(was, Moved) else cls(was, lines)

    @property
    def _all(self) -> list[ExprInfo]:
        if self._found is None:
            self._found = [ExprInfo(_at(self._lines, e.span), e.type, e.name, e.kind) for e in self._was]
        return self._found

    @overload
    def __getitem__(self, index: int) -> ExprInfo: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ExprInfo]: ...
    def __getitem__(self, index: int | slice) -> ExprInfo | Sequence[ExprInfo]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._was)


def _at(by: int, s: Span) -> Span:
    return Span(s.file, s.line + by, s.col, s.end_line + by, s.end_col) if s.line else s


def moved(analysis: Analysis, definition: Definition, by: int) -> Analysis:
    """The same analysis for a definition that stands `by` lines further down."""
    for op in analysis.launches:
        _follow(kernel_of(op), definition)
    if not by:
        return replace(analysis, definition=definition)

    at = partial(_at, by)
    name = Path(definition.file).name
    place = re.compile(rf"(?<!\w){re.escape(name)}:(\d+)")  # of the return annotation, say

    def said(d: Diagnostic) -> Diagnostic:
        message = place.sub(lambda m: f"{name}:{int(m[1]) + by}", d.message)
        notes = tuple(replace(n, span=at(n.span)) if n.span else n for n in d.notes)
        fixes = tuple(replace(f, edits=tuple(replace(e, span=at(e.span)) for e in f.edits)) for f in d.fixes)
        return replace(d, message=message, span=at(d.span), notes=notes, fixes=fixes)

    whole = [analysis.op] if analysis.op is not None else []
    blocks = (*(b for op in whole for r in op.regions for b in r.blocks), *analysis.evaluated)
    for op in {id(op): op for op in (*whole, *outside_kernels(*blocks))}.values():  # most are in both
        op.span = at(op.span)
    return replace(
        analysis, definition=definition, diagnostics=tuple(map(said, analysis.diagnostics)),
        expressions=Moved.by(analysis.expressions, by),
        dims={n: at(s) for n, s in analysis.dims.items()}, undecided=tuple(map(said, analysis.undecided)),
    )  # fmt: skip


def _follow(kernel: Op, definition: Definition) -> None:
    """A kernel of the same file that a function launches may have moved by another distance."""
    found = definition.scope.lookup(str(kernel.attrs["sym_name"]))
    if isinstance(found, Closure) and found.definition.file == definition.file == kernel.span.file:
        by = found.definition.span.line - kernel.span.line
        for op in kernel.walk() if by else ():
            op.span = _at(by, op.span)


def is_local(analysis: Analysis, line: int, extra: int) -> bool:
    """Whether all places that its findings name are in these lines, so that they move alike."""
    spans = [n.span for d in analysis.diagnostics for n in d.notes if n.span is not None and n.span.line]
    spans += [d.span for d in analysis.diagnostics]
    return all(line <= s.line <= line + extra for s in spans)
