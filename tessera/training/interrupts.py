"""Ctrl-C that is not lost: Python drops what is raised within a destructor or a callback of C."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Interrupts:
    """While its block runs, `asked` tells whether an interrupt came, whatever became of its KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # the process that started this one may have it ignored
                self._before = before
                signal.signal(signal.SIGINT, self._came)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _came(self, number: int, frame: Any) -> None:
        self.asked = True
        self._before(number, frame)
