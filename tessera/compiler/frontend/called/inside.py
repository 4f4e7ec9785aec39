"""What the programs of a file tell of the functions and methods that they call: the types inside these, for an editor.

A plain function or method has no types by itself; its calls do. What is equal in all of them is known. A size that
differs between them, say because the file makes two models of one class, has a name instead.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.names.values import Record, is_dict, is_tuple, remade
from tessera.compiler.frontend.result import Analysis, ExprInfo, InnerCall
from tessera.compiler.frontend.syntax.trees import first_line
from tessera.compiler.ir.types import TensorType
from tessera.errors import Diagnostic, Note, Span
from tessera.immutable import immutable, mutable
from tessera.language import dims
from tessera.language.dims import Dim, Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.called.arguments import MadeArgument  # slow: the evaluator, at a server's start

_OWN_NAME = re.compile(r"<(\w+)>")
"""a name of what calls the user's function here: `<model>`, `<gradient>`"""


@immutable
class CalledProgram:
    """A program of a file, and the arguments that the text makes for it. `own`: whether it tells of the function itself
    too, which it is called with these arguments."""

    analysis: Analysis
    made: Mapping[str, MadeArgument] = field(default_factory=dict[str, "MadeArgument"])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """those that the arguments require"""
    own: bool = False

    def calls(self, file: str) -> Iterator[InnerCall]:
        """The calls of the functions of a file in it, and that of the function itself."""
        if self.own and self.analysis.definition.file == file:
            given = {n: m.type for n, m in self.made.items() if isinstance(m.type, Record)}
            yield InnerCall(self.analysis.definition, self.analysis.expressions, given)
        yield from (c for c in self.analysis.inner if c.definition.file == file)

    def model(self) -> str:
        """`GPT(width=64) (line 40)`"""
        made = next((m for m in self.made.values() if isinstance(m.type, Record)), None)
        return f"`{made.text}` (line {made.line})" if made is not None else ""

    def moved(self, span: Span) -> Span:
        """Where a place of its texts is now: lines above may have come or gone since it was analysed."""
        for definition in (
            *([self.analysis.definition] if self.own else []),
            *(c.definition for c in self.analysis.inner),
        ):
            by = moved_by(definition)
            end = definition.line + _height(definition.tree)
            if by and definition.file == span.file and definition.line <= span.line <= end:
                return at(by, span)
        return span

    def placed(self, d: Diagnostic, file: str, place: Span, own: Span | None = None) -> Diagnostic:
        """A finding in this program as one of a file: at its line if it is in that file, else at `place`, as is what is
        said of lines of our `own`; in words of the user's, whose names are not in <>."""
        said = ((n.message, n.span) for n in d.notes if n.span != own and not _OWN_NAME.search(n.message))
        notes = tuple(Note(message, self.moved(span) if span is not None else None) for message, span in said)
        at_own = d.span == own
        d = replace(d, message=_OWN_NAME.sub(r"\1", d.message), notes=notes, span=self.moved(d.span))
        if at_own:
            return replace(d, span=place, fixes=())
        if d.span.file == file:
            return d
        return replace(d, span=place, fixes=(), notes=(Note("found here", d.span), *d.notes))


def at(by: int, s: Span) -> Span:
    """A place some lines further down."""
    return Span(s.file, s.line + by, s.col, s.end_line + by, s.end_col) if by and s.line else s


@immutable
class Inside:
    """A function, and what its calls tell of it. `models`: the objects that these are given; `varying`: names that
    stand for sizes which differ, with each size and the model that it is of."""

    analysis: Analysis
    models: tuple[str, ...] = ()
    varying: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict[str, "tuple[tuple[int, str], ...]"])
    given: Mapping[str, Record] = field(default_factory=dict[str, Record], compare=False)
    """by parameter an object that it is given"""
    of: tuple[object, ...] = field(default=(), repr=False, compare=False)
    """what it was made from"""


@immutable
class MadeObject:
    """An object that a statement of the file passes on, and the name that it has there."""

    statement: ast.stmt
    name: str
    record: Record


@mutable
class _Seen:
    """A call, how many lines further down its function stands now, and the program that it is in."""

    call: InnerCall
    by: int
    program: CalledProgram


def current(analysis: Analysis, scope: TextScope) -> Analysis | None:
    """An analysis that still holds, with the functions that it calls as they stand in the text now; None where one of
    them is not found."""
    found: list[InnerCall] = []
    for call in analysis.inner:
        d, tree = call.definition, call.definition.tree
        if d.file == scope.file and tree not in scope.functions:
            now = scope.text.split("\n")
            was = d.text.lines[d.line - 1 : d.line + _height(tree)]
            nodes = [n for n in scope.functions if n.name == d.name and now[first_line(n) - 1 : n.end_lineno] == was]
            if len(nodes) != 1:
                return None
            call = replace(call, definition=replace(d, tree=nodes[0]))
        found.append(call)
    same = all(a is b for a, b in zip(found, analysis.inner, strict=True))
    return analysis if same else replace(analysis, inner=tuple(found))


def moved_by(definition: Definition) -> int:
    """How many lines further down its tree stands than it did."""
    tree = definition.tree
    return first_line(tree) - definition.line if isinstance(tree, ast.FunctionDef) else 0


def _height(tree: Any) -> int:
    return (tree.end_lineno or tree.lineno) - first_line(tree)


def inside(
    scope: TextScope, analyses: Sequence[Analysis], programs: Iterable[CalledProgram], before: Sequence[Inside] = ()
) -> list[Inside]:
    """The functions of a file: those that were analysed by themselves, and those that the programs call. `before`:
    those of an earlier text, which are taken where they still hold."""
    seen: dict[ast.AST, list[_Seen]] = {}
    for program in programs:
        for call in program.calls(scope.file):
            tree = call.definition.tree
            seen.setdefault(tree, []).append(_Seen(call, moved_by(call.definition), program))
    old = {i.analysis.definition.tree: i for i in before}
    known = {a.definition.tree for a in analyses}
    found = [_renewed(a, a.expressions, seen.get(a.definition.tree, []), old) for a in analyses]
    for node in scope.functions:
        if node not in known and node in seen:
            definition = scope.definition(node, "function")
            own = Analysis(definition, dims=definition_signature(definition).dims)
            found.append(_renewed(own, node, seen[node], old))
    return found


def _renewed(own: Analysis, itself: object, seen: list[_Seen], before: Mapping[Any, Inside]) -> Inside:
    """What is known inside a function; as before where `itself`, its place and the programs that call it are as they
    were."""
    of: list[object] = [itself, own.definition.line]
    for s in seen:
        program = s.program.analysis
        of += [program.expressions, program.inner, s.program.model(), *(moved_by(c.definition) for c in program.inner)]
    old = before.get(own.definition.tree)
    if old is None or len(old.of) != len(of):
        return replace(_joined(own, seen), of=(*of,))
    if all(a is b or (isinstance(a, (str, int)) and a == b) for a, b in zip(old.of, of, strict=True)):
        analysis = old.analysis
        shown = replace(own, expressions=analysis.expressions, dims=analysis.dims)
        return replace(old, analysis=shown)
    return replace(_joined(own, seen), of=(*of,))


def _joined(own: Analysis, seen: list[_Seen]) -> Inside:
    if not seen:
        return Inside(own)
    places: dict[tuple[Span, str], tuple[ExprInfo, dict[int, Any]]] = {}
    for number, s in enumerate(seen):
        for e in s.call.types:
            span = at(s.by, e.span)
            places.setdefault((span, e.kind), (replace(e, span=span), {}))[1].setdefault(number, e.type)
    sizes = _Sizes(seen, frozenset(own.dims))
    said = {(e.span, e.kind): e for e in own.expressions}
    written = definition_signature(own.definition).dims
    for key, (e, types) in places.items():
        type = sizes.common(types)
        mine = said.get(key)
        if type is not None:
            said[key] = replace(e, type=type if mine is None else _as_written(mine.type, type, written))
    spans = {n: s.program.moved(span) for s in reversed(seen) for n, span in s.program.analysis.dims.items()}
    used = {n for e in said.values() for n in _symbols(e.type)}
    also = {n: s for n, s in spans.items() if n in used and n not in own.dims and s.file == own.definition.file}
    models = tuple(dict.fromkeys(m for s in seen if (m := s.program.model())))
    analysis = replace(own, expressions=list(said.values()), dims={**own.dims, **also})
    varying = {n: v for n, v in sizes.varying().items() if f"?{n}" in used}
    given = {n: r for s in reversed(seen) for n, r in s.call.given.items()}
    return Inside(analysis, models, varying, given)


def _as_written(mine: Any, found: Any, names: Mapping[str, Span]) -> Any:
    """A type by the annotations of its function, with what the calls tell beyond their names."""
    if not isinstance(mine, TensorType) or not isinstance(found, TensorType) or len(mine.shape) != len(found.shape):
        return mine
    shape = tuple(a if dims.symbols(a) <= names.keys() else b for a, b in zip(mine.shape, found.shape, strict=True))
    return replace(found, shape=shape)


def _symbols(type: Any) -> set[str]:
    if is_tuple(type):
        return {s for t in type for s in _symbols(t)}
    if is_dict(type):
        return {s for t in type.values() for s in _symbols(t)}
    sizes = getattr(type, "shape", (type,))
    return {s for d in sizes if isinstance(d, (int, Expr)) for s in dims.symbols(d)}


class _Sizes:
    """The types that several calls have at one place, as one; sizes that differ get names."""

    def __init__(self, seen: list[_Seen], taken: frozenset[str]) -> None:
        self._seen = seen
        self._names: dict[tuple[tuple[int, int], ...], str] = {}
        self._fresh = (c for c in (*string.ascii_uppercase[3:], *string.ascii_uppercase[:3]) if c not in taken)

    def common(self, types: Mapping[int, Any]) -> Any:
        """By call its type: what is equal in all; None where they are different things."""
        first, *others = types.values()
        if all(t == first for t in others):
            return first
        if all(isinstance(t, TensorType) for t in types.values()):
            alike = all(len(t.shape) == len(first.shape) and t.dtype == first.dtype for t in others)
            sizes = partial(self._at, types)
            return TensorType(tuple(map(sizes, range(len(first.shape)))), first.dtype) if alike else None
        if all(is_tuple(t) and len(t) == len(first) for t in types.values()):
            parts = [self.common({n: t[i] for n, t in types.items()}) for i in range(len(first))]
            return remade(first, parts) if None not in parts else None
        if all(isinstance(t, (int, Expr)) and not isinstance(t, bool) for t in types.values()):
            return self._size(dict(types))
        return None

    def _at(self, types: Mapping[int, TensorType], axis: int) -> Dim:
        return self._size({n: t.shape[axis] for n, t in types.items()})

    def _size(self, sizes: Mapping[int, Dim]) -> Dim:
        found = list(dict.fromkeys(sizes.values()))
        told = [d for d in found if not any(n.startswith("?") for n in dims.symbols(d))]
        found = told or found  # a model whose sizes nobody knows says nothing against those that are known
        if len(found) == 1:
            return found[0]
        open_ = next((d for d in found if isinstance(d, Expr)), None)
        if open_ is not None:  # it is not known in one of them
            return open_
        key = tuple((n, d) for n, d in sizes.items() if isinstance(d, int))
        if key not in self._names:
            self._names[key] = self._named(key) or next(self._fresh, "N")
        return dims.symbol(f"?{self._names[key]}")

    def _named(self, sizes: tuple[tuple[int, int], ...]) -> str | None:
        """What the objects that the calls are given call a number that has these values in them."""
        held = [(_numbers(self._seen[n].call.given.values()), size) for n, size in sizes]
        return next((name for name in held[0][0] if all(n.get(name) == size for n, size in held)), None)

    def varying(self) -> dict[str, tuple[tuple[int, str], ...]]:
        found: dict[str, dict[tuple[int, str], None]] = {}
        for key, name in self._names.items():
            found.setdefault(name, {}).update(dict.fromkeys((d, self._seen[n].program.model()) for n, d in key))
        return {n: tuple(sizes) for n, sizes in found.items()}


def _numbers(given: Iterable[Record]) -> dict[str, int]:
    return {n: v for r in given for n, v in r.members.items() if isinstance(v, int) and not isinstance(v, bool)}
