"""Where the time of a compilation goes, for those who ask: front end, derivatives, each pass, code, LLVM, loading."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter_ns

_spent: ContextVar[dict[str, int] | None] = ContextVar("spent", default=None)


@contextmanager
def watched() -> Generator[dict[str, int]]:
    """The ns of each phase that runs inside, in the order in which they began."""
    found: dict[str, int] = {}
    token = _spent.set(found)
    try:
        yield found
    finally:
        _spent.reset(token)


def spend(name: str, ns: int) -> None:
    """Adds to a phase, where somebody watches."""
    found = _spent.get()
    if found is not None:
        found[name] = found.get(name, 0) + ns


@contextmanager
def phase(name: str) -> Generator[None]:
    """What runs inside belongs to a phase, but for what inner phases take."""
    found = _spent.get()
    if found is None:
        yield
        return
    found.setdefault(name, 0)
    start, before = perf_counter_ns(), sum(found.values())
    try:
        yield
    finally:
        found[name] += perf_counter_ns() - start - (sum(found.values()) - before)
