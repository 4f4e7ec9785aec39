"""Functions that Tessera has as operators, with the standard's parameters where those differ."""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.operator import REGISTRY
from tessera.language import dtypes
from tessera.language.lazy import np
from tessera.runtime.eager.operators import apply
from tessera.runtime.eager.tensor import Tensor
from tessera.runtime.standard.host import dtype_named, library, public, refused, run, tensor

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "permute_dims", "prod", "repeat", "reshape", "sum", "tile",
]  # fmt: skip


def _op(name: str, *operands: Any, **attrs: Any) -> Any:
    return apply(REGISTRY[name], operands, attrs)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum along `axis`, of elements that count as `dtype` first; integers as 64-bit ones."""
    return _reduced("sum", x, axis, dtype, keepdims)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product along `axis`, of elements that count as `dtype` first; integers as 64-bit ones."""
    return _reduced("prod", x, axis, dtype, keepdims)


def _reduced(name: str, x: Any, axis: Any, dtype: Any, keepdims: bool) -> Tensor:
    wanted = None if dtype is None else dtype_named(dtype)
    x = tensor(x)
    x = x if wanted is None else x.astype(wanted)
    out = _op(name, x, axis=axis, keepdims=keepdims)
    return out if wanted is None else out.astype(wanted)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after the other along `axis`; None: flattened."""
    given = [tensor(x) for x in arrays]
    return _op("concat", [x.reshape(-1) for x in given] if axis is None else given, axis=0 if axis is None else axis)


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Tensor:
    """`x` with its axes in the order `axes`; a view."""
    return _op("permute", tensor(x), perm=tuple(axes))


def reshape(x: Any, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The same elements under another shape: a view where there is one, unless `copy` is True.

    Raises LaunchError TS501 where `copy` is False and there is none.
    """
    x = tensor(x)
    out = _op("reshape", x, shape=(shape,) if isinstance(shape, int) else tuple(shape))
    shared = library(x).may_share_memory(out._data, x._data) if x.size else True
    if copy is False and not shared:
        raise refused("reshape(copy=False) would have to copy: the elements do not lie in that order")
    return out.copy() if copy and shared else out


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Tensor:
    """`x` stretched to `shape`; a view."""
    return _op("broadcast_to", tensor(x), shape=tuple(shape))


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """The arrays stretched to their common shape; views."""
    given = [tensor(x) for x in arrays]
    shape = run(np.broadcast_shapes, *(x.shape for x in given))
    return [_op("broadcast_to", x, shape=shape) for x in given]


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times along `axis`; an array of numbers says how often each one is taken."""
    x = tensor(x)
    if isinstance(repeats, int):
        return _op("repeat", x, repeats=repeats, axis=axis)
    counts = tensor(repeats, "repeats")
    if counts.dtype == dtypes.uint64:
        counts = counts.astype(dtypes.int64)
    return run(library(x).repeat, x, counts, axis=axis)


def tile(x: Any, repetitions: tuple[int, ...], /) -> Tensor:
    """`x` as a whole, as often along each axis as `repetitions` says."""
    return _op("tile", tensor(x), reps=tuple(repetitions))


public(globals(), __all__)
