"""One feature of the protocol a file. Each has `register(server)`, called once when the server is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera_lsp.features import (
    call_hierarchy,
    code_actions,
    code_lens,
    completion,
    configuration,
    definition,
    diagnostics,
    folding,
    hover,
    inlay_hints,
    ir,
    references,
    rename,
    selection_ranges,
    semantic_tokens,
    signature_help,
    sizes,
    symbols,
    watched,
    workspace_diagnostics,
    workspace_symbols,
)

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

ALL = (
    configuration, diagnostics, inlay_hints, hover, code_actions, completion, signature_help, definition, references,
    rename, symbols, semantic_tokens, folding, selection_ranges, workspace_symbols, call_hierarchy, ir, code_lens,
    workspace_diagnostics, watched, sizes,
)  # fmt: skip


def register(server: TesseraServer) -> None:
    for feature in ALL:
        feature.register(server)
