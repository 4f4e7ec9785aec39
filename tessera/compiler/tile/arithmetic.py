"""The arithmetic of Tile IR on NumPy arrays: conversions, elementwise functions, reductions, products, Philox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.scalars import TABLE


def narrow(values: Any, dtype: DType) -> Any:
    """Conversion to a storage dtype: nearest even; floats of 8 bits and fewer saturate, and so do
    integers made from floats, where NaN becomes 0; tf32 keeps 10 mantissa bits."""
    values = np.asarray(values)
    if dtype.kind == "bool":
        return values != 0
    if dtype.is_float and dtype.bits <= 8:
        values = np.clip(values.astype(np.float32), -dtype.maximum, dtype.maximum)
    if not dtype.is_complex and np.iscomplexobj(values):
        values = values.real
    if dtype.is_integer and values.dtype.kind not in "biu":
        return _whole(values, dtype)
    out = values.astype(dtype.numpy)
    if dtype.name == "tf32":
        bits = np.ascontiguousarray(out).view(np.uint32)
        rounded = (bits + np.uint32(0x0FFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
        out = np.where(np.isfinite(out), rounded.view(np.float32), out)
    return out


def _whole(values: Any, dtype: DType) -> Any:
    """Floats as integers, cut off towards zero and held within the dtype's range."""
    wide = values.astype(np.float64)
    low, high = (-dtype.maximum - 1 if dtype.kind == "int" else 0), dtype.maximum
    inside = (wide >= low) & (wide < high)  # an end that float64 cannot hold is rounded away from zero
    out = np.where(inside, wide, 0).astype(dtype.numpy)
    return np.where(wide >= high, dtype.numpy.type(high), np.where(wide < low, dtype.numpy.type(low), out))


def widen(values: Any, dtype: DType) -> Any:
    """Storage values as arithmetic sees them: low-precision floats become f32."""
    return values.astype(np.float32) if dtype.is_low_precision else values


def scalar_map(name: str, operands: Sequence[Any], types: Sequence[DType], result: DType) -> Any:
    """A function of `language.scalars` over arrays of storage dtypes."""
    scalar = TABLE[name]
    values = [widen(v, t) for v, t in zip(operands, types, strict=True)]
    if scalar.gives == "float" and not types[0].is_complex:
        values = [v.astype(result.compute.numpy) for v in values]
    if name == "fma" and result.compute.bits == 32:
        x, y, z = (v.astype(np.float64) for v in values)
        return narrow(x * y + z, result)
    return narrow(scalar.reference(*values), result)


def dot(a: Any, b: Any, acc: Any, dtype: DType) -> Any:
    """acc + a @ b with the products added in ascending k, each step rounded once to `dtype`."""
    if not dtype.is_float:
        kind = acc.dtype
        return acc + a.astype(kind) @ b.astype(kind)
    if dtype.bits != 32:
        for k in range(a.shape[1]):
            acc = acc + a[:, k : k + 1].astype(dtype.numpy) * b[k].astype(dtype.numpy)
        return acc
    # The product of two f32 is exact in f64, so one rounding to f32 after the sum stands for a fused multiply-add.
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    for k in range(a.shape[1]):
        acc = (acc.astype(np.float64) + wide_a[:, k : k + 1] * wide_b[k]).astype(np.float32)
    return acc


def reduce(name: str, values: Any, axes: tuple[int, ...], source: DType, result: DType) -> Any:
    """The elements of `axes` combined; sums and products in at least the accumulator's precision."""
    moved = np.moveaxis(values, axes, tuple(range(-len(axes), 0)))
    flat = np.ascontiguousarray(moved).reshape(*moved.shape[: moved.ndim - len(axes)], -1)
    if name in ("argmax", "argmin"):
        wide = widen(flat, source)
        return (np.argmax if name == "argmax" else np.argmin)(wide, axis=-1).astype(np.int64)
    if name in ("any", "all"):
        return (np.any if name == "any" else np.all)(flat != 0, axis=-1)
    wide = widen(flat, source)
    if name in ("sum", "prod"):
        wide = wide.astype(result.compute.numpy if result.kind != "bool" else source.accumulate.numpy)
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    return narrow(ufunc.reduce(wide, axis=-1), result)


def order(values: Any, axis: int, descending: bool) -> Any:
    """Where the elements that a stable sort puts in each place come from; NaN is the largest."""
    if not descending:
        return np.argsort(values, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(values, axis), axis=axis, kind="stable")  # keeps the later of equal elements last
    return values.shape[axis] - 1 - np.flip(backwards, axis)


def philox(counter: Any, key: Any) -> Any:
    """Words 0 and 1 of Philox4x32-10 (Salmon et al. 2011) for counters (lo, hi, 0, 0), as word0 | word1 << 32."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [counter & low, counter >> shift, np.zeros_like(counter), np.zeros_like(counter)]
    k0, k1 = key & low, key >> shift
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> shift) ^ c[1] ^ k0, p1 & low, (p0 >> shift) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return c[0] | (c[1] << shift)
