"""Normalisations of the last axis, of groups of channels, and of channels over a batch."""

from __future__ import annotations

import math
from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.language.drawing import averages, move
from tessera.nn.module import Module, buffer


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis: [..., D] (J. L. Ba, J. R. Kiros, G. E. Hinton,
    2016). `var` is the population's; `weight` starts as 1, `bias` as 0 (None without)."""

    weight: Tensor["D"]
    bias: Tensor["D"] | None
    eps: float

    def __init__(self, features: int, *, eps: float = 1e-5, bias: bool = True, dtype: Any = ts.f32) -> None:
        self.weight = ts.ones((features,), dtype)
        self.bias = ts.zeros((features,), dtype) if bias else None
        self.eps = eps

    def __call__(self, x: Tensor["...", "D"]) -> Tensor["...", "D"]:
        return ts.layer_norm(x, self.weight, self.bias, eps=self.eps)


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis: [..., D] (B. Zhang, R. Sennrich, 2019)."""

    weight: Tensor["D"]
    eps: float

    def __init__(self, features: int, *, eps: float = 1e-6, dtype: Any = ts.f32) -> None:
        self.weight = ts.ones((features,), dtype)
        self.eps = eps

    def __call__(self, x: Tensor["...", "D"]) -> Tensor["...", "D"]:
        return ts.rms_norm(x, self.weight, eps=self.eps)


class GroupNorm(Module):
    """Normalises each group of neighbouring channels of x [B, C, ...] over all its positions; then weight [C] and bias
    [C] (Y. Wu, K. He, 2018). `groups` divides C."""

    weight: Tensor["C"]
    bias: Tensor["C"]
    groups: int
    eps: float

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5, dtype: Any = ts.f32) -> None:
        if channels % groups:
            message = f"{groups} groups cannot share {channels} channels evenly: groups divides channels"
            raise LaunchError(Diagnostic("TS105", message))
        self.weight, self.bias = ts.ones((channels,), dtype), ts.zeros((channels,), dtype)
        self.groups = groups
        self.eps = eps

    def __call__(self, x: Tensor["B", "C", "..."]) -> Tensor["B", "C", "..."]:
        return ts.group_norm(x, self.groups, self.weight, self.bias, self.eps)


class BatchNorm(Module):
    """Base of `BatchNorm1d` to `BatchNorm3d`: (x - mean) / sqrt(var + eps) * weight + bias for each channel of x
    [B, C, ...] (S. Ioffe, C. Szegedy, 2015).

    In the loss of `ts.train`, `norm(x)` uses the mean and variance of the batch, over all axes but C, and the step
    moves the running averages of its model, `mean` and `var` [C], by `momentum` towards them, `var` with correction 1,
    as in PyTorch. Elsewhere `norm(x)` uses the averages; where a gradient is taken, TS374 warns unless `training=False`
    says so. `norm(x, training=True)` uses those of the batch anywhere, and returns `(y, norm)`, with the moved averages
    in a new layer: a model returns it, `y, self.replace(norm=norm)`, and a loss passes it on with `has_aux=True`. Each
    channel needs at least two values.
    """

    weight: Tensor["C"]
    bias: Tensor["C"]
    mean: Tensor["C"] = buffer()
    var: Tensor["C"] = buffer()
    eps: float
    momentum: float

    def __init__(self, channels: int, *, eps: float = 1e-5, momentum: float = 0.1, dtype: Any = ts.f32) -> None:
        self.weight, self.bias = ts.ones((channels,), dtype), ts.zeros((channels,), dtype)
        self.mean, self.var = ts.zeros((channels,), dtype), ts.ones((channels,), dtype)
        self.eps = eps
        self.momentum = momentum

    def _normed(self, x, training):
        held = averages(x, self.mean, self.var) if training is None else (self.mean, self.var)
        if held is None or training is False:
            return ts.batch_norm(x, self.mean, self.var, self.weight, self.bias, self.eps)
        axes = (0, *range(2, len(x.shape)))
        count = math.prod(x.shape[i] for i in axes)
        assert count > 1, "batch normalisation needs two values in each channel"
        mean, var = ts.mean(x, axis=axes), ts.var(x, axis=axes)
        y = ts.batch_norm(x, mean, var, self.weight, self.bias, self.eps)
        new_mean = ts.stop_gradient(held[0] + self.momentum * (mean - held[0]))
        new_var = ts.stop_gradient(held[1] + self.momentum * (var * (count / (count - 1)) - held[1]))
        if training is None:
            move(self.mean, new_mean)
            move(self.var, new_var)
            return y
        return y, self.replace(mean=new_mean, var=new_var)


class BatchNorm1d(BatchNorm):
    """`BatchNorm` of x [B, C] or [B, C, L]."""

    def __call__(self, x: Tensor["B", "C", "..."], training=None):
        return self._normed(x, training)


class BatchNorm2d(BatchNorm):
    """`BatchNorm` of images x [B, C, H, W]."""

    def __call__(self, x: Tensor["B", "C", "H", "W"], training=None):
        return self._normed(x, training)


class BatchNorm3d(BatchNorm):
    """`BatchNorm` of volumes x [B, C, D, H, W]."""

    def __call__(self, x: Tensor["B", "C", "Z", "H", "W"], training=None):
        return self._normed(x, training)
