"""A real Neovim and a real Helix in a terminal, configured as docs/editors.md says, and what a person sees of them."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import PATIENCE
from tests.conftest import IN_CI, require

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / "build/editors"
SHOTS = INSTALLED / "screens"
_UNKNOWN = re.compile(rb"\x1bP.*?\x1b\\", re.S)
"""device control strings: pyte would show them as text"""
_UNFINISHED = re.compile(rb"\x1b(P.*)?\Z", re.S)
"""the start of what may become one"""


def editor(name: str) -> str:
    """The path of an editor that is new enough. Absent: a failure in CI, else a skip."""
    path = INSTALLED / name
    if not path.exists():
        reason = f"no {name} that is new enough (scripts/ensure-editors)"
        pytest.fail(reason, pytrace=False) if IN_CI else pytest.skip(reason)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables for an editor that finds `tessera-lsp` as documented, also from a checkout that is not installed, ruff
    and pyright, and that has its settings in `tmp_path`, where nothing of the user's is. Editors start whatever other
    checkers they find."""
    program = tmp_path / "bin/tessera-lsp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tessera_lsp "$@"\n')
    program.chmod(0o755)
    own = Path(sys.executable).parent
    for name in ("ruff", "pyright-langserver"):
        (program.parent / name).symlink_to(own / name)
    others = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != own]
    places = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
    return os.environ | dict.fromkeys(places, str(tmp_path)) | {
        "PATH": os.pathsep.join([str(program.parent), *others]),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LC_ALL": "C.UTF-8",
    }  # fmt: skip


class Terminal:
    """A program in a terminal of 110 columns and 32 lines. It is not forked off: this process may have threads."""

    def __init__(self, words: list[str], folder: Path, env: dict[str, str]) -> None:
        pyte = require("pyte")

        class Screen(pyte.Screen):
            """Answers the program's questions; those that pyte does not know it leaves unanswered."""

            def write_process_input(self, data: str) -> None:
                os.write(here, data.encode())

            def report_device_status(self, mode: int = 0, **kwargs: Any) -> None:
                if not kwargs:
                    super().report_device_status(mode)  # pyright: ignore[reportUnknownMemberType]

        self._screen = Screen(110, 32)
        self._stream = pyte.ByteStream(self._screen)
        here, there = os.openpty()
        termios.tcsetwinsize(there, (32, 110))
        self._process = subprocess.Popen(
            words, cwd=folder, env=env, stdin=there, stdout=there, stderr=there, start_new_session=True
        )
        os.close(there)
        self._here, self._rest = here, b""

    def keys(self, text: str) -> None:
        os.write(self._here, text.encode())

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def see(self, *texts: str) -> None:
        """Waits until the screen shows every text."""
        self.until(lambda: all(any(text in line for line in self.lines()) for text in texts), " and ".join(texts))

    def unsee(self, text: str) -> None:
        """Waits until the screen does not show a text."""
        self.until(lambda: not any(text in line for line in self.lines()), f"no {text}")

    def until(self, holds: Callable[[], bool], what: str | Callable[[], str]) -> None:
        if not self.becomes(holds, PATIENCE):
            said = what if isinstance(what, str) else what()
            pytest.fail(f"the terminal does not show {said}:\n" + "\n".join(self.lines()), pytrace=False)

    def becomes(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Whether the screen satisfies `holds` within that time."""
        deadline = time.monotonic() + seconds
        while not holds():
            self._read()
            if time.monotonic() > deadline:
                return False
        return True

    def shot(self, name: str) -> None:
        """Keeps what the screen shows as a text."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        (SHOTS / f"{name}.txt").write_text("\n".join(self.lines()) + "\n", "utf-8")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._here)

    def _read(self) -> None:
        if not select.select([self._here], [], [], 0.1)[0]:
            return
        try:
            said = _UNKNOWN.sub(b"", self._rest + os.read(self._here, 1 << 16))
        except OSError:  # the program has ended
            time.sleep(0.05)
            return
        unfinished = _UNFINISHED.search(said)
        end = unfinished.start() if unfinished else len(said)
        self._rest = said[end:]
        self._stream.feed(said[:end])


@pytest.fixture
def terminal(folder: Path, environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """`terminal("hx", "program.py")` starts a program on the project's folder."""
    opened: list[Terminal] = []

    def start(*words: str) -> Terminal:
        opened.append(Terminal([*words], folder, environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
