"""`ts.monitor_numerics`: the first NaN of a block is an error at the line that made it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, ExitStack
from typing import Any

import numpy as np

from tessera.errors import DebugCheckError, Diagnostic, Note
from tessera.fitted import fitted
from tessera.language.decorators import Decorated
from tessera.nn import tree
from tessera.runtime.call.prepared import PreparedLaunch
from tessera.runtime.callsite import call_span
from tessera.runtime.events import witnessed
from tessera.tracebacks import outward
from tessera.training.provenance import described, host_array, is_nan, not_finite, origin_of_launch

RECORDED = "pullback_recorded"
"""the program of `loss.backward()`"""


class NumericsWatch(ContextDecorator):
    """While its block runs, looks at the results of each call."""

    def __init__(self) -> None:
        self._open: list[ExitStack] = []

    def __enter__(self) -> None:
        stack = ExitStack()
        stack.enter_context(witnessed(look))
        self._open.append(stack)

    @outward
    def __exit__(self, *error: Any) -> None:
        self._open.pop().close()

    def _recreate_cm(self) -> NumericsWatch:
        return NumericsWatch()  # one for each call of what it decorates


@fitted
def monitor_numerics(f: Callable[..., Any] | None = None) -> Any:
    """A decorator, and `with ts.monitor_numerics():`. Inside, a call of a function, kernel or operator that gives NaN,
    or a single number that is infinite, raises DebugCheckError TS371 at the line that made it, with what that line was
    given::

        @ts.monitor_numerics
        def training_loop(model, state):
            for batch in batches:
                loss, gradient = step(model, batch)
                model, state = opt.update(model, gradient, state)

    The line is found by computing the call again, one operator at a time; after a call that has changed its arguments
    to NaN, only the call is named. Each result is read, so the program waits for a GPU. Optimizers, which skip such
    steps themselves, are not looked at; where overflows are expected (a dynamic loss scale), use `ts.train`. Calls from
    other threads are not looked at. In a function, a watched function is the function itself. Raises LaunchError TS105
    for what is no function.
    """
    if f is None:
        return NumericsWatch()
    return functools.wraps(f)(functools.partial(_steps if inspect.isgeneratorfunction(f) else _call, f))


def _call(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with NumericsWatch():
        return f(*args, **kwargs)


_call.__tessera_builtin__ = "tessera.monitored"  # type: ignore[attr-defined]


def _steps(f: Callable[..., Iterator[Any]], /, *args: Any, **kwargs: Any) -> Generator[Any, None, Any]:
    """A generator is watched while it runs, not between."""
    steps = iter(f(*args, **kwargs))
    while True:
        with NumericsWatch():
            try:
                state = next(steps)
            except StopIteration as end:
                return end.value
        yield state


def look(launch: PreparedLaunch, values: Sequence[Any], result: Any) -> None:
    """Raises DebugCheckError TS371 if a launch that read arrays gave NaN, or one number that is infinite."""
    step = None if launch.program is None else launch.program()
    if step is not None and step.options.get("constant"):
        return
    named = dict(zip((p.name for p in launch.plan.params), values, strict=True))
    if all(p.shape is None for p in launch.plan.params):
        return
    stored = {launch.plan.params[i].name: values[i] for i in launch.written}
    results = {leaf.path: leaf.array for leaf in tree.leaves(result)}
    with witnessed(None):
        bad = {name: array for name, array in (results | stored).items() if _is_bad(host_array(array))}
        if bad:
            raise DebugCheckError(_finding(launch, step, named, bad, not bad.keys().isdisjoint(stored)))


def _is_bad(array: np.ndarray) -> bool:
    if not array.ndim:
        return bool(not_finite(array))
    with np.errstate(all="ignore"):
        if array.dtype.kind == "f" and np.isfinite(array.sum(dtype=np.float64)):  # needs no memory
            return False
    return bool(is_nan(array).any())


def _finding(
    launch: PreparedLaunch, step: Decorated | None, named: Mapping[str, Any], bad: Mapping[str, Any], changed: bool
) -> Diagnostic:
    name, place = "backward()" if launch.plan.name == RECORDED else launch.plan.name, call_span()
    path, array = next(iter(bad.items()))
    said = f"{name} gives {described(host_array(array))}"
    cause = None if step is None else origin_of_launch(step, launch, named)
    if changed and (cause is None or not cause.span.line):  # what it was given is no longer there
        return Diagnostic("TS371", f"{said}, stored into {path}", place, function=name)
    if cause is None:
        most = max((_size(host_array(v)) for v in named.values()), default=0.0)
        return Diagnostic("TS371", f"{said}; it takes numbers of up to {most:.3g} in size", place, function=name)
    if not cause.span.line or cause.span.file.startswith("<"):  # an argument, or a call that was recorded
        return Diagnostic("TS371", f"{said}; {cause.said}", place, function=name)
    return Diagnostic(
        "TS371", cause.said, cause.span, function=name, label=cause.label, notes=(Note("called here", place),)
    )


def _size(array: np.ndarray) -> float:
    """The largest magnitude of finite floats."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0)) if array.dtype.kind == "f" else 0.0
