"""Telling clients that something takes long."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from tessera_lsp.document import Document

LONG = 1.0
"""seconds after which a person wonders"""


@contextmanager
def progress(server: LanguageServer, token: Any, title: str) -> Generator[None]:
    """Told under the token that the client has given for it, if it has."""
    if token is None:
        yield
        return
    server.work_done_progress.begin(token, lsp.WorkDoneProgressBegin(title, cancellable=True))
    try:
        yield
    finally:
        server.work_done_progress.end(token, lsp.WorkDoneProgressEnd())


def tell_if_long(server: LanguageServer, document: Document) -> None:
    """Shows that a document is being analysed, if its first analysis takes long and the client shows such things."""
    window = server.client_capabilities.window
    if window is not None and window.work_done_progress:
        task = asyncio.ensure_future(_show_progress(server, document))
        task.add_done_callback(lambda t: t.cancelled() or t.exception())


async def _show_progress(server: LanguageServer, document: Document) -> None:
    await asyncio.sleep(LONG)
    token = str(uuid.uuid4())
    if document.closed or document.known or document.problems or not await _busy(document):
        return
    await server.work_done_progress.create_async(token)
    title = f"Tessera: analysing {PurePath(document.file).name}"
    server.work_done_progress.begin(token, lsp.WorkDoneProgressBegin(title))
    while not document.closed and await _busy(document):
        await asyncio.sleep(0.1)
    server.work_done_progress.end(token, lsp.WorkDoneProgressEnd())


async def _busy(document: Document) -> bool:
    try:
        await asyncio.wait_for(document.ready(), 0.1)
    except TimeoutError:
        return True
    except JsonRpcException:  # a newer text has come
        return True
    return False
