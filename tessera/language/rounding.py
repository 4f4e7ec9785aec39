"""What it means to hold a value in a dtype: the one conversion of `cast`, constants, golden models and interpreter."""

from __future__ import annotations

from typing import Any

from tessera.language.dtypes import DType
from tessera.language.lazy import np


def round_to(x: Any, dtype: DType) -> Any:
    """The array `x` as `dtype`.

    Floats go to nearest even; what is too large becomes infinite, in 8 bits and fewer the largest finite value; NaN
    becomes 0 in fewer than 8 bits, which have none; tf32 keeps 10 mantissa bits. fp8_e8m0 takes the nearest power of
    two, the greater one of two; what is too small, 0 too, becomes the least one, what is negative NaN. Floats become
    integers by cutting off towards zero, held within the integer's range; NaN becomes 0. Integers wrap. Bool is x != 0.
    Complex numbers lose their imaginary part.
    """
    x = np.asarray(x)
    if dtype.kind == "bool":
        return x.astype(np.bool_) if x.dtype == np.bool_ else np.asarray(x != 0)
    if x.dtype.kind == "c" and not dtype.is_complex:
        x = x.real
    with np.errstate(all="ignore"):
        if x.dtype == dtype.numpy and dtype.name != "tf32":
            return x
        if dtype.is_low_precision and dtype.name != "f16" and x.dtype.kind in "iuf" and x.dtype.itemsize >= 4:
            x = _to_odd(x)
        if dtype.name == "tf32":
            return _to_tf32(x.astype(np.float32))
        if dtype.name == "fp8_e8m0":
            return _to_power(x.astype(np.float32)).astype(dtype.numpy)
        if dtype.is_float and dtype.bits <= 8:
            held = np.clip(x.astype(np.float32), -dtype.maximum, dtype.maximum)
            return np.asarray(held if dtype.has_nan else np.where(np.isnan(held), 0, held)).astype(dtype.numpy)
        if dtype.is_integer and x.dtype.kind not in "biu":
            return _whole(x.astype(np.float64), dtype)
        return x.astype(dtype.numpy)


def rounded_number(value: bool | int | float | complex, dtype: DType) -> Any:
    """A Python number as an array of rank 0, rounded once. Integers fit."""
    if not dtype.is_low_precision:
        return np.asarray(value, dtype.numpy)
    return round_to(np.float64(value.real if isinstance(value, complex) else value), dtype)


def to_compute(x: Any, dtype: DType) -> Any:
    """The array as `dtype`'s arithmetic sees it: f32 for narrower floats."""
    return np.asarray(x).astype(dtype.compute.numpy) if dtype.is_low_precision else np.asarray(x)


def _to_odd(x: Any) -> Any:
    """As f32; what that cannot hold goes to its odd neighbour, so that rounding to fewer bits rounds once in effect."""
    if x.dtype == np.float32:
        return x
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        large = (x >> 53 != 0) & ((x >> 53 != -1) if x.dtype.kind == "i" else True)
        x = np.where(large, x >> 11 << 11 | ((x & 0x7FF) != 0).astype(x.dtype) << 11, x)
    x = x.astype(np.float64)
    near = x.astype(np.float32)
    back, bits = near.astype(np.float64), near.view(np.uint32)
    odd = np.where(np.abs(back) > np.abs(x), bits - 1, bits) | np.uint32(1)
    return np.where((back != x) & (x == x), odd.view(np.float32), near)


def _to_tf32(x: Any) -> Any:
    bits = np.ascontiguousarray(x).reshape(x.shape).view(np.uint32)
    rounded = (bits + np.uint32(0x0FFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def _to_power(x: Any) -> Any:
    bits = np.minimum(np.abs(x), np.float32(2.0**127)).view(np.uint32)
    tiny = np.where(bits < 0x600000, np.uint32(0x400000), np.uint32(0x800000))  # 2**-127 is a subnormal f32
    power = np.where(bits < 0x800000, tiny, (bits + np.uint32(0x400000)) & np.uint32(0xFF800000))
    out = np.minimum(power, np.uint32(0x7F000000)).view(np.float32)
    return np.where((x >= 0), out, np.float32(np.nan))


def _whole(x: Any, dtype: DType) -> Any:
    low, high = (-dtype.maximum - 1 if dtype.kind == "int" else 0), dtype.maximum
    inside = (x >= low) & (x < high)  # an end that float64 cannot hold is rounded away from zero
    out = np.where(inside, x, 0).astype(dtype.numpy)
    return np.where(x >= high, dtype.numpy.type(high), np.where(x < low, dtype.numpy.type(low), out))
