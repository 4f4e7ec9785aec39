"""Calling functions and kernels: the one place that decorated functions reach.

A call costs one look-up. The key is what a launch depends on and no more: the arguments' types, then dtypes, shapes and
strides of arrays, values of compile-time arguments, nothing of scalars. It is built by an expression generated for
the argument types, so that no loop runs per call. What the key finds is a `Prepared` launch, used as long as
everything the function reads from outside is still what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tessera import knobs
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Target
from tessera.runtime import devices
from tessera.runtime.arguments import Bound, Parameters
from tessera.runtime.build import Built
from tessera.runtime.prepared import Prepared, prepare
from tessera.runtime.requests import compile_call
from tessera.runtime.signatures import gather_function, key_function
from tessera.runtime.watch import Watch, reads

SIGNATURES = 1024
"""prepared launches kept per function and argument types; beyond it the oldest go"""


def call(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Runs a `Function` or `Kernel` on arguments, compiling it when this signature is new.

    Raises LaunchError where the arguments do not fit, CompileError where the program is wrong.
    """
    try:
        launcher = fn.launcher
    except AttributeError:
        launcher = launcher_of(fn)
    return launcher(args, kwargs)


_creating = threading.Lock()


def launcher_of(fn: Any) -> Launcher:
    """The compiled forms of a function or kernel; they live as long as it does."""
    with _creating:
        if getattr(fn, "launcher", None) is None:
            fn.launcher = Launcher(fn)
    return fn.launcher


@dataclass(slots=True)
class Ready:
    """A launch that may be repeated: `guard` says whether it still stands, `run` takes the call's arguments."""

    run: Callable[..., Any]
    guard: Callable[[], bool]
    prepared: Prepared


class Site:
    """All calls with one tuple of argument types."""

    __slots__ = ("key", "table")

    def __init__(self, key: Callable[..., Any]) -> None:
        self.key = key
        self.table: dict[Any, Ready] = {}

    def add(self, key: Any, ready: Ready) -> None:
        while len(self.table) >= SIGNATURES:
            self.table.pop(next(iter(self.table)), None)
        self.table[key] = ready


class Launcher:
    """The compiled forms of one function. `sites` is for calls with positional arguments alone, `named` for others."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.sites: dict[tuple[type, ...], Site] = {}
        self.named: dict[tuple[type, ...], Site] = {}
        self.lock = threading.RLock()  # reentrant: compiling may call other functions, and this one
        self.last: Built | None = None
        self._parameters: Parameters | None = None

    @property
    def parameters(self) -> Parameters:
        if self._parameters is None:
            self._parameters = Parameters(self.fn.definition(), self.fn.__wrapped__)
        return self._parameters

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        sites = self.sites
        if kwargs:
            args, sites = tuple(self.parameters.positions(args, kwargs).values()), self.named
        site = sites.get(tuple(map(type, args)))
        if site is not None:
            ready = site.table.get(site.key(*args))
            if ready is not None and ready.guard():
                return ready.run(*args)
        return self.first(args, sites)

    def first(self, args: tuple[Any, ...], sites: dict[tuple[type, ...], Site]) -> Any:
        """A call whose signature is new, or whose code no longer stands."""
        complete = sites is self.named
        with self.lock:
            types = tuple(map(type, args))
            if types not in sites:
                sites[types] = Site(key_function(self.parameters, args, complete))
            site = sites[types]
            ready = site.table.get(site.key(*args))  # another thread may have been here before
            if ready is None or not ready.guard():
                ready = self.prepare(args, complete)
                site.add(site.key(*args), ready)
        return ready.run(*args)

    def prepare(self, args: tuple[Any, ...], complete: bool) -> Ready:
        """Compiles for the arguments of a call."""
        if complete:
            values = dict(zip(self.parameters.python.parameters, args, strict=True))
        else:
            values = self.parameters.positions(args, {})
        bound = self.parameters.bind(values)
        target = self.target(bound)
        watch = Watch(reads(self.fn))
        built = compile_call(self.fn, self.parameters, bound, target, watch)
        self.last = built
        getters = outside(built, watch)
        prepared = prepare(built, self.parameters, bound, getters)
        prepared.profiled = lambda: compile_call(self.fn, self.parameters, bound, target, watch, profile=True)
        wanted = [p.name for p in built.plan.params]
        gather = gather_function(self.parameters, args, complete, bound, wanted, getters)
        return Ready(_compose(prepared, gather), watch.guard(), prepared)

    def target(self, bound: Bound) -> Target:
        """TESSERA_TARGET, else the target of the device that the arguments live on."""
        return targets.get(devices.resolve(knobs.target(), bound.device))


def outside(built: Built, watch: Watch) -> dict[str, Callable[[], Any]]:
    """How to read the arrays that code takes from outside, by parameter."""
    getters: dict[str, Callable[[], Any]] = {name: watch.by_path[path].get for name, path in built.captures}
    return getters | {name: lambda array=array: array for name, array in built.held.items()}


def _compose(prepared: Prepared, gather: Callable[..., Any] | None) -> Callable[..., Any]:
    if gather is None:
        return prepared.run
    run = prepared.run
    return lambda *args: run(*gather(*args))
