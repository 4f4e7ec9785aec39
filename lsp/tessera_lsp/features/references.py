"""Every place of a dim or variable within its function, also for highlighting it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera_lsp import names
from tessera_lsp.names import Occurrence

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        document = await server.document(params.text_document)
        return [document.location(o.span) for o in _found(document, params.position)]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    async def highlight(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        document = await server.document(params.text_document)
        return [lsp.DocumentHighlight(document.text.span_range(o.span)) for o in _found(document, params.position)]


def _found(document: Document, position: lsp.Position) -> list[Occurrence]:
    line, col = document.text.place(position)
    known = document.function_at(line)
    if known is None:
        return []
    dim = names.dim_at(known, line, col)
    if dim is not None:
        found = [o for o in names.dim_occurrences(known) if o.name == dim.name]
        return sorted(found, key=lambda o: (o.span.line, o.span.col))
    word = names.word_at(known, line, col)
    if word is None or isinstance(word, ast.Attribute):
        return []
    name = word.arg if isinstance(word, ast.arg) else word.id
    return names.variable_occurrences(known, name) if names.is_local(known, name) else []
