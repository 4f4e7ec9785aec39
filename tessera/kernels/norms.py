"""Normalisations along an axis.

Squares overflow long before elements do (1e20 in f32), so elements are first divided by a power of two near the
largest, which is exact: J. L. Blue's remedy for the Euclidean norm ("A portable Fortran program to find the Euclidean
norm of a vector", 1978). The variance is the mean square of differences from the mean (two passes, as T. F. Chan,
G. H. Golub and R. J. LeVeque recommend, 1983), never the difference of two large means.
"""

from __future__ import annotations

import tessera as ts
from tessera import Tensor
from tessera.kernels.rows import wide


@ts.function
def layernorm_safe(
    x: Tensor["..."], weight: Tensor["D"] | None = None, bias: Tensor["D"] | None = None, axis: int = -1, eps=1e-5
):
    """(x - mean) / sqrt(var + eps) * weight + bias along `axis`; the shape and dtype of `x`, which is of floats.

    `weight` and `bias` have the length of that axis. Elements that are all the same give `bias`, for eps = 0 too. An
    infinity or a NaN makes its row NaN. Raises CompileError TS106 for integers, a negative eps or parameters of another
    length, TS204 for an axis that `x` does not have. (J. L. Ba, J. R. Kiros, G. E. Hinton, 2016)
    """
    assert eps >= 0, "eps must not be negative"
    v = wide(x)
    if x.size == 0:
        return x
    unit = power_of_two(v, axis)
    far = v / unit - ts.mean(v / unit, axis=axis, keepdims=True)
    return ts.cast(scaled(by_size(far, axis, eps, unit), weight, bias, axis), x.dtype)


@ts.function
def rmsnorm_safe(x: Tensor["..."], weight: Tensor["D"] | None = None, axis: int = -1, eps=1e-6):
    """x / sqrt(mean(x * x) + eps) * weight along `axis`; the shape and dtype of `x`, which is of floats.

    `weight` has the length of that axis. Zeros give zeros, for eps = 0 too. An infinity or a NaN makes its row NaN.
    Raises CompileError TS106 for integers, a negative eps or a weight of another length, TS204 for an axis that `x`
    does not have. (B. Zhang, R. Sennrich, 2019)
    """
    assert eps >= 0, "eps must not be negative"
    v = wide(x)
    if x.size == 0:
        return x
    unit = power_of_two(v, axis)
    return ts.cast(scaled(by_size(v / unit, axis, eps, unit), weight, None, axis), x.dtype)


def power_of_two(v, axis):
    """A power of two within a factor of two of the largest magnitude; 1 where all are small or 0.

    An infinity stays one, so that what is divided by it becomes NaN. Not below 1: there squares lose nothing that eps
    would not hide.
    """
    top = ts.max(ts.abs(v), axis=axis, keepdims=True)
    exponent = ts.clip(ts.floor(ts.log2(top)), 0.0, 1022.0 if v.dtype == ts.f64 else 126.0)
    return ts.where(ts.isinf(top), top, ts.exp2(exponent))


def by_size(v, axis, eps, unit):
    """v / sqrt(mean(v * v) + eps), where eps is in units before the division by `unit`; 0 / 0 is 0."""
    size = ts.sqrt(ts.mean(v * v, axis=axis, keepdims=True) + eps / unit / unit)
    return v / ts.where(size == 0, 1.0, size)


def scaled(v, weight, bias, axis):
    """v * weight + bias, with the parameters lined up with `axis`."""
    if weight is not None:
        assert weight.shape[0] == v.shape[axis], "weight must have the length of the normalised axis"
        v = v * lined_up(weight, v, axis)
    if bias is not None:
        assert bias.shape[0] == v.shape[axis], "bias must have the length of the normalised axis"
        v = v + lined_up(bias, v, axis)
    return v


def lined_up(p, v, axis):
    """A vector as [D, 1, ...], with as many axes as `v` has from `axis` on."""
    return ts.reshape(ts.cast(p, v.dtype), (-1, *(1,) * (v.ndim - 1 - axis % v.ndim)))
