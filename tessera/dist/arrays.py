"""Pieces of arrays of NumPy, CuPy, PyTorch and JAX: cut, taken to another device, joined, combined."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tessera.compiler.machines import HOST
from tessera.compiler.graph.cut import Combine
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime.arrays.adapter import Adapter
from tessera.runtime.arrays.adapter import device_index
from tessera.runtime.arrays.libraries import FOREIGN
from tessera.runtime.arrays.libraries import storage_of
from tessera.runtime.arrays.libraries import CUPY
from tessera.runtime.arrays.libraries import JAX
from tessera.runtime.arrays.libraries import NUMPY
from tessera.runtime.arrays.libraries import TORCH
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.arrays.libraries import cupy
from tessera.runtime.eager.tensor import TENSOR
from tessera.runtime.eager.tensor import Tensor

_COMBINE: dict[Combine, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": lambda a, b: np.maximum(a, b),
    "min": lambda a, b: np.minimum(a, b),
    "any": lambda a, b: a | b,
    "all": lambda a, b: a & b,
}


def bare(array: Any) -> Any:
    """The NumPy or CuPy array in a Tensor, or behind the protocol of an unknown library; others are themselves."""
    adapter = adapter_of(array)
    return array._data if adapter is TENSOR else storage_of(array) if adapter is FOREIGN else array


def dressed(array: Any, adapter: Adapter | None) -> Any:
    """A result as those for arguments of this library are."""
    return Tensor(array) if adapter in (TENSOR, FOREIGN) else array


def piece(array: Any, axis: int, start: int, stop: int) -> Any:
    """From `start` to `stop` along an axis; the same memory where the library has views."""
    return array[(slice(None),) * axis + (slice(start, stop),)]


def moved(array: Any, device: str) -> Any:
    """The array on a device; itself where it is there. NumPy's go to a GPU as CuPy's and come back as NumPy's."""
    adapter = _adapter(array)
    here = HOST if adapter is NUMPY else adapter.view(array).device
    if here == device:
        return array
    if adapter is TORCH:
        return array.to(device)
    if adapter is JAX:
        jax = sys.modules["jax"]
        return jax.device_put(array, jax.devices(HOST if device == HOST else "gpu")[device_index(device)])
    if here != HOST:  # what computes the array may still be running on a stream of its device
        with CUPY.current(here):
            cupy().cuda.get_current_stream().synchronize()
    if device == HOST:
        return array.get()
    library = cupy()
    with CUPY.current(device):
        return library.asarray(array)


def joined(parts: Sequence[Any], axis: int, device: str) -> Any:
    """The parts one after the other, on a device."""
    here = [moved(p, device) for p in parts]
    adapter = _adapter(here[0])
    if adapter is TORCH:
        return sys.modules["torch"].cat(here, axis)
    if adapter is JAX:
        return sys.modules["jax"].numpy.concatenate(here, axis)
    if adapter is NUMPY:
        return np.concatenate(here, axis)
    with CUPY.current(device):
        return cupy().concatenate(here, axis)


def combined(parts: Sequence[Any], how: Combine, sizes: Sequence[int], dtype: DType, device: str) -> Any:
    """One result from those of the parts, by a tree whose shape depends on their number alone; on a device.

    Narrow floats are combined in f32 and rounded once. `sizes` are the weights of a mean.
    """
    adapter = _adapter(parts[0])
    wide = [adapter.numpy(p).astype(dtype.compute.numpy) for p in parts]
    with np.errstate(all="ignore"):
        if how == "mean":
            wide = [p * p.dtype.type(n) for p, n in zip(wide, sizes, strict=True)]
        total = tree(wide, _COMBINE[how])
        if how == "mean":
            total = total / total.dtype.type(sum(sizes))
        narrow = np.asarray(total).astype(dtype.numpy)
    return moved(narrow if adapter is CUPY else adapter.wrap(narrow), device)


def tree(parts: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Neighbours two by two, and so on: ((a b) (c d)) e."""
    row = list(parts)
    while len(row) > 1:
        row = [combine(*row[i : i + 2]) if i + 1 < len(row) else row[i] for i in range(0, len(row), 2)]
    return row[0]


def _adapter(array: Any) -> Adapter:
    found = adapter_of(array)
    assert found is not None, f"{type(array).__name__} is not an array"
    return found
