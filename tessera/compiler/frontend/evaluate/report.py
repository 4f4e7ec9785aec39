"""The result of an evaluation.

`Report`: findings and their places, what must be known first, what is too much to compute. `AnalysisRecord`: what
else an analysis is made of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.fixes import Pending
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.frame import Frame
from tessera.compiler.frontend.names.layers import layer_in
from tessera.compiler.frontend.names.signature import Signature
from tessera.compiler.frontend.names.values import UNKNOWN, Unknown
from tessera.compiler.frontend.result import ExprInfo, InnerCall, Kind, Pulled
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic, Diagnostics, Edit, Fix, Note, Span
from tessera.language.dims import DimError, DimLimitError, Facts
from tessera.language.dims.remembering import RememberingFacts
from tessera.nearest import nearest
from tessera.tracebacks import OWN

_WEIGHED = frozenset({int, str, bytes, list, tuple, dict, set, frozenset})


class Report:
    """The findings of one analysis. `most`: the steps that it may take."""

    def __init__(self, definition: Definition, most: int) -> None:
        self.definition = definition
        self.findings = Diagnostics(definition.name)
        self.pending: Pending = []
        self.undecided: list[Diagnostic] = []
        self.harmless = 0
        """how many of them, of parameters and numbers, leave open no path: what a result depends on is known"""
        self.guesses = 0
        """values whose type alone is known, such as the results of a list of unknown layers"""
        self.incomplete: bool = False
        """something in the text does not parse"""
        self.steps: int = 0
        """expressions and statements so far, with the elements of containers that were gone through"""
        self.most = most
        self.look_at = budget.PAUSE
        """the number of steps at which to look again"""
        locals_ = assigned_names(definition.tree)
        self.frame = Frame(definition.name, definition, key=definition.tree, locals=locals_)
        self.frame.effect = str(definition.options.get("effect", ""))
        """the function that is evaluated now: findings speak of it and of those that called it"""

    # findings
    def span(self, at: ast.AST | Span) -> Span:
        return at if isinstance(at, Span) else self.frame.source.span(at)

    def header(self, node: ast.AST) -> Span:
        """The place of a statement without its body: `for i in range(n)`."""
        start = self.span(node)
        head = getattr(node, "iter", None) or getattr(node, "test", None) or getattr(node, "subject", None)
        if head is not None:
            end = self.span(head)
            return replace(start, end_line=end.end_line, end_col=end.end_col)
        if start.line == start.end_line:
            return start
        first = self.frame.source.lines[start.line - 1].partition("#")[0].rstrip().rstrip(":")
        return replace(start, end_line=start.line, end_col=max(len(first), start.col) + 1)

    def error(
        self, code: str, message: str, at: ast.AST | Span, *, label: str = "", notes: Iterable[Note] = (),
        fixes: Iterable[Fix] = (), severity: str = "error",
    ) -> Unknown:  # fmt: skip
        """Reports a finding at a node and returns UNKNOWN, so that what depends on it stays quiet. What is found in
        Tessera's own functions after an error follows from that error, and is left out."""
        if self.findings.errors and self.frame.source.file.startswith(OWN):
            return UNKNOWN
        self.findings.add(self.diagnostic(code, message, at, label=label, notes=notes, fixes=fixes, severity=severity))
        return UNKNOWN

    def diagnostic(
        self, code: str, message: str, at: ast.AST | Span, *, label: str = "", notes: Iterable[Note] = (),
        fixes: Iterable[Fix] = (), severity: str = "error",
    ) -> Diagnostic:  # fmt: skip
        """A finding at a node; of what is found in Tessera's own functions, at the user's call of the first of them."""
        span, frame = self.span(at), self.frame
        while span.file.startswith(OWN) and frame.caller is not None and frame.call_span is not None:
            span, frame = frame.call_span, frame.caller
        layer = layer_in(self.frame) if severity == "error" and code.startswith("TS2") else None
        if span.file.startswith(OWN) or frame is self.frame:
            within = (Note(f"in {layer}"), *layer.notes) if layer is not None and layer.inner else ()
            all_notes = (*notes, *within, *self.frame.chain())
            return Diagnostic(code, message, self.span(at), severity, all_notes, tuple(fixes), self.frame.name, label)
        if layer is not None and not message.startswith(layer.path):  # else it speaks of a layer that this one calls
            message, notes = f"{layer}: {message}", (*notes, *layer.notes)
        all_notes = (*notes, Note(f"found in {self.frame.name}", self.span(at)), *frame.chain())
        return Diagnostic(code, message, span, severity, all_notes, (), frame.name)

    def undecide(self, reason: str, at: ast.AST | Span, code: str = "TS502") -> Unknown:
        """Notes that something must be known before this can be compiled; no error in itself."""
        self.undecided.append(self.diagnostic(code, reason, at, severity="note"))
        return UNKNOWN

    def cannot_parse(self, at: ast.AST) -> None:
        """Notes that a part of the text is not known, for it does not parse."""
        self.incomplete = True
        self.undecide("a part of it does not parse", at, "TS101")

    def suggest(self, name: str, known: Iterable[str], at: Span) -> tuple[str, tuple[Fix, ...]]:
        """`; did you mean 'x'?` and the fix that replaces the text at `at`, where a known name is close."""
        names = [k for k in dict.fromkeys(known) if not k.startswith("_")]
        close = nearest(name, names)
        if close is None:
            return "", ()
        return f"; did you mean {close!r}?", (Fix(f"Change {name!r} to {close!r}", (Edit(at, close),)),)

    # limits
    def look(self, node: ast.AST) -> None:
        """Every few hundred steps: whether some are left, and whether the editor has something else to do."""
        if self.steps > self.most:
            message = f"more than {self.most} steps run at compile time; loop with ts.range(...)"
            self.error("TS111", message, self.header(node) if isinstance(node, ast.stmt) else node)
            raise budget.ExhaustedError
        budget.pause()
        self.look_at = min(self.steps + budget.PAUSE, self.most)

    def weighed(self, node: ast.AST, value: Any) -> Any:
        """A new value; UNKNOWN after a finding (TS111) where it is too large. Going through it counts as steps."""
        if value.__class__ in _WEIGHED:
            if isinstance(value, int):
                if value.bit_length() > budget.BITS:
                    return self.too_large(node)
            else:
                found = budget.weight(value)
                self.steps += 0 if isinstance(value, (str, bytes)) else found
                if found > budget.ITEMS:
                    return self.too_large(node)
        return value

    def held(self, node: ast.AST, value: Any) -> None:
        """After a container was given `value`: where it holds itself now, or too much, the analysis ends."""
        if isinstance(self.weighed(node, value), Unknown) and not isinstance(value, Unknown):
            raise budget.ExhaustedError

    def too_large(self, node: ast.AST, what: str = "this") -> Unknown:
        return self.error("TS111", f"{what} makes a value too large to compute at compile time", node)

    def bad_size(self, error: DimError, node: ast.AST) -> Unknown:
        """A size that the dimension algebra refuses."""
        at = self.header(node) if isinstance(node, ast.stmt) else node
        return self.error("TS111" if isinstance(error, DimLimitError) else "TS107", str(error), at)


class AnalysisRecord(Report):
    """What an `Analysis` is made of besides findings. Checks ask this, and not how the evaluator works."""

    def __init__(self, definition: Definition, most: int) -> None:
        super().__init__(definition, most)
        self.facts: Facts = RememberingFacts()
        self.checks: list[LaunchCheck] = []
        self.block = Block()
        self.tried: list[Block] = []
        """what undecided branches and loops compute"""
        self.derived: set[Op] = set()
        """ops that compute gradients: no user wrote them, so there are no findings about how they are written"""
        self.dims: dict[str, Span] = {}
        self.signature = Signature((), None, None, {})
        self.infos: dict[tuple[int, int, int, int, str], ExprInfo] = {}
        """by place and kind"""
        self.frame.kept = self.infos
        self.inner: dict[ast.AST, list[InnerCall]] = {}
        """calls that were evaluated in place, by function"""
        self.places: list[tuple[Span, Kind, Value]] = []
        """where values stand in a text"""
        self.pulled: list[Pulled] = []
        """the gradients that were taken"""
        self.dependencies: dict[str, str] = {}
        self.readers: dict[str, Scope | None] = {}
        self.launches: list[Op] = []
        self.defaults: dict[str, Any] = {}

    def keep(self, e: ExprInfo) -> None:
        """Keeps the first entry for a position of the function that is evaluated now."""
        if self.frame.kept is not None:
            self.frame.kept.setdefault((e.span.line, e.span.col, e.span.end_line, e.span.end_col, e.kind), e)
