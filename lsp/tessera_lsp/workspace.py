"""The files of the folders that an editor has open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pygls.uris import to_fs_path

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

LIMIT = 2000
"""files that are looked through"""
LARGEST = 2_000_000
"""bytes; a longer file is data rather than a program"""
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "build", "dist", "site"}


def files(server: TesseraServer) -> Iterator[Path]:
    left = LIMIT
    for folder in server.workspace.folders.values():
        root = to_fs_path(folder.uri)
        for base, folders, files in os.walk(root) if root else ():
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
            for name in sorted(files):
                if name.endswith((".py", ".tess")):
                    yield Path(base, name)
                    left -= 1
                    if not left:
                        return
