"""What is done behind answers: long computations, and the collection of garbage.

Computations have a background thread, which takes turns with the server's. Only one of the two runs at a time, so their
shared state needs no locks. At each pause point (`budget.interruptible`) the background thread yields if its turn is
over, and waits for the next one.
"""

from __future__ import annotations

import asyncio
import gc
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
SOON = 0.05
"""seconds after an analysis, when what clients ask about it has been answered"""
PAUSE = 3.0
"""seconds without an analysis after which a person is taken to be thinking"""
MANY = 200_000
"""young objects that are looked through at once, wherever that is: nobody has paused for so long"""
SEVERAL = 5
"""analyses whose objects are looked through together"""
NEVER = 1_000_000
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


class Garbage:
    """Cyclic garbage of a server. `analysed` is called after each analysis.

    An analysis makes some ten thousand objects that the next one replaces. Looking through the youngest takes 5 ms,
    through those of several analyses 20 ms, through all 0.3 s. The first two are done a moment after an analysis, the
    last while nobody types.
    """

    def __init__(self) -> None:
        self._young: asyncio.TimerHandle | None = None
        self._all: asyncio.TimerHandle | None = None
        self._frozen = False

    def analysed(self) -> None:
        if gc.get_threshold()[2] != NEVER:
            gc.set_threshold(MANY, NEVER, NEVER)
        self._young = self._young or _later(SOON, self._collect_young)
        if self._all is not None:
            self._all.cancel()
        self._all = _later(PAUSE, self._collect_all)

    def _collect_young(self) -> None:
        self._young = None
        gc.collect(1 if gc.get_count()[1] >= SEVERAL else 0)

    def _collect_all(self) -> None:
        self._all = None
        gc.collect()
        if not self._frozen:  # by now all modules that answers need are loaded, and stay
            self._frozen = True
            gc.freeze()


def _later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)
