"""The protocol on a loopback port, for one client.

Any page in the person's browser can send a request there without asking, and its body could hold messages. Browsers
start with a line of HTTP, clients with a header of the protocol: who starts otherwise is turned away.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import TYPE_CHECKING

from pygls.io_ import run_async

from tessera_lsp.loopback import HOST

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

log = logging.getLogger(__name__)
HEADER = re.compile(rb"content-(length: *\d+|type: *\S.*)\r\n", re.I)
"""the first line of a message"""


async def serve(server: TesseraServer, port: int) -> None:
    """Serves one client until it says `exit` or closes the connection."""
    ended = asyncio.get_running_loop().create_future()
    taken = False

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        try:
            first = await reader.readline()
        except (ValueError, OSError):  # no end of line in sight, or gone
            first = b""
        if taken or HEADER.fullmatch(first) is None:
            why = "this server has its client" if taken else "it does not speak the language server protocol"
            log.warning("a connection was closed: %s", why)
            writer.close()
            return
        taken = True
        server.protocol.set_writer(writer)
        try:
            await run_async(threading.Event(), _Rest(first, reader), server.protocol, None, server.report_server_error)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client is gone, perhaps in the middle of a message
        except SystemExit:
            pass
        finally:
            if not ended.done():
                ended.set_result(None)

    async with await asyncio.start_server(talk, HOST, port):
        await ended


class _Rest:
    """What a client sends, from its first line on, which has been looked at."""

    def __init__(self, first: bytes, reader: asyncio.StreamReader) -> None:
        self._first, self._reader = first, reader

    async def readline(self) -> bytes:
        first, self._first = self._first, b""
        return first or await self._reader.readline()

    async def readexactly(self, n: int) -> bytes:
        return await self._reader.readexactly(n)
