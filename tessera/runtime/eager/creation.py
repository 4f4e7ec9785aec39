"""Tensors from data and from random numbers: `tessera.tensor`, callable and a namespace, and its functions.

Random tensors come from counters, not from state that a kernel advances: element i of a draw is a function of the
seed, of how many draws were made before (or of the `seed=` given), and of i. The bits are the same on every target.
"""

from __future__ import annotations

import itertools
import os
import threading
from operator import index
from typing import Any

from tessera.compiler.graph.infer import LARGEST, shown
from tessera.compiler.graph.operator import FUNCTIONS, REGISTRY
from tessera.compiler.machines import HOST
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.language import drawing, dtypes
from tessera.language.lazy import np
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.eager.operators import apply, function
from tessera.runtime.eager.tensor import TENSOR, Tensor
from tessera.tracebacks import outward


@outward
def asarray(data: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """A Tensor over `data`: the same memory where it is an array on that device, a copy of lists and numbers.

    Tensors in lists are stacked, as in functions: numbers beside them get their dtype, and derivatives go through.
    """
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        stacked = _stacked(data)
        made = stacked if dtype is None else apply(REGISTRY["cast"], (stacked, dtypes.of(dtype) or dtype), {})
        return made if device is None else made.to(device)
    return data if isinstance(data, Tensor) and dtype is None and device is None else Tensor(data, dtype, device)


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(v, Tensor) or (isinstance(v, (list, tuple)) and _holds_tensors(v)) for v in data)


def _stacked(data: Any) -> Any:
    nested = isinstance(data, (list, tuple)) and _holds_tensors(data)
    return apply(REGISTRY["stack"], ([_stacked(v) for v in data],), {}) if nested else data


array = asarray
"""NumPy's and JAX's name for it"""


@outward
def from_dlpack(array: Any) -> Tensor:
    """A Tensor that shares the memory of any array with `__dlpack__`: PyTorch, JAX, CuPy, NumPy and others.

    Raises LaunchError TS501 where the array cannot be shared, TS504 for devices without a target.
    """
    if not hasattr(array, "__dlpack__"):
        raise LaunchError(Diagnostic("TS501", f"{type(array).__name__} has no __dlpack__; use tessera.asarray"))
    return Tensor(array)


# Random numbers


class _Seeds(threading.local):
    """Each thread draws from a stream of its own; the main thread's is the one that `manual_seed` promises."""

    def __init__(self) -> None:
        self.base: int | None = None
        self.draws = itertools.count()

    def next(self) -> int:
        if drawing.is_refused():
            raise LaunchError(Diagnostic("TS105", drawing.WHY))
        if self.base is None:
            self.base = _global_seed if threading.current_thread() is threading.main_thread() else _fresh_seed()
        return _mix(self.base, next(self.draws))


def _fresh_seed() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _mix(seed: int, draw: int) -> int:
    """A 64-bit key from a seed and a number: SplitMix64's finalizer (Steele, Lea, Flood 2014), a bijection."""
    z = (seed + (draw + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


_global_seed = _fresh_seed()
_seeds = _Seeds()


@fitted
def manual_seed(seed: int) -> None:
    """Seeds this thread's random tensors: from here on they are the same for a `seed` on every machine and target."""
    _seeds.base, _seeds.draws = int(seed), itertools.count()


@fitted
def random_key() -> int:
    """A key of this thread's stream of random numbers: another at each call, the same ones after `manual_seed`."""
    return _seeds.next() & 0x7FFFFFFFFFFFFFFF


def _key(seed: int | None) -> Tensor:
    value = _seeds.next() if seed is None else int(seed) & 0xFFFFFFFFFFFFFFFF
    return Tensor(np.asarray(value, np.uint64))


def sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape: `rand(2, 3)` and `rand((2, 3))` mean the same. Raises LaunchError TS501 where it is none."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = tuple(given[0])
    try:
        found = tuple(index(size) for size in given)
    except TypeError:
        found = (-1,)
    if any(size < 0 or size > LARGEST for size in found):
        raise LaunchError(Diagnostic("TS501", f"a shape is made of sizes that are not negative, not {shown(given)}"))
    return found


def _draw(
    operator: str, shape: tuple[int, ...], seed: int | None, device: str | None, *args: Any, **attrs: Any
) -> Tensor:
    key = _key(seed)
    if device is not None:
        key = key.to(device)
    made = function(operator)
    assert made is not None
    return made(key, shape, *args, **attrs)


@outward
def rand(*shape: Any, dtype: Any = dtypes.f32, seed: int | None = None, device: str | None = None) -> Tensor:
    """Uniformly distributed over [0, 1). `rand(2, 3)` or `rand((2, 3))`."""
    return _draw("uniform", sizes(shape), seed, device, dtype=dtypes.of(dtype))


@outward
def randn(*shape: Any, dtype: Any = dtypes.f32, seed: int | None = None, device: str | None = None) -> Tensor:
    """Normally distributed with mean 0 and standard deviation 1."""
    return _draw("normal", sizes(shape), seed, device, dtype=dtypes.of(dtype))


# Tensors without data


@outward
def empty(*shape: Any, dtype: Any = dtypes.f32, device: str | None = None) -> Tensor:
    """A tensor of uninitialised memory: its values are undefined."""
    found = dtypes.of(dtype)
    if found is None:
        raise LaunchError(Diagnostic("TS501", f"{dtype!r} is not a dtype"))
    array, _ = TENSOR.empty(sizes(shape), found, device or HOST)
    return TENSOR.finish(array)


class TensorNamespace:
    """`tessera.tensor(data)` makes a Tensor; `tessera.tensor.rand((2, 3))`, `.zeros`, `.arange` ... make others.

    Every public operator is a member as well.
    """

    asarray = staticmethod(asarray)
    from_dlpack = staticmethod(from_dlpack)
    rand, randn, empty = staticmethod(rand), staticmethod(randn), staticmethod(empty)
    manual_seed = staticmethod(manual_seed)

    @outward
    def __call__(self, data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
        """A Tensor with a copy of `data`, whose calls are recorded for `backward()` with `requires_grad`."""
        made = Tensor(data, dtype, device)
        if adapter_of(data) is not None:
            made = made.detach().copy()
        return made.requires_grad_() if requires_grad else made

    @outward
    def __getattr__(self, name: str) -> Any:
        found = function(name)
        if found is None:
            raise AttributeError(f"tessera.tensor has no {name!r}")
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})


tensor = TensorNamespace()
