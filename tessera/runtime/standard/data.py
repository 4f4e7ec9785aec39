"""Sorting, searching and sets. They run in NumPy, in CuPy on a GPU: most have results whose size depends on the
data."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from tessera.runtime.eager.tensor import Tensor
from tessera.runtime.standard.host import library, public, refused, run, tensor

__all__ = [
    "argsort", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """The different values, where each stands first, which one each element is, and how often each stands."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The different values and how often each stands."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The different values and which one each element is."""

    values: Tensor
    inverse_indices: Tensor


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements along `axis` in ascending order; NaN last."""
    x = tensor(x)
    out = run(library(x).sort, x, axis=axis, kind="stable" if stable else None)
    return run(library(x).flip, out, axis).copy() if descending else out


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort `x` along `axis`; equal elements keep their order."""
    x = tensor(x)
    xp, kind = library(x), "stable"
    if not descending:
        return run(xp.argsort, x, axis=axis, kind=kind)
    turned = run(xp.flip, x, axis)  # reversed before and after, so that equal elements keep their order
    order = run(xp.flip, run(xp.argsort, turned, axis=axis, kind=kind), axis)
    return (x.shape[axis] - 1) - order


def searchsorted(
    x1: Any, x2: Any, /, *, side: Literal["left", "right"] = "left", sorter: Any = None
) -> Tensor:  # fmt: skip
    """Where each element of `x2` belongs in the sorted vector `x1`, before its equals or behind them."""
    x1 = tensor(x1, "x1")
    return run(library(x1).searchsorted, x1, tensor(x2, "x2"), side=side, sorter=sorter)


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero: a vector for each axis."""
    x = tensor(x)
    if not x.ndim:
        raise refused("nonzero needs at least one axis")
    return run(library(x).nonzero, x)


def _unique(x: Any) -> tuple[Tensor, ...]:
    x = tensor(x)
    values, first, inverse, counts = run(
        library(x).unique, x.reshape(-1), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return values, first, inverse.reshape(x.shape), counts


def unique_all(x: Any, /) -> UniqueAll:
    """The different values of `x`, ascending, with indices, inverse and counts; every NaN is different."""
    return UniqueAll(*_unique(x))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different values of `x` and how often each stands."""
    values, _, _, counts = _unique(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different values of `x` and which of them each element is."""
    values, _, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Any, /) -> Tensor:
    """The different values of `x`."""
    return _unique(x)[0]


public(globals(), __all__)
