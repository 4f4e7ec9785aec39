"""How Jupyter starts the language server for `%%tessera` cells, and keeps it: read by jupyter-lsp through an entry
point."""

from __future__ import annotations

import sys
from typing import Any

RESTART = "$/tessera/restart"
"""what a page sends that gets no answers; servers pass over what begins with $/"""


def language_servers(manager: Any) -> dict[str, dict[str, Any]]:
    """The server under `/lsp/ws/tessera`. Its language is no cell's, so that no other extension starts it as well."""
    manager.register_message_listener(scope="server", language_server="^tessera$")(leave_out_lost_pages)
    manager.register_message_listener(scope="client", language_server="^tessera$", method=r"^\$/tessera/restart$")(
        restart
    )
    return {
        "tessera": {
            "version": 2,
            "argv": [sys.executable, "-P", "-m", "tessera_lsp"],  # -P: no file of the start folder is a module
            "languages": ["tessera"],
            "mime_types": ["text/x-tessera"],
            "display_name": "Tessera",
        }
    }


async def leave_out_lost_pages(scope: str, message: Any, language_server: str, manager: Any) -> None:
    """Before a message of the server goes to all pages. Writing to one that has gone without a word raises, and the
    bridge would then write to none of them any more."""
    session = manager.sessions[language_server]
    there = {page for page in session.handlers if page.ws_connection and not page.ws_connection.is_closing()}
    if there != session.handlers:
        session.handlers = there


async def restart(scope: str, message: Any, language_server: str, manager: Any) -> None:
    """Another process in place of one that has died or hangs. All pages connect anew, for it knows of none of them."""
    session = manager.sessions[language_server]
    session.initialize()
    for page in list(session.handlers):
        page.close()
