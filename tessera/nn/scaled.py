"""Tensors of 8 bits and fewer with scales, because such formats have a short range.

how = ts.scaled("block")               # fp8_e4m3, a scale for each 128 neighbours of the last axis
q = how.quantize(x)                    # ScaledTensor: data, scales
y = how.matmul(x, w)                   # both operands scaled, sums in f32; cotangents scaled in fp8_e5m2
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import tessera as ts
from tessera.fitted import fitted
from tessera.tracebacks import entrance

LEAST = 2.0**-126
"""the smallest scale: what is divided by it stays finite"""


@entrance
@dataclass
class ScaledTensor:
    """`data`, of 8 bits and fewer, times `scales`: one number, or one for each `block` neighbours of the last axis."""

    data: Any
    scales: Any
    block: int

    def dequantize(self) -> Any:
        """The tensor in f32: data * scales, which is exact where scales are powers of two."""
        wide, scales = ts.cast(self.data, ts.f32), ts.cast(self.scales, ts.f32)
        return wide * scales if not self.block else _joined(_blocks(wide, self.block) * ts.unsqueeze(scales, -1))


@entrance
@dataclass(frozen=True)
class Scaling:
    """How tensors are scaled; made by `ts.scaled`."""

    kind: str
    dtype: Any
    block: int
    most: float
    """the largest value of the dtype"""
    step: float
    """the power of two that it lies above"""

    def quantize(self, x: Any) -> ScaledTensor:
        """x [..., N] as data and scales; N is a multiple of the block.

        A scale is computed from the largest finite magnitude a of its elements: a / the dtype's largest value, or for
        "mx" 2 ** (floor(log2 a) - floor(log2 of that value)), as the OCP Microscaling specification 1.0 says. Quotients
        are rounded to nearest even and saturated: infinity becomes the largest value, NaN stays NaN in fp8, and zeros
        get a scale that gives no NaN.
        """
        x = ts.cast(x, ts.f32)
        if self.block and x.shape[-1] % self.block:
            n, of = x.shape[-1], self.block
            raise ValueError(f"blocks have {of} elements, which does not divide {n}; pad the axis with zeros")
        parts = _blocks(x, self.block) if self.block else x
        finite = ts.where(ts.isfinite(parts), ts.abs(parts), 0.0)
        most = ts.max(finite, axis=-1, keepdims=True) if self.block else ts.max(finite)
        if self.kind == "mx":
            power = ts.cast(ts.cast(most, ts.fp8_e8m0), ts.f32)  # the nearest power of two, or the next above
            kept = ts.cast(ts.where(power > most, power * 0.5, power) / self.step, ts.fp8_e8m0)
            scales = ts.cast(kept, ts.f32)
        else:
            kept = scales = ts.where(most > 0, ts.maximum(most / self.most, LEAST), 1.0)
        data = ts.saturate_cast(parts / scales, self.dtype)
        if not self.block:
            return ScaledTensor(data, kept, 0)
        return ScaledTensor(_joined(data), ts.squeeze(kept, -1), self.block)

    def matmul(self, x: Any, w: Any) -> Any:
        """x [M, K] @ w [K, N] of scaled operands, [M, N] in f32.

        Operands are scaled along K. With one scale each, the products of the data are summed and then multiplied by
        both scales; with blocks, elements are multiplied by their scales first. Sums are in f32, in the order of all
        products. The backward pass scales the cotangent too, in fp8_e5m2 if this is fp8_e4m3, and all operands along
        the summed axis: blocks divide M, K and N. Gradients have the dtypes of x and w.
        """
        return scaled_product(x, w, self, scaled(self.kind, COTANGENTS.get(self.dtype.name, self.dtype), self.block))


COTANGENTS = {"fp8_e4m3": ts.fp8_e5m2}
"""formats of cotangents, which need range more than digits (P. Micikevicius et al., "FP8 formats for deep learning",
2022)"""


@fitted
def scaled(kind: Literal["tensor", "block", "mx"], dtype: Any = ts.fp8_e4m3, block: int = 0) -> Scaling:
    """How to scale tensors: "tensor" has one scale in f32, "block" one in f32 for each `block` (128) neighbours of the
    last axis, "mx" a power of two, fp8_e8m0, for each `block` (32). `dtype` is a float of 8 bits or fewer with a sign.

    Raises LaunchError TS105 for other kinds and dtypes.
    """
    sizes = {"tensor": 0, "block": 128, "mx": 32}
    if dtype.bits > 8 or dtype == ts.fp8_e8m0:
        raise ValueError(f"scaled needs fp8_e4m3, fp8_e5m2, fp6_e2m3, fp6_e3m2 or fp4_e2m1, not {dtype}")
    if kind == "tensor" and block:
        raise ValueError("scaled('tensor') has one scale and no blocks")
    return Scaling(kind, dtype, block or sizes[kind], dtype.maximum, 2.0 ** (math.frexp(dtype.maximum)[1] - 1))


def multiplied(a: ScaledTensor, b: ScaledTensor) -> Any:
    """a [M, K] times the transpose of b [N, K]."""
    if a.block:
        return a.dequantize() @ b.dequantize().T
    return (ts.cast(a.data, ts.f32) @ ts.cast(b.data, ts.f32).T) * (a.scales * b.scales)


@ts.function
def scaled_product(x, w, forward, backward):
    return multiplied(forward.quantize(x), forward.quantize(w.T))


@scaled_product.vjp
def scaled_product_back(y, cotangent, x, w, forward, backward):
    dx = multiplied(backward.quantize(cotangent), forward.quantize(w))
    dw = multiplied(forward.quantize(x.T), backward.quantize(cotangent.T))
    return dx.to(x.dtype), dw.to(w.dtype), None, None


def _blocks(x: Any, block: int) -> Any:
    return x.reshape((*x.shape[:-1], x.shape[-1] // block, block))


def _joined(x: Any) -> Any:
    return x.reshape((*x.shape[:-2], x.shape[-2] * x.shape[-1]))
