"""The arithmetic of Tile IR on NumPy arrays: conversions, elementwise functions, reductions, products, Philox."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.order import CHAIN, SPAN
from tessera.language.rounding import round_to, to_compute
from tessera.language.scalars import TABLE, identity_of


def scalar_map(name: str, operands: Sequence[Any], types: Sequence[DType], result: DType) -> Any:
    """A function of `language.scalars` over arrays of storage dtypes."""
    scalar = TABLE[name]
    values = [to_compute(v, t) for v, t in zip(operands, types, strict=True)]
    if scalar.gives == "float" and not types[0].is_complex:
        values = [v.astype(result.compute.numpy) for v in values]
    if name == "fma" and result.compute.bits == 32:
        x, y, z = (v.astype(np.float64) for v in values)
        return round_to(x * y + z, result)
    return round_to(scalar.reference(*values), result)


def dot(a: Any, b: Any, acc: Any, dtype: DType) -> Any:
    """acc + a @ b in the order of language/order.py, with one rounding per step; the first chain starts at acc."""
    if not (dtype.is_float or dtype.is_complex):
        kind = acc.dtype
        return acc + a.astype(kind) @ b.astype(kind)
    depth, total = a.shape[1], None
    for group in range(0, max(depth, 1), SPAN):
        part = None
        for start in range(group, max(min(group + SPAN, depth), group + 1), CHAIN):
            end = min(start + CHAIN, depth)
            done = _chain(a[:, start:end], b[start:end], acc if start == 0 else np.zeros_like(acc), dtype)
            part = done if part is None else part + done
        total = part if total is None else total + part
    return total


def _chain(a: Any, b: Any, acc: Any, dtype: DType) -> Any:
    """acc + a @ b with the products added one after the other."""
    if dtype.bits != 32:
        for k in range(a.shape[1]):
            acc = acc + a[:, k : k + 1].astype(dtype.numpy) * b[k].astype(dtype.numpy)
        return acc
    # The product of two f32 is exact in f64, so one rounding to f32 after the sum equals a fused multiply-add.
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    for k in range(a.shape[1]):
        acc = (acc.astype(np.float64) + wide_a[:, k : k + 1] * wide_b[k]).astype(np.float32)
    return acc


def reduce(name: str, values: Any, axes: tuple[int, ...], source: DType, result: DType) -> Any:
    """The elements of `axes` combined; sums and products in at least the accumulator's precision."""
    moved = np.moveaxis(values, axes, tuple(range(-len(axes), 0)))
    kept = moved.ndim - len(axes)
    flat = np.ascontiguousarray(moved).reshape(*moved.shape[:kept], math.prod(moved.shape[kept:]))
    if not flat.shape[-1]:  # of no elements: what changes nothing, and the index 0
        nothing = 0 if name.startswith("arg") else identity_of(name, source)
        return np.full(flat.shape[:-1], nothing, result.numpy)
    if name in ("argmax", "argmin"):
        wide = to_compute(flat, source)
        return (np.argmax if name == "argmax" else np.argmin)(wide, axis=-1).astype(np.int64)
    if name in ("any", "all"):
        return (np.any if name == "any" else np.all)(flat != 0, axis=-1)
    wide = to_compute(flat, source)
    if name in ("sum", "prod"):
        wide = wide.astype(result.compute.numpy if result.kind != "bool" else source.accumulate.numpy)
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    return round_to(ufunc.reduce(wide, axis=-1), result)


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
