"""Convolutions of channels first: [B, C, ...] as in PyTorch."""

from __future__ import annotations

import math
from typing import Any, Literal

import tessera as ts
from tessera import Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import init
from tessera.nn.module import Module


class Conv(Module):
    """Base of `Conv1d` to `Conv3d`: the sum of weight * x over the kernel and a group's channels, plus bias.

    x is [B, C, sizes], `weight` [O, C / groups, kernel] and `bias` [O] or None. `padding`: zeros on both sides of each
    axis, or "same", "valid". Weights start uniform with |w| < 1 / sqrt(C / groups * places), biases 0.
    """

    weight: Tensor["..."]
    bias: Tensor["O"] | None
    stride: int
    padding: int | str
    dilation: int
    groups: int

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, key: int | None = None, stride: int = 1,
        padding: int | Literal["same", "valid"] = 0, dilation: int = 1, groups: int = 1, bias: bool = True,
        dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        _check_groups(groups, inputs, outputs)
        shape = (outputs, inputs // groups, *(kernel for _ in range(self.axes())))
        self.weight = init.lecun_uniform(shape, key, dtype, fan_in=math.prod(shape[1:]))
        self.bias = ts.zeros((outputs,), dtype) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    @staticmethod
    def axes() -> int:
        """The number of axes that the kernel walks."""
        raise NotImplementedError


class Conv1d(Conv):
    """`Conv` over one axis: x [B, C, L]."""

    @staticmethod
    def axes() -> int:
        return 1

    def __call__(self, x):
        return ts.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(Conv):
    """`Conv` over two axes: x [B, C, H, W]."""

    @staticmethod
    def axes() -> int:
        return 2

    def __call__(self, x):
        return ts.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv3d(Conv):
    """`Conv` over three axes: x [B, C, D, H, W]."""

    @staticmethod
    def axes() -> int:
        return 3

    def __call__(self, x):
        return ts.conv3d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose(Module):
    """Base of `ConvTranspose1d` to `ConvTranspose3d`: the gradient of a `Conv` by x.

    Element i of x [B, C, sizes] adds weight [C, O / groups, kernel] times itself to the output elements at i * stride +
    dilation * k. `padding` elements are cut from both ends of each axis, `output_padding` added at the end. Plus bias
    [O]. An axis of L becomes (L - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1. Weights start
    uniform with |w| < 1 / sqrt(O / groups * places), biases 0.
    """

    weight: Tensor["..."]
    bias: Tensor["O"] | None
    stride: int
    padding: int
    output_padding: int
    groups: int
    dilation: int

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, key: int | None = None, stride: int = 1, padding: int = 0,
        output_padding: int = 0, groups: int = 1, bias: bool = True, dilation: int = 1, dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        _check_groups(groups, inputs, outputs)
        shape = (inputs, outputs // groups, *(kernel for _ in range(self.axes())))
        self.weight = init.lecun_uniform(shape, key, dtype, fan_in=math.prod(shape[1:]))
        self.bias = ts.zeros((outputs,), dtype) if bias else None
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation

    @staticmethod
    def axes() -> int:
        """The number of axes that the kernel walks."""
        raise NotImplementedError


class ConvTranspose1d(ConvTranspose):
    """`ConvTranspose` over one axis: x [B, C, L]."""

    @staticmethod
    def axes() -> int:
        return 1

    def __call__(self, x):
        return ts.conv_transpose1d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class ConvTranspose2d(ConvTranspose):
    """`ConvTranspose` over two axes: x [B, C, H, W]."""

    @staticmethod
    def axes() -> int:
        return 2

    def __call__(self, x):
        return ts.conv_transpose2d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class ConvTranspose3d(ConvTranspose):
    """`ConvTranspose` over three axes: x [B, C, D, H, W]."""

    @staticmethod
    def axes() -> int:
        return 3

    def __call__(self, x):
        return ts.conv_transpose3d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


def _check_groups(groups: int, inputs: int, outputs: int) -> None:
    if inputs % groups or outputs % groups:
        message = f"{groups} groups cannot share {inputs} and {outputs} channels evenly: groups divides both"
        raise LaunchError(Diagnostic("TS105", message))
