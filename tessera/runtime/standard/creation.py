"""Tensors from nothing, from sequences and from other arrays. Made in host memory, then copied to `device`."""

from __future__ import annotations

import math
from typing import Any, Literal

from tessera.language import dtypes
from tessera.language.lazy import np
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.eager import creation
from tessera.runtime.eager.protocols import storages
from tessera.runtime.eager.tensor import TENSOR, Tensor
from tessera.runtime.standard.host import dtype_named, library, placed, public, refused, run, tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor of `obj`. `copy` None copies where it must, True always; False raises LaunchError where it must."""
    shared = creation.asarray(obj, dtype, device)
    same = _shares(obj, shared)
    if copy is False and not same:
        raise refused("asarray(copy=False) would have to copy: of a list, another dtype or another device")
    return shared.copy() if copy and same else shared


def _shares(obj: Any, made: Tensor) -> bool:
    """Whether a Tensor lies over the memory of the array it was made of."""
    adapter = adapter_of(obj)
    if adapter is None:
        return False
    view = adapter.view(obj)
    return (view.pointer, view.dtype, view.device) == (TENSOR.pointer(made), made.dtype, made.device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor over the memory of any array with `__dlpack__`; a copy where `copy` or another `device` is wanted."""
    shared = creation.from_dlpack(x)
    if device is not None and device != shared.device:
        if copy is False:
            raise refused(f"from_dlpack(copy=False) cannot move an array from {shared.device} to {device}")
        return shared.to(device)
    return shared.copy() if copy else shared


def _shape(shape: Any) -> tuple[int, ...]:
    return creation.sizes((shape,) if isinstance(shape, int) else tuple(shape))


def _numpy(dtype: Any, default: dtypes.DType) -> Any:
    return (default if dtype is None else dtype_named(dtype)).numpy


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Uninitialised memory."""
    return placed(run(np.empty, _shape(shape), _numpy(dtype, dtypes.f32)).numpy(), device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros; f32 unless said otherwise."""
    return placed(run(np.zeros, _shape(shape), _numpy(dtype, dtypes.f32)).numpy(), device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones; f32 unless said otherwise."""
    return placed(run(np.ones, _shape(shape), _numpy(dtype, dtypes.f32)).numpy(), device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`fill_value` everywhere, of the dtype that Tessera gives such a number."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    default = dtypes.weak(fill_value, None)
    if default is None:
        raise refused(f"full needs a number, not a value of type {type(fill_value).__name__}")
    return placed(run(np.full, _shape(shape), fill_value, _numpy(dtype, default)).numpy(), device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Uninitialised memory of the shape, dtype and device of `x`."""
    x = tensor(x)
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros of the shape, dtype and device of `x`."""
    x = tensor(x)
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones of the shape, dtype and device of `x`."""
    x = tensor(x)
    return ones(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`fill_value` everywhere, of the shape, dtype and device of `x`."""
    x = tensor(x)
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """start, start + step ... before stop. Integers give int64, floats f32."""
    a, b = (0, start) if stop is None else (start, stop)
    floats = any(isinstance(v, float) for v in (a, b, step))
    wanted = _numpy(dtype, dtypes.f32 if floats else dtypes.int64)
    if step == 0:
        raise refused("arange needs a step other than 0")
    count = max(math.ceil((b - a) / step) if floats else -((a - b) // step), 0)
    line = run(np.arange, *creation.sizes((count,)), dtype=np.float64 if floats else np.int64).numpy()
    return placed((a + step * line).astype(wanted), device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers evenly spaced from start to stop, which is the last one unless `endpoint` is False."""
    complex_ends = isinstance(start, complex) or isinstance(stop, complex)
    wanted = _numpy(dtype, dtypes.complex64 if complex_ends else dtypes.f32)
    return placed(run(np.linspace, start, stop, num, dtype=wanted, endpoint=endpoint).numpy(), device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:  # fmt: skip
    """Ones on diagonal number `k`, zeros elsewhere."""
    rows, columns = creation.sizes((n_rows, n_rows if n_cols is None else n_cols))
    return placed(run(np.eye, rows, columns, k=k, dtype=_numpy(dtype, dtypes.f32)).numpy(), device)


def meshgrid(*arrays: Any, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """The coordinates of a grid over vectors: one tensor for each."""
    given = [storages(tensor(x)) for x in arrays]
    return [x.copy() for x in run(library(*arrays).meshgrid, *given, indexing=indexing)]


public(globals(), __all__)
