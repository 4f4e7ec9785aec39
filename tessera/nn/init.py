"""Initial values of parameters.

All functions take a `shape`, a `key` and a `dtype`. The same key gives the same bits on every machine and target:
element i is a function of the key and of i (the counter-based generator Philox4x32-10 of J. K. Salmon et al., 2011,
which is behind `ts.uniform` and `ts.normal`). `fan_in` is the number of inputs of one output: the product of all axes
but the last for weights `[inputs, outputs]`, unless it is given.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import TYPE_CHECKING, Any

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.language.absent import instead

if not TYPE_CHECKING:  # a name that is not there is an error in editors, too

    def __getattr__(name: str) -> Any:
        why = instead(name, __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{why and f'; {why}'}")


def split(key: Any, count: int) -> list[Any]:
    """`ts.split_key(key, count)`; of None, keys derived from the next one of the stream that `ts.manual_seed` starts.

    Raises LaunchError TS105 for a key that is not a whole number.
    """
    return ts.split_key(key if isinstance(key, ts.Tensor) else _given(key), count)


def uniform(shape: tuple[int, ...], key: int | None = None, bound: float = 1.0, dtype: Any = ts.f32) -> ts.Tensor:
    """Uniform over [-bound, bound)."""
    _demand_order("uniform", shape, key)
    return ts.uniform(_given(key), shape, -bound, bound).astype(dtype)


def normal(shape: tuple[int, ...], key: int | None = None, std: float = 1.0, dtype: Any = ts.f32) -> ts.Tensor:
    """Normally distributed around 0."""
    _demand_order("normal", shape, key)
    return ts.normal(_given(key), shape, 0.0, std).astype(dtype)


def _demand_order(name: str, shape: Any, key: Any) -> None:
    """Raises LaunchError TS105 where key and shape have changed places, which is the order of `ts.normal`."""
    if isinstance(key, (tuple, list)):
        message = f"init.{name}(shape, key): the shape comes first, init.{name}({key!r}, {shape!r})"
        raise LaunchError(Diagnostic("TS105", message))


def _given(key: int | None) -> int:
    """A key, or for None the next one of the stream that `ts.manual_seed` starts."""
    if key is None:
        return ts.random_key()
    if not isinstance(key, Integral) or isinstance(key, bool):
        raise LaunchError(Diagnostic("TS105", f"key is a whole number that decides the initial values, not {key!r}"))
    return key


def demand_count(name: str, value: Any) -> None:
    """Raises LaunchError TS105 for what is no whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise LaunchError(Diagnostic("TS105", f"{name} is a whole number of at least 1, not {value!r}"))


def _fan_in(shape: Any, given: int) -> float:
    for size in shape:
        demand_count("each size of a layer", size)
    return given or math.prod(shape[:-1])


def zeros(shape: tuple[int, ...], key: int = 0, dtype: Any = ts.f32) -> ts.Tensor:
    return ts.zeros(shape, dtype)


def ones(shape: tuple[int, ...], key: int = 0, dtype: Any = ts.f32) -> ts.Tensor:
    return ts.ones(shape, dtype)


def lecun_uniform(shape: tuple[int, ...], key: int | None = None, dtype: Any = ts.f32, fan_in: int = 0) -> ts.Tensor:
    """Uniform with |w| < 1 / sqrt(fan_in), as in PyTorch's `nn.Linear`."""
    return uniform(shape, key, 1 / math.sqrt(_fan_in(shape, fan_in)), dtype)


def glorot_uniform(shape: tuple[int, ...], key: int | None = None, dtype: Any = ts.f32) -> ts.Tensor:
    """Uniform with |w| < sqrt(6 / (inputs + outputs)) (X. Glorot, Y. Bengio, 2010)."""
    return uniform(shape, key, math.sqrt(6 / (_fan_in(shape, 0) + shape[-1])), dtype)


def he_normal(shape: tuple[int, ...], key: int | None = None, dtype: Any = ts.f32, fan_in: int = 0) -> ts.Tensor:
    """Normal with variance 2 / fan_in, for layers before `relu` (K. He et al., 2015)."""
    return normal(shape, key, math.sqrt(2 / _fan_in(shape, fan_in)), dtype)
