"""`tessera-lsp`: the language server on standard input and output, or on a loopback port."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("tessera-lsp", description=__doc__)
    parser.add_argument("--stdio", action="store_true", help="speak on standard input and output (the default)")
    listening = parser.add_mutually_exclusive_group()
    listening.add_argument("--tcp", type=int, metavar="PORT", help="listen on this port of 127.0.0.1 for one client")
    listening.add_argument("--ws", type=int, metavar="PORT", help="the same for a client that speaks over a websocket")
    parser.add_argument("--log-level", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument("--errors-page", metavar="URL", help="where the error codes of diagnostics lead to")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=given.log_level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")

    gc.disable()  # the protocol's classes are many objects, all of them kept
    from tessera_lsp import lazy_types  # slow: loading is timed without the garbage collector

    lazy_types.load()
    from tessera_lsp.features import create_server  # slow: 0.3 s more before lazy_types.load()
    from tessera_lsp.standard_io import serve  # slow: as the line above

    server = create_server(given.errors_page if given.errors_page is not None else built_errors_page())
    gc.freeze()
    gc.enable()
    if given.tcp is not None:
        from tessera_lsp import sockets  # slow: as the lines above

        sockets.run(server, sockets.serve_tcp(server, given.tcp))
    elif given.ws is not None:
        from tessera_lsp import sockets  # slow: as the lines above

        sockets.run(server, sockets.serve_websocket(server, given.ws))
    else:
        serve(server)


def built_errors_page() -> str:
    """The error catalogue of the documentation built in this checkout; "" where there is none."""
    page = Path(__file__).parents[2] / "site" / "errors.html"
    return page.as_uri() if page.is_file() else ""


if __name__ == "__main__":
    main()
