"""Selected statements as a function of their own, called where they stood."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

from tessera.errors import Edit, Span
from tessera_lsp.actions import Offer, Selection, names_of, spread, tried
from tessera_lsp.annotations import annotation
from tessera_lsp.known import Known

if TYPE_CHECKING:
    from tessera_lsp.document import Document

KIND = "refactor.extract.function"
TITLE = "Extract function"


def offers(document: Document, known: Known, selection: Selection) -> Iterator[Offer]:
    if known.analysis.definition.kind != "function" or selection.start == selection.end:
        return
    chosen = _chosen(known, known.tree.body, selection)
    if not chosen:
        return
    why = _impossible(known, chosen)
    if why:
        yield Offer(TITLE, KIND, disabled=why)
        return
    name = next(n for n in _names() if n not in {*document.scope.names(), *names_of([known.tree], ast.Store)})
    for edits in _ways(document, known, chosen, name):
        after = tried(known, edits)
        if after is not None and not after.errors and not spread(document, known, edits, name):
            yield Offer(TITLE, KIND, edits)
            return


def _names() -> Iterator[str]:
    yield "extracted"
    yield from (f"extracted_{n}" for n in count(2))


def _chosen(known: Known, body: list[ast.stmt], selection: Selection) -> list[ast.stmt]:
    """The statements of one block that are selected whole."""
    found = [s for s in body if selection.holds(known.span(s))]
    if found:
        return found
    blocks = (getattr(s, name, None) for s in body for name in ("body", "orelse"))
    return next((c for b in blocks if isinstance(b, list) and (c := _chosen(known, b, selection))), [])


def _impossible(known: Known, chosen: list[ast.stmt]) -> str:
    if known.tree.col_offset:
        return "only functions at the top of a file are taken apart"
    inside = [n for s in chosen for n in ast.walk(s)]
    if any(isinstance(n, (ast.Break, ast.Continue, ast.FunctionDef)) for n in inside):
        return "a loop is left, or a function defined, inside the selection"
    if any(isinstance(n, ast.Return) and n is not chosen[-1] for n in inside):
        return "the function returns from inside the selection"
    return ""


def _ways(document: Document, known: Known, chosen: list[ast.stmt], name: str) -> Iterator[tuple[Edit, ...]]:
    """As a function with annotated parameters; else as a plain helper that is also given the dims it names."""
    first, last = known.span(chosen[0]), known.span(chosen[-1])
    if first is None or last is None:
        return
    source = known.analysis.definition.text
    where = Span(first.file, first.line, first.col, last.end_line, last.end_col)
    block = textwrap.dedent(" " * (first.col - 1) + source.segment(where))
    bound = {*names_of([known.tree], ast.Store), *(a.arg for a in ast.walk(known.tree.args) if isinstance(a, ast.arg))}
    read = _in_order(chosen)
    given = [n for n in read if n in bound and not _assigned_first(known, chosen, n)]
    dims = [n for n in read if n in known.analysis.dims and n not in bound]
    returns = isinstance(chosen[-1], ast.Return)
    after = [s for s in known.tree.body if _starts_behind(known, s, last)]
    results = [n for n in dict.fromkeys(_stores(chosen)) if n in names_of(_readers(known, after, chosen), ast.Load)]
    body = textwrap.indent(block, "    ")
    if not returns and not results:
        return
    if not returns:
        body += f"\n    return {', '.join(results)}"
    decorator = source.segment(source.span(known.tree.decorator_list[0]))
    annotated = [(n, _annotation(document, known, n, first)) for n in given]
    end = known.tree.end_lineno or 0
    width = len(source.lines[end - 1]) + 1
    place = Span(first.file, end, width, end, width)
    for head, parameters, arguments in (
        (f"@{decorator}\n", [f"{n}: {a}" if a else n for n, a in annotated], given),
        ("", [*given, *dims], [*given, *dims]),
    ):
        call = f"{name}({', '.join(arguments)})"
        made = f"return {call}" if returns else f"{', '.join(results)} = {call}"
        definition = f"\n\n\n{head}def {name}({', '.join(parameters)}):\n{body}"
        yield Edit(where, made), Edit(place, definition)


def _in_order(chosen: list[ast.stmt]) -> list[str]:
    names = sorted(
        (n for s in chosen for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)),
        key=lambda n: (n.lineno, n.col_offset),
    )
    augmented = (s.target.id for s in chosen if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name))
    return list(dict.fromkeys([*augmented, *(n.id for n in names)]))


def _assigned_first(known: Known, chosen: list[ast.stmt], name: str) -> bool:
    """Whether the selection itself gives the name its value before it reads it."""
    for s in chosen:
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id == name:
            return False
        value = getattr(s, "value", None)
        reads = names_of([value] if isinstance(s, (ast.Assign, ast.AnnAssign)) and value else [s], ast.Load)
        if name in reads:
            return False
        if isinstance(s, (ast.Assign, ast.AnnAssign)) and name in names_of([s], ast.Store):
            return True
    return False


def _stores(chosen: list[ast.stmt]) -> list[str]:
    return [n.id for s in chosen for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _starts_behind(known: Known, statement: ast.stmt, last: Span) -> bool:
    span = known.span(statement)
    return span is not None and (span.end_line, span.end_col) > (last.end_line, last.end_col)


def _readers(known: Known, after: list[ast.stmt], chosen: list[ast.stmt]) -> list[ast.AST]:
    """What may read the results: all behind the selection, also the rest of a loop around it."""
    inside = {id(n) for s in chosen for n in ast.walk(s)}
    return [n for s in after for n in ast.walk(s) if id(n) not in inside and isinstance(n, ast.Name)]


def _annotation(document: Document, known: Known, name: str, at: Span) -> str | None:
    type = known.type_of(name, at.line, at.col)
    return annotation(document.scope, type) if type is not None else None
