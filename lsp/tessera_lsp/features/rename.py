"""Renaming a dim: in the annotations and the body of its function, and `tile_m` with it in kernels."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from tessera.errors import Edit
from tessera_lsp import names
from tessera_lsp.errors import RequestFailedError
from tessera_lsp.known import Known
from tessera_lsp.names import COORDINATE, Occurrence

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    async def prepare_rename(params: lsp.PrepareRenameParams) -> lsp.PrepareRenameResult | None:
        document = await server.document(params.text_document)
        found = _dim(document, params.position)
        if found is None:
            return None
        _, dim = found
        return lsp.PrepareRenamePlaceholder(document.text.span_range(dim.span), dim.name)

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    async def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        document = await server.document(params.text_document)
        found = _dim(document, params.position)
        if found is None:
            raise RequestFailedError("Tessera renames dims; there is none here")
        known, dim = found
        _demand(document, known, dim.name, params.new_name)
        edits = [
            Edit(o.span, COORDINATE + params.new_name.lower() if o.coordinate else params.new_name)
            for o in names.dim_occurrences(known)
            if o.name == dim.name
        ]
        edit = document.workspace_edit(edits)
        assert edit is not None  # a function lies in one file, and in one cell
        return edit


def _dim(document: Document, position: lsp.Position) -> tuple[Known, Occurrence] | None:
    line, col = document.text.place(position)
    known = document.function_at(line)
    dim = names.dim_at(known, line, col) if known is not None else None
    return (known, dim) if known is not None and dim is not None else None


def _demand(document: Document, known: Known, old: str, new: str) -> None:
    """Raises where the new name would change what the function means."""
    if not document.parses:
        raise RequestFailedError("the text does not parse, so not every place of the dim is known")
    if not new.isidentifier() or iskeyword(new):
        raise JsonRpcInvalidParams(f"{new!r} is no name")
    if new != old and (new in known.analysis.dims or names.is_local(known, new)):
        raise RequestFailedError(f"{known.analysis.name} has a dim or variable {new} already")
