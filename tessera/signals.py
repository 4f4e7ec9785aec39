"""Signal handlers and what they raise: Ctrl-C, alarms, the timeouts of test runners."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_LISTEN = 0.1
"""seconds after which a handler is run that a wait did not hear"""
_left = list[threading.Event]()
"""calls that were abandoned; each is set once it is done"""
_PATIENCE = 2.0
"""seconds that the end of a process waits without a word"""


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal handler written in Python raised it: it interrupts what runs, and is no fault of that."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(getattr(h, "__func__", h), "__code__", None) for h in handlers} - {None}
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code not in codes:
        frame = frame.tb_next
    return frame is not None


def abandonable(call: Callable[[], T]) -> T:
    """`call()`, which spends its time outside of Python, so that a handler which raises meanwhile is heard at once.

    Python runs handlers between bytecodes of its main thread alone. So there `call` runs in a thread of its own; where
    a handler raises, that thread is left to itself: what it holds must be its own, and its result is dropped. A
    process that goes on and ends later waits for it; one that ends by Ctrl-C does not.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    done, result, raised = threading.Event(), list[T](), list[BaseException]()

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    try:
        threading.Thread(target=run, name="tessera-compiler", daemon=True).start()
    except RuntimeError:  # there may be no further thread
        return call()
    try:
        while not done.wait(_LISTEN):  # a signal that comes just before it waits ends no wait
            pass
    except BaseException:
        _left.append(done)
        atexit.register(_wait, done, os.getpid())
        raise
    if raised:
        raise raised.pop()
    return result[0]


def end_if_left(status: int) -> None:
    """Ends the process at once if a call that was abandoned is still at work: for commands that end by Ctrl-C with a
    status of their own."""
    if not all(done.is_set() for done in _left):
        _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _wait(done: threading.Event, process: int) -> None:
    """Libraries take their memory down when the process exits, under a thread that is still at work in them: it would
    end in a fault. After a Ctrl-C that nobody caught the process ends as Python would end it, without taking anything
    down; otherwise another Ctrl-C ends it at once."""
    if os.getpid() != process or done.is_set():  # a fork has no such thread
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if getattr(sys, "last_type", None) is KeyboardInterrupt:  # its traceback has been printed
        _flush()
        signal.raise_signal(signal.SIGINT)
    if not done.wait(_PATIENCE):
        sys.stderr.write("tessera: waiting for a compilation that was interrupted; Ctrl-C ends the process\n")
        done.wait()
