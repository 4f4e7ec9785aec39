"""Passes and schedulers from outside the package: `ts.compiler.register_pass`, `ts.scheduler.register`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from tessera.compiler import extensions
from tessera.compiler.extensions import Pass, Scheduler, Stage
from tessera.compiler.pipeline import demand_place
from tessera.errors import CompileError, Diagnostic


def register_pass(
    name: str, *, stage: Stage = "graph", after: str = "", optional: bool = False, version: str = ""
) -> Callable[[Any], Any]:
    """Decorates a function of an op, or a class whose objects have a method `run(op)`: a pass that every program goes
    through from now on.

    `stage`: "graph", "kernel" (from `@ts.kernel`), "tile" (every kernel) or "target" (just before code generation).
    `after` names the pass that it follows, else it is the last of its stage. `optional`: it runs only for targets that
    name it in `passes`. The text of the module that defines it is part of cache keys; `version` adds to that what it
    reads elsewhere. A second pass of the same name replaces the first. Raises CompileError TS614.
    """
    if stage not in get_args(Stage):
        raise _refused("pass", name, f"its stage is one of {', '.join(get_args(Stage))}, not {stage!r}")

    def register(given: Any) -> Any:
        run = _method(given, "run", "pass", name)
        _named("pass", name)
        demand_place(name, stage, after)
        extensions.PASSES[name] = Pass(
            name, stage, run, optional, after=after, version=extensions.content(given, version)
        )
        extensions.changed()
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
        extensions.SCHEDULERS[name] = Scheduler(name, schedule, extensions.content(given, version))
        extensions.changed()
        return given

    return register


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
