"""The interface of check rules: their questions, their findings, and fixes in the names of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field, replace

from tessera.compiler.frontend.checks.ranges import Ranges
from tessera.compiler.frontend.evaluate.report import AnalysisRecord
from tessera.compiler.frontend.fixes import CandidateFix, expression_at
from tessera.errors import Edit, Fix, Note, Severity, Span
from tessera.immutable import immutable
from tessera.language.dims.remembering import RememberingFacts


@immutable
class Finding:
    """A finding, and changes that may mend it, which are tried before they are offered."""

    code: str
    message: str
    span: Span
    candidates: list[CandidateFix] = field(default_factory=list[CandidateFix])
    notes: tuple[Note, ...] = ()
    severity: Severity = "warning"

    def seen_from(self, place: Span | None) -> Finding:
        """The finding in another file, with the place of this one that it concerns."""
        return self if place is None else replace(self, notes=(*self.notes, Note("its result is used here", place)))


class Look:
    """One look over a program: the ranges of its values and its text."""

    def __init__(self, record: AnalysisRecord) -> None:
        self.ranges = Ranges()
        self.kernel = record.definition.kind == "kernel"
        self.whole = not (record.incomplete or record.undecided or record.findings.errors)
        """whether everything in it is known: nothing may be said to be missing where it may stand in the rest"""
        self.definition, self.dims = record.definition, record.dims.keys()
        self._checks = record.checks
        self.tree, self._source = record.definition.tree, record.definition.text
        self.file = self._source.file
        self._variables = record.frame.names

    @property
    def facts(self) -> RememberingFacts:
        """What every launch guarantees of the sizes."""
        facts = RememberingFacts()
        for check in self._checks:
            facts.learn(check.left, check.right)
        return facts

    def node(self, span: Span) -> ast.expr | None:
        """The expression that stands exactly at `span`, in the function itself."""
        return expression_at(self.definition, span)

    def span(self, node: ast.AST) -> Span:
        return self._source.span(node)

    def number(self, node: ast.expr) -> tuple[int, Span] | None:
        """A whole number that is written at `node`, or as the constant of the module that it names."""
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return value, self.span(node)
            case ast.Name(id=name) if name not in self._variables:
                match getattr(self.definition.scope, "bound", {}).get(name):  # of a text; live values have no place
                    case ast.Assign(targets=[ast.Name()], value=ast.Constant() as value):
                        return self.number(value)
                    case _:
                        return None
            case _:
                return None

    def unread(self, kind: type) -> Iterator[tuple[str, ast.Name]]:
        """Variables that hold a value of this kind and are never read: the name, and where it is assigned."""
        held = {name for name, value in self._variables.items() if isinstance(value, kind)}
        places = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and n.id in held] if held else []
        read = {n.id for n in places if isinstance(n.ctx, ast.Load)}
        yield from {n.id: n for n in reversed(places) if n.id not in read}.items()

    def without(self, said: str, span: Span) -> list[CandidateFix]:
        """The change that takes out the lines of the statement at `span`, where it has lines of its own."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Expr, ast.Assign)) and node.lineno == span.line:
                place = self._source.span(node)
                lines = Span(place.file, place.line, 1, place.end_line + 1, 1)
                before = self._source.lines[place.line - 1][: place.col - 1]
                behind = self._source.lines[place.end_line - 1][place.end_col - 1 :].strip()
                alone = before.isspace() and (not behind or behind.startswith("#"))
                return [CandidateFix(Fix(said, (Edit(lines, ""),)))] if alone else []
        return []

    def text(self, node: ast.expr) -> str:
        return self._source.segment(self._source.span(node))

    def atom(self, node: ast.expr) -> str:
        """The text of `node`, in brackets where it is an expression of operators."""
        text = self.text(node)
        whole = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant))
        return text if whole else f"({text})"

    def operand(self, node: ast.expr, text: str) -> str:
        """An expression of operators in place of a call, in brackets where more is done with its result."""
        within = (p for p in ast.walk(self.tree) if isinstance(p, (ast.Attribute, ast.Subscript, ast.BinOp)))
        return f"({text})" if any(child is node for p in within for child in ast.iter_child_nodes(p)) else text

    def replaced(self, said: str, *changes: tuple[ast.expr, str]) -> CandidateFix:
        """Each node becomes its text."""
        edits = tuple(Edit(self._source.span(node), text) for node, text in changes)
        return CandidateFix(Fix(said, edits))

    def call(self, node: ast.expr | None, *names: str) -> Call | None:
        """`node` as a call of one of these functions with one operand: `ts.exp(x)`, `exp(x)` or `x.exp()`."""
        if not isinstance(node, ast.Call):
            return None
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in names:
            return None
        if isinstance(node.func, ast.Attribute) and not self._is_module(node.func.value):
            return Call(self, node, node.func.value, "")
        prefix = f"{self.text(node.func.value)}." if isinstance(node.func, ast.Attribute) else None
        return Call(self, node, node.args[0], prefix) if node.args else None

    def _is_module(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self._variables


@immutable
class Call:
    """A call as written. `prefix`: what stands before a function's name, None where nothing; "" for a method."""

    look: Look
    node: ast.Call
    operand: ast.expr
    prefix: str | None

    @property
    def rest(self) -> str:
        """The text of its other arguments."""
        others = self.node.args if self.prefix == "" else self.node.args[1:]
        named = (f"{k.arg}={self.look.text(k.value)}" for k in self.node.keywords)
        return ", ".join([*map(self.look.text, others), *named])

    def named(self, name: str, operand: str = "", rest: str = "") -> str:
        """The text of a call of another function, spelled like this one."""
        if self.prefix:
            return f"{self.prefix}{name}({operand or self.look.text(self.operand)}{', ' + rest if rest else ''})"
        held = f"({operand})" if operand and not operand.isidentifier() else operand or self.look.atom(self.operand)
        return f"{held}.{name}({rest})"
