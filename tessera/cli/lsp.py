"""`tessera lsp`: the language server."""

from __future__ import annotations

import importlib
import importlib.util

import typer

from tessera.errors import MissingDependency


def lsp() -> None:
    """Start the language server on standard input and output."""
    if importlib.util.find_spec("pygls") is None:
        raise MissingDependency("pygls", "lsp", "The language server")
    try:
        server = importlib.import_module("tessera_lsp.__main__")
    except ModuleNotFoundError:
        print("this build has no language server")
        raise typer.Exit(1) from None
    server.main([])
