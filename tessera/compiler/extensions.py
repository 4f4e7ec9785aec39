"""Passes and schedulers, and the register of those that come from outside the package.

What is registered changes the code that programs become: `state()` is part of every cache key, and launches that have
been prepared are prepared anew. This module imports no part of the compiler, so that a launch from the cache can ask.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from tessera.errors import CompileError, Diagnostic

if TYPE_CHECKING:
    from tessera.compiler.ir.core import Op

Stage: TypeAlias = Literal["graph", "kernel", "tile", "target"]
"""What a pass is given, in this order: the `graph.func` of a function; each `tile.func` that somebody wrote; every
`tile.func` of the program, as it is shown; every one of them once more, just before the target writes code."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Scheduler:
    """`schedule(func, target)` makes the `schedule.func` of a `graph.func` that has been through the graph passes."""

    name: str
    schedule: Callable[[Op, str], Op]
    version: str


PASSES: dict[str, Pass] = {}
SCHEDULERS: dict[str, Scheduler] = {}
CHANGED: list[Callable[[], None]] = []
"""called when something has been registered or removed"""


def register_pass(
    name: str, *, stage: Stage = "graph", after: str = "", optional: bool = False, version: str = ""
) -> Callable[[Any], Any]:
    """Decorates a function of an op, or a class whose objects have a method `run(op)`: a pass that every program goes
    through from now on.

    `stage`: "graph", "kernel" (what people write), "tile" (every kernel) or "target" (just before code is written).
    `after` names the pass that it follows, else it is the last of its stage. `optional`: it runs only for targets that
    name it in `passes`. The text of the module that defines it is part of cache keys; `version` adds to that what it
    reads elsewhere. A second pass of the same name replaces the first. Raises CompileError TS614.
    """
    if stage not in get_args(Stage):
        raise _refused("pass", name, f"its stage is one of {', '.join(get_args(Stage))}, not {stage!r}")

    def register(given: Any) -> Any:
        run = _method(given, "run", "pass", name)
        _named("pass", name)
        from tessera.compiler import pipeline  # slow: loads every pass; a program from the cache needs none of them

        pipeline.demand_place(name, stage, after)
        PASSES[name] = Pass(name, stage, run, optional, after=after, version=_content(given, version))
        _tell()
        return given

    return register


def register_scheduler(name: str, *, version: str = "") -> Callable[[Any], Any]:
    """Decorates a function `(func, target)`, or a class whose objects have a method `schedule(func, target)`. It
    gives the `schedule.func` of a `graph.func`, in place of the usual one, for functions that ask for it by name:
    `f.with_config(scheduler="name")`, or `ts.Schedule(scheduler="name")`.

    `version` as for passes. Raises CompileError TS614.
    """

    def register(given: Any) -> Any:
        schedule = _method(given, "schedule", "scheduler", name)
        _named("scheduler", name)
        SCHEDULERS[name] = Scheduler(name, schedule, _content(given, version))
        _tell()
        return given

    return register


def remove(name: str) -> None:
    """Forgets a pass or scheduler from outside. Raises KeyError where there is none of that name."""
    if name not in PASSES and name not in SCHEDULERS:
        raise KeyError(name)
    PASSES.pop(name, None)
    SCHEDULERS.pop(name, None)
    _tell()


def state() -> str:
    """What has been registered, in order, as text for cache keys; empty where nothing has."""
    passes = [(p.name, p.stage, p.after, p.optional, p.version) for p in PASSES.values()]
    schedulers = [(s.name, s.version) for s in SCHEDULERS.values()]
    return repr((passes, schedulers)) if passes or schedulers else ""


def _method(given: Any, method: str, kind: str, name: str) -> Callable[..., Any]:
    found = getattr(given(), method, None) if isinstance(given, type) else given
    if not callable(found):
        raise _refused(kind, name, f"it is a function, or a class with a method {method!r}, not {given!r}")
    return found


def _named(kind: str, name: str) -> None:
    if not name.isidentifier():
        raise _refused(kind, name, "its name is an identifier")


def _refused(kind: str, name: str, why: str) -> CompileError:
    return CompileError(Diagnostic("TS614", f"{kind} {name!r} cannot be registered: {why}"))


def _content(given: Any, version: str) -> str:
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


def _tell() -> None:
    for changed in CHANGED:
        changed()
