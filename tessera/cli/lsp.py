"""`tessera lsp`: the language server."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from tessera.errors import MissingDependency


def lsp(
    tcp: Annotated[int | None, typer.Option(metavar="PORT", help="Listen on this port of 127.0.0.1.")] = None,
    ws: Annotated[int | None, typer.Option(metavar="PORT", help="The same for a websocket.")] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "WARNING",
) -> None:
    """Start the language server, on standard input and output or on a port for one client."""
    if importlib.util.find_spec("pygls") is None:
        raise MissingDependency("pygls", "lsp", "The language server")
    if ws is not None and importlib.util.find_spec("websockets") is None:
        raise MissingDependency("websockets", "lsp", "The language server on a websocket")
    try:
        server = importlib.import_module("tessera_lsp.__main__")
    except ModuleNotFoundError:
        print("this build has no language server")
        raise typer.Exit(1) from None
    ports = [("--tcp", tcp), ("--ws", ws)]
    server.main(["--log-level", log_level, *(a for name, port in ports if port is not None for a in (name, str(port)))])
