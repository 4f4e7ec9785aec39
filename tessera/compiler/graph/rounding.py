"""What it means to hold a value in a dtype: the conversion that `cast`, golden models and interpreters share."""

from __future__ import annotations

from typing import Any

from tessera.language.dtypes import DType
from tessera.language.lazy import np


def round_to(x: Any, dtype: DType) -> Any:
    """The array `x` as `dtype`: to nearest even; too large becomes infinite, in 8 bits and fewer the largest.

    To bool it is x != 0. Floats outside an integer dtype's range have no defined result.
    """
    x = np.asarray(x)
    if dtype.kind == "bool":
        return x.astype(np.bool_) if x.dtype == np.bool_ else np.asarray(x != 0)
    if x.dtype == dtype.numpy:
        return x
    with np.errstate(all="ignore"):
        if dtype.is_float and dtype.bits <= 8:
            wide = x.astype(np.float32)
            return np.clip(wide, -dtype.maximum, dtype.maximum).astype(dtype.numpy)
        if dtype.is_integer and x.dtype.kind not in "biuf":
            x = x.astype(np.float32)  # small floats convert to integers through f32
        return x.astype(dtype.numpy)


def to_compute(x: Any, dtype: DType) -> Any:
    """The array as `dtype`'s arithmetic sees it: f32 for narrower floats."""
    return np.asarray(x).astype(dtype.compute.numpy) if dtype.is_low_precision else np.asarray(x)
