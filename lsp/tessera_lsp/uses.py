"""The uses of a definition in a text, and its calls, with the surrounding function."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.frontend.syntax.trees import first_line
from tessera.editor.names import annotations_of, own_span
from tessera.errors import Span
from tessera_lsp.index import Index, IndexedTarget, IndexedUnit, word_pattern

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = tuple[IndexedUnit, Function]
Owner = Function | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWNERS = (*FUNCTIONS, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class UsePlace:
    """A node, the names that do not mean the module's there, and the functions and classes around it.

    `call`: the call whose function it is.
    """

    node: ast.AST
    hidden: frozenset[str]
    owners: tuple[Owner, ...]
    call: ast.Call | None = None

    @property
    def function(self) -> Function | None:
        """The innermost function around it."""
        return next((o for o in reversed(self.owners) if not isinstance(o, ast.ClassDef)), None)

    @property
    def in_class(self) -> bool:
        return bool(self.owners) and isinstance(self.owners[-1], ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Use:
    """`word`: what is written there, which an import may have chosen. `binds`: whether the name gets its value here."""

    span: Span
    word: str
    place: UsePlace
    binds: bool


def places(unit: IndexedUnit, rows: list[int] | None = None) -> Iterator[UsePlace]:
    """The nodes of a text; given line numbers, those that have such a line."""
    pending = [UsePlace(s, frozenset(), ()) for s in reversed(unit.tree.body)]
    while pending:
        place = pending.pop()
        if rows is not None and not _has(rows, place.node):
            continue
        yield place
        pending += reversed([*_inner(place)])


def rows_with(unit: IndexedUnit, words: Iterable[str]) -> list[int]:
    """The numbers of the lines in which one of the words is written."""
    written = word_pattern(words)
    return [i for i, line in enumerate(unit.source.lines, 1) if written.search(line)]


def _has(rows: list[int], node: ast.AST) -> bool:
    if not isinstance(node, (ast.stmt, ast.expr)):
        return True
    first = first_line(node) if isinstance(node, ast.stmt) else node.lineno
    i = bisect_left(rows, first)
    return i < len(rows) and rows[i] <= (node.end_lineno or node.lineno)


def _inner(place: UsePlace) -> Iterator[UsePlace]:
    """What a node is made of; the body of a function knows more names than its head."""
    node, hidden, owners = place.node, place.hidden, place.owners
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (UsePlace(n, hidden, owners) for n in _head(node))
            own, within = hidden | _bound_by(node), (*owners, node)
            yield from (UsePlace(s, own, within) for s in node.body)
        case ast.ClassDef():
            yield from (UsePlace(n, hidden, owners) for n in _head(node))
            yield from (UsePlace(s, hidden, (*owners, node)) for s in node.body)
        case ast.Lambda(args=args, body=body):
            yield UsePlace(args, hidden, owners)
            yield UsePlace(body, hidden | {a.arg for a in ast.walk(args) if isinstance(a, ast.arg)}, owners)
        case ast.Call(func=func, args=args, keywords=keywords):
            yield UsePlace(func, hidden, owners, node)
            yield from (UsePlace(n, hidden, owners) for n in (*args, *keywords))
        case _:
            if isinstance(node, _COMPREHENSIONS):
                named = (n for g in node.generators for n in ast.walk(g.target))
                hidden |= {n.id for n in named if isinstance(n, ast.Name)}
            for child in ast.iter_child_nodes(node):
                yield UsePlace(child, hidden, owners)


def _head(node: Owner) -> list[ast.AST]:
    """Decorators, parameters, bases: read outside the body."""
    body = set(map(id, node.body))
    return [n for n in ast.iter_child_nodes(node) if id(n) not in body]


def _bound_by(function: Function) -> set[str]:
    """Parameters, variables and dims, for which `B` in an annotation stands in quotes."""
    plain: Any = function  # what both kinds of functions have
    found = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)} | assigned_names(plain)
    for n in (n for annotation in annotations_of(plain) for n in ast.walk(annotation)):
        if isinstance(n, ast.Subscript):
            quoted = (c.value for c in ast.walk(n.slice) if isinstance(c, ast.Constant) and isinstance(c.value, str))
            found.update(w for text in quoted for w in _WORD.findall(text))
    elsewhere = (n for s in function.body for n in ast.walk(s) if isinstance(n, ast.Global))
    return (found | {p.name for p in getattr(function, "type_params", ())}) - {w for n in elsewhere for w in n.names}


def own_name(unit: IndexedUnit, node: ast.AST) -> Span | None:
    """Where the name of a function, or the one that an expression is, is written; of an attribute the last part."""
    if isinstance(node, FUNCTIONS):
        return unit.name_span(node)
    return own_span(node, unit.source.span(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None


def names_for(index: Index, unit: IndexedUnit, target: IndexedTarget, words: Iterable[str]) -> set[str]:
    """What a text calls a target: the names that it binds to it, `norm` or, after an import, another."""
    found: set[str] = set()
    for name, node in unit.scope.bound.items():
        asked = name in words or (isinstance(node, ast.ImportFrom) and any(a.name in words for a in node.names))
        if asked and index.meaning(unit, name) == target:
            found.add(name)
    if unit.scope.stars:
        found |= {w for w in words if w not in unit.scope.bound and index.meaning(unit, w) == target}
    return found


def uses(index: Index, unit: IndexedUnit, target: IndexedTarget, words: Iterable[str] = ()) -> list[Use]:
    """Where a text writes a target, in order. `words`: all that it is called by, in whichever text."""
    return sorted(_uses(index, unit, target, {target.name, *words}), key=lambda u: (u.span.line, u.span.col))


def _uses(index: Index, unit: IndexedUnit, target: IndexedTarget, words: set[str]) -> Iterator[Use]:
    own = names_for(index, unit, target, words)
    quoted = set(map(id, _quoted(unit)))
    for place in places(unit, rows_with(unit, {*words, *own})):
        match place.node:
            case ast.Name(id=name, ctx=ctx) if name in own and name not in place.hidden:
                stored = not isinstance(ctx, ast.Load)
                if not (stored and place.in_class):
                    yield Use(unit.source.span(place.node), name, place, stored)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) if name in own:
                if not place.owners:
                    yield Use(unit.name_span(place.node), name, place, True)
            case ast.Global(names=names) if not own.isdisjoint(names):
                yield from (Use(span, w, place, False) for w, span in _words(unit, place.node) if w in own)
            case ast.Constant(value=str() as name) if name in own and id(place.node) in quoted:
                yield from (Use(span, w, place, False) for w, span in _words(unit, place.node) if w == name)
            case ast.alias(name=name, asname=asname) if not place.owners:
                if (asname or name.partition(".")[0]) in own:
                    yield _of_import(unit, place, name, asname, target)
            case ast.Attribute(attr=attr) if attr in words:
                dotted = ast.unparse(place.node)
                if dotted.partition(".")[0] not in place.hidden and index.meaning(unit, dotted) == target:
                    span = unit.source.span(place.node)
                    yield Use(replace(span, line=span.end_line, col=span.end_col - len(attr)), attr, place, False)
            case _:
                pass


def _quoted(unit: IndexedUnit) -> Iterator[ast.AST]:
    """Strings that are names: in `__all__`, and annotations in quotes."""
    for s in unit.tree.body:
        match s:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AugAssign(target=ast.Name(id="__all__"), value=value)
            ):
                yield from ast.walk(value)
            case _:
                pass
    for n in ast.walk(unit.tree):
        if isinstance(n, (ast.arg, ast.AnnAssign)) and n.annotation is not None:
            yield n.annotation
        elif isinstance(n, FUNCTIONS) and n.returns is not None:
            yield n.returns


def _words(unit: IndexedUnit, node: ast.AST) -> Iterator[tuple[str, Span]]:
    """The words of a node that stands in one line."""
    span = unit.source.span(node)
    for m in _WORD.finditer(unit.source.segment(span)) if span.line == span.end_line else ():
        yield m.group(), replace(span, col=span.col + m.start(), end_col=span.col + m.end())


def _of_import(unit: IndexedUnit, place: UsePlace, name: str, asname: str | None, target: IndexedTarget) -> Use:
    """The name that the target has: in `norm as n` the first, unless what `norm` is cannot be known."""
    span = unit.source.span(place.node)
    here = target.file == unit.file
    if asname is not None and here:
        return Use(replace(span, line=span.end_line, col=span.end_col - len(asname)), asname, place, True)
    return Use(replace(span, end_line=span.line, end_col=span.col + len(name)), name, place, here)


async def everywhere(index: Index, target: IndexedTarget) -> list[tuple[IndexedUnit, Use]]:
    """All places of a target in the workspace. A text may pass it on under another name, which is searched then."""
    words, searched = {target.name}, set[str]()
    found: dict[tuple[str, int, int], tuple[IndexedUnit, Use]] = {}
    while missing := words - searched:
        searched |= missing
        async for unit in index.mentioning(missing):
            for use in uses(index, unit, target, words):
                found.setdefault((use.span.file, use.span.line, use.span.col), (unit, use))
            words |= names_for(index, unit, target, words)
    home = [f for f in found.values() if f[0].file == target.file]
    return [*home, *(f for f in found.values() if f[0].file != target.file)]


# calls


async def calls_of(index: Index, unit: IndexedUnit, function: Function) -> list[tuple[IndexedUnit, UsePlace, Span]]:
    """The places that call a function, with its name there."""
    if function in unit.tree.body or unit.scope.bound.get(function.name) is function:
        found = await everywhere(index, IndexedTarget(unit.file, function.name))
        return [(u, use.place, use.span) for u, use in found if use.place.call is not None]
    return [
        (unit, place, span)
        for place in places(unit, rows_with(unit, [function.name]))
        if place.call is not None and meant(index, unit, place) == (unit, function)
        if (span := own_name(unit, place.node)) is not None
    ]


def meant(index: Index, unit: IndexedUnit, place: UsePlace) -> Found | None:
    """The function of the workspace that stands at a place: a nested one, a method of `self`, or one of a module."""
    match place.node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return unit, place.node
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            around = next((o for o in reversed(place.owners) if isinstance(o, ast.ClassDef)), None)
            return _defined(unit, around.body, name) if around is not None else None
        case ast.Name(id=name):
            for owner in reversed(place.owners):
                found = _defined(unit, owner.body, name) if not isinstance(owner, ast.ClassDef) else None
                if found is not None:
                    return found
        case ast.Attribute():
            pass
        case _:
            return None
    dotted = ast.unparse(place.node)
    target = index.meaning(unit, dotted) if dotted.partition(".")[0] not in place.hidden else None
    home = index.unit(target.file) if target is not None else None
    node = home.scope.bound.get(target.name) if home is not None and target is not None else None
    return (home, node) if home is not None and isinstance(node, FUNCTIONS) else None


def _defined(unit: IndexedUnit, body: list[ast.stmt], name: str) -> Found | None:
    return next(((unit, s) for s in body if isinstance(s, FUNCTIONS) and s.name == name), None)
