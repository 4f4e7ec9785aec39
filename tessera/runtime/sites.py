"""Prepared launches by key: what repeated calls of functions, kernels and operators go through."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessera.runtime.codegen import define
from tessera.runtime.forking import Locked
from tessera.runtime.prepared import Prepared

LAUNCHES = 1024
"""prepared launches kept by all sites together; beyond it those go that have not been called for longest"""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Ready:
    """A launch that may be repeated: `guard` says whether it still stands, `run` takes the call's arguments."""

    run: Callable[..., Any]
    guard: Callable[[], bool]
    prepared: Prepared | None = None
    used: bool = False
    """whether it has been called since `_Kept` last looked at it"""


class _Kept(Locked):
    """The launches that sites hold, the oldest first. One that has been called meanwhile gets another turn. A call that
    is running holds its launch itself, so nothing in use goes."""

    def __init__(self) -> None:
        super().__init__()
        self.order: deque[tuple[weakref.ref[Site], Any, weakref.ref[Ready]]] = deque()

    def add(self, site: Site, key: Any, ready: Ready) -> None:
        gone: list[Ready | None] = []  # goes when the lock has been given back: destructors may come here again
        with self.lock:
            self.order.append((weakref.ref(site), key, weakref.ref(ready)))
            for _ in range(2 * len(self.order)):
                if len(self.order) <= LAUNCHES:
                    break
                entry = self.order.popleft()
                its, key, held = entry[0](), entry[1], entry[2]()
                if its is None or held is None or its.table.get(key) is not held:
                    continue
                if held.used:
                    held.used = False
                    self.order.append(entry)
                else:
                    gone.append(its.table.pop(key, None))


_kept = _Kept()


class Site:
    """All calls with one tuple of argument types. `call(*args)` runs what stands; else it asks `miss(args)`.

    `key` is an expression over `a0`, `a1` ... and `names`. `call` is generated: key, look-up, guard and launch in one
    frame, with no loop over the arguments. `owner` keeps the last launch as `ready`, where it wants to.
    """

    def __init__(
        self, key: str, names: dict[str, Any], count: int, miss: Callable[[tuple[Any, ...]], Any], owner: Any = None
    ) -> None:
        self.table: dict[Any, Ready] = {}
        args = ", ".join(f"a{i}" for i in range(count))
        names |= {"find": self.table.get, "miss": miss, "owner": owner}
        keep = "ready.used = True; " + ("owner.ready = ready; " if owner is not None else "")
        code = (
            f"def call({args}):\n"
            f" ready = find({key})\n"
            f" if ready is not None and ready.guard(): {keep}return ready.run({args})\n"
            f" return miss(({args}{',' if count == 1 else ''}))\n"
            f"def key({args}): return {key}"
        )
        define(code, names)
        self.call: Callable[..., Any] = names["call"]
        self.key: Callable[..., Any] = names["key"]

    def add(self, key: Any, ready: Ready) -> None:
        self.table[key] = ready
        _kept.add(self, key, ready)
