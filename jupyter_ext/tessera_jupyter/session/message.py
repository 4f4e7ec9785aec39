"""The message to the page after each cell: the sizes that functions were called with, the arrays that exist, and, where
a page follows the session, the cards of its functions.

A message is complete: names that it lacks do not exist now. It is sent over a comm of its own that is closed at
once, so that a page which is loaded again, or a kernel that starts again, has nothing to keep in step.
"""

from __future__ import annotations

import time

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from tessera_jupyter.session.cards import Session
from tessera_jupyter.session.report import SessionReport
from tessera_jupyter.session.sizes import called

TARGET = "tessera.session"
FORM = "application/vnd.tessera.session+json"
"""what an editor that runs `show()` looks for among the outputs"""
BUDGET = 0.3
"""seconds that new cards may take between two cells; a page that lacks some asks for the rest"""


def ran(shell: InteractiveShell, session: Session, result: ExecutionResult) -> None:
    """After each cell: notes the arrays that it bound, and sends the state to the page."""
    session.live.ran(shell, result)
    tell(shell, session, result.execution_count)


def tell(shell: InteractiveShell, session: Session, number: int | None = None) -> None:
    """Sends the current state to the page, after the cell of that number; does nothing outside a kernel."""
    if getattr(shell, "kernel", None) is None:
        return
    from comm import create_comm  # optional: ipykernel brings it

    data: dict[str, object] = {"called": called(shell.user_ns), **session.live.told(number)}
    if session.followed:
        cards, whole = session.cards(time.monotonic() + BUDGET)
        data |= {"cards": cards, "whole": whole}
    create_comm(target_name=TARGET, data=data).close()


def show() -> None:
    """The calls and arrays, for an editor that can run code in the kernel and has no comms: VS Code."""
    session = _session()
    if session is not None:
        _answer({"called": called(session.namespace), **session.live.told()})


def show_functions() -> None:
    """The table of the session's functions as HTML, for such an editor; `whole`: whether none is missing yet."""
    session = _session()
    if session is not None:
        cards, whole = session.cards(time.monotonic() + BUDGET)
        _answer({"functions": SessionReport(cards)._repr_html_(), "whole": whole})


def _session() -> Session | None:
    magics = InteractiveShell.instance().magics_manager.registry.get("TesseraMagics")
    return magics.session if magics is not None else None


def _answer(told: object) -> None:
    from IPython.display import display  # slow: pages do not need it

    display({FORM: told}, raw=True)
