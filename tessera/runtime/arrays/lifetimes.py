"""Arrays that launches on a GPU still need after the call has returned.

CuPy and PyTorch order the reuse of freed memory after the work on their streams. Other libraries (JAX, whatever comes
by DLPack) know nothing of that work: what they give is referred to until an event behind the launch has been reached.
It is dropped at the next launch then, as PyTorch does it at the next allocation (`Tensor.record_stream`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tessera.runtime.locks import Locked


class Lifetimes(Locked):
    """References by the event that they wait for, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[tuple[Any, int, Sequence[Any]]] = deque()

    def keep(self, owners: Sequence[Any], stream: int) -> None:
        """Until what is on `stream` now has run. What a graph captures is its author's to keep: it runs any time."""
        from tessera.compiler.targets.cuda.call.device import event_after  # slow: 80 ms, for arrays on a GPU

        event = event_after(stream)
        if event is not None:
            with self.lock:
                self.waiting.append((event, stream, owners))

    def release(self) -> None:
        """Drops what has been waited for. Streams run in order of their own, so each is asked until one has not."""
        if not self.waiting:
            return
        from tessera.compiler.targets.cuda.call.device import reached  # slow: as above

        gone: list[Any] = []  # goes when the lock has been given back: destructors may come here again
        with self.lock:
            busy: set[int] = set()
            for _ in range(len(self.waiting)):
                item = self.waiting.popleft()
                event, stream, _ = item
                if stream in busy or not reached(event):
                    busy.add(stream)
                    self.waiting.append(item)
                else:
                    gone.append(item)


lifetimes = Lifetimes()
