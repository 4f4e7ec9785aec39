"""The configuration for code that is compiled ahead of a call: the best that the store knows for such arguments.

Nothing is timed. What stands in for the arguments has their shapes and dtypes and no memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, NamedTuple

from tessera import knobs
from tessera.compiler.frontend.names.values import Static
from tessera.compiler.ir.types import TensorType
from tessera.compiler.machines import HOST
from tessera.compiler.targets.base import Target
from tessera.errors import LaunchError
from tessera.language import dims as algebra
from tessera.language.annotations import ScalarAnn, TensorAnn, TileAnn
from tessera.language.lazy import np
from tessera.runtime.arrays import devices
from tessera.runtime.autotune import store
from tessera.runtime.autotune.search import Search
from tessera.runtime.autotune.store import store_at
from tessera.runtime.autotune.trials import Tuning
from tessera.runtime.call.arguments import Bound, Parameters
from tessera.runtime.call.dispatch import Launcher, launcher_of
from tessera.runtime.call.ready import Ready
from tessera.runtime.code.reads import reads
from tessera.runtime.code.watch import Watch, setting


class Choice(NamedTuple):
    """A configuration, and in words why it is this one."""

    config: dict[str, Any]
    why: str


class _Open(Exception):
    """The given arguments leave something open that timings depend on."""


def choice(fn: Any, target: Target, dims: Mapping[str, int], arguments: Mapping[str, Any] | None) -> Choice:
    """For a program that has a space. `arguments`: what `analyse` takes, None where the annotations say it all."""
    if knobs.autotune() == "0":
        return Choice(fn.config, "the first one: autotuning is off")
    parameters = Parameters(fn.definition(), fn.__wrapped__)
    try:
        bound = parameters.bind(_stand_ins(parameters, dims, arguments or {}), dims)
    except _Open as e:
        return Choice(fn.config, f"the first one: {e}")
    except LaunchError:  # compiling says what is wrong, in terms of what was given
        return Choice(fn.config, "the first one")
    for tuning in _tunings(fn, bound, target):
        if tuning.best is not None:
            timed = sum(bool(t.samples) for t in tuning.trials)
            return Choice(tuning.config, f"the best of {timed} timed on {tuning.device}")
    given = ", ".join(store.arguments_of(bound))
    return Choice(fn.config, f"the first one: none has been timed for {given} on {target.name}")


def _tunings(fn: Any, bound: Bound, target: Target) -> list[Tuning]:
    """What is known of this machine; for a target that is not in it, of the machines of the store, the latest first."""
    statics = bound.fixed
    watch = Watch(reads(fn, statics))
    present = [d.name for d in devices.cuda_devices() if d.target == target.name]
    if devices.home(target) == HOST or present:
        bound.device = present[0] if present else bound.device
        return [Search(fn, bound, target, watch).run(measure=False)]
    machines = store_at(fn.options["autotune"]["cache"]).machines(fn.name, target.name)
    return [Search(fn, bound, target, watch, machine).run(measure=False) for machine in machines]


def _stand_ins(parameters: Parameters, dims: Mapping[str, int], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the types of the arguments. Raises _Open."""
    out: dict[str, Any] = {}
    for name, p in parameters.by_name.items():
        default = parameters.python.parameters[name].default
        if name in given:
            out[name] = _stand_in(given[name], name, dims)
        elif isinstance(p.annotation, (TensorAnn, TileAnn)):
            annotation = p.annotation
            if annotation.dtype is None or annotation.shape is None or ... in annotation.shape:
                raise _Open(f"the annotation of {name} leaves its shape or dtype open; pass arguments=")
            out[name] = _stand_in(TensorType(annotation.shape, annotation.dtype), name, dims)  # type: ignore[arg-type]
        elif isinstance(p.annotation, ScalarAnn) and not p.static:
            out[name] = 1  # whichever: the value is not part of the key
        elif default is not Parameter.empty:
            out[name] = default
        elif name in dims:
            out[name] = dims[name]
        else:
            raise _Open(f"no value of {name} is known; pass arguments=")
    return out


def _stand_in(kind: Any, name: str, dims: Mapping[str, int]) -> Any:
    if isinstance(kind, (tuple, list)):
        return type(kind)(_stand_in(k, name, dims) for k in kind)  # type: ignore[misc]
    if isinstance(kind, Static):
        return kind.value
    if not isinstance(kind, TensorType):
        return kind
    try:
        shape = tuple(algebra.evaluate(d, dims) for d in kind.shape)
    except algebra.DimError:
        raise _Open(f"the sizes of {name} are open; fix them with dims= to have those that were timed") from None
    return np.broadcast_to(np.zeros((), kind.dtype.numpy), shape)


# Calls of tuned functions and kernels: each signature runs under the configuration that is best for it.


class TunedLauncher(Launcher):
    """Settles the configuration when a signature is new; a repeated call costs what any call costs.

    TESSERA_AUTOTUNE says when configurations are timed: 1 at a signature's first call, "cached" never, 0 never, and
    what the store knows is left aside as well.
    """

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.variants: dict[str, Any] = {}
        self.tuning: Tuning | None = None
        self.state = object()
        """another one makes prepared launches ask again"""

    def prepare(self, args: tuple[Any, ...], complete: bool) -> Ready:
        if complete:
            values: Mapping[str, Any] = dict(zip(self.parameters.python.parameters, args, strict=True))
        else:
            values = self.parameters.positions(args, {})
        mode = setting(knobs.autotune)
        config = self.settled(self.bind(values))
        launcher = launcher_of(self.variant(config))
        ready = launcher.prepare(args, complete)
        self.last = launcher.last
        guard, seen, state = ready.guard, mode(), self.state
        return Ready(ready.run, lambda: guard() and mode() is seen and self.state is state, ready.prepared, ready.made)

    def settled(self, bound: Bound) -> dict[str, Any]:
        """The configuration for a call."""
        mode = knobs.autotune()
        if mode == "0":
            return self.fn.config
        self.tuning = self.search(bound).run(measure=mode == "1" and not knobs.debug())
        return self.tuning.config

    def search(self, bound: Bound) -> Search:
        statics = bound.fixed
        return Search(self.fn, bound, self.target(bound), Watch(reads(self.fn, statics)))

    def variant(self, config: Mapping[str, Any]) -> Any:
        """The program under one configuration."""
        text = json.dumps(config, sort_keys=True)
        with self.lock:
            if text not in self.variants:
                self.variants[text] = self.fn.with_config(**config)
            return self.variants[text]

    def tune(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], measure: bool = True) -> Tuning:
        """The tuning for arguments; prepared launches use it from now on."""
        with self.lock:
            bound = self.bind(self.parameters.positions(args, kwargs))
            self.tuning = self.search(bound).run(measure)
            self.state = object()
            return self.tuning
