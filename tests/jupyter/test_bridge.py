"""What jupyter-lsp does with its pages, as `tessera_jupyter.bridge` has it do for ours."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

import pytest
from tessera_jupyter import bridge

from tests.conftest import require

SERVER = """
import sys
while head := sys.stdin.buffer.readline():
    sys.stdin.buffer.readline()
    body = sys.stdin.buffer.read(int(head.split()[-1]))
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))
    sys.stdout.buffer.flush()
"""
"""a language server that says what it hears"""


class Line:
    """Of a page: whether it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
def bridged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`bridged(test)` runs a test with jupyter-lsp's manager and a class of pages."""
    require("jupyter_lsp")
    from jupyter_lsp.manager import LanguageServerManager
    from tornado.websocket import WebSocketClosedError, WebSocketHandler

    class Page(WebSocketHandler):
        def __init__(self) -> None:
            self.language_server, self.ws_connection, self.heard = "tessera", Line(), list[str]()

        def write_message(self, message: str) -> None:
            if self.ws_connection.closed:
                raise WebSocketClosedError
            self.heard.append(json.loads(message)["method"])

        def close(self) -> None:
            self.ws_connection.closed = True

    async def run(test: Any) -> None:
        manager = LanguageServerManager()
        spec = bridge.language_servers(manager)["tessera"] | {"argv": [sys.executable, "-c", SERVER]}
        manager.language_servers = {"tessera": spec}
        manager.init_sessions()
        try:
            await test(manager, Page)
        finally:
            manager.sessions["tessera"].stop()

    return lambda test: asyncio.run(asyncio.wait_for(run(test), 200))


async def until(true: Any) -> None:
    while not true():
        await asyncio.sleep(0.02)


def message(method: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method})


def test_a_page_that_went_without_a_word_does_not_silence_the_others(bridged: Any) -> None:
    async def test(manager: Any, page: Any) -> None:
        lost, there = page(), page()
        for each in (lost, there):
            manager.subscribe(each)
        lost.ws_connection.closed = True
        for method in ("first", "second"):
            await manager.on_client_message(message(method), there)
        await until(lambda: there.heard == ["first", "second"])
        assert manager.sessions["tessera"].handlers == {there}

    bridged(test)


def test_a_restart_is_another_process_and_pages_connect_anew(bridged: Any) -> None:
    async def test(manager: Any, page: Any) -> None:
        first = page()
        manager.subscribe(first)
        session = manager.sessions["tessera"]
        before = session.process
        await manager.on_client_message(message(bridge.RESTART), first)
        assert session.process is not before and before.wait(100) is not None
        assert first.ws_connection.closed
        again = page()
        manager.unsubscribe(first)
        manager.subscribe(again)
        await manager.on_client_message(message("hello"), again)
        await until(lambda: "hello" in again.heard)

    bridged(test)


def test_a_thread_that_still_reads_takes_nothing_from_the_next_process(bridged: Any) -> None:
    """What a thread does that is interrupted between having the stream's number and reading from it: by then the
    number may be that of the next process's stream."""

    async def test(manager: Any, page: Any) -> None:
        first, again = page(), page()
        manager.subscribe(first)
        reader = manager.sessions["tessera"].reader
        number, go_on = reader.stream.fileno(), threading.Event()

        def read_late() -> bytes:
            go_on.wait(100)
            os.set_blocking(number, True)
            return os.read(number, 1)

        late = reader.executor.submit(read_late)
        await manager.on_client_message(message(bridge.RESTART), first)
        manager.unsubscribe(first)
        manager.subscribe(again)
        go_on.set()
        await asyncio.sleep(0.2)
        await manager.on_client_message(message("hello"), again)
        assert await asyncio.wait_for(asyncio.wrap_future(late), 100) == b"", "there is nothing more to read"
        await until(lambda: "hello" in again.heard)
        await until(lambda: reader.stream.closed)

    bridged(test)
