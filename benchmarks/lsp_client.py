"""A small client of language servers on standard input and output, for measuring them: any server, no library."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STALE = {-32801, -32802, -32800}
"""answers that say: ask again, the text has changed meanwhile"""
CAPABILITIES: dict[str, Any] = {
    "textDocument": {
        "synchronization": {},
        "inlayHint": {},
        "completion": {"completionItem": {}},
        "publishDiagnostics": {},
    },
    "workspace": {"configuration": True, "workspaceFolders": True, "inlayHint": {"refreshSupport": True}},
    "window": {"workDoneProgress": True},
}


class ServerError(Exception):
    """The server has ended or does not answer."""


class Client:
    """One server process. Requests wait for their answer; what the server asks is answered with nothing."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._number = 0
        self._versions: dict[str, int] = {}
        threading.Thread(target=self._read, daemon=True).start()
        root = folder.as_uri()
        given = {"processId": os.getpid(), "rootUri": root, "capabilities": CAPABILITIES}
        self.request("initialize", given | {"workspaceFolders": [{"uri": root, "name": "measured"}]})
        self.notify("initialized", {})

    def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while True:
            length = 0
            while header := out.readline().strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not length:  # the end of its output
                self._answers.put(None)
                return
            message = json.loads(out.read(length))
            if "method" not in message:
                self._answers.put(message)
            elif "id" in message:  # a request of the server's: settings, progress, registrations
                items = message.get("params", {}).get("items") if message["method"].endswith("configuration") else None
                self._send({"id": message["id"], "result": [None] * len(items) if items is not None else None})

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def request(self, method: str, params: Any, timeout: float = 60.0) -> Any:
        """The result. Asks again where the server says that the text has changed."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            self._number += 1
            self._send({"id": self._number, "method": method, "params": params})
            answer = self._answer(self._number, limit)
            error = answer.get("error")
            if error is None:
                return answer.get("result")
            if error.get("code") not in STALE:
                raise ServerError(f"{method}: {error}")
        raise ServerError(f"{method}: no answer")

    def _answer(self, number: int, limit: float) -> dict[str, Any]:
        while True:
            try:
                answer = self._answers.get(timeout=max(limit - time.monotonic(), 0.01))
            except queue.Empty:
                raise ServerError("no answer") from None
            if answer is None:
                raise ServerError("the server has ended")
            if answer.get("id") == number:
                return answer

    def open(self, uri: str, text: str) -> None:
        self._versions[uri] = 1
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        """Replaces what stands between two positions."""
        self._versions[uri] += 1
        area = {"start": _position(start), "end": _position(end)}
        document = {"uri": uri, "version": self._versions[uri]}
        self.notify(
            "textDocument/didChange", {"textDocument": document, "contentChanges": [{"range": area, "text": text}]}
        )

    def hints(self, uri: str, first: int, last: int) -> list[Any]:
        area = {"start": _position((first, 0)), "end": _position((last, 0))}
        return self.request("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": area}) or []

    def completion(self, uri: str, at: tuple[int, int]) -> list[Any]:
        found = self.request("textDocument/completion", {"textDocument": {"uri": uri}, "position": _position(at)})
        return found["items"] if isinstance(found, dict) else found or []

    def resident_megabytes(self) -> float:
        """Of the process and those it has started."""
        total, pending = 0, [self.process.pid]
        while pending:
            pid = pending.pop()
            try:
                status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
            except OSError:
                continue
            total += next((int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS")), 0)
            pending += [int(c) for c in children.split()]
        return total / 1024

    def close(self) -> None:
        try:
            self.request("shutdown", None, timeout=5)
            self.notify("exit", None)
            self.process.wait(5)
        except (ServerError, OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self.process.kill()
            self.process.wait()


def _position(place: tuple[int, int]) -> dict[str, int]:
    return {"line": place[0], "character": place[1]}
