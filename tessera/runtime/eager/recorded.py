"""Tensors that require a gradient, and the record of what is computed with them.

`t.requires_grad = True` makes a Tensor a `Recorded`: another type, so that calls that no such tensor is part of never
ask. What is called with one is a `RecordedCall`: the function and its arguments, nothing of how it is differentiated.
`backward` (tape.py) writes the steps down as a program and takes its gradient as `ts.vjp` does.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

from tessera.compiler.graph.operator import REGISTRY, Operator
from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError
from tessera.language import dtypes
from tessera.language.decorators import Decorated
from tessera.language.lazy import np
from tessera.language.records import STATE, holding, is_record, members
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.arrays.versions import Version, watch
from tessera.runtime.callsite import call_place, call_span
from tessera.runtime.eager import calls
from tessera.runtime.eager.compile import CONSTANT_NUMBERS, NUMBERS
from tessera.runtime.eager.operators import OperatorFunction, apply
from tessera.runtime.eager.tensor import Tensor, wrapped
from tessera.tracebacks import outward

P, R = ParamSpec("P"), TypeVar("R")

_recording: ContextVar[bool] = ContextVar("recording", default=True)
_serials = itertools.count()


def is_recording() -> bool:
    return _recording.get()


class no_grad:
    """Inside of a `with` block, or of a function that it decorates, nothing is recorded for `backward()`. What a
    compiled function computes there is constant for derivatives of what follows."""

    def __new__(cls, function: Any = None) -> Any:
        """`@ts.no_grad` is `@ts.no_grad()`."""
        if function is not None and not callable(function):
            message = (
                f"no_grad stands before a function or in `with ts.no_grad():`, and takes no {type(function).__name__}"
            )
            raise LaunchError(Diagnostic("TS105", message, call_span()))
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        self._tokens: list[Token[bool]] = []
        self.__tessera_builtin__ = "tessera.no_grad()"

    @outward
    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def without_gradient(*args: P.args, **kwargs: P.kwargs) -> R:
            with no_grad():  # one for each call: tokens belong to its thread
                return function(*args, **kwargs)

        return without_gradient

    def __enter__(self) -> None:
        self._tokens.append(_recording.set(False))

    def __exit__(self, *_: object) -> None:
        _recording.reset(self._tokens.pop())


class RecordedCall:
    """One call: `callee(*args, **kwargs)`. In the arguments `Output`s stand for what earlier steps gave. `bare`: the
    arguments without gradients, where the caller has them."""

    __slots__ = (
        "args", "callee", "captured", "freed", "guard", "inputs", "kept", "kwargs", "place", "results", "serial",
        "versions",
    )  # fmt: skip

    def __init__(
        self, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
        bare: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self.callee, self.place, self.serial, self.freed = callee, call_place(), next(_serials), False
        self.versions: list[tuple[Version, int]] = []
        """of the arrays that it has read, and what they were"""
        self.results: dict[str, tuple[Any, Version, int]] = {}
        """what costly calls gave, by the path of an Output: `backward()` reads it"""
        self.kept: Residuals | None = None
        self.captured: list[tuple[Callable[[], Any], Any]] = []
        """arrays that the function has read from outside: how, and which"""
        self.guard: Callable[[], bool] | None = None
        """whether all else that the function reads from outside is what it was"""
        self.inputs: list[Output] = []
        """what earlier steps gave, wherever it stands in the arguments"""
        plain, named = bare or (list(map(without_grad, args)), {k: without_grad(a) for k, a in kwargs.items()})
        self.args = tuple([self._kept(a, b) for a, b in zip(args, plain, strict=True)])
        self.kwargs = {k: self._kept(a, named[k]) for k, a in kwargs.items()}

    def _kept(self, value: Any, bare: Any) -> Any:
        """An argument as the step holds it: `Output`s for computed tensors, whose memory may go. `bare`: the argument
        without gradients, itself where it has none."""
        if type(value) is Recorded:
            if value._tape is None or isinstance(value._tape, Tensor):
                self._watch(value)
                return value
            out, version, count = value._tape
            if version.count != count:
                refused(f"a result of {_name(out.step.callee)} has been changed in place: what is computed with it now "
                        "cannot be told from what was. Use ts.where or ts.put, which give another tensor")  # fmt: skip
            self.inputs.append(out)
            return out
        if isinstance(value, (list, tuple)):
            items = [self._kept(v, b) for v, b in zip(value, bare, strict=True)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {k: self._kept(v, bare[k]) for k, v in value.items()}
        if adapter_of(value) is not None:
            self._watch(value)
        elif is_record(value):
            held = members(value)
            parts = held if bare is value else members(bare)
            kept = {n: self._kept(v, parts[n]) for n, v in held.items()}
            if bare is not value:
                return Rebuilt(bare, {n: v for n, v in kept.items() if parts[n] is not held[n]})
        return value

    def keep(self, recalled: Any, values: dict[str, Any], ready: Any) -> None:
        """Holds what the call, which ran as `ready`, has kept for `backward()`; watches what it reads from outside."""
        self.kept, self.guard = Residuals(recalled, {}), ready.guard
        for name, array in values.items():
            version = watch(array._data if isinstance(array, Tensor) else array)
            self.kept.values[name] = array, version, version.count
        for read in ready.made.outside.values():
            array = read()
            self._watch(array)
            if read() is array:  # not one that is made anew each time
                self.captured.append((read, array))

    def _watch(self, array: Any) -> None:
        held = array._data if isinstance(array, Tensor) else array
        if isinstance(held, np.ndarray) or isinstance(array, Tensor):
            version = watch(held)
            self.versions.append((version, version.count))


class Residuals(NamedTuple):
    """What the call of a function has kept of the values in it, by name; `recalled` is the function that takes them."""

    recalled: Any
    values: dict[str, tuple[Any, Version, int]]


class Output(NamedTuple):
    """A result of a step: the expression behind its name that leads to it, such as `[0].carry`."""

    step: RecordedCall
    path: str


class Rebuilt(NamedTuple):
    """A dataclass some of whose parts are `Output`s or require gradients."""

    record: Any
    changes: dict[str, Any]


class Recorded(Tensor):
    """A Tensor that requires a gradient. `_tape`: its `.grad`, or the output that it is, with its memory's version."""

    __slots__ = ()
    _tape: Any

    requires_grad = property(
        lambda self: True, lambda self, wanted: self.requires_grad_(wanted), doc="Whether calls with it are recorded."
    )

    @outward
    def requires_grad_(self, wanted: bool = True) -> Any:
        if not wanted:
            if not is_leaf(self):
                refused("this tensor was computed from others that require gradients: take .detach() of it")
            self.__class__ = Tensor
            del self._tape
        return self

    @property
    def grad(self) -> Tensor | None:
        """What `backward()` has added up; None before, and of tensors that were computed."""
        return self._tape if is_leaf(self) else None

    @grad.setter
    @outward
    def grad(self, value: Any) -> None:
        if not is_leaf(self):
            refused("only a tensor whose requires_grad was set has .grad, this one was computed")
        if value is not None and (tuple(value.shape), Tensor(value).dtype) != (self.shape, self.dtype):
            message = f"this .grad is {list(self.shape)} {self.dtype}, not {list(value.shape)} {Tensor(value).dtype}"
            raise LaunchError(Diagnostic("TS357", message, call_span()))
        self._tape = None if value is None else Tensor(value)

    @outward
    def backward(self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Adds to `.grad` of every tensor that requires it the derivative of this one by it.

        `gradient` has its shape and dtype and is what the derivatives are multiplied by; a single real number needs
        none. What was recorded is freed, unless `retain_graph`. Raises LaunchError TS352, TS356, TS357, and
        CompileError TS353, TS355 at the line that was called. `create_graph` is refused (TS356).
        """
        if create_graph:
            refused(
                "gradients that backward() adds up are not recorded: leave create_graph out, and write the loss as a "
                "function f of w. ts.grad(f)(w) is its gradient, and the gradient of what is computed from that "
                "ts.grad(lambda w: ts.sum(ts.grad(f)(w) ** 2))(w)"
            )
        deferred("runtime.eager.tape").backward(self, gradient, retain_graph)

    def detach(self) -> Tensor:
        """The same memory as a Tensor that requires no gradient."""
        return without_grad(self)

    @property
    def T(self) -> Tensor:
        return _recorded(lambda x: x.T, _transposed, (self,))

    @outward
    def __getitem__(self, index: Any) -> Any:
        return _recorded(lambda x, i: Tensor.__getitem__(x, i), subscript, (self, _plain_index(index)))

    @outward
    def __setitem__(self, index: Any, value: Any) -> None:
        if not is_leaf(self) or _recording.get():
            refused("a tensor that requires a gradient is not changed in place: ts.where and ts.put give another one"
                    + (", or change it under ts.no_grad()" if is_leaf(self) else ""))  # fmt: skip
        Tensor.__setitem__(self, index, without_grad(value))

    def __copy__(self) -> Any:
        return _recorded(Tensor.__copy__, _same, (self,))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not is_leaf(self):
            refused("a copy of a computed tensor has no place of its own in what is recorded: use .detach()")
        return without_grad(self).copy().requires_grad_()

    @outward
    def to(self, where: Any) -> Tensor:
        moved = without_grad(self).to(where)
        if moved.device != self.device and _recording.get():
            refused("moving between devices is not recorded: move it with .detach(), then set requires_grad")
        return super().to(where)

    @outward
    def numpy(self) -> Any:
        """A NumPy array over the same memory, which cannot be stored to. Raises LaunchError TS356 of what was computed,
        outside of `ts.no_grad()`: what NumPy computes with it would not be recorded."""
        if not is_leaf(self):
            demand_off()
        array = self._on_host().view()
        array.flags.writeable = False
        return array

    @outward
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    @outward
    def __dlpack__(self, **options: Any) -> Any:
        if not is_leaf(self):
            demand_off()
        return super().__dlpack__(**options)


def _in_place(tensor: Recorded, other: Any) -> Any:
    """`x -= y` gives the name to another tensor, as everywhere. Under `ts.no_grad()`, where parameters are stored to,
    it would be lost."""
    if is_leaf(tensor) and not _recording.get():
        refused("this would give the name to another tensor, and the parameter would keep its values: x[...] = x - y"
                " stores them, x = x - y is another tensor")  # fmt: skip
    return NotImplemented


for _operator in ("add", "sub", "mul", "truediv", "pow", "matmul"):
    setattr(Recorded, f"__i{_operator}__", outward(_in_place))


def is_leaf(tensor: Recorded) -> bool:
    """Whether its `requires_grad` was set: the others were computed."""
    return tensor._tape is None or isinstance(tensor._tape, Tensor)


def require(tensor: Tensor) -> None:
    """Has a Tensor require a gradient. Raises LaunchError TS351 where it holds no floats."""
    if not (tensor.dtype.is_float or tensor.dtype.is_complex):
        message = f"a tensor of {tensor.dtype} has no gradient; convert it with .to(ts.f32)"
        raise LaunchError(Diagnostic("TS351", message, call_span()))
    tensor.__class__ = Recorded
    tensor._tape = None
    deferred("runtime.eager.function_calls").record()


def refused(message: str, code: str = "TS356") -> NoReturn:
    raise LaunchError(Diagnostic(code, message, call_span()))


def demand_off(what: str = "what other libraries compute", instead: str = "") -> None:
    """Refuses, outside of `ts.no_grad()`, what nothing would be recorded of."""
    if _recording.get():
        ways = [instead, "take .detach(), of a number .item()", "call it under ts.no_grad()"]
        refused(f"{what} is not recorded for backward(): {', or '.join(filter(None, ways))}")


def differentiated() -> bool:
    """Whether calls are recorded, and one of the running functions was given what requires a gradient."""
    frame = sys._getframe(1)
    while _recording.get() and frame is not None and frame.f_code.co_name != "<module>":
        held = frame.f_locals
        if any(
            without_grad(v) is not v
            for v in (held[n] for n in frame.f_code.co_varnames[: frame.f_code.co_argcount] if n in held)
        ):
            return True
        frame = frame.f_back
    return False


def without_grad(value: Any) -> Any:
    """An argument with Tensors that require no gradient over the same memory; itself where there is no other. States
    stay: nothing is differentiated by them."""
    if type(value) is Recorded:
        return wrapped(value._data)
    if isinstance(value, (list, tuple)):
        items = list(map(without_grad, value))
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        items = {k: without_grad(v) for k, v in value.items()}
        return value if all(items[k] is v for k, v in value.items()) else items
    if adapter_of(value) is None and is_record(value) and not getattr(type(value), STATE, False):
        held = members(value)
        try:
            made = {n: without_grad(v) for n, v in held.items()}
        except RecursionError:  # objects that hold each other are no tree
            return value
        return value if all(made[n] is v for n, v in held.items()) else holding(type(value), made)
    return value


def _recorded(run: Callable[..., Any], callee: Any, args: tuple[Any, ...], given: tuple[Any, ...] | None = None) -> Any:
    """The result of `run`; as a step that calls `callee`, with the arguments `given` where they differ."""
    result = run(*map(without_grad, args))
    return outputs(result, RecordedCall(callee, args if given is None else given, {})) if _recording.get() else result


def outputs(result: Any, step: RecordedCall, path: str = "") -> Any:
    """The floats of a result, as outputs of a step."""
    if isinstance(result, (list, tuple)):
        items = [outputs(v, step, f"{path}[{i}]") for i, v in enumerate(result)]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if isinstance(result, dict):
        return {k: outputs(v, step, f"{path}[{k!r}]") for k, v in result.items()}
    if adapter_of(result) is not None:
        tensor = wrapped(result._data) if isinstance(result, Tensor) else Tensor(result)
        if not (tensor.dtype.is_float or tensor.dtype.is_complex):
            return result
        tensor.__class__ = Recorded
        version = watch(tensor._data)
        tensor._tape = Output(step, path), version, version.count
        if is_costly(step.callee) and tensor._data.flags.c_contiguous:  # not where it is another's memory, moved
            step.results[path] = tensor._data, version, version.count
        return tensor
    if is_record(result) and not getattr(type(result), STATE, False):
        return holding(type(result), {n: outputs(v, step, f"{path}.{n}") for n, v in members(result).items()})
    return result


_CHEAP = frozenset({"map", "view", "join", "gather", "put", "generate"})
"""kinds of operators that are computed again with what reads them, for less than their memory costs"""


def is_costly(callee: Any) -> bool:
    """Whether the results of a call are held for `backward()`."""
    if isinstance(callee, OperatorFunction):
        return callee.operator.kind not in _CHEAP and callee.operator.batching != "map"
    return isinstance(callee, Decorated)


# What is recorded


def among(args: Any) -> bool:
    """Whether a tensor that requires a gradient stands among the arguments of an operator."""
    return any(type(v) is Recorded or (isinstance(v, (list, tuple)) and among(v)) for v in args)


def operator(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator called with tensors that require gradients among its arguments."""
    if op.saving is not None and _recording.get() and (other := _saving(op, args, kwargs)) is not None:
        return operator(*other)[0]
    if _recording.get() and (name := _number(op, args, kwargs)):
        return _filled(op, name, args, kwargs)
    result = apply(op, tuple(map(without_grad, args)), {k: without_grad(v) for k, v in kwargs.items()})
    if not op.differentiable or not _recording.get():
        return result
    given = _Given(op, (args, tuple(kwargs.values())))
    known = () if op.spreads else op.parameters
    found = {p.name: p for p in op.parameters if not p.spread} if kwargs else {}
    step = RecordedCall(
        operator_function(op),
        tuple(map(given.value, itertools.chain(known, itertools.repeat(None)), args)),
        {k: given.value(found.get(k), v) for k, v in kwargs.items()},
    )
    return outputs(result, step)


def _number(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The parameter that is a number to the operator, and for which a tensor that requires a gradient is given."""
    try:
        _, attrs = op.bind(args, kwargs)
    except TypeError:
        return None
    return next((name for name, value in attrs.items() if among((value,))), None)


def _filled(op: Operator, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What is filled with a tensor is a broadcast of it. To other operators a number is a constant, for derivatives
    too."""
    if op.name not in ("full", "full_like"):
        message = f"{name} of {op.name} is a number, by which backward() has no derivative, and the tensor that is "
        refused(message + "given for it requires a gradient: pass .item() or .detach() of it")
    operands, attrs = op.bind(args, kwargs)
    shape, dtype = (attrs["shape"], None) if op.name == "full" else (operands[0].shape, Tensor(operands[0]).dtype)
    value, wanted = attrs["value"], dtypes.of(attrs.get("dtype") or dtype or attrs["value"].dtype)
    return operator(REGISTRY["broadcast_to"], (value if value.dtype == wanted else value.to(wanted), shape), {})


def _saving(
    op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Operator, tuple[Any, ...], dict[str, Any]] | None:
    """What is called instead, to give what the derivative reads too; None where only this operator will do."""
    try:
        operands, attrs = op.bind(args, kwargs)
    except TypeError:
        return None
    given = [o for o in operands if o is not None]
    if not all(isinstance(o, Tensor) and o.dtype == given[0].dtype and o.dtype.is_float for o in given):
        return None
    found = op.saving([o.shape for o in given], attrs)  # type: ignore[misc]
    return None if found is None else (REGISTRY[found[0]], tuple(given), found[1])


class _Given:
    """Arguments as functions take them: a number that is passed when an operator runs is an array of the dtype it has
    then."""

    def __init__(self, op: Operator, args: Any) -> None:
        self.op, self.args = op, args

    def value(self, p: Any, value: Any) -> Any:
        if p is None or not p.operand:
            return value if p is None else calls.as_attribute(p.name, value)
        if isinstance(value, NUMBERS) and self.op.name not in CONSTANT_NUMBERS:
            beside = None if p.name in self.op.apart else self.common
            return np.asarray(value, dtypes.weak(value, beside).numpy)
        plain = isinstance(value, (list, tuple, np.generic)) and not p.variadic
        return Tensor(value) if plain else value

    @property
    def common(self) -> Any:
        """The dtype that numbers adapt to."""
        found = list(_arrays(self.args))
        return next((d for d in found if d.kind != "bool"), found[0] if found else None)


@functools.cache
def operator_function(op: Operator) -> OperatorFunction:
    """What steps call: the same object for the same operator, also for one that only a symbol calls."""
    return OperatorFunction(op.name, op)


def _arrays(value: Any) -> Iterator[Any]:
    """The dtypes of the arrays among arguments."""
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _arrays(v)
    elif (adapter := adapter_of(value)) is not None:
        yield adapter.view(value).dtype


# Functions that steps call: the evaluator reads them


def _transposed(x: Any) -> Any:
    return x.T


def _same(x: Any) -> Any:
    return x


def subscript(x: Any, index: Any) -> Any:
    return x[index]


def _plain_index(index: Any) -> Any:
    """An index as functions take it: masks as the positions where they hold."""
    items = index if isinstance(index, tuple) else (index,)
    out: list[Any] = []
    for item in items:
        array = item if isinstance(item, (list, np.ndarray)) or adapter_of(item) is not None else None
        if array is not None:
            array = np.asarray(array)
        if array is None or isinstance(item, (bool, int)):
            out.append(item)
        elif array.dtype == bool:
            out += np.nonzero(array)
        else:
            out.append(int(array) if array.ndim == 0 else array)
    return out[0] if len(out) == 1 else tuple(out)


def _name(callee: Any) -> str:
    return getattr(callee, "name", None) or getattr(callee, "__name__", repr(callee))
