"""Says what is being waited for, when it takes longer than a second; says nothing otherwise."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic

from IPython.display import display

from tessera.profiler.views.markup import text
from tessera.runtime.events import WaitEvent

PATIENCE = 1.0
"""seconds before anything is shown"""
_INTERVAL = 0.5
_telling = threading.Lock()
"""held by the outermost wait, the one that is told: a run is made of compilations"""


@contextmanager
def progress(what: str | Callable[[], str]) -> Iterator[None]:
    """Shows `what`, or what it says at the time, with the seconds that have passed while the block runs, and takes it
    away afterwards.

    The block stays in the main thread, so that interrupting the kernel stops it as it stops anything else.
    """
    if not _telling.acquire(blocking=False):
        yield
        return
    try:
        done = threading.Event()
        context = contextvars.copy_context()  # a thread's display belongs to the cell that started it
        ticker = threading.Thread(target=context.run, args=(_tick, what, done), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
    finally:
        _telling.release()


class Waits:
    """Shows the runtime's waits: compilations, and tunings with the configuration that is being looked at."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[AbstractContextManager[None], list[str]]] = {}

    def __call__(self, event: WaitEvent) -> None:
        if event.state == "begin":
            now = [event.title]
            shown = progress(lambda: now[0])
            self._open[event.task] = shown, now
            shown.__enter__()
        elif event.task not in self._open:  # it began before anybody listened
            return
        elif event.state == "step":
            self._open[event.task][1][0] = f"{event.title}: {event.doing} ({event.part or 0:.0%})"
        else:
            self._open.pop(event.task)[0].__exit__(None, None, None)


def _tick(what: str | Callable[[], str], done: threading.Event) -> None:
    begin = monotonic()
    if done.wait(PATIENCE):
        return
    handle = display(_bundle(what, monotonic() - begin), raw=True, display_id=True)
    if handle is None:  # no notebook listens any more
        return
    while not done.wait(_INTERVAL):
        handle.update(_bundle(what, monotonic() - begin), raw=True)
    handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _bundle(what: str | Callable[[], str], seconds: float) -> dict[str, str]:
    message = f"{what if isinstance(what, str) else what()} ... {seconds:.1f} s"
    style = "color:var(--jp-ui-font-color2,#777)"
    return {
        "text/html": f'<div class="tessera-progress" style="{style}">{text(message)} (interrupt the kernel to stop)'
        "</div>",
        "text/plain": message,
    }
