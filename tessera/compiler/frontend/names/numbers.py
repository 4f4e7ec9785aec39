"""NumPy's functions of numbers: of sizes they mean what `math` means, in the compiler and in an editor alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tessera.compiler.frontend.names.values import Number, Unknown, is_sequence, is_static
from tessera.language.dims import Expr

SHARED = frozenset(
    ("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
     "tanh", "degrees", "radians", "prod")
)  # fmt: skip
"""names that NumPy and `math` share, with one meaning"""


class NumpyFunction:
    """One of these where only a text is read and NumPy is not there."""

    def __init__(self, name: str) -> None:
        self.__name__, self.__module__ = name, "numpy"

    def __call__(self, *args: Any) -> Any:
        raise TypeError("stands for a function of NumPy")

    def __repr__(self) -> str:
        return f"np.{self.__name__}"


class NumpyMember(Unknown):
    """Any other member of NumPy where only a text is read: what it is, and what it gives, is not known. But a tensor of
    a program is nothing that it works with."""

    def __init__(self, name: str, module: str = "numpy") -> None:
        self.__name__, self.__module__ = name, module


class NumpyGenerator:
    """What `np.random.default_rng()` gives where only a text is read."""


_FUNCTIONS = {name: NumpyFunction(name) for name in SHARED}


def numpy_function(name: str) -> NumpyFunction | None:
    return _FUNCTIONS.get(name)


def of_numbers(callee: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """`math`'s function of the same name where NumPy's is called with numbers and sizes that it has a value for."""
    name = getattr(callee, "__name__", "")
    if getattr(callee, "__module__", "") != "numpy" or name not in SHARED or len(args) != 1:
        return None
    numbers: Sequence[Any] = args[0] if name == "prod" and is_sequence(args[0]) else args
    if not numbers or not all(type(n) in (int, float) or isinstance(n, (Number, Expr)) for n in numbers):
        return None
    meant = getattr(math, name)
    if is_static(args):
        try:
            meant(*args)
        except (ValueError, OverflowError):  # NumPy gives nan or inf
            return None
    return meant
