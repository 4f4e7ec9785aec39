"""The server: documents by address and the protocol's life cycle. `features`, which stands above, has its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import (
    FeatureRequestError,
    JsonRpcContentModified,
    JsonRpcException,
    JsonRpcInvalidParams,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method

from tessera import __version__, knobs
from tessera.compiler.frontend.workspace import Modules
from tessera_lsp import messages
from tessera_lsp.background import Garbage
from tessera_lsp.document import Document
from tessera_lsp.limits import clamp
from tessera_lsp.notebook import LANGUAGES, CellSource, Notebook, NotebookCell
from tessera_lsp.progress import tell_if_long
from tessera_lsp.settings import Settings

log = logging.getLogger(__name__)
_NOTEBOOKS = lsp.NotebookDocumentSyncOptions(
    [
        lsp.NotebookDocumentFilterWithNotebook(
            "jupyter-notebook", [lsp.NotebookCellLanguage(language) for language in LANGUAGES]
        )
    ]
)
SHOWN = ("inlay_hint", "diagnostics", "code_lens")
"""the features that clients show all the time"""
_ASKED: ContextVar[int] = ContextVar("asked", default=0)
"""the number of the message that is being answered"""


class Protocol(LanguageServerProtocol):
    """pygls's protocol with text kept by `Document`: pygls also ends lines at form feeds and the like."""

    _server: TesseraServer

    def get_message_type(self, method: str) -> Any:
        return messages.TYPES[method][0] if method in messages.TYPES else super().get_message_type(method)

    def get_result_type(self, method: str) -> Any:
        return messages.TYPES[method][1] if method in messages.TYPES else super().get_result_type(method)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """What cannot be understood is refused by an answer: pygls only logs it, and its client waits for ever."""
        clamp(data.get("params"))
        try:
            return super().structure_message(data)
        except JsonRpcException as e:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=e.to_response_error())
            raise

    def handle_message(self, message: Any) -> None:
        """Numbers what comes: of many messages that are read at once, an edit may overtake the request before it."""
        self._server.received += 1
        _ASKED.set(self._server.received)  # for the task of the request, which is made now and runs later
        super().handle_message(message)

    @lsp_method(lsp.INITIALIZE)
    def lsp_initialize(self, params: lsp.InitializeParams) -> Any:
        result = yield from super().lsp_initialize(params)
        workspace = params.capabilities.workspace
        if workspace is not None and workspace.text_document_content is not None:
            result.capabilities.workspace.text_document_content = lsp.TextDocumentContentOptions(["tessera"])
        return result

    @lsp_method(lsp.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: lsp.DidOpenTextDocumentParams) -> None:
        self._server.open(params.text_document)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        document = self._server.documents.get(params.text_document.uri)
        if document is not None:
            document.edited = self._server.received
            document.edit(params.text_document.version, params.content_changes)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: lsp.DidCloseTextDocumentParams) -> None:
        self._server.close(params.text_document.uri)

    @lsp_method(lsp.NOTEBOOK_DOCUMENT_DID_OPEN)
    def lsp_notebook_document__did_open(self, params: lsp.DidOpenNotebookDocumentParams) -> None:
        self._server.open_notebook(params)

    @lsp_method(lsp.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def lsp_notebook_document__did_change(self, params: lsp.DidChangeNotebookDocumentParams) -> None:
        self._server.change_notebook(params)

    @lsp_method(lsp.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def lsp_notebook_document__did_close(self, params: lsp.DidCloseNotebookDocumentParams) -> None:
        self._server.close_notebook(params.notebook_document.uri)


class TesseraServer(LanguageServer):
    """`errors_page`: the address of the catalogue of error codes, "" where there is none."""

    def __init__(self, errors_page: str = "") -> None:
        super().__init__(
            "tessera-lsp",
            __version__,
            notebook_document_sync=_NOTEBOOKS,
            protocol_cls=Protocol,
            converter_factory=messages.converter,
        )
        self.documents: dict[str, Document] = {}
        self.notebooks: dict[str, Notebook] = {}
        self.modules = Modules()
        self.settings = Settings()
        self.default_target = knobs.target()
        self.cursor: tuple[str, int] | None = None
        """the document and line of the person's cursor, where the client tells"""
        self.received = 0
        self.errors_page = errors_page
        self.on_analysed: Callable[[Any], None] = lambda document: None
        """shows the findings of a document or cell; the features set it"""
        self._garbage = Garbage()

    @property
    def encoding(self) -> str:
        chosen = self.server_capabilities.position_encoding
        return str(getattr(chosen, "value", chosen) or "utf-16")

    def open(self, item: lsp.TextDocumentItem) -> None:
        self.close(item.uri)
        document = self.documents[item.uri] = Document(item, self.encoding, self._push, self.modules)
        document.request_analysis()
        tell_if_long(self, document)

    def close(self, uri: str) -> None:
        document = self.documents.pop(uri, None)
        if document is None:
            return
        document.close()
        self._clear([uri])

    # notebooks
    def open_notebook(self, params: lsp.DidOpenNotebookDocumentParams) -> None:
        uri = params.notebook_document.uri
        self.close_notebook(uri)
        notebook = self.notebooks[uri] = Notebook(uri, self.encoding, self._push_cells, self.modules)
        opened = params.notebook_document
        notebook.open(opened.cells, params.cell_text_documents, opened.metadata)
        tell_if_long(self, notebook.document)

    def change_notebook(self, params: lsp.DidChangeNotebookDocumentParams) -> None:
        notebook = self.notebooks.get(params.notebook_document.uri)
        if notebook is not None:
            notebook.document.edited = self.received
            self._clear(notebook.change(params.change))

    def close_notebook(self, uri: str) -> None:
        notebook = self.notebooks.pop(uri, None)
        if notebook is not None:
            notebook.document.close()
            self._clear(s.uri for s in notebook.sources)

    def _clear(self, uris: Iterable[str]) -> None:
        for uri in () if self.pulls else uris:
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    async def document(self, identifier: Any, at_once: bool = False, shapes: bool = False) -> Document:
        """An open document or `%%tessera` cell, analysed; for a cell that is none of ours an empty document.

        `at_once`: its last text may be the one that is analysed (`Document.recent`), where that would take too long.
        `shapes`: its gradients may be those of an earlier text; hints are asked for again when they are known.
        Raises JsonRpcInvalidParams for one that is not open, and JsonRpcContentModified when it is superseded.
        """
        cell = self.cell(identifier.uri)
        document = self.documents.get(identifier.uri) if cell is None else cell[0].document
        if document is None:
            raise JsonRpcInvalidParams(f"{identifier.uri} is not open")
        if document.edited > _ASKED.get():
            raise JsonRpcContentModified
        early = shapes and self._can_refresh("inlay_hint")
        ready = document.soon if at_once else document.shapes if early else document.ready
        if cell is None:
            await ready()
            return document
        notebook, source = cell
        if source.magic is None:
            return Document(lsp.TextDocumentItem(source.uri, "python", source.version, ""), self.encoding)
        await ready()
        return notebook.cell(source)  # type: ignore[return-value]  # what features ask of a document, a cell answers

    def is_open(self, uri: str) -> bool:
        return uri in self.documents or self.cell(uri) is not None

    def cell(self, uri: str) -> tuple[Notebook, CellSource] | None:
        """The cell under an address, with its notebook."""
        return next(((n, s) for n in self.notebooks.values() for s in n.sources if s.uri == uri), None)

    def settings_for(self, document: Any) -> Settings:
        """The person's settings; the line of a cell's magic has the last word."""
        if not isinstance(document, NotebookCell):
            return self.settings
        target, dims = document.options.target or self.settings.target, document.options.dims
        return replace(self.settings, target=target, dims={**self.settings.dims, **dims})

    @property
    def pulls(self) -> bool:
        """Whether the client asks for diagnostics itself; then none are pushed, or each would be shown twice."""
        text_document = self.client_capabilities.text_document
        return text_document is not None and text_document.diagnostic is not None

    def _push(self, document: Document) -> None:
        self._garbage.analysed()
        if document.by_import:  # the person has typed elsewhere, so the client does not ask by itself
            self.refresh(*SHOWN)
        elif document.told:
            self.refresh("inlay_hint")
        if not self.pulls and self.documents.get(document.uri) is document:
            self.on_analysed(document)

    def _push_cells(self, document: Document) -> None:
        self._garbage.analysed()
        notebook = self.notebooks.get(document.uri)
        if notebook is None or notebook.document is not document:
            return
        if notebook.has_spread():  # the client asks only for the cell that was typed in
            self.refresh(*SHOWN)
        elif document.told:
            self.refresh("inlay_hint")
        if self.pulls:
            return
        for cell in notebook.cells():
            self.on_analysed(cell)
        self._clear(s.uri for s in notebook.sources if s.magic is None)

    def refresh(self, *features: str) -> None:
        """Asks the client to ask again for features ("inlay_hint", "diagnostics"), if it can be asked to."""
        for feature in features:
            if self._can_refresh(feature):
                method = "diagnostic" if feature == "diagnostics" else feature
                asked = getattr(self, f"workspace_{method}_refresh_async")(None)
                asyncio.ensure_future(asked).add_done_callback(lambda f: f.cancelled() or f.exception())

    def _can_refresh(self, feature: str) -> bool:
        able = getattr(self.client_capabilities.workspace, feature, None)
        return able is not None and bool(able.refresh_support)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A fault goes to the log, not into the person's way. That of a request is in its answer, and logged there."""
        if source is not FeatureRequestError:
            log.error("%s: %s", getattr(source, "__name__", source), error)
