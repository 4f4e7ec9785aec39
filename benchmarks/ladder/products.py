"""Products as users write them, for the smoke tests and for the table."""

from __future__ import annotations

import tessera as ts


@ts.function
def product_bf16(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["K", "N", ts.bf16]):
    return x @ w


@ts.function
def product_bf16_turned(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["N", "K", ts.bf16]):
    return x @ w.T


@ts.function
def product_f16(x: ts.Tensor["M", "K", ts.f16], w: ts.Tensor["K", "N", ts.f16]):
    return x @ w


@ts.function
def product_tf32(x: ts.Tensor["M", "K", ts.tf32], w: ts.Tensor["K", "N", ts.tf32]):
    return x @ w


@ts.function
def product_tf32_turned(x: ts.Tensor["M", "K", ts.tf32], w: ts.Tensor["N", "K", ts.tf32]):
    return x @ w.T


@ts.function
def product_f32(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x @ w
