"""Functions that are made of operators, called outside of functions: they take and give what operators do.

Their texts compute with Tensors. If NumPy's arrays, or PyTorch's, came into them, that library's arithmetic would run
between the operators, and a result would have another dtype than in a compiled function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tessera.compiler.graph.operator import ALIASES
from tessera.errors import Diagnostic, LaunchError
from tessera.language import dtypes
from tessera.language.lazy import LazyModule, np
from tessera.runtime.callsite import call_span
from tessera.tracebacks import outward, refuses

_calls: Any = LazyModule("tessera.runtime.eager.calls")  # NumPy and the compiler are loaded by the first call
_compile: Any = LazyModule("tessera.runtime.eager.compile")
_libraries: Any = LazyModule("tessera.runtime.arrays.libraries")
_tensor: Any = LazyModule("tessera.runtime.eager.tensor")

SEVERAL = "xs"
"""how such functions call a parameter that is a list of tensors"""


def made(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its operands as Tensors: the parameters that have no annotation. Where the default is a value,
    they stay numbers and tuples. Those with an annotation get Python's values for NumPy's.

    Inside of functions the text of `function` itself is read. Raises LaunchError TS501 where an argument is of no use.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    operands = [p for p in parameters if p.annotation is p.empty]
    values = [p.name for p in parameters if p.annotation not in (p.empty, "Any")]
    others = {alias: name for alias, name in ALIASES.items() if name in signature.parameters}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **{others.get(n, n): v for n, v in kwargs.items()})
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}") from None
        library = _enter(function.__name__, operands, given.arguments)
        for name in given.arguments.keys() & values:
            given.arguments[name] = _as_value(given.arguments[name])
        try:
            result = function(*given.args, **given.kwargs)
        except Exception as error:
            if not refuses(error) and _is_of(function, error):
                raise _unusable(function.__name__, error) from None
            raise
        return _leave(result, library)

    outer: Any = outward(call)
    outer.__wrapped__ = function
    return outer


def _is_of(function: Callable[..., Any], error: Exception) -> bool:
    """Whether Python raised it in the text of a function of this package: an argument is of no use there."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""
    return place.rpartition(".")[0] == function.__module__.rpartition(".")[0]


def _unusable(name: str, error: Exception) -> LaunchError:
    message = f"{name} cannot compute with these arguments: {type(error).__name__}: {error}"
    return LaunchError(Diagnostic("TS501", message, call_span(), function=name))


def _enter(name: str, operands: Sequence[inspect.Parameter], arguments: dict[str, Any]) -> Any:
    """Makes operands Tensors, and gives the adapter of the library that results belong to."""
    adapter_of = _libraries.adapter_of
    found = [p for p in operands if p.name in arguments and (arguments[p.name] is not None or p.default is p.empty)]
    values = {p.name: arguments[p.name] for p in found}
    items = [v for value in values.values() for v in (value if isinstance(value, (list, tuple)) else (value,))]
    arrays = [(a, v) for v in items if (a := adapter_of(v)) is not None]
    beside = _compile.beside_numbers([a.view(v).dtype for a, v in arrays])
    for p in found:
        value = values[p.name]
        if p.default is not p.empty and p.default is not None and adapter_of(value) is None:
            continue
        several = p.name == SEVERAL and isinstance(value, (list, tuple))
        as_tensor = functools.partial(_as_tensor, name, p.name, beside=beside)
        arguments[p.name] = [as_tensor(v) for v in value] if several else as_tensor(value)
    return _compile.library_of([a for a, _ in arrays])


def _as_tensor(name: str, parameter: str, value: Any, beside: dtypes.DType | None) -> Any:
    Tensor = _tensor.Tensor
    if isinstance(value, Tensor) or _libraries.adapter_of(value) is not None:
        return value if isinstance(value, Tensor) else Tensor(value)
    if isinstance(value, _compile.NUMBERS):
        return Tensor(value, dtypes.weak(value, beside))
    return _calls.from_list(name, parameter, value)


def _as_value(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _leave(result: Any, library: Any) -> Any:
    """Tensors as arrays of the library that the operands came from."""
    if isinstance(result, (list, tuple)):
        return type(result)(_leave(v, library) for v in result)
    own = isinstance(result, _tensor.Tensor) and library is not _tensor.TENSOR
    return library.wrap(result._data) if own else result
