"""`loss.backward()`: the recorded calls as one function, and its pullback.

The steps become one line each of a `@ts.function` whose parameters are the arrays they read. Its gradient is made,
compiled and kept as that of any function is: derivatives have one set of rules. What costly calls gave is read from
where it is; of the forward pass only what is cheap, and what lies within functions, is computed again. Equal steps over
equal types find the program that is there.
"""

from __future__ import annotations

import hashlib
import linecache
from dataclasses import replace
from typing import Any

from tessera.compiler.graph.operator import REGISTRY
from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.immutable import immutable
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.records import is_record
from tessera.language.records import replace as replaced
from tessera.language.transforms import Transform, Transformed, transformed
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.call.arguments import holds_array
from tessera.runtime.call.contents import content
from tessera.runtime.callsite import call_span, span_at
from tessera.runtime.code.recent import Recent
from tessera.runtime.eager.operators import OperatorFunction
from tessera.runtime.eager.recorded import (
    Output,
    Rebuilt,
    Recorded,
    RecordedCall,
    is_leaf,
    no_grad,
    operator_function,
    refused,
    subscript,
)
from tessera.runtime.eager.tensor import Tensor, wrapped

_programs: Recent[Any, RecordedProgram] = Recent(64)


@immutable
class RecordedProgram:
    """The function of some steps. `constants` are alive for as long as their identities are part of its key."""

    pullback: Transformed
    file: str
    constants: tuple[Any, ...]


def backward(loss: Recorded, gradient: Any, retain: bool) -> None:
    """Adds to `.grad` of what the loss was computed from; see `Tensor.backward`."""
    seed = _seed(loss, gradient)
    if is_leaf(loss):
        return _add(loss, seed)
    out: Output = loss._tape[0]
    steps = _steps(out.step)
    for step in steps:
        _demand_whole(step)
    text = _Text(steps, out)
    program = text.program()
    try:
        with no_grad():
            found = program.pullback(tuple(text.values), seed)
    except CompileError as e:
        raise CompileError([_at_the_call(d, program, text.lines) for d in e.diagnostics]) from None
    for leaf, cotangent in zip(text.leaves, found, strict=True):
        _add(leaf, cotangent)
    if not retain:
        for step in steps:
            step.freed, step.args, step.kwargs, step.versions, step.results = True, (), {}, [], {}
            step.inputs, step.kept, step.captured, step.guard = [], None, [], None


def _seed(loss: Recorded, gradient: Any) -> Tensor:
    if gradient is None:
        if loss.size != 1 or loss.dtype.is_complex:
            message = (
                f"backward() differentiates one real number, and this is {list(loss.shape)} {loss.dtype}: reduce it"
            )
            refused(f"{message} with .sum() or .mean(), or give the gradient by it, backward(gradient)", "TS352")
        return wrapped(np.ones(loss.shape, loss.dtype.numpy))
    seed = Tensor(gradient) if adapter_of(gradient) is not None else Tensor(gradient, loss.dtype)
    if (seed.shape, seed.dtype) != (loss.shape, loss.dtype):
        message = f"the gradient is {list(seed.shape)} {seed.dtype}, and the tensor {list(loss.shape)} {loss.dtype}"
        refused(message, "TS357")
    return seed


def _add(leaf: Recorded, cotangent: Any) -> None:
    with no_grad():
        plain = cotangent if isinstance(cotangent, Tensor) else Tensor(cotangent)
        leaf._tape = plain if leaf._tape is None else leaf._tape + plain


def _steps(last: RecordedCall) -> list[RecordedCall]:
    """All steps on the way to `last`, in the order in which they ran."""
    found = {last.serial: last}
    waiting = [last]
    while waiting:
        step = waiting.pop()
        for out in step.inputs:
            if out.step.serial not in found:
                found[out.step.serial] = out.step
                waiting.append(out.step)
    return [found[i] for i in sorted(found)]


def _demand_whole(step: RecordedCall) -> None:
    """Raises LaunchError TS356 at the call whose record is no longer there, or no longer true."""
    message = ""
    if step.freed:
        message = (
            "backward() went through this call before, and what was recorded of it is freed: call backward() once, "
        )
        message += "on the sum of the losses, or the first time with retain_graph=True"
    elif any(version.count != count for version, count in step.versions) or any(
        read() is not array for read, array in step.captured
    ):
        message = "an array that this call has read has been changed in place since: call backward() before it changes"
    elif step.guard is not None and not step.guard():
        name = getattr(step.callee, "name", "the function")
        message = f"what {name} reads from outside has changed since this call: call backward() before it changes"
    if message:
        raise LaunchError(Diagnostic("TS356", message, span_at(step.place)))


def _at_the_call(d: Diagnostic, program: RecordedProgram, steps: list[RecordedCall]) -> Diagnostic:
    """A finding of the program at the line whose step it is of."""
    at = d.span.line - _HEAD - 1
    if d.span.file != program.file:
        return d
    place = span_at(steps[at].place) if 0 <= at < len(steps) else call_span()
    return replace(d, span=place, function="", fixes=(), notes=tuple(n for n in d.notes if n.span is None))


_HEAD = 1
"""lines of the text before that of the first step"""


class _Text:
    """The steps as Python. `values` are the arguments of the function, `leaves` those of them that get a gradient."""

    def __init__(self, steps: list[RecordedCall], out: Output) -> None:
        self.values: list[Any] = []
        self.wanted: list[int] = []
        self.leaves: list[Recorded] = []
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._of_step = {step.serial: f"t{i}" for i, step in enumerate(steps)}
        self._recalled: dict[tuple[int, str], str] = {}
        self.lines: list[RecordedCall] = []
        """the step that each line is of"""
        lines: list[str] = []
        read = {(o.step.serial, o.path) for step in steps for o in step.inputs}
        for step in steps:
            lines.append(f"    {self._of_step[step.serial]} = {self._call(step)}")
            whole = step.kept is not None or (  # as its derivative reads
                isinstance(step.callee, OperatorFunction) and step.callee.operator.multiple
            )
            lines += [self._recall(step, path) for path in step.results if (step.serial, path) in read or whole]
            self.lines += [step] * (len(lines) - len(self.lines))
        parameters = ", ".join(f"x{i}" for i in range(len(self.values)))
        self.text = "\n".join([f"def recorded({parameters}):", *lines, f"    return {self._of(out)}", ""])

    def program(self) -> RecordedProgram:
        key = self.text, tuple(self.wanted), tuple(content(v) for v in self.constants.values())
        found = _programs.get(key)
        if found is None:
            file = f"<recorded {hashlib.sha256(repr(key[:2]).encode()).hexdigest()[:12]}>"
            linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
            names = dict(self.constants)
            exec(compile(self.text, file, "exec"), names)
            pullback = transformed(names["recorded"], Transform("pullback", tuple(self.wanted)))
            found = RecordedProgram(pullback, file, tuple(self.constants.values()))
            _programs.put(key, found)
        return found

    def _call(self, step: RecordedCall) -> str:
        args = list(map(self._of, step.args))
        if step.callee is subscript:
            return f"{args[0]}[{args[1]}]"
        if step.kept is not None:
            kept = {n: v for n, (v, version, count) in step.kept.values.items() if version.count == count}
            operands = self._of(tuple(step.args)), self._of(step.kwargs), self._of(kept)
            return f"{self._constant(step.kept.recalled, _name(step.callee))}({', '.join(operands)})"
        args += [f"{name}={self._of(value)}" for name, value in step.kwargs.items()]
        return f"{self._constant(step.callee, _name(step.callee))}({', '.join(args)})"

    def _recall(self, step: RecordedCall, path: str) -> str:
        """The line that names what a call has given before. What was changed in place since is computed again."""
        array, version, count = step.results[path]
        computed = self._of_step[step.serial] + path
        name = self._recalled[step.serial, path] = f"{self._of_step[step.serial]}_{len(self._recalled)}"
        if version.count != count:
            return f"    {name} = {computed}"
        recalled = self._constant(operator_function(REGISTRY["recalled"]), "recalled")
        return f"    {name} = {recalled}({computed}, {self._parameter(wrapped(array))})"

    def _of(self, value: Any) -> str:
        if isinstance(value, Output):
            serial, path = value.step.serial, value.path
            return self._recalled.get((serial, path)) or self._of_step[serial] + path
        if isinstance(value, Rebuilt):
            changes = "".join(f", {n}={self._of(v)}" for n, v in value.changes.items())
            return f"{self._constant(replaced, 'replace')}({self._parameter(value.record)}{changes})"
        if value is None or value is Ellipsis or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is slice:
            return f"slice({self._of(value.start)}, {self._of(value.stop)}, {self._of(value.step)})"
        if type(value) in (list, tuple):
            inner = ", ".join(map(self._of, value))
            return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(value) == 1)})"
        if type(value) is dict:
            return "{" + ", ".join(f"{k!r}: {self._of(v)}" for k, v in value.items()) + "}"
        if adapter_of(value) is not None or (is_record(value) and not isinstance(value, DType) and holds_array(value)):
            return self._parameter(value)
        return self._constant(value, "k")

    def _parameter(self, value: Any) -> str:
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"x{len(self.values)}"
            if isinstance(value, Recorded):
                self.wanted.append(len(self.values))
                self.leaves.append(value)
                value = wrapped(value._data)
            self.values.append(value)
        return name

    def _constant(self, value: Any, name: str) -> str:
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = f"{name}_{len(self.constants)}"
            self.constants[known] = value
        return known


def _name(callee: Any) -> str:
    """How the text calls a function: by its own name, where that is one."""
    name = callee.__name__ if isinstance(callee, OperatorFunction) else str(getattr(callee, "name", ""))
    return name if name.isidentifier() else "f"
