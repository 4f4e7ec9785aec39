"""Passes and schedulers, and the registry of those from outside of the package.

What is registered changes the code that programs become: `state()` is part of every cache key, and launches that have
been prepared are prepared anew. This module imports no part of the compiler, so that a launch from the cache can ask.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tessera.immutable import immutable

if TYPE_CHECKING:
    from tessera.compiler.ir.core import Op

Stage: TypeAlias = Literal["graph", "kernel", "tile", "target"]
"""What a pass is given, in this order: the `graph.func` of a function; each `tile.func` that a user wrote; every
`tile.func` of the program, as it is shown; every one of them once more, just before the target writes code."""


@immutable
class Pass:
    """`run(op)` changes valid IR into valid IR, in place.

    `optional`: runs only for targets that name it in `Target.passes`. `debug`: only in debug mode. `needed(op)`:
    whether there is anything to do; asked where the kernel would have to be copied first.
    """

    name: str
    stage: Stage
    run: Callable[[Op], Any]
    optional: bool = False
    debug: bool = False
    needed: Callable[[Op], bool] | None = None
    after: str = ""
    """the pass that it follows; "" in a pass from outside: the last one of its stage"""
    version: str = ""
    """what its code is; "" for a pass of the package, whose own version says it"""


@immutable
class Scheduler:
    """`schedule(func, target)` makes the `schedule.func` of a `graph.func` that has been through the graph passes."""

    name: str
    schedule: Callable[[Op, str], Op]
    version: str


PASSES: dict[str, Pass] = {}
SCHEDULERS: dict[str, Scheduler] = {}
BUILTINS: dict[str, str] = {}
"""functions of kernels from outside, by module and name: what their code is"""
CHANGED: list[Callable[[], None]] = []
"""called when something has been registered or removed"""


def remove(name: str) -> None:
    """Forgets a pass or scheduler from outside. Raises KeyError where there is none of that name."""
    if name not in PASSES and name not in SCHEDULERS:
        raise KeyError(name)
    PASSES.pop(name, None)
    SCHEDULERS.pop(name, None)
    changed()


def state() -> str:
    """What has been registered, in order, as text for cache keys; empty where nothing has."""
    passes = [(p.name, p.stage, p.after, p.optional, p.version) for p in PASSES.values()]
    schedulers = [(s.name, s.version) for s in SCHEDULERS.values()]
    return repr((passes, schedulers, BUILTINS)) if passes or schedulers or BUILTINS else ""


def changed() -> None:
    for call in CHANGED:
        call()


def content(given: Any, version: str = "") -> str:
    """A digest of the text that defines it: of its module, or of a notebook's cell. Where no text is to be had, its
    code."""
    parts = [version, getattr(given, "__qualname__", type(given).__qualname__)]
    try:
        parts.append(inspect.getsource(inspect.getmodule(given) or given))
    except (OSError, TypeError):
        try:
            parts.append(inspect.getsource(given))
        except (OSError, TypeError):
            code = getattr(given, "__code__", None)
            parts.append(repr((code.co_code, code.co_consts, code.co_names)) if code else repr(given))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
