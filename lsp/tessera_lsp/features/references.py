"""Every place of a name: dims and variables within their function, functions and constants also in files that import
them. Within a file the same places are highlighted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera.compiler.frontend.inlining import assigned_names
from tessera.errors import Span
from tessera_lsp import names

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        document = await server.document(params.text_document)
        out = [document.location(s) for s in _found(document, params.position)]
        name = _module_name(document, params.position)
        if name is not None:
            for other in list(server.documents.values()):
                if other.file == document.file:
                    continue
                await other.ready()
                called = _imported_as(other, document, name)
                out += [other.location(s) for s in _of_module(other, called)] if called is not None else []
        return out

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    async def highlight(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        document = await server.document(params.text_document)
        here = (s for s in _found(document, params.position) if document.holds(s.line))
        return [lsp.DocumentHighlight(document.text.span_range(s)) for s in here]


def _found(document: Document, position: lsp.Position) -> list[Span]:
    line, col = document.text.place(position)
    known = document.function_at(line)
    dim = names.dim_at(known, line, col) if known is not None else None
    if known is not None and dim is not None:
        found = (o.span for o in names.dim_occurrences(known) if o.name == dim.name)
        return sorted(found, key=lambda s: (s.line, s.col))
    word = names.word_at(known, line, col) if known is not None else None
    own = word.arg if isinstance(word, ast.arg) else word.id if isinstance(word, ast.Name) else ""
    if known is not None and own and names.is_local(known, own):
        return [o.span for o in names.variable_occurrences(known, own)]
    name = _module_name(document, position)
    return list(_of_module(document, name)) if name is not None else []


def _module_name(document: Document, position: lsp.Position) -> str | None:
    """The name of the module's that stands at a place."""
    line, col = document.text.place(position)
    known = document.function_at(line)
    word = names.word_at(known, line, col) if known is not None else None
    if known is not None and word is not None:
        return word.id if isinstance(word, ast.Name) and not names.is_local(known, word.id) else None
    for node in ast.walk(document.scope.tree):
        for name, span in _places(document, node):
            if names.covers(span, line, col) and name in document.scope.bound:
                return name
    return None


def _of_module(document: Document, name: str) -> Iterator[Span]:
    """Where a file's own name is written, but where a function has a variable of that name."""
    hidden = {
        id(inner)
        for f in ast.walk(document.scope.tree)
        if isinstance(f, _FUNCTIONS) and name in _bound_by(f)
        for s in f.body
        for inner in ast.walk(s)
    }
    found = {
        (s.line, s.col): s
        for node in ast.walk(document.scope.tree)
        if id(node) not in hidden
        for n, s in _places(document, node)
        if n == name
    }
    yield from (found[place] for place in sorted(found))


def _bound_by(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    return {*given, *assigned_names(function)} if isinstance(function, ast.FunctionDef) else given


def _places(document: Document, node: ast.AST) -> Iterator[tuple[str, Span]]:
    """The names that a node itself writes."""
    source = document.source
    match node:
        case ast.Name(id=name):
            yield name, source.span(node)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            span = names.definition_name(source.lines, node)
            yield name, Span(document.file, span.line, span.col, span.end_line, span.end_col)
        case ast.alias(name=name, asname=None):
            yield name, source.span(node)
        case _:
            pass


def _imported_as(document: Document, origin: Document, name: str) -> str | None:
    """What a file calls a name that it imports from another one."""
    for node in document.scope.tree.body:
        if isinstance(node, ast.ImportFrom):
            alias = next((a for a in node.names if a.name == name), None)
            module = document.modules.find(document.file, node.module or "", node.level) if alias is not None else None
            if alias is not None and module is not None and module.scope.file == origin.file:
                return alias.asname or alias.name
    return None
