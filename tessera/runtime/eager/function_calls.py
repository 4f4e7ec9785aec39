"""Calls of functions with tensors that require gradients, as steps that hold what `backward()` reads of them.

The function runs as `forward`, which gives its result and the values in it that its derivative needs (see
compiler/autodiff/handed_on.py). `backward` (tape.py) calls it as `recalled`, which is given them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tessera.errors import CompileError
from tessera.language.decorators import Kernel
from tessera.language.lazy import np
from tessera.language.transforms import Transform, transformed
from tessera.runtime.call import dispatch
from tessera.runtime.call.arguments import Parameters
from tessera.runtime.call.signatures import scalar_parameters
from tessera.runtime.eager.compile import NUMBERS
from tessera.runtime.eager.recorded import (
    Recorded,
    RecordedCall,
    among,
    is_recording,
    operator,
    outputs,
    refused,
    without_grad,
)


class Recorder(NamedTuple):
    """What calls go through, from when a tensor first requires a gradient."""

    call: Callable[..., Any]
    capture: Callable[..., Callable[[], Any]]
    among: Callable[[Any], bool]
    operator: Callable[..., Any]


def record() -> None:
    """Has calls of functions and operators recorded."""
    dispatch.recorder = Recorder(call, capture, among, operator)


def call(launcher: Any, args: tuple[Any, ...], sites: dict[Any, Any]) -> Any:
    """A call of a function; NotImplemented where no tensor among its arguments requires a gradient."""
    plain = tuple(map(without_grad, args))
    if all(a is b for a, b in zip(plain, args, strict=True)):
        return NotImplemented
    fn = launcher.fn
    if not is_recording() or fn.options.get("constant"):
        return launcher.found(plain, sites).run(*plain)
    if isinstance(fn, Kernel):
        message = f"what the kernel {fn.name} stores is not recorded: call it in a @ts.function and give it a rule, "
        refused(message + f"@{fn.name}.vjp; or call it under ts.no_grad()", "TS355")
    names, given = dict[str, Any](), dict[str, Any]()
    if sites is launcher.named:  # one for each parameter
        kinds = [(p.name, p.kind is p.KEYWORD_ONLY) for p in launcher.parameters.python.parameters.values()]
        names = {name: a for (name, by_name), a in zip(kinds, args, strict=True) if by_name}
        given = {name: a for (name, by_name), a in zip(kinds, plain, strict=True) if by_name}
        args, bare = (tuple(a for (_, by), a in zip(kinds, v, strict=True) if not by) for v in (args, plain))
    else:
        bare = plain
    wanted = (*(i for i, a in enumerate(args) if a is not bare[i]), *(n for n, a in names.items() if a is not given[n]))
    forward = transformed(fn, Transform("forward", wanted))
    kept: dict[str, Any] | None = None
    try:
        result, kept = dispatch.call(forward, bare, given)
    except CompileError:  # `backward()` says at the call what has no derivative; calls that are wrong fail once more
        result = _plainly(launcher, plain, sites)
    step = RecordedCall(fn, *_at_run_time(launcher.parameters, args, names))
    if kept is not None:
        made = dispatch.launcher_of(forward).ready.made
        step.keep(wanted, kept, made.outside.values())
    return outputs(result, step)


def _at_run_time(
    parameters: Parameters, args: tuple[Any, ...], names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with numbers that the code does not depend on as arrays, so that other numbers need no new program."""
    wanted = scalar_parameters(parameters)
    scalars = {p.name: p.annotation.dtype.numpy for p in parameters.signature.parameters if p.name in wanted}

    def of(name: str, value: Any) -> Any:
        return np.asarray(value, scalars[name]) if name in scalars and isinstance(value, NUMBERS) else value

    python = parameters.python.parameters
    left = {n: p.default for n, p in [*python.items()][len(args) :] if n in scalars and n not in names}
    given = [of(name, a) for name, a in zip(python, args, strict=False)]
    return (*given, *args[len(given) :]), {n: of(n, a) for n, a in (names | left).items()}


def _plainly(launcher: Any, args: tuple[Any, ...], sites: dict[Any, Any]) -> Any:
    ready = launcher.found(args, sites)
    if ready.prepared is not None and ready.prepared.written:
        name = launcher.fn.name
        refused(f"{name} changes what it is given, which is not recorded: use ts.value_and_grad, or ts.no_grad()")
    return ready.run(*args)


def capture(name: str, path: str, again: Callable[[], Any]) -> Callable[[], Any]:
    """How to read an array that the function `name` takes from outside: a constant to derivatives."""

    def read() -> Any:
        value = again()
        if type(value) is Recorded and is_recording():
            refused(f"{name} closes over {path}, which requires a gradient: to derivatives that is a constant; pass it")
        return value

    return read if type(again()) is Recorded else again
