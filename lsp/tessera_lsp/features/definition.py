"""Where a name comes from: an assignment, a parameter, the annotation that binds a dim, the module, another file."""

from __future__ import annotations

import ast

from lsprotocol import types as lsp

from tessera.editor import names
from tessera.errors import Span
from tessera_lsp.document import Document
from tessera_lsp.features.references import target_at
from tessera_lsp.index import Index
from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        span = _local(document, line, col)
        if span is not None:
            return document.location(span)
        index = Index(server)
        target = target_at(index, document, line, col)
        unit = index.unit(target.file) if target is not None else None
        span = unit.binding(target.name) if unit is not None and target is not None else None
        return unit.location(span) if unit is not None and span is not None else None


def _local(document: Document, line: int, col: int) -> Span | None:
    """Of what belongs to the function: dims, parameters, variables."""
    known = document.function_at(line)
    dim = names.dim_at(known, line, col) if known is not None else None
    if known is None or dim is not None:
        return names.dim_binding(known, dim.name) if known is not None and dim is not None else None
    word = names.word_at(known, line, col)
    if isinstance(word, ast.arg):
        return names.word_span(known, word)
    if isinstance(word, ast.Name) and names.is_local(known, word.id):
        return names.binding_of(known, word.id, line, col)
    return None
