"""What is being written while the program goes on: one checkpoint at a time, in a thread."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable

from tessera.tracebacks import entrance


@entrance
class Saving:
    """A checkpoint that is being written. `wait()` returns when it is whole, and raises what kept it from that."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tessera-checkpoint")  # the process waits for it to end
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended; `wait()` then says how, at once."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Waits for the end. An error is raised once: here, or by what waits or saves next."""
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # it belongs to who waits
            self._error = error


class CheckpointWriter:
    """The one that is being written; nobody else begins before it has ended."""

    def __init__(self) -> None:
        self._now: Saving | None = None
        self._lock = threading.RLock()
        atexit.register(self._tell)

    def start(self, write: Callable[[], None]) -> Saving:
        with self._lock:
            self.wait()
            self._now = Saving(write)
            return self._now

    def wait(self) -> None:
        with self._lock:
            now = self._now
            if now is not None:
                now.wait()  # an interrupt leaves it to be waited for
                self._now = None

    def _tell(self) -> None:
        """At the end of the process, when nobody else will hear of an error."""
        try:
            self.wait()
        except Exception as error:
            print(error, file=sys.stderr)


writer = CheckpointWriter()
