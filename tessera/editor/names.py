"""Names in a function's text: where its dims are written, where its variables are bound, what stands at a place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.editor.functions import Known
from tessera.errors import Span

_WORD = re.compile(r"[^\W\d]\w*")
COORDINATE = "tile_"
"""in kernels `tile_m` is the grid coordinate over the dim M"""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place where a name is written. `coordinate`: as `tile_m`, which is written in lower case. `writes`: it gets a
    value here; `declares`: it is brought in here."""

    name: str
    span: Span
    coordinate: bool = False
    writes: bool = False
    declares: bool = False


def covers(span: Span | None, line: int, col: int) -> bool:
    return span is not None and span.contains(line, col)


def parameters(tree: ast.FunctionDef) -> list[ast.arg]:
    a = tree.args
    return [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]


def dim_occurrences(known: Known) -> Iterator[Occurrence]:
    """Every place of every dim: type parameters, annotations, and the body where no variable hides it."""
    dims = known.analysis.dims
    for parameter in getattr(known.tree, "type_params", []):
        span = known.span(parameter)
        if span is not None and parameter.name in dims:
            yield Occurrence(parameter.name, replace(span, col=span.end_col - len(parameter.name)))
    annotations = annotations_of(known.tree)
    for annotation in annotations:
        yield from _in_annotation(known, annotation)
    hidden = {*assigned_names(known.tree), *(p.arg for p in parameters(known.tree))}
    inside = {id(n) for a in annotations for n in ast.walk(a)}
    contexts = context_names(known)
    coordinates = {COORDINATE + d.lower(): d for d in dims} if known.analysis.definition.kind == "kernel" else {}
    for node in _body(known.tree):
        if id(node) in inside or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        span = known.span(node)
        if span is None:
            continue
        match node:
            case ast.Name(id=name) if name in dims and name not in hidden:
                yield Occurrence(name, span)
            case ast.Name(id=name) if name in coordinates and name not in hidden:
                yield Occurrence(coordinates[name], span, coordinate=True)
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner in contexts and attr in dims:
                yield Occurrence(attr, replace(span, line=span.end_line, col=span.end_col - len(attr)))
            case _:
                pass


def annotations_of(tree: ast.FunctionDef) -> list[ast.expr]:
    out = [p.annotation for p in parameters(tree) if p.annotation is not None]
    out += [tree.returns] if tree.returns is not None else []
    return out + [s.annotation for s in ast.walk(tree) if isinstance(s, ast.AnnAssign)]


def _in_annotation(known: Known, annotation: ast.expr) -> Iterator[Occurrence]:
    for node in ast.walk(annotation):
        span = known.span(node) if isinstance(node, (ast.Name, ast.Constant)) else None
        if span is None:
            continue
        if isinstance(node, ast.Name):
            if node.id in known.analysis.dims:
                yield Occurrence(node.id, span)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and span.line == span.end_line:
            text = known.analysis.definition.text.segment(known.analysis.definition.text.span(node))
            start = min((i for i in (text.find("'"), text.find('"')) if i >= 0), default=0)
            for m in _WORD.finditer(text, start):
                if m.group() in known.analysis.dims and "\\" not in text:
                    yield Occurrence(m.group(), replace(span, col=span.col + m.start(), end_col=span.col + m.end()))


def _body(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    for statement in tree.body:
        yield from ast.walk(statement)


def context_names(known: Known) -> set[str]:
    """The variables of a kernel that hold `ts.tile.context()`, whose attributes are its dims."""
    assigns = (s for s in _body(known.tree) if isinstance(s, ast.Assign) and _is_context(s.value))
    return {t.id for s in assigns for t in s.targets if isinstance(t, ast.Name)}


def _is_context(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "context"


def dim_at(known: Known, line: int, col: int) -> Occurrence | None:
    return next((o for o in dim_occurrences(known) if covers(o.span, line, col)), None)


def dim_places(known: Known, dim: str) -> list[Occurrence]:
    """Every place of one dim, in order. What gives it its size declares it."""
    bound = known.dims.get(dim)
    found = [o for o in dim_occurrences(known) if o.name == dim]
    marked = (replace(o, declares=d, writes=d) for o in found for d in [covers(bound, o.span.line, o.span.col)])
    return sorted(marked, key=lambda o: (o.span.line, o.span.col))


def dim_binding(known: Known, dim: str) -> Span | None:
    """Where the dim is written that gives it its size: of `"B*H"` the letter."""
    return next((o.span for o in dim_places(known, dim) if o.declares), known.dims.get(dim))


def bound_by(known: Known, dim: str) -> list[str]:
    """Which axes of which parameters give a dim its size, for people."""
    out: list[str] = []
    for p in parameters(known.tree):
        if not isinstance(p.annotation, ast.Subscript):
            continue
        inner = p.annotation.slice
        for axis, element in enumerate(inner.elts if isinstance(inner, ast.Tuple) else [inner]):
            match element:
                case ast.Constant(value=str() as text) if text == dim:
                    out.append(f"axis {axis} of `{p.arg}`")
                case ast.Name(id=name) if name == dim:
                    out.append(f"axis {axis} of `{p.arg}`")
                case _:
                    pass
    return out


def word_at(known: Known, line: int, col: int) -> ast.Name | ast.Attribute | ast.arg | None:
    """The name, attribute (at its own name, not its owner) or parameter that stands at a place."""
    for node in ast.walk(known.tree):
        if not isinstance(node, (ast.Name, ast.Attribute, ast.arg)):
            continue
        span = known.span(node)
        if span is not None and covers(own_span(node, span), line, col):
            return node
    return None


def word_span(known: Known, node: ast.Name | ast.Attribute | ast.arg) -> Span | None:
    span = known.span(node)
    return own_span(node, span) if span is not None else None


def own_span(node: ast.AST, span: Span) -> Span:
    """Of an attribute and a parameter its name alone."""
    if isinstance(node, ast.Attribute):
        return replace(span, line=span.end_line, col=span.end_col - len(node.attr))
    if isinstance(node, ast.arg):
        return replace(span, end_line=span.line, end_col=span.col + len(node.arg))
    return span


def variable_occurrences(known: Known, name: str) -> list[Occurrence]:
    """Every place of a variable or parameter of the function, in order. The parameter declares it, else what is
    assigned first."""
    found = [
        Occurrence(name, span, writes=isinstance(n, ast.arg) or not isinstance(n.ctx, ast.Load))
        for n in ast.walk(known.tree)
        if (isinstance(n, ast.Name) and n.id == name) or (isinstance(n, ast.arg) and n.arg == name)
        if (span := word_span(known, n)) is not None
    ]
    found.sort(key=lambda o: (o.span.line, o.span.col))
    first = next((i for i, o in enumerate(found) if o.writes), None)
    return [replace(o, declares=i == first) for i, o in enumerate(found)]


def is_local(known: Known, name: str) -> bool:
    return name in assigned_names(known.tree) or any(p.arg == name for p in parameters(known.tree))


def binding_of(known: Known, name: str, line: int, col: int) -> Span | None:
    """Where a local variable got the value it has at a place: its last assignment above, else the parameter."""
    best: tuple[tuple[int, int], Span] | None = None
    for statement in ast.walk(known.tree):
        if not isinstance(statement, (ast.stmt, ast.comprehension)):
            continue
        for target in _targets(statement):
            span = known.span(target)
            if target.id != name or span is None:
                continue
            if covers(span, line, col):
                return span
            whole = known.span(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else span
            since = (whole.end_line, whole.end_col) if whole else (span.line, span.col)
            if since <= (line, col) and (best is None or since > best[0]):
                best = since, span
    if best is not None:
        return best[1]
    return next((word_span(known, p) for p in parameters(known.tree) if p.arg == name), None)


def _targets(statement: ast.stmt | ast.comprehension) -> Iterator[ast.Name]:
    """The names that a statement itself binds, not those of the statements inside it."""
    match statement:
        case ast.Assign(targets=targets):
            roots: list[ast.expr] = targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            roots = [target]
        case ast.comprehension(target=target):
            roots = [target]
        case ast.With(items=items):
            roots = [i.optional_vars for i in items if i.optional_vars is not None]
        case _:
            roots = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.NamedExpr)]
    for root in roots:
        yield from (n for n in ast.walk(root) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def definition_name(lines: list[str], node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Span:
    """The place of the name in `def name` or `class name`."""
    row = min(node.lineno, len(lines)) - 1
    start = max(lines[row].find(node.name, len(lines[row]) - len(lines[row].lstrip()) + 3), 0) + 1
    return Span("", row + 1, start, row + 1, start + len(node.name))


def fits(typed: str, name: str) -> bool:
    """Whether the letters typed stand in a name in order, as editors look for them."""
    letters = iter(name.lower())
    return all(c in letters for c in typed.lower())
