"""`@ts.fault_tolerant`: what fails for a reason outside of the program is tried again, from the last whole state."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from tessera.errors import DeviceError, Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.nn import tree
from tessera.nn.module import Module
from tessera.optimizers import BoundOptimizer
from tessera.runtime.callsite import call_span
from tessera.runtime.eager.creation import asarray
from tessera.runtime.eager.recorded import no_grad
from tessera.tracebacks import decorator
from tessera.training.provenance import host_array

Errors = tuple[type[Exception], ...]


@fitted
def fault_tolerant(
    max_restarts: int, *, on: Errors = (DeviceError, OSError), every: int = 1
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function whose call is made again, at most `max_restarts` times, if it raises one of the errors `on`:
    those of devices, files and networks, not those of the program. Each restart is a RuntimeWarning.

    The modules and states among the arguments first get back what they held at the beginning of the call. A generator
    function that yields its state after each step, as for `ts.checkpoint`, starts again with the state that it yielded
    last::

        @ts.checkpoint("run", interval=1000)
        @ts.fault_tolerant(max_restarts=3)
        def training(model, optimizer, step=0):
            for i in range(step, 10_000):
                ...
                yield dict(model=model, optimizer=optimizer, step=i + 1)

    Copies of the arrays of modules are kept in the host's memory: of each state that is yielded, or of every
    `every`-th. Other values are not changed in place and not copied; iterators and files are not rewound. If a device
    has lost its memory, the error is raised: a new process goes on from the checkpoint. Raises LaunchError TS105 for
    other settings.
    """
    kinds = on if isinstance(on, tuple) else (on,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise LaunchError(
            Diagnostic("TS105", f"fault_tolerant: on is a class of errors, or a tuple of them, not {on!r}")
        )

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(f):
            raise LaunchError(Diagnostic("TS105", f"fault_tolerant decorates a function, not {f!r}", call_span()))
        steps = inspect.isgeneratorfunction(f)
        run = functools.partial(_steps, f, kinds, max_restarts, every) if steps else None
        return functools.wraps(f)(run or functools.partial(_call, f, kinds, max_restarts))

    return decorator("fault_tolerant", decorate)


def _call(f: Callable[..., Any], on: Errors, left: int, /, *args: Any, **kwargs: Any) -> Any:
    before = KeptModules((args, kwargs))
    while True:
        try:
            return f(*args, **kwargs)
        except on as error:
            left = _again(f, error, left, before)


def _steps(
    f: Callable[..., Iterator[dict[str, Any]]], on: Errors, left: int, every: int, /, *args: Any, **kwargs: Any
) -> Generator[dict[str, Any], None, None]:
    given = inspect.signature(f).bind(*args, **kwargs)
    given.apply_defaults()
    before, count = KeptModules(given.arguments), 0
    while True:
        try:
            for state in f(*given.args, **given.kwargs):
                yield state
                count += 1
                if count % every == 0:
                    given.arguments.update({n: v for n, v in state.items() if n in given.arguments})
                    before = KeptModules(given.arguments)
            return
        except on as error:
            left = _again(f, error, left, before)


def _again(f: Callable[..., Any], error: Exception, left: int, before: KeptModules) -> int:
    """Puts everything back for another try; returns how many are left. Raises the error if none is."""
    if not left:
        raise error
    try:
        before.put_back()
    except Exception as other:
        raise error from other  # the device is gone
    name = getattr(f, "__name__", repr(f))
    message = f"{name} starts again, with {left - 1} restarts left, after {type(error).__name__}: {error}"
    warnings.warn(message, RuntimeWarning, stacklevel=4)
    return left - 1


class KeptModules:
    """What the arrays of the modules in a tree hold now, in the host's memory."""

    def __init__(self, held: Any) -> None:
        self._modules = [(m, tree.replaced(m, {})) for m in _modules(held)]
        arrays = {id(a): a for m, _ in self._modules for a in _arrays(m)}
        self._arrays = [(a, np.array(host_array(a))) for a in arrays.values()]

    def put_back(self) -> None:
        """Stores it into the same arrays, and these into the modules that held them."""
        with no_grad():
            for array, kept in self._arrays:
                if host_array(array).tobytes() != kept.tobytes():
                    memory = asarray(array)
                    memory[...] = asarray(kept).to(memory.device)
        for module, kept in self._modules:
            if list(map(id, _arrays(module))) != list(map(id, _arrays(kept))):
                module._take(kept)


def _modules(held: Any) -> Iterator[Module]:
    if isinstance(held, Module):
        yield held
    elif isinstance(held, (list, tuple, Mapping)):
        for part in held.values() if isinstance(held, Mapping) else held:
            yield from _modules(part)


def _arrays(module: Module) -> Iterator[Any]:
    """Also those of parameters that an optimizer holds."""
    yield from (leaf.array for leaf in tree.leaves(module))
    if isinstance(module, BoundOptimizer):
        yield from module.held.tensors.values()
