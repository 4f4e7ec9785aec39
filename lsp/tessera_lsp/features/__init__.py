"""One feature of the protocol a file. Each has `register(server)`, called once when the server is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera_lsp.features import (
    code_actions,
    completion,
    definition,
    diagnostics,
    hover,
    inlay_hints,
    references,
    rename,
    signature_help,
    symbols,
)

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

ALL = (
    diagnostics, inlay_hints, hover, code_actions, completion, signature_help, definition, references, rename, symbols,
)  # fmt: skip


def register(server: TesseraServer) -> None:
    for feature in ALL:
        feature.register(server)
