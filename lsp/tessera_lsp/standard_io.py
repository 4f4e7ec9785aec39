"""The protocol on standard input and output, read ahead: what has come during an analysis is handled all at once after
it, so that the last of many edits supersedes the others."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

from pygls.io_ import StdoutWriter, run_async

from tessera_lsp.server import TesseraServer

CHUNK = 1 << 16
SWITCH = 0.001
"""seconds after which an analysis lets the reading thread in"""


def serve(server: TesseraServer) -> None:
    """Serves one client until it says `exit` or closes the connection."""
    sys.setswitchinterval(SWITCH)
    server.protocol.set_writer(_Output(sys.stdout.buffer))
    try:
        asyncio.run(_serve(server))
    except (BrokenPipeError, asyncio.IncompleteReadError):
        pass  # the client is gone, perhaps in the middle of a message
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        server.shutdown()


class _Output(StdoutWriter):
    """What is under way at the `exit` is answered as cancelled when the output is closed already: nobody reads that."""

    def write(self, data: bytes) -> None:
        if not self._stdout.closed:
            super().write(data)


async def _serve(server: TesseraServer) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(loop, reader), name="tessera-lsp input", daemon=True).start()
    await run_async(threading.Event(), reader, server.protocol, None, server.report_server_error)


def _read(loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader) -> None:
    """Hands on what comes, until the end of input or of the loop."""
    try:
        while chunk := os.read(sys.stdin.fileno(), CHUNK):
            loop.call_soon_threadsafe(reader.feed_data, chunk)
        loop.call_soon_threadsafe(reader.feed_eof)
    except (OSError, RuntimeError) as e:
        _end(loop, reader, e)


def _end(loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader, error: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(reader.set_exception, error)
