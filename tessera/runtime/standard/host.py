"""How functions of the standard run in NumPy or CuPy, on the memory of Tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.compiler.machines import HOST
from tessera.errors import Diagnostic, LaunchError
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime.arrays.libraries import adapter_of, cupy
from tessera.runtime.callsite import call_span
from tessera.runtime.eager.protocols import results, storages
from tessera.runtime.eager.tensor import Tensor, wrapped
from tessera.tracebacks import outward


def tensor(x: Any, what: str = "x") -> Tensor:
    """`x` as a Tensor over the same memory. Raises LaunchError TS501 where it is not an array."""
    if isinstance(x, Tensor):
        return x
    if adapter_of(x) is None and not isinstance(x, (bool, int, float, complex, list, tuple, np.generic)):
        raise refused(f"{what} is an array, not a value of type {type(x).__name__}")
    return Tensor(x)


def refused(message: str, code: str = "TS501") -> LaunchError:
    return LaunchError(Diagnostic(code, message, call_span()))


def dtype_named(dtype: Any) -> DType:
    """Raises LaunchError TS501 where it is none."""
    found = dtypes.of(dtype)
    if found is None:
        raise refused(f"{dtype!r} is not a dtype")
    return found


def library(*tensors: Any) -> Any:
    """NumPy, or CuPy for tensors on a GPU."""
    return cupy() if any(isinstance(t, Tensor) and t.device != HOST for t in tensors) else np


def run(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of NumPy or CuPy, on Tensors. What it refuses becomes a LaunchError at the user's line."""
    try:
        with np.errstate(all="ignore"):
            return results(f(*map(storages, args), **{k: storages(v) for k, v in kwargs.items()}))
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:  # LinAlgError is a ValueError
        name = getattr(f, "__name__", "it")
        raise refused(f"{name}: {error}") from None


def placed(array: Any, device: Any) -> Tensor:
    """A new array of NumPy's as a Tensor on a device; None is the CPU."""
    made = wrapped(np.asarray(array))
    return made if device in (None, HOST) else made.to(device)


def public(module: dict[str, Any], names: list[str]) -> None:
    """Errors of a module's functions carry none of our frames."""
    for name in names:
        module[name] = outward(module[name])
