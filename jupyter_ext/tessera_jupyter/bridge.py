"""How Jupyter starts the language server for `%%tessera` cells: read by jupyter-lsp through an entry point."""

from __future__ import annotations

import sys
from typing import Any


def language_servers(manager: Any) -> dict[str, dict[str, Any]]:
    """The server under `/lsp/ws/tessera`. Its language is no cell's, so that no other extension starts it as well."""
    return {
        "tessera": {
            "version": 2,
            "argv": [sys.executable, "-P", "-m", "tessera_lsp"],  # -P: no file of the start folder is a module
            "languages": ["tessera"],
            "mime_types": ["text/x-tessera"],
            "display_name": "Tessera",
        }
    }
