"""Every place of a name: dims and variables within their function, functions and constants wherever files of the
workspace import them. Within a file the same places are highlighted."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from lsprotocol import types as lsp

from tessera.editor import names
from tessera.editor.names import Occurrence
from tessera.errors import Span
from tessera_lsp.document import Document
from tessera_lsp.index import Index, IndexedTarget
from tessera_lsp.server import TesseraServer
from tessera_lsp.uses import everywhere, places, uses

_WORD = re.compile(r"[^\W\d]\w*")


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        document = await server.document(params.text_document)
        declared = params.context.include_declaration
        line, col = document.text.place(params.position)
        own = own_places(document, line, col)
        if own is not None:
            return [document.location(o.span) for o in own if declared or not o.declares]
        index = Index(server)
        target = target_at(index, document, line, col)
        found = await everywhere(index, target) if target is not None else []
        return [
            unit.location(u.span)
            for unit, u in found
            if declared or not (u.binds and target is not None and unit.file == target.file)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    async def highlight(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        found = own_places(document, line, col)
        if found is None:
            index = Index(server)
            target, unit = target_at(index, document, line, col), index.of(document)
            words = _WORD.findall(unit.source.lines[line - 1])  # here it may have another name
            found = (
                [Occurrence(u.word, u.span, writes=u.binds) for u in uses(index, unit, target, words)] if target else []
            )
        return [
            lsp.DocumentHighlight(
                document.text.span_range(o.span),
                lsp.DocumentHighlightKind.Write if o.writes else lsp.DocumentHighlightKind.Read,
            )
            for o in found
            if document.holds(o.span.line)
        ]


def own_places(document: Document, line: int, col: int) -> list[Occurrence] | None:
    """Those of a dim or variable, which belong to one function; None where another name stands."""
    known = document.function_at(line)
    if known is None:
        return None
    dim = names.dim_at(known, line, col)
    if dim is not None:
        return names.dim_places(known, dim.name)
    word = names.word_at(known, line, col)
    own = word.arg if isinstance(word, ast.arg) else word.id if isinstance(word, ast.Name) else ""
    return names.variable_occurrences(known, own) if own and names.is_local(known, own) else None


def target_at(index: Index, document: Document, line: int, col: int) -> IndexedTarget | None:
    """The name of a module that is written at a place, on its own or behind a dot."""
    unit = index.of(document)
    for place in places(unit, rows=[line]):
        node = place.node
        match node:
            case ast.Name(id=name):
                found, span = name, unit.source.span(node)
            case ast.Attribute(attr=name):
                found, span = ast.unparse(node), names.own_span(node, unit.source.span(node))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found, span = name if not place.owners else "", unit.name_span(node)
            case ast.alias(name=name, asname=asname):
                found, span = asname or name, _of_alias(unit.source.span(node), node, line, col)
            case _:
                continue
        if names.covers(span, line, col) and found.partition(".")[0] not in place.hidden:
            target = index.meaning(unit, found)
            named = isinstance(node, ast.alias) and unit.source.segment(span) == node.name and node.asname
            return None if named and target is not None and target.file == unit.file else target
    return None


def _of_alias(span: Span, alias: ast.alias, line: int, col: int) -> Span:
    """Of `norm as n` the word at a place."""
    second = replace(span, line=span.end_line, col=span.end_col - len(alias.asname or alias.name))
    first = replace(span, end_line=span.line, end_col=span.col + len(alias.name))
    return second if names.covers(second, line, col) else first
