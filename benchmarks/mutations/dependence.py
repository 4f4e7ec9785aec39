"""Which lines of a right text depend on a statement: through the names that it assigns, and through functions."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from tessera.compiler.frontend.syntax.parse import parse
from tessera.compiler.frontend.syntax.trees import first_line, suites

Name = tuple[int, str]
"""a name, in the scope of the function with this number; 0 is the module"""


@dataclass(slots=True)
class Part:
    """A simple statement, or the head of a compound one."""

    node: ast.stmt
    first: int
    last: int
    reads: set[Name]
    writes: set[Name]
    inside: tuple[int, int] = (0, -1)
    """lines of the suites that a head governs"""


class Dependence:
    def __init__(self, text: str) -> None:
        tree = parse(text, "").tree
        assert tree is not None
        self.parts: list[Part] = []
        self._bound: list[set[str]] = [_bound(tree.body)]
        self._walk(tree.body, (0,), "")

    def broken(self, first: int, last: int) -> list[Part]:
        """The parts that lines belong to."""
        return [p for p in self.parts if p.first <= last and p.last >= first]

    def blocks(self, first: int, last: int) -> set[int]:
        """Lines of the heads whose suites end right above these lines or in them: an indent decides what is in them."""
        heads = [p for p in self.parts if p.inside[0] < p.inside[1] and first - 1 <= p.inside[1] <= last]
        return {line for p in heads for line in range(p.first, p.last + 1)}

    def dependants(self, broken: list[Part]) -> set[int]:
        """Lines that depend on these parts, theirs not among them unless they depend on each other."""
        names: set[Name] = set()
        out: set[int] = set()
        for p in broken:
            names |= p.writes
            out |= set(range(p.inside[0], p.inside[1] + 1))
        names |= {n for p in self.parts if p.first in out for n in p.writes}
        size = -1
        while size != len(names) + len(out):
            size = len(names) + len(out)
            for p in self.parts:
                if not p.reads.isdisjoint(names):
                    names |= p.writes
                    out |= set(range(p.first, p.last + 1))
        return out

    def _walk(self, body: list[ast.stmt], scopes: tuple[int, ...], function: str, around: str = "") -> None:
        for s in body:
            if isinstance(s, ast.FunctionDef):
                self._function(s, scopes)
                continue
            blocks = suites(s)
            last = blocks[0][0].lineno - 1 if blocks else s.end_lineno or s.lineno
            nodes = list(ast.walk(s)) if not blocks or isinstance(s, ast.ClassDef) else _head_nodes(s)
            loaded = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            loaded |= {
                t.id for n in nodes if isinstance(n, ast.AugAssign) for t in [n.target] if isinstance(t, ast.Name)
            }
            reads = {self._name(n, scopes) for n in loaded}
            writes = {self._name(n, scopes) for n in _stored(nodes)}
            if isinstance(s, ast.ClassDef):
                writes = {self._name(s.name, scopes)}
            if around:  # a member of a class
                writes.add(self._name(around, scopes))
            if function and any(isinstance(n, ast.Return) for n in nodes):  # what the function gives
                writes.add(self._name(function, scopes[:-1]))
            inside = (s.lineno, s.end_lineno or s.lineno) if blocks else (0, -1)
            if isinstance(s, ast.Assert) and function:  # what is known of its dims
                inside = (s.lineno, max(p.lineno for p in body))
            self.parts.append(Part(s, first_line(s), max(last, s.lineno), reads, writes, inside))
            for block in blocks:
                self._walk(block, scopes, function, s.name if isinstance(s, ast.ClassDef) else around)

    def _function(self, s: ast.FunctionDef, scopes: tuple[int, ...]) -> None:
        own = len(self._bound)
        given = {n.arg for n in ast.walk(s.args) if isinstance(n, ast.arg)}
        self._bound.append(_bound(s.body) | given)
        heads: list[ast.AST] = [*s.decorator_list, s.args, *([s.returns] if s.returns else [])]
        loaded = {n.id for h in heads for n in ast.walk(h) if isinstance(n, ast.Name)}
        writes = {(own, n) for n in given} | {self._name(s.name, scopes)}
        body = s.body[0]
        self.parts.append(
            Part(s, first_line(s), max(body.lineno - 1, s.lineno), {self._name(n, scopes) for n in loaded}, writes,
                 (s.lineno, s.end_lineno or s.lineno))
        )  # fmt: skip
        self._walk(s.body, (*scopes, own), s.name)

    def _name(self, name: str, scopes: tuple[int, ...]) -> Name:
        return next(((scope, name) for scope in reversed(scopes) if name in self._bound[scope]), (0, name))


def _head_nodes(s: ast.stmt) -> list[ast.AST]:
    fields: list[Any] = [getattr(s, name, None) for name in ("test", "target", "iter")]
    fields += [n for w in getattr(s, "items", []) for n in (w.context_expr, w.optional_vars)]
    return [n for f in fields if f is not None for n in ast.walk(f)]


def _stored(nodes: list[ast.AST]) -> set[str]:
    out = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    out |= {a.asname or a.name.partition(".")[0] for a in nodes if isinstance(a, ast.alias)}
    for n in nodes:  # a list or record is changed through its name
        if isinstance(n, (ast.Subscript, ast.Attribute)) and isinstance(n.ctx, ast.Store):
            out |= {m.id for m in ast.walk(n.value) if isinstance(m, ast.Name)}
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("append", "extend"):
            out |= {m.id for m in ast.walk(n.func.value) if isinstance(m, ast.Name)}
    return out


def _bound(body: list[ast.stmt]) -> set[str]:
    """The names of one scope."""
    out: set[str] = set()
    pending = list(body)
    while pending:
        s = pending.pop()
        if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
            out.add(s.name)
            continue
        out |= {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        out |= {a.asname or a.name.partition(".")[0] for a in ast.walk(s) if isinstance(a, ast.alias)}
        pending += [
            inner for block in suites(s) for inner in block if isinstance(inner, (ast.FunctionDef, ast.ClassDef))
        ]
    return out
