"""Calls of functions with tensors that require gradients, as steps that hold what `backward()` reads of them.

The function runs as `forward`, which gives its result and the values in it that its derivative needs (see
compiler/autodiff/handed_on.py). `backward` (tape.py) calls it as `recalled`, which is given them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

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

Args: TypeAlias = tuple[Any, ...]


class CallRecorder(NamedTuple):
    """What calls go through, from when a tensor first requires a gradient."""

    call: Callable[..., Any]
    capture: Callable[..., Callable[[], Any]]
    among: Callable[[Any], bool]
    operator: Callable[..., Any]


def record() -> None:
    """Has calls of functions and operators recorded."""
    dispatch.recorder = CallRecorder(call, capture, among, operator)


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
    halves = _halves(launcher, wanted)
    kept: dict[str, Any] | None = None
    try:
        if "distributed" in fn.options:  # whose parts run apart
            result = _plainly(launcher, plain, sites)
        else:
            result, kept = dispatch.call(halves.forward, bare, given)
    except CompileError:  # `backward()` says at the call what has no derivative; calls that are wrong fail once more
        result = _plainly(launcher, plain, sites)
    if halves.numbers:
        args, names = halves.at_run_time(args, names)
    step = RecordedCall(fn, args, names, (bare, names | given))
    if kept is not None:
        step.keep(halves.recalled, kept, dispatch.launcher_of(halves.forward).ready)
    return outputs(result, step)


class Halves:
    """A function as it runs for some arguments that gradients are wanted by, and as it is differentiated later.
    `numbers`: the parameters whose values the code does not depend on, with their dtypes."""

    def __init__(self, fn: Any, parameters: Parameters, wanted: tuple[int | str, ...]) -> None:
        self.forward = transformed(fn, Transform("forward", wanted))
        self.recalled = transformed(fn, Transform("recalled", wanted))
        numbers = scalar_parameters(parameters)
        self.numbers = {p.name: p.annotation.dtype.numpy for p in parameters.signature.parameters if p.name in numbers}
        self.parameters = parameters.python.parameters

    def at_run_time(self, args: Args, names: dict[str, Any]) -> tuple[Args, dict[str, Any]]:
        """Arguments with such numbers as arrays, so that other numbers need no new program."""

        def of(name: str, value: Any) -> Any:
            wanted = name in self.numbers and isinstance(value, NUMBERS)
            return np.asarray(value, self.numbers[name]) if wanted else value

        left = [*self.parameters.items()][len(args) :]
        names = {n: p.default for n, p in left if n in self.numbers} | names
        given = [of(name, a) for name, a in zip(self.parameters, args, strict=False)]
        return (*given, *args[len(given) :]), {n: of(n, a) for n, a in names.items()}


def _halves(launcher: Any, wanted: tuple[int | str, ...]) -> Halves:
    known = vars(launcher).setdefault("halves", {})
    found = known.get(wanted)
    if found is None:
        found = known[wanted] = Halves(launcher.fn, launcher.parameters, wanted)
    return found


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
