"""A client of the real server process, with the capabilities that editors have and pytest-lsp's profiles lack."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest_asyncio
from lsprotocol import types as lsp
from pytest_lsp import LanguageClient
from pytest_lsp.client import make_test_lsp_client

from tests.browsers import PATIENCE

ERRORS = "https://docs.example/errors.html"


async def eventually(look: Callable[[], Any], expected: Any = True) -> None:
    """Waits until `look`, which may be a coroutine, gives what is expected: the server tells and does things in its
    own time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = look()
        if asyncio.iscoroutine(found):
            found = await found
        if found == expected or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.01)
    assert found == expected


async def connected(connect: Callable[[], Awaitable[Any]]) -> Any:
    """What `connect` gives, once there is somebody who listens."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await connect()
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


class Editor:
    """One window: opens texts, types in them, and finds places by the text around them."""

    def __init__(self, client: LanguageClient, result: lsp.InitializeResult) -> None:
        self.client, self.result = client, result
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.unit = 2 if result.capabilities.position_encoding in (None, "utf-16") else 1

    def open(self, text: str, name: str = "model.py") -> lsp.TextDocumentIdentifier:
        uri = f"file:///work%20shop/{name}"
        self.texts[uri], self.versions[uri] = text, 1
        item = lsp.TextDocumentItem(uri, "python", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return lsp.TextDocumentIdentifier(uri)

    def type(self, document: lsp.TextDocumentIdentifier, text: str) -> None:
        """Replaces the whole text by one ranged change, as an editor does with a paste over a selection."""
        old = self.texts[document.uri]
        whole = lsp.Range(lsp.Position(0, 0), self.position(old, len(old)))
        self.change(document, lsp.TextDocumentContentChangePartial(whole, text))
        self.texts[document.uri] = text

    def replace(self, document: lsp.TextDocumentIdentifier, old: str, new: str) -> None:
        """Changes the one place where `old` stands."""
        text = self.texts[document.uri]
        start = text.index(old)
        area = lsp.Range(self.position(text, start), self.position(text, start + len(old)))
        self.change(document, lsp.TextDocumentContentChangePartial(area, new))
        self.texts[document.uri] = text[:start] + new + text[start + len(old) :]

    def change(self, document: lsp.TextDocumentIdentifier, *changes: Any) -> None:
        self.versions[document.uri] += 1
        identifier = lsp.VersionedTextDocumentIdentifier(self.versions[document.uri], document.uri)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(identifier, list(changes)))

    def position(self, text: str, offset: int) -> lsp.Position:
        """Counted anew here, and not with the server's code."""
        before = text[:offset].replace("\r\n", "\n")
        line = before.rpartition("\n")[2]
        encoded = line.encode("utf-16-le" if self.unit == 2 else "utf-8", "surrogatepass")
        return lsp.Position(before.count("\n"), len(encoded) // self.unit)

    def at(self, document: lsp.TextDocumentIdentifier, mark: str) -> lsp.Position:
        """The place of `|` in `mark`, which is text of the document with a `|` put into it."""
        text, before = self.texts[document.uri], mark.index("|")
        plain = mark.replace("|", "")
        assert text.count(plain) == 1, (plain, text.count(plain))
        return self.position(text, text.index(plain) + before)

    def covered(self, document: lsp.TextDocumentIdentifier, area: lsp.Range) -> str:
        """The text of a range, read with this client's own arithmetic."""
        text = self.texts[document.uri]
        return text[self.offset(text, area.start) : self.offset(text, area.end)]

    def offset(self, text: str, position: lsp.Position) -> int:
        lines = text.split("\n")
        start = sum(len(line) + 1 for line in lines[: position.line])
        encoding = "utf-16-le" if self.unit == 2 else "utf-8"
        return start + len(lines[position.line].encode(encoding)[: position.character * self.unit].decode(encoding))

    async def hints(self, document: lsp.TextDocumentIdentifier) -> dict[str, str]:
        """`line:text up to the hint` -> label."""
        found = await self.inlay_hints(document)
        text = self.texts[document.uri]
        out: dict[str, str] = {}
        for hint in found:
            line = text.split("\n")[hint.position.line]
            end = self.offset(text, hint.position) - self.offset(text, lsp.Position(hint.position.line, 0))
            out[line[:end].strip()] = self.label(hint)
        return out

    async def inlay_hints(self, document: lsp.TextDocumentIdentifier) -> Sequence[lsp.InlayHint]:
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(10_000, 0))
        return await self.client.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole)) or []

    @staticmethod
    def label(hint: lsp.InlayHint) -> str:
        return hint.label if isinstance(hint.label, str) else "".join(part.value for part in hint.label)

    async def pushed(self, document: lsp.TextDocumentIdentifier, *codes: str) -> Sequence[lsp.Diagnostic]:
        """What the server tells unasked of a text, once these are the codes of its findings."""
        told = self.client.diagnostics
        await eventually(lambda: [d.code for d in told[document.uri]] if document.uri in told else None, [*codes])
        return told[document.uri]

    async def diagnostics(self, document: lsp.TextDocumentIdentifier) -> Sequence[lsp.Diagnostic]:
        report = await self.client.text_document_diagnostic_async(lsp.DocumentDiagnosticParams(document))
        assert isinstance(report, lsp.RelatedFullDocumentDiagnosticReport)
        return report.items


def capabilities(pull: bool, encodings: Sequence[str]) -> lsp.ClientCapabilities:
    return lsp.ClientCapabilities(
        general=lsp.GeneralClientCapabilities(position_encodings=list(encodings) or None),
        text_document=lsp.TextDocumentClientCapabilities(
            inlay_hint=lsp.InlayHintClientCapabilities(),
            hover=lsp.HoverClientCapabilities(content_format=[lsp.MarkupKind.Markdown]),
            publish_diagnostics=lsp.PublishDiagnosticsClientCapabilities(related_information=True),
            diagnostic=lsp.DiagnosticClientCapabilities() if pull else None,
            document_symbol=lsp.DocumentSymbolClientCapabilities(hierarchical_document_symbol_support=True),
            rename=lsp.RenameClientCapabilities(prepare_support=True),
        ),
        notebook_document=lsp.NotebookDocumentClientCapabilities(lsp.NotebookDocumentSyncClientCapabilities()),
        window=lsp.WindowClientCapabilities(work_done_progress=True),
        workspace=lsp.WorkspaceClientCapabilities(
            configuration=True,
            inlay_hint=lsp.InlayHintWorkspaceClientCapabilities(refresh_support=True),
            code_lens=lsp.CodeLensWorkspaceClientCapabilities(refresh_support=True),
            diagnostics=lsp.DiagnosticWorkspaceClientCapabilities(refresh_support=True),
            text_document_content=lsp.TextDocumentContentClientCapabilities(),
        ),
    )


async def _start(
    pull: bool = True,
    encodings: Sequence[str] = (),
    port: int | None = None,
    websocket: bool = False,
    options: Any = None,
    folders: Sequence[Path] = (),
) -> Editor:
    """A server of its own on standard input and output, or the one that listens on `port`."""
    client = make_test_lsp_client()
    client.refreshed = []
    for what in (lsp.WORKSPACE_INLAY_HINT_REFRESH, lsp.WORKSPACE_CODE_LENS_REFRESH):
        client.feature(what)(lambda *_, what=what: client.refreshed.append(what))
    if port is None:
        await client.start_io(sys.executable, "-m", "tessera_lsp", "--errors-page", ERRORS)
    elif websocket:
        await client.start_ws("127.0.0.1", port)
    else:
        await client.start_tcp("127.0.0.1", port)
    opened = [lsp.WorkspaceFolder(f.as_uri(), f.name) for f in folders]
    params = lsp.InitializeParams(
        capabilities(pull, encodings), initialization_options=options, workspace_folders=opened or None
    )
    return Editor(client, await client.initialize_session(params))


@pytest_asyncio.fixture(loop_scope="module")
async def start() -> AsyncIterator[Callable[..., Awaitable[Editor]]]:
    """Starts further servers, which end with the test; one that is only connected to is the test's own business."""
    editors: list[Editor] = []

    async def run(**options: Any) -> Editor:
        made = await _start(**options)
        if "port" not in options:
            editors.append(made)
        return made

    yield run
    for editor in editors:
        await editor.client.shutdown_session()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor() -> AsyncIterator[Editor]:
    """One server for a file of tests; it pulls diagnostics and counts in UTF-16."""
    made = await _start()
    yield made
    await made.client.shutdown_session()
