"""Calling functions and kernels: the one place that decorated functions reach.

A call costs one look-up. The key is what a launch depends on and no more: the arguments' types, then dtypes, shapes and
strides of arrays, values of compile-time arguments, nothing of scalars. It is built by an expression generated for
the argument types, so that no loop runs per call. What the key finds is a `PreparedLaunch`, used as long as
everything the function reads from outside is still what it was.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tessera import knobs
from tessera.collector import collector_paused
from tessera.compiler import extensions
from tessera.compiler.machines import HOST
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Target
from tessera.compiler.unit import Unit
from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError
from tessera.runtime.arrays import devices
from tessera.runtime.call import straight
from tessera.runtime.call.arguments import Bound, Parameters
from tessera.runtime.call.memory_ahead import large_results, memory_ahead
from tessera.runtime.call.prepared import PreparedLaunch, prepare
from tessera.runtime.call.ready import Made, Ready
from tessera.runtime.call.repeated import repeated_call
from tessera.runtime.call.requests import compile_call
from tessera.runtime.call.signatures import gather_function, key_expression, states_function
from tessera.runtime.code.build import Built
from tessera.runtime.code.reads import code_of, reads
from tessera.runtime.code.watch import Watch
from tessera.runtime.codegen import define
from tessera.runtime.locks import Locked

recorder: Any = None
"""what records calls for `backward()`, from when a tensor first requires a gradient"""


def call(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Runs a `Function` or `Kernel` on arguments, compiling it when this signature is new.

    Raises LaunchError where the arguments do not fit, CompileError where the program is wrong.
    """
    if not kwargs:
        try:  # the usual call, in as few frames as there can be
            site = fn.launcher.sites[tuple(map(type, args))]
        except (AttributeError, KeyError):
            pass
        else:
            return site.call(*args)
    return launcher_of(fn)(args, kwargs)


def repeated(fn: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """What runs calls of `fn` that are like this one, which has been made before, and gives NotImplemented for all
    others, without doing anything."""
    launcher = launcher_of(fn)
    ready = launcher.found(args, launcher.sites)
    return launcher.repeated(args, False, ready, _refused) or _refused


def _refused(*args: Any) -> Any:
    return NotImplemented


def launcher_of(fn: Any) -> Launcher:
    """The compiled forms of a function or kernel; they live as long as it does."""
    found = vars(fn).get("launcher")
    if found is not None:
        return found
    if "autotune" in fn.options:
        return vars(fn).setdefault("launcher", deferred("runtime.autotune.choose").TunedLauncher(fn))
    return vars(fn).setdefault("launcher", Launcher(fn))  # one step: of two threads, one is first


class Launcher(Locked):
    """The compiled forms of one function. `sites` is for calls with positional arguments alone, `named` for others."""

    def __init__(self, fn: Any) -> None:
        super().__init__()  # the lock is reentrant: compiling may call other functions, and this one
        self.fn = fn
        self.sites: dict[tuple[type, ...], CallSite] = {}
        self.named: dict[tuple[type, ...], CallSite] = {}
        self.last: Built | None = None
        self.ready: Ready | None = None
        """of the last call"""
        self._parameters: Parameters | None = None
        self._code: tuple[Any, ...] = ()
        """of the Python function when its parameters were read"""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The dims of the last call; none before the first."""
        prepared = self.ready.prepared if self.ready is not None else None
        return prepared.env if prepared is not None else {}

    @property
    def parameters(self) -> Parameters:
        if self._parameters is None:
            self._code = code_of(self.fn)
            self._parameters = Parameters(self.fn.definition(), self.fn)
        return self._parameters

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        sites = self.sites
        if kwargs:
            args, sites = self.parameters.complete(args, kwargs), self.named
        site = sites.get(tuple(map(type, args)))
        return self.first(args, sites) if site is None else site.call(*args)

    def first(self, args: tuple[Any, ...], sites: dict[tuple[type, ...], CallSite]) -> Any:
        """A call whose signature is new, or whose code no longer stands."""
        if self._parameters is not None and code_of(self.fn) != self._code:
            return self.renewed(args, sites is self.named)
        if sites is self.sites and self.parameters.changing(len(args)):  # defaults that are arguments like others
            args, sites = self.parameters.complete(args, {}), self.named
            if (site := sites.get(tuple(map(type, args)))) is not None:
                return site.call(*args)
        if recorder is not None and (result := recorder.call(self, args, sites)) is not NotImplemented:
            return result
        self.ready = ready = self.found(args, sites)
        return ready.run(*args)

    def renewed(self, args: tuple[Any, ...], complete: bool) -> Any:
        """A call of a Python function whose code or defaults have been replaced, as IPython's autoreload does."""
        old = self.parameters.python.parameters
        with self.lock:
            self.fn.read_again()
            self._parameters = None
            self.sites.clear()
            self.named.clear()
        if not complete:
            return self(args, {})
        return self((), {p.name: v for p, v in zip(old.values(), args, strict=True) if v is not p.default})

    def found(self, args: tuple[Any, ...], sites: dict[tuple[type, ...], CallSite]) -> Ready:
        """What runs a call."""
        complete = sites is self.named
        with self.lock:
            types = tuple(map(type, args))
            if types not in sites:
                key, names = key_expression(self.parameters, args, complete)
                again = functools.partial(self.repeated, complete=complete)
                sites[types] = CallSite(key, names, len(args), lambda args: self.first(args, sites), self, again)
            site = sites[types]
            ready = site.table.get(site.key(*args))  # another thread may have been here before
            if ready is None or not ready.guard():
                with collector_paused(old=True):
                    ready = self.prepare(args, complete)
                site.add(site.key(*args), ready)
        return ready

    def prepare(self, args: tuple[Any, ...], complete: bool) -> Ready:
        """Compiles for the arguments of a call."""
        bound = self.bind(self._values(args, complete))
        target = self.target(bound)
        statics = bound.fixed
        watch = self.watch or Watch(reads(self.fn, statics, self.parameters.dims))
        self.last = built = self.build(bound, watch, target)
        self.check(bound, built)
        getters = outside(built, watch)
        if recorder is not None:
            getters = {n: recorder.capture(self.fn.name, n, get) for n, get in getters.items()}
        prepared = prepare(built, self.parameters, bound, getters)
        types = replace(bound, values={}, views={}, leaves=[])  # the call's arrays may go
        prepared.profiled = lambda: self.build(types, watch, target, profile=True)
        prepared.program, prepared.fixed, prepared.types = weakref.ref(self.fn), statics, types.arguments
        wanted = [p.name for p in built.plan.params]
        gather = gather_function(self.parameters, args, complete, bound, wanted, getters)
        made = Made(self.fn, types, replace(built, lowered=None), target, getters)
        states = states_function(self.parameters, args, complete, bound) if prepared.written else None
        return Ready(_compose(prepared, gather, states), self.guard(watch), prepared, made)

    def repeated(
        self, args: tuple[Any, ...], complete: bool, ready: Ready, other: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        """What runs `ready` for calls like this one, and `other` for others; None where that takes the usual way."""
        bound = self.bind(self._values(args, complete))
        return repeated_call(self.parameters, args, complete, bound, ready, other, self)

    def _values(self, args: tuple[Any, ...], complete: bool) -> dict[str, Any]:
        """The arguments of a call by parameter."""
        if complete:
            return dict(zip(self.parameters.python.parameters, args, strict=True))
        return self.parameters.positions(args, {})

    # What `tessera.compile` does differently

    watch: Watch | None = None
    """the reads of code that is compiled once and for all"""

    def bind(self, values: Mapping[str, Any]) -> Bound:
        return self.parameters.bind(values)

    def build(self, bound: Bound, watch: Watch, target: Target, profile: bool = False) -> Built:
        with memory_ahead() as ahead:

            def seen(unit: Unit) -> None:
                if target.name == HOST and not profile:
                    ahead.start(large_results(unit))

            return compile_call(self.fn, self.parameters, bound, target, watch, profile=profile, seen=seen)

    def target(self, bound: Bound) -> Target:
        """TESSERA_TARGET, else the target of the device that the arguments live on."""
        target = targets.get(devices.resolve(knobs.target(), bound.device))
        self.demand_home(target, bound)
        return target

    def demand_home(self, target: Target, bound: Bound) -> None:
        """Refuses arrays that live where the target's code cannot reach them."""
        if bound.views and bound.device.partition(":")[0] != devices.home(target):
            message = f"{self.fn.name} is compiled for {target.name}, but its arguments live on {bound.device}."
            raise LaunchError(Diagnostic("TS504", message, self.parameters.definition.span, function=self.fn.name))

    def check(self, bound: Bound, built: Built) -> None:
        """Refuses arguments that the code is not for."""

    def guard(self, watch: Watch) -> Callable[[], bool]:
        """Whether a prepared launch still stands."""
        return watch.guard()


def outside(built: Built, watch: Watch) -> dict[str, Callable[[], Any]]:
    """How to read the arrays that code takes from outside, by parameter."""
    getters: dict[str, Callable[[], Any]] = {name: watch.by_path[path].again for name, path in built.captures}
    return getters | {name: lambda array=array: array for name, array in built.held.items()}


def _compose(
    prepared: PreparedLaunch, gather: Callable[..., Any] | None, states: Callable[..., tuple[Any, ...]] | None
) -> Callable[..., Any]:
    """The launch of a call's arguments. `states`: the objects that are asked afterwards what an effect could not do."""
    run = straight.ready(prepared)
    whole = run if gather is None else lambda *args: run(*gather(*args))
    if states is None:
        return whole

    def checked(*args: Any) -> Any:
        result = whole(*args)
        for state in states(*args):
            state.check()
        return result

    return checked


# Prepared launches by key: what repeated calls of functions, kernels and operators go through.

LAUNCHES = 1024
"""prepared launches kept by all sites together; beyond it those go that have not been called for longest"""


class _Kept(Locked):
    """The launches that sites hold, the oldest first. One that has been called meanwhile gets another turn. A call that
    is running holds its launch itself, so nothing in use goes."""

    def __init__(self) -> None:
        super().__init__()
        self.order: deque[tuple[weakref.ref[CallSite], Any, weakref.ref[Ready]]] = deque()

    def add(self, site: CallSite, key: Any, ready: Ready) -> None:
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
                    gone.append(its.forget(key))

    def forget(self) -> None:
        """Every launch is prepared anew when it is called next."""
        gone: list[Ready | None] = []
        with self.lock:
            for site, key, _ in self.order:
                if (its := site()) is not None:
                    gone.append(its.forget(key))
            self.order.clear()


_kept = _Kept()
extensions.CHANGED.append(_kept.forget)  # a pass from outside makes other code


LIKE_BEFORE = 3
"""calls with one key after another before they get straight code of their own"""
TURNS = 8
"""how often a site changes what it has straight code for; then keys are looked up"""


class CallSite:
    """All calls with one tuple of argument types. `call(*args)` runs what stands; else it asks `miss(args)`.

    `key` is an expression over `a0`, `a1` ... and `names`. `usual` is generated: key, look-up, guard and launch in one
    frame, with no loop over the arguments. `owner` keeps the last launch as `ready`, where it wants to. Where calls
    with one key come one after the other, `call` is straight code for them that `again(args, ready=, other=)` gives,
    which leaves other calls to `usual`.
    """

    def __init__(
        self, key: str, names: dict[str, Any], count: int, miss: Callable[[tuple[Any, ...]], Any], owner: Any = None,
        again: Callable[..., Callable[..., Any] | None] | None = None,
    ) -> None:  # fmt: skip
        self.table: dict[Any, Ready] = {}
        self._again, self._names = again, names
        self._count = self._turns = 0
        args = ", ".join(f"a{i}" for i in range(count))
        tuple_of_args = f"({args}{',' if count == 1 else ''})"
        names |= {"find": self.table.get, "miss": miss, "owner": owner, "site": weakref.ref(self), "settled": None}
        keep = "ready.used = True; " + ("owner.ready = ready; " if owner is not None else "")
        turn = f"  if ready is not settled: site().turn(ready, {tuple_of_args})\n" if again is not None else ""
        code = (
            f"def call({args}):\n"
            f" ready = find({key})\n"
            f" if ready is not None and ready.guard():\n{turn}  {keep}return ready.run({args})\n"
            f" return miss({tuple_of_args})\n"
            f"def key({args}): return {key}"
        )
        define(code, names)
        self.call: Callable[..., Any] = names["call"]
        self.usual: Callable[..., Any] = names["call"]
        self.key: Callable[..., Any] = names["key"]

    def add(self, key: Any, ready: Ready) -> None:
        self.table[key] = ready
        _kept.add(self, key, ready)

    def forget(self, key: Any) -> Ready | None:
        """Takes a launch away, and the straight code for it."""
        self._back()
        return self.table.pop(key, None)

    def _back(self) -> None:
        self.call = self.usual
        self._names["settled"] = self._last = None
        self._count = 0

    _last: Ready | None = None

    def turn(self, ready: Ready, args: tuple[Any, ...]) -> None:
        """Counts a call for which there is no straight code, and writes it where such calls follow one another."""
        self._count = self._count + 1 if ready is self._last else 1
        self._last = ready
        if self._count < LIKE_BEFORE or self._again is None:
            return
        self._turns += 1
        made = self._again(args, ready=ready, other=self.usual) if self._turns <= TURNS else None
        self._names["settled"] = ready  # it is not asked again, whatever has come of it
        self.call = made or self.usual
