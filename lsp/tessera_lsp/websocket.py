"""The protocol over a websocket on the loopback interface, for one client.

Every page in the person's browser can reach that interface, so pages from elsewhere are refused: browsers say in
`Origin` where a page comes from, and clients that are no browser send none.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from pygls.io_ import run_websocket

from tessera_lsp.loopback import HOST

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

OWN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""the origins of pages that this machine serves"""


async def serve(server: TesseraServer, port: int) -> None:
    """Serves one client until it says `exit` or closes the connection."""
    from websockets.asyncio.server import serve as listen

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
