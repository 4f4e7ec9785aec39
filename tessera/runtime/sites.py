"""Prepared launches by key: what repeated calls of functions, kernels and operators go through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessera.runtime.codegen import define
from tessera.runtime.prepared import Prepared

SIGNATURES = 1024
"""prepared launches kept per site; beyond it the oldest go"""


@dataclass(slots=True)
class Ready:
    """A launch that may be repeated: `guard` says whether it still stands, `run` takes the call's arguments."""

    run: Callable[..., Any]
    guard: Callable[[], bool]
    prepared: Prepared | None = None


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
        keep = "owner.ready = ready; " if owner is not None else ""
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
        while len(self.table) >= SIGNATURES:
            self.table.pop(next(iter(self.table)), None)
        self.table[key] = ready
