"""The analysis of a function whose text stands elsewhere than when it was made: lines above have come or gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import overload

from tessera.compiler.frontend.called.inside import moved_by
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.result import Analysis, ExprInfo, InnerCall
from tessera.compiler.frontend.syntax.parse import FunctionNode
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import kernel_of, outside_kernels
from tessera.errors import Diagnostic, Span
from tessera.immutable import immutable


class Moved(Sequence[ExprInfo]):
    """Expressions some lines further down, made on request: only few functions of a long file are on the screen."""

    __slots__ = ("_found", "_lines", "_was")

    def __init__(self, was: Collection[ExprInfo], lines: int) -> None:
        self._was, self._lines = was, lines
        self._found: list[ExprInfo] | None = None

    @classmethod
    def by(cls, was: Collection[ExprInfo], lines: int) -> Moved:
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


@immutable
class _Lines:
    """The lines of a function as an analysis has them, and how many lines further down they stand now."""

    first: int
    last: int
    by: int

    def __contains__(self, line: int) -> bool:
        return self.first <= line <= self.last


def moved(analysis: Analysis, definition: Definition) -> Analysis | None:
    """The same analysis for a definition of the same text that stands elsewhere. It has moved by one distance, each
    function of the file that it calls by another. None where a finding names a place in none of them."""
    file = definition.file
    own = _lines(analysis.definition, definition.tree, definition.line - analysis.definition.line)
    called = {c.definition.tree: c.definition for c in analysis.inner if c.definition.file == file}
    functions = [own, *(_lines(d, tree, moved_by(d)) for tree, d in called.items())]
    if not all(any(line in f for f in functions) for line in _named(analysis, file)):
        return None
    for op in analysis.launches:
        _follow(kernel_of(op), definition)

    def at(s: Span) -> Span:
        by = next((f.by for f in functions if s.line in f), 0) if s.file == file else 0
        return _at(by, s)

    told = {n: at(s) for n, s in analysis.dims.items()}
    if any(s.file != file or s.line not in own for s in analysis.dims.values()):  # of annotations that have a name
        told |= {n: s for n, s in definition_signature(definition).dims.items() if n in told}
    if not any(f.by for f in functions):
        return replace(analysis, definition=definition, dims=told)
    _move_operators(analysis, at)
    findings = partial(_moved_finding, at=at, file=file)
    return replace(
        analysis, definition=definition, diagnostics=tuple(map(findings, analysis.diagnostics)),
        expressions=Moved.by(analysis.expressions, own.by), dims=told,
        undecided=tuple(map(findings, analysis.undecided)),
        inner=tuple(_moved_call(c, definition) for c in analysis.inner),
        pulled=tuple(replace(p, places=[(at(s), k, v) for s, k, v in p.places]) for p in analysis.pulled),
    )  # fmt: skip


def _lines(was: Definition, tree: FunctionNode, by: int) -> _Lines:
    """Those of a function whose tree stands `by` lines further down now."""
    return _Lines(was.line, (tree.end_lineno or tree.lineno) - by, by)


def _named(analysis: Analysis, file: str) -> Iterator[int]:
    """The lines of a file that findings name."""
    for d in analysis.diagnostics:
        yield from (s.line for s in (d.span, *(n.span for n in d.notes)) if s is not None and s.line and s.file == file)


def _at(by: int, s: Span) -> Span:
    return Span(s.file, s.line + by, s.col, s.end_line + by, s.end_col) if by and s.line else s


def _moved_call(call: InnerCall, now: Definition) -> InnerCall:
    d = call.definition
    by = moved_by(d)
    if d.file != now.file or not by:
        return call
    return replace(call, definition=replace(d, line=d.line + by, source=now.source), types=Moved.by(call.types, by))


def _moved_finding(d: Diagnostic, at: Callable[[Span], Span], file: str) -> Diagnostic:
    name = Path(file).name
    place = re.compile(rf"(?<!\w){re.escape(name)}:(\d+)")  # of the return annotation, say

    def now(found: re.Match[str]) -> str:
        line = int(found[1])
        return f"{name}:{at(Span(file, line, 1, line, 1)).line}"

    notes = tuple(replace(n, span=at(n.span)) if n.span else n for n in d.notes)
    fixes = tuple(replace(f, edits=tuple(replace(e, span=at(e.span)) for e in f.edits)) for f in d.fixes)
    return replace(d, message=place.sub(now, d.message), span=at(d.span), notes=notes, fixes=fixes)


def _move_operators(analysis: Analysis, at: Callable[[Span], Span]) -> None:
    whole = [analysis.op] if analysis.op is not None else []
    blocks = (*(b for op in whole for r in op.regions for b in r.blocks), *analysis.evaluated)
    pulled = (op for p in analysis.pulled for op in p.ops)
    for op in {id(op): op for op in (*whole, *outside_kernels(*blocks), *pulled)}.values():  # most are in several
        op.span = at(op.span)


def _follow(kernel: Op, definition: Definition) -> None:
    """A kernel of the same file that a function launches may have moved by another distance."""
    found = definition.scope.lookup(str(kernel.attrs["sym_name"]))
    if isinstance(found, Closure) and found.definition.file == definition.file == kernel.span.file:
        by = found.definition.span.line - kernel.span.line
        for op in kernel.walk() if by else ():
            op.span = _at(by, op.span)
