"""The files of the folders that an editor has open: walked and read in a thread, so that nobody waits for a disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

from pygls.uris import to_fs_path

from tessera.compiler.frontend.incremental import read_text
from tessera.errors import CompileError
from tessera_lsp.document import TURN
from tessera_lsp.server import TesseraServer

T = TypeVar("T")
LIMIT = 2000
"""files that are looked through"""
LARGEST = 2_000_000
"""bytes; a longer file is data rather than a program"""
SLICE = 0.05
"""seconds that the thread works before what it has found is handled, and a request may have been cancelled"""
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "build", "dist", "site"}


def files(server: TesseraServer) -> Iterator[Path]:
    return (path for paths in _by_folder(server) for path in paths)


def _by_folder(server: TesseraServer) -> Iterator[list[Path]]:
    left = LIMIT
    for folder in list(server.workspace.folders.values()):
        root = to_fs_path(folder.uri)
        for base, folders, files in os.walk(root) if root else ():
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
            found = [Path(base, name) for name in sorted(files) if name.endswith((".py", ".tess"))][:left]
            left -= len(found)
            yield found
            if not left:
                return


async def looked_at(server: TesseraServer, look: Callable[[Path], T | None]) -> AsyncIterator[T]:
    """What `look` finds in each file, called in a thread. Other work goes on meanwhile, also between two of them."""
    folders = _by_folder(server)
    turn, ended = time.monotonic() + TURN, False
    while not ended:
        found, ended = await asyncio.to_thread(_slice, folders, look)
        for item in found:
            if time.monotonic() >= turn:
                await asyncio.sleep(0)
                turn = time.monotonic() + TURN
            yield item


def _slice(folders: Iterator[list[Path]], look: Callable[[Path], T | None]) -> tuple[list[T], bool]:
    found: list[T] = []
    until = time.monotonic() + SLICE
    for paths in folders:
        found += [item for path in paths if (item := look(path)) is not None]
        if time.monotonic() >= until:
            return found, False
    return found, True


def stamp(path: Path) -> tuple[int, int] | None:
    """What changes with a file's content; None for what is not a file, or too long for a program."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size) if S_ISREG(stat.st_mode) and stat.st_size <= LARGEST else None


def text_of(path: Path) -> str:
    """Empty for a file that cannot be read, or is not text."""
    try:
        return read_text(path)
    except (OSError, CompileError):
        return ""
