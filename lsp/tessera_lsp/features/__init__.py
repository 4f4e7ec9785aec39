"""The server with its features, one feature of the protocol a file.

Each has `register(server)`, called once: for two at the start, for the others when a client first asks for something of
them, so that nobody waits for what is not asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInternalError

from tessera_lsp.capabilities import FEATURES
from tessera_lsp.features import configuration, watched
from tessera_lsp.server import TesseraServer


def create_server(errors_page: str = "") -> TesseraServer:
    """A server with every feature registered; nothing is started."""
    for name in ("pygls.protocol.json_rpc", "asyncio"):
        logging.getLogger(name).addFilter(_unexpected)
    server = TesseraServer(errors_page)
    server.on_analysed = lambda document: _publish(server, document)
    configuration.register(server)
    watched.register(server)
    for name, methods in FEATURES.items():
        for method, options in methods.items():
            server.feature(method, options)(_loading(server, name, method))
    return server


def _loading(server: TesseraServer, name: str, method: str) -> Callable[[Any], Awaitable[Any]]:
    """Stands for a handler until its file is loaded, which then registers its own."""

    async def first(params: Any) -> Any:
        feature, handlers = import_module(f"{__name__}.{name}"), server.protocol.fm.features
        if handlers[method] is first:  # else another request was quicker
            for announced in FEATURES[name]:
                del handlers[announced]
            feature.register(server)
        return await handlers[method](params)

    return first


def _publish(server: TesseraServer, document: Any) -> None:
    """Pushes the findings of a document or cell."""
    from tessera_lsp.features.diagnostics import to_protocol  # slow: a client that pulls needs it after its first text

    found = to_protocol(server, document)
    server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, found, document.version))


def _unexpected(record: logging.LogRecord) -> bool:
    """A request that is superseded or refused is answered, and no event; nor is the end of a session, with which what
    the client has not answered ends too."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, (SystemExit, asyncio.CancelledError)):
        return False
    return not isinstance(error, JsonRpcException) or isinstance(error, JsonRpcInternalError)
