"""Pooling as layers, for `Sequential`; the operators are `ts.max_pool2d` and its like."""

from __future__ import annotations

import tessera as ts
from tessera import Tensor
from tessera.nn.module import Module


class MaxPool(Module):
    """Base of `MaxPool1d` to `MaxPool3d`: the largest element of each window of `kernel` elements along the last axes,
    `stride` apart (default: side by side). Padding is never the largest."""

    kernel: int
    stride: int | None = None
    padding: int = 0


class MaxPool1d(MaxPool):
    """`MaxPool` of x [B, C, L]."""

    def __call__(self, x: Tensor["B", "C", "L"]):
        return ts.max_pool1d(x, self.kernel, self.stride, self.padding)


class MaxPool2d(MaxPool):
    """`MaxPool` of x [B, C, H, W]."""

    def __call__(self, x: Tensor["B", "C", "H", "W"]):
        return ts.max_pool2d(x, self.kernel, self.stride, self.padding)


class MaxPool3d(MaxPool):
    """`MaxPool` of x [B, C, D, H, W]."""

    def __call__(self, x: Tensor["B", "C", "Z", "H", "W"]):
        return ts.max_pool3d(x, self.kernel, self.stride, self.padding)


class AvgPool(Module):
    """Base of `AvgPool1d` to `AvgPool3d`: the mean of each window of `kernel` elements along the last axes, `stride`
    apart (default: side by side). Padding counts as zeros."""

    kernel: int
    stride: int | None = None
    padding: int = 0


class AvgPool1d(AvgPool):
    """`AvgPool` of x [B, C, L]."""

    def __call__(self, x: Tensor["B", "C", "L"]):
        return ts.avg_pool1d(x, self.kernel, self.stride, self.padding)


class AvgPool2d(AvgPool):
    """`AvgPool` of x [B, C, H, W]."""

    def __call__(self, x: Tensor["B", "C", "H", "W"]):
        return ts.avg_pool2d(x, self.kernel, self.stride, self.padding)


class AvgPool3d(AvgPool):
    """`AvgPool` of x [B, C, D, H, W]."""

    def __call__(self, x: Tensor["B", "C", "Z", "H", "W"]):
        return ts.avg_pool3d(x, self.kernel, self.stride, self.padding)
