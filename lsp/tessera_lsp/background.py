"""Long computations on a background thread, which takes turns with the server's thread.

Only one of the two threads runs at a time, so their shared state needs no locks. At each pause point
(`budget.interruptible`) the background thread yields if its turn is over, and waits for the next one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tessera.compiler.frontend.budget import interruptible

STACK = 64 << 20
"""bytes: trees are walked by recursion, and some systems give threads little"""
_starting = threading.Lock()
_TURN = 0.004
"""seconds that work runs before messages that have come are handled"""
T = TypeVar("T")


class EndedError(BaseException):
    """Raised in the work, at a pause, when nobody wants it any longer; no Exception, for these are findings there."""


class Aside:
    """`work` may pause by `pause`, and does so wherever an analysis may be interrupted."""

    def __init__(self, work: Callable[[Aside], None]) -> None:
        self._work = work
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._until = 0.0
        self._ended, self._unwanted = False, False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def turn(self, seconds: float) -> bool:
        """Lets the work go on for about so long; whether it has ended. Raises what it has raised."""
        self._until = time.monotonic() + seconds
        if self._thread is None:
            self._start()
        self._mine.release()
        self._theirs.acquire()
        if self._error is not None:
            raise self._error
        return self._ended

    def pause(self, now: bool = False) -> None:
        """Called by the work: hands back if its turn is over, or `now`."""
        if not now and time.monotonic() < self._until:
            return
        self._theirs.release()
        self._mine.acquire()
        if self._unwanted:
            raise EndedError

    def end(self) -> None:
        """Ends the work at its next pause."""
        if self._thread is None or self._ended:
            return
        self._unwanted = True
        self._mine.release()
        self._theirs.acquire()

    def _start(self) -> None:
        with _starting:
            old = threading.stack_size(STACK)
            try:
                self._thread = threading.Thread(target=self._run, name="tessera-lsp aside", daemon=True)
                self._thread.start()
            finally:
                threading.stack_size(old)

    def _run(self) -> None:
        self._mine.acquire()
        try:
            with interruptible(self.pause):
                self._work(self)
        except EndedError:
            pass
        except BaseException as e:
            self._error = e
        finally:
            self._ended = True
            self._theirs.release()


async def in_turns(work: Callable[[], T]) -> T:
    """What `work` gives, while messages are handled at each of its pauses."""
    found: list[T] = []
    aside = Aside(lambda _: found.append(work()))
    try:
        while not aside.turn(_TURN):
            await asyncio.sleep(_TURN)
    finally:
        aside.end()
    return found[0]
