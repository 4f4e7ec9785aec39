"""Operators called directly, on arrays: each call is a one-operator function through the same compiler.

`tessera.softmax`, Tensor methods and `tessera.op` are `OperatorFunction`s over the operator definitions. A call is
compiled once per operand types, attributes and target. Operators that only re-index their operand move no data: they
are views of the same memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import tessera.compiler.graph  # noqa: F401  (its import registers the operators)
from tessera.compiler.graph.operator import FUNCTIONS, MEMBERS, REGISTRY, Operator, OperatorParameter
from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError, TesseraError
from tessera.language.lazy import LazyModule
from tessera.nearest import nearest
from tessera.runtime.callsite import call_span
from tessera.tracebacks import leave, outward


class OperatorFunction:
    """A public operator: `tessera.softmax(x, axis=-1)`. Takes arrays of any library and gives the same kind back."""

    def __init__(self, name: str, operator: Operator) -> None:
        self.operator = operator
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{operator.signature}\n\n{operator.doc}"

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [inspect.Parameter(p.name, kind, default=p.default) for p in _in_order(self.operator.parameters)]
        )

    @property
    def __tessera_operator__(self) -> str:
        return self.operator.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return apply(self.operator, args, kwargs)
        except TesseraError as error:
            leave(error)
            raise

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        """By name: `tessera.relu`, `tessera.linalg.solve`."""
        space, name = self.operator.space, self.__name__
        return (member, (space, name)) if space else (function, (name,))

    def __repr__(self) -> str:
        return f"<operator {self.operator.signature}>"


def _in_order(parameters: Sequence[OperatorParameter]) -> list[OperatorParameter]:
    """As Python wants them: an optional operand may stand before a parameter that has to be given."""
    return sorted(parameters, key=lambda p: not p.required)


class LogFunction(OperatorFunction):
    """`tessera.log`: of an array the logarithm; of a dict of numbers by name, what a run logs."""

    @outward
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Mapping):
            return deferred("training.monitor").log(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class SolvingFunction(OperatorFunction):
    """An operator without a finite result for singular matrices: outside of functions that is an error, as in NumPy."""

    @outward
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = super().__call__(*args, **kwargs)
        if not finite(result) and all(map(finite, (*args, *kwargs.values()))):
            message = f"{self.__name__}: {self.operator.singular}"
            raise LaunchError(Diagnostic("TS501", message, call_span()))
        return result


def finite(x: Any) -> bool:
    """Whether an array has finite elements only; what is no array of floats counts as finite."""
    if isinstance(x, (bool, int, str)) or x is None:
        return True
    return bool(apply(REGISTRY["all"], (apply(REGISTRY["isfinite"], (x,), {}),), {}))


_functions: dict[str, OperatorFunction] = {}


def function(name: str) -> OperatorFunction | None:
    """The public operator function called `name`; None where there is none."""
    if name not in _functions and name in FUNCTIONS:
        kind = LogFunction if name == "log" else OperatorFunction
        _functions[name] = kind(name, FUNCTIONS[name])
    return _functions.get(name)


def member(space: str, name: str) -> OperatorFunction | None:
    """The operator function `tessera.<space>.<name>`; None where there is none."""
    path = f"{space}.{name}"
    if path not in _functions and name in MEMBERS[space]:
        operator = MEMBERS[space][name]
        _functions[path] = (SolvingFunction if operator.singular else OperatorFunction)(name, operator)
    return _functions.get(path)


def hint(name: str) -> str:
    """What to say of a name that no operator has."""
    close = nearest(name, FUNCTIONS)
    return f"; did you mean {close!r}?" if close else ""


class Operators:
    """`tessera.op`: every public operator as an attribute."""

    @outward
    def __getattr__(self, name: str) -> OperatorFunction:
        found = function(name)
        if found is None:
            raise AttributeError(f"there is no operator {name!r}{hint(name)}")
        return found

    def __dir__(self) -> list[str]:
        return sorted(FUNCTIONS)


op = Operators()
_calls: Any = LazyModule("tessera.runtime.eager.calls")  # NumPy and the compiler are loaded by the first call


def apply(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs one operator on arrays and Python numbers.

    The result belongs to the library of the first array; with numbers alone it is a Tensor. Raises LaunchError or
    CompileError with carets at the caller's line where the operator rejects its arguments.
    """
    if kwargs:
        return _calls.general(operator, args, kwargs)
    return _calls.positional(operator, tuple(args))
