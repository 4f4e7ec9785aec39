"""Initial values of parameters.

All functions take a `shape`, a `key` and a `dtype`. The same key gives the same bits on every machine and target:
element i is a function of the key and of i (the counter-based generator Philox4x32-10 of J. K. Salmon et al., 2011,
which is behind `ts.uniform` and `ts.normal`). `fan_in` is the number of inputs of one output: the product of all axes
but the last for weights `[inputs, outputs]`, unless it is given.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tessera as ts
from tessera.fitted import fitted
from tessera.language.absent import instead

if not TYPE_CHECKING:  # a name that is not there is an error in editors, too

    def __getattr__(name: str) -> Any:
        why = instead(name, __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{why and f'; {why}'}")


@fitted
def split(key: int | ts.Tensor | None, count: int) -> list[Any]:
    """`ts.split_key(key, count)`; of None, keys derived from the next one of the stream that `ts.manual_seed` starts.

    Raises LaunchError TS105 for a key that is not a whole number.
    """
    return ts.split_key(key if isinstance(key, ts.Tensor) else _given(key), count)


@fitted
def uniform(shape: tuple[int, ...], key: int | None = None, bound: float = 1.0, dtype: Any = ts.f32) -> ts.Tensor:
    """Uniform over [-bound, bound)."""
    return ts.uniform(_given(key), shape, -bound, bound).astype(dtype)


@fitted
def normal(shape: tuple[int, ...], key: int | None = None, std: float = 1.0, dtype: Any = ts.f32) -> ts.Tensor:
    """Normally distributed around 0."""
    return ts.normal(_given(key), shape, 0.0, std).astype(dtype)


def _given(key: int | None) -> int:
    """A key, or for None the next one of the stream that `ts.manual_seed` starts."""
    return ts.random_key() if key is None else key


def _fan_in(shape: Any, given: int) -> float:
    return given or math.prod(shape[:-1])


@fitted
def zeros(shape: tuple[int, ...], key: int = 0, dtype: Any = ts.f32) -> ts.Tensor:
    return ts.zeros(shape, dtype)


@fitted
def ones(shape: tuple[int, ...], key: int = 0, dtype: Any = ts.f32) -> ts.Tensor:
    return ts.ones(shape, dtype)


@fitted
def lecun_uniform(shape: tuple[int, ...], key: int | None = None, dtype: Any = ts.f32, fan_in: int = 0) -> ts.Tensor:
    """Uniform with |w| < 1 / sqrt(fan_in), as in PyTorch's `nn.Linear`."""
    return uniform(shape, key, 1 / math.sqrt(_fan_in(shape, fan_in)), dtype)


@fitted
def glorot_uniform(shape: tuple[int, ...], key: int | None = None, dtype: Any = ts.f32) -> ts.Tensor:
    """Uniform with |w| < sqrt(6 / (inputs + outputs)) (X. Glorot, Y. Bengio, 2010)."""
    return uniform(shape, key, math.sqrt(6 / (_fan_in(shape, 0) + shape[-1])), dtype)


@fitted
def he_normal(shape: tuple[int, ...], key: int | None = None, dtype: Any = ts.f32, fan_in: int = 0) -> ts.Tensor:
    """Normal with variance 2 / fan_in, for layers before `relu` (K. He et al., 2015)."""
    return normal(shape, key, math.sqrt(2 / _fan_in(shape, fan_in)), dtype)
