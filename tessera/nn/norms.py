"""Normalisations of the last axis, and of groups of channels."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.nn.module import Module


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
    """Each group of neighbouring channels of x [B, C, ...] is normalised with all its places; then weight [C] and bias
    [C] (Y. Wu, K. He, 2018). `groups` divides C."""

    weight: Tensor["C"]
    bias: Tensor["C"]
    groups: int
    eps: float

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5, dtype: Any = ts.f32) -> None:
        if channels % groups:
            raise ValueError(f"{groups} groups cannot share {channels} channels evenly")
        self.weight, self.bias = ts.ones((channels,), dtype), ts.zeros((channels,), dtype)
        self.groups = groups
        self.eps = eps

    def __call__(self, x):
        channels = self.weight.shape[0]
        flat = ts.reshape(x, (x.shape[0], self.groups, -1))
        centred = flat - ts.mean(flat, axis=-1, keepdims=True)
        scaled = centred * ts.rsqrt(ts.mean(ts.square(centred), axis=-1, keepdims=True) + self.eps)
        placed = ts.reshape(scaled, (x.shape[0], channels, -1))
        return ts.reshape(placed * self.weight[:, None] + self.bias[:, None], x.shape)
