"""What tests of real servers in a real browser share."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import require

_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


def free_port() -> int:
    """A port for a server that is told its own. It lies below those that systems hand out to whoever asks for any, so
    that nobody is given it before the server takes it."""
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
            return s.getsockname()[1]


def wait_for(name: str, url: str, process: subprocess.Popen[bytes]) -> None:
    """Returns when the server answers; fails where it ends or stays silent."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=1)
            return
        assert process.poll() is None, f"{name} has ended"
        time.sleep(0.1)
    pytest.fail(f"{name} does not answer")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser for the tests of one file. Playwright's own fixtures would keep an event loop for the whole session,
    in which the tests of asynchronous code could not run."""
    api = require("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((p for p in map(shutil.which, names) if p), None) or require("chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()
