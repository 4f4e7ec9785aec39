"""What tests of real servers in a real browser share.

A machine that does much else may take any time. So nothing is read at once that arrives later: each look waits until it
sees what it should, and `PATIENCE` ends only what would never come."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import require

PATIENCE = 100.0
"""seconds"""
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


def free_port() -> int:
    """A port for a server that is told its own. It lies below those that systems hand out to programs that
    ask for any, so that no other program is given it before the server takes it."""
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
            return s.getsockname()[1]


def wait_for(name: str, url: str, process: subprocess.Popen[bytes]) -> None:
    """Returns when the server answers; fails where it ends or stays silent."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=10)
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
    api.expect.set_options(timeout=PATIENCE * 1000)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


def expect(shown: Any) -> Any:
    """Playwright's expectations of a part of a page: each waits until it holds."""
    return require("playwright.sync_api").expect(shown)


def succeeds(act: Callable[..., object], seconds: float, *given: Any, **named: Any) -> bool:
    """Whether what Playwright does to a part of a page could be done, or what it waits for came, within a time."""
    try:
        act(*given, **named, timeout=seconds * 1000)
    except require("playwright.sync_api").TimeoutError:
        return False
    return True


def eventually(look: Callable[[], Any], expected: Any = True) -> None:
    """Waits until `look` gives what is expected: for what Playwright has no words for."""
    deadline = time.monotonic() + PATIENCE
    while (found := look()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found == expected, f"after {PATIENCE} seconds there is {found}, not {expected}"
