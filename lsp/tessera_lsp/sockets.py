"""The protocol on a loopback port, for one client.

Any web page in the user's browser can send a request to this port, and the request's body could hold messages. A
browser starts with a line of HTTP, a client with a header of the protocol; any other start is refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Coroutine
from typing import Any

from pygls.io_ import run_async, run_websocket

from tessera_lsp.server import TesseraServer

log = logging.getLogger(__name__)
HEADER = re.compile(rb"content-(length: *\d+|type: *\S.*)\r\n", re.I)
"""the first line of a message"""


async def serve_tcp(server: TesseraServer, port: int) -> None:
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


# The protocol over a websocket on the loopback interface, for one client.
#
# Every page in the person's browser can reach that interface, so pages from elsewhere are refused: browsers say
# in `Origin` where a page comes from, and clients that are no browser send none.

OWN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""the origins of pages that this machine serves"""


async def serve_websocket(server: TesseraServer, port: int) -> None:
    """Serves one client until it says `exit` or closes the connection."""
    from websockets.asyncio.server import serve as listen  # optional: the extra of clients with websockets

    ended = threading.Event()
    clients = iter([server.protocol])

    async def talk(socket: Any) -> None:
        protocol = next(clients, None)
        if protocol is None:
            await socket.close(1013, "this server has its client")
            return
        await run_websocket(socket, ended, protocol, None, server.report_server_error)
        listening.close()

    async with listen(talk, HOST, port, origins=[None, OWN]) as listening:
        await listening.wait_closed()


# What the ways of serving on a port share: the interface, and how serving ends.

HOST = "127.0.0.1"


def run(server: TesseraServer, serving: Coroutine[None, None, None]) -> None:
    """Runs `serving`, of `tcp` or `websocket`, until it is over or interrupted; then the server is shut down."""
    try:
        asyncio.run(serving)
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        server.shutdown()
