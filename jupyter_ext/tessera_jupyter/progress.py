"""Says what is being waited for, when it takes longer than a second, and shows what it has found so far; says nothing
otherwise."""

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
Bundle = dict[str, str]


@contextmanager
def progress(what: str | Callable[[], str], found: Callable[[], Bundle] = dict) -> Iterator[None]:
    """Shows `what`, or what it says at the time, with the seconds that have passed while the block runs, and takes it
    away afterwards. What is `found` by then stands below it, and stays.

    The block stays in the main thread, so that interrupting the kernel stops it as it stops anything else.
    """
    if not _telling.acquire(blocking=False):
        yield
        return
    try:
        done = threading.Event()
        context = contextvars.copy_context()  # a thread's display belongs to the cell that started it
        ticker = threading.Thread(target=context.run, args=(_tick, what, found, done), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
    finally:
        _telling.release()


class Waits:
    """Shows the runtime's waits: compilations, and tunings with what is known of each configuration."""

    def __init__(self) -> None:
        self._open: dict[int, _Wait] = {}

    def __call__(self, event: WaitEvent) -> None:
        if event.state == "begin":
            self._open[event.task] = wait = _Wait(event.title)
            wait.shown.__enter__()
        elif event.task not in self._open:  # it began before anybody listened
            return
        elif event.state == "step":
            self._open[event.task].step(event)
        else:
            self._open.pop(event.task).shown.__exit__(None, None, None)


class _Wait:
    """One wait. What it has found is drawn in its own thread, between its measurements, and sent by the ticker's."""

    def __init__(self, title: str) -> None:
        self.now, self.found = title, Bundle()
        self.drawn = monotonic() + PATIENCE - _INTERVAL
        self.shown: AbstractContextManager[None] = progress(lambda: self.now, lambda: self.found)

    def step(self, event: WaitEvent) -> None:
        self.now = f"{event.title}: {event.doing} ({event.part or 0:.0%})"
        last = event.part == 1.0 and bool(self.found)
        if event.so_far is not None and (last or monotonic() - self.drawn >= _INTERVAL):
            self.found = _drawn(event.so_far, whole=last)
            self.drawn = monotonic()


def _drawn(so_far: Callable[[], object], whole: bool) -> Bundle:
    """`whole`: as text too, which takes longer than the picture."""
    try:
        result = so_far()
        return {"text/html": result._repr_html_(), "text/plain": str(result) if whole else ""}  # type: ignore[attr-defined]
    except Exception:  # a metric of the author's that does not suit half of the samples ends no tuning
        return {}


def _tick(what: str | Callable[[], str], found: Callable[[], Bundle], done: threading.Event) -> None:
    begin = monotonic()
    if done.wait(PATIENCE):
        return
    handle = display(_below(_bundle(what, monotonic() - begin), found()), raw=True, display_id=True)
    if handle is None:  # no notebook listens any more
        return
    while not done.wait(_INTERVAL):
        handle.update(_below(_bundle(what, monotonic() - begin), found()), raw=True)
    handle.update(_below({}, found()), raw=True)


def _below(message: Bundle, found: Bundle) -> Bundle:
    return {kind: message.get(kind, "") + found.get(kind, "") for kind in ("text/html", "text/plain")}


def _bundle(what: str | Callable[[], str], seconds: float) -> Bundle:
    message = f"{what if isinstance(what, str) else what()} ... {seconds:.1f} s"
    style = "color:var(--jp-ui-font-color2,#777)"
    return {
        "text/html": f'<div class="tessera-progress" style="{style}">{text(message)} (interrupt the kernel to stop)'
        "</div>",
        "text/plain": message,
    }
