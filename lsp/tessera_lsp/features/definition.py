"""Where a name comes from: an assignment, a parameter, the annotation that binds a dim, the module."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera.compiler.frontend.definition import source_of
from tessera.errors import Span
from tessera_lsp import names

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        document = await server.document(params.text_document)
        span = _definition(document, *document.text.place(params.position))
        return document.location(span) if span is not None else None


def _definition(document: Document, line: int, col: int) -> Span | None:
    known = document.function_at(line)
    if known is None:
        return None
    dim = names.dim_at(known, line, col)
    if dim is not None:
        return known.dims.get(dim.name)
    word = names.word_at(known, line, col)
    if isinstance(word, ast.arg):
        return names.word_span(known, word)
    if not isinstance(word, ast.Name):
        return None
    if names.is_local(known, word.id):
        return names.binding_of(known, word.id, line, col)
    return _of_module(document, word.id)


def _of_module(document: Document, name: str) -> Span | None:
    """The last statement at the top of the file that binds the name, as it is after the module has run."""
    found: Span | None = None
    for node in document.scope.tree.body:
        found = _bound_in(document, node, name) or found
    return found


def _bound_in(document: Document, node: ast.stmt, name: str) -> Span | None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        name_span = names.definition_name(document.text.plain.split("\n"), node)
        return replace(name_span, file=document.file) if node.name == name else None
    source = source_of(document.file, document.text.plain)
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=found, ctx=ast.Store()) if found == name:
                return source.span(inner)
            case ast.alias(name=imported, asname=asname) if (asname or imported.partition(".")[0]) == name:
                return source.span(inner)
            case _:
                pass
    return None
