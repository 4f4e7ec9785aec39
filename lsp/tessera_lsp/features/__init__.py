"""One feature of the protocol a file. Each has `register(server)`, called once: at the start, or for most when a client
first asks for something of it, so that nobody waits for what is not asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tessera_lsp.capabilities import FEATURES
from tessera_lsp.features import configuration, watched

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    configuration.register(server)
    watched.register(server)
    for name, methods in FEATURES.items():
        for method, options in methods.items():
            server.feature(method, options)(_loading(server, name, method))


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
