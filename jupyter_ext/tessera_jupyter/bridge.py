"""How Jupyter starts the language server for `%%tessera` cells, and keeps it: read by jupyter-lsp through an entry
point."""

from __future__ import annotations

import sys
from typing import Any

RESTART = "$/tessera/restart"
"""what a page sends that gets no answers; servers pass over what begins with $/"""


def language_servers(manager: Any) -> dict[str, dict[str, Any]]:
    """The server under `/lsp/ws/tessera`. Its language is no cell's, so that no other extension starts it as well."""
    manager.observe(_watch_processes, "sessions")
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
    """Ends a process that has died or hangs. All pages connect anew, for the next knows of none of them, and the first
    that does starts it."""
    session = manager.sessions[language_server]
    pages = list(session.handlers)
    session.handlers = set()  # this stops the session, as when the last page leaves
    for page in pages:
        page.close()


def _watch_processes(change: Any) -> None:
    """When the manager has made its sessions."""
    if session := change["new"].get("tessera"):
        session.observe(_close_behind_threads, "process")


def _close_behind_threads(change: Any) -> None:
    """When a session lets go of its process, before it closes its streams. A thread of each may be about to
    read or write: closed under it, the stream's number could be that of the next process's stream by then, and the
    thread would take bytes from there. So each thread closes its own stream, when it has done what it is doing."""
    if change["new"] is None:
        session = change["owner"]
        sides = [side for side in (session.reader, session.writer) if side is not None]
        session.reader = session.writer = None
        for side in sides:
            try:
                side.executor.submit(side.close)
            except RuntimeError:  # Jupyter exits: there are no threads any more
                side.close()
            side.executor.shutdown(wait=False)
