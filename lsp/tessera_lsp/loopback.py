"""What the ways of serving on a port share: the interface, and how serving ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

HOST = "127.0.0.1"


def run(server: TesseraServer, serving: Coroutine[None, None, None]) -> None:
    """Runs `serving`, of `tcp` or `websocket`, until it is over or interrupted; then the server is shut down."""
    try:
        asyncio.run(serving)
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        server.shutdown()
