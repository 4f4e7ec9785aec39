"""What stands in a tree where the text does not parse, and what the evaluator makes of it.

A broken statement counts for nothing but what it may assign, which is unknown from there on: findings rest on what can
be read. Hints may also rest on what could be read last: a `recalled` definition evaluates the statement as it was.
"""

from __future__ import annotations

import ast
import re
from keyword import kwlist
from typing import TYPE_CHECKING, Any, ClassVar

from tessera.compiler.frontend.dialect import tokens
from tessera.compiler.frontend.frame import Flow
from tessera.compiler.frontend.values import MISSING, UNKNOWN, Record
from tessera.errors import Diagnostics

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator

_WORD = re.compile(r"[^\W\d]\w*")
_LEADING = re.compile(r"\s*(?:for\s+)?([^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)*)(?!\w|\s*[.(\[])")
_ASSIGNED = re.compile(r"([^\W\d]\w*)\s*[\"'(\[{)\]}]?\s*(?::=|(?:[-+*/@%&|^]|//|\*\*|<<|>>)?=(?!=)|~)")
_NAMED = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+([^\W\d]\w*)|.*\bas\s+([^\W\d]\w*)", re.S)
_IMPORT = re.compile(r"\s*(?:(from\s+[.\w]+\s+import)\b|import\b)(.*)", re.S)
_IMPORTED = re.compile(r"[^\W\d][\w.]*(?:\s+as\s+[^\W\d]\w*)?")
_KEYWORDS = frozenset(kwlist)


class Broken(ast.stmt):
    """A statement that does not parse. Not among its fields, and so out of reach of walks over the tree: `was`, the
    statements that stood here when they could be read last."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, text: str, was: list[ast.stmt]) -> None:
        super().__init__()
        self.was = was or salvaged(text)
        self.binds = bound_names(text)
        self.mentions = frozenset(_WORD.findall(text)) - _KEYWORDS
        self.leaves = text.lstrip().startswith(("return", "raise"))


class Gap(ast.expr):
    """An expression in the head of a broken `if`, `for`, `while` or `with`."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, was: ast.expr | None = None) -> None:
        super().__init__()
        self.was = was


def bound_names(text: str) -> frozenset[str]:
    """Names that a broken statement may assign, as far as its text tells."""
    found: set[str] = set()
    if leading := _LEADING.match(text):
        found |= set(_WORD.findall(leading[1]))
    if named := _NAMED.match(text):
        found.add(named[1] or named[2])
    outside = _outside_brackets(text)
    found |= set(_ASSIGNED.findall(outside) or _ASSIGNED.findall(text))
    if imported := _IMPORT.match(text):
        found |= set(_WORD.findall(imported[2]))
    return frozenset(found - _KEYWORDS)


def _outside_brackets(text: str) -> str:
    out, depth, since = "", 0, 0
    for kind, start, end in tokens(text, 0):
        if kind == "open":
            out += text[since:start] if not depth else ""
            depth += 1
        elif kind == "close" and depth:
            depth, since = depth - 1, end
    return out + (text[since:] if not depth else "")


def salvaged(text: str) -> list[ast.stmt]:
    """The imports that can still be made out in a broken import."""
    found = _IMPORT.match(text)
    out: list[ast.stmt] = []
    if found is None:
        return out
    for name in _IMPORTED.findall(found[2]):
        try:
            out += ast.parse(f"{found[1] or 'import'} {name}").body
        except SyntaxError:
            continue
    return out


def statement(ev: Evaluator, node: Broken) -> Flow:
    _incomplete(ev, node)
    if ev.definition.recalled and node.was:
        return _as_it_was(ev, node)
    names = ev.frame.names
    for name in node.mentions - {*ev.layer.known_names()}:
        changeable = isinstance(names.get(name), (list, dict, Record))
        unheard_of = ev.frame.lookup(name) is MISSING and ev.frame.scope.lookup(name) is MISSING
        if name in node.binds or changeable or unheard_of:
            names[name] = UNKNOWN
            ev.frame.maybe.discard(name)
    if not node.leaves or ev.definition.recalled:  # one that is being typed: what is below it stays known
        return Flow.NEXT
    ev.frame.returned, ev.frame.return_span = UNKNOWN, ev.span(node)
    return Flow.RETURN


def expression(ev: Evaluator, node: Gap) -> Any:
    _incomplete(ev, node)
    return ev.eval(node.was) if ev.definition.recalled and node.was is not None else UNKNOWN


def _incomplete(ev: Evaluator, node: ast.AST) -> None:
    ev.incomplete = True
    ev.undecide("a part of it does not parse", node, "TS101")


def _as_it_was(ev: Evaluator, node: Broken) -> Flow:
    """Nothing is said about a statement that is no longer there, nor is anything shown at its places."""
    kept = ev.findings, ev.pending, ev.frame.records
    ev.findings, ev.pending, ev.frame.records = Diagnostics(ev.definition.name), [], False
    try:
        return ev.run(node.was)
    finally:
        ev.findings, ev.pending, ev.frame.records = kept
