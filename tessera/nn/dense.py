"""Layers of products: linear maps, tables of vectors, and the feed-forward parts of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.language.drawing import implied_key
from tessera.nn import init
from tessera.nn.module import Module


class Linear(Module):
    """x W + b: features [..., D] to [..., H], with `weight` [D, H] and `bias` [H] or None, of one float dtype.

    Raises CompileError TS203 if the last axis of x is not D.
    """

    weight: Tensor["D", "H"]
    bias: Tensor["H"] | None

    def __init__(
        self, inputs: int, outputs: int, *, key: int | None = None, bias: bool = True, dtype: Any = ts.f32,
        weights: Callable[..., Any] = init.lecun_uniform,
    ) -> None:  # fmt: skip
        """`weights(shape, key, dtype)` makes the first weight; the first bias is 0."""
        self.weight = weights((inputs, outputs), key=key, dtype=dtype)
        self.bias = ts.zeros((outputs,), dtype) if bias else None

    def __call__(self, x: Tensor["...", "D"]) -> Tensor["...", "H"]:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class FusedLinearGeLU(Linear):
    """gelu(x W + b): `Linear` and the function after it, computed where the product's sums end."""

    def __call__(self, x: Tensor["...", "D"]) -> Tensor["...", "H"]:
        y = x @ self.weight
        return ts.gelu(y if self.bias is None else y + self.bias)


class FusedLinearSiLU(Linear):
    """silu(x W + b): `Linear` and the function after it, computed where the product's sums end."""

    def __call__(self, x: Tensor["...", "D"]) -> Tensor["...", "H"]:
        y = x @ self.weight
        return ts.silu(y if self.bias is None else y + self.bias)


class Embedding(Module):
    """The rows of a table [N, D] at integers [...]: [..., D]. A row outside of the table reads as 0.

    The table starts normal with `std`. `transposed(x)` is x W^T, [..., D] to [..., N], for models that tie their output
    layer to the table.
    """

    weight: Tensor["N", "D"]

    def __init__(
        self, rows: int, features: int, *, key: int | None = None, std: float = 0.02, dtype: Any = ts.f32
    ) -> None:
        self.weight = init.normal((rows, features), key, std, dtype)

    def __call__(self, indices: Tensor["..."]):
        return ts.embedding(indices, self.weight)

    def transposed(self, x: Tensor["...", "D"]) -> Tensor["...", "N"]:
        return x @ self.weight.T


class Dropout(Module):
    """Elements set to 0 with probability `p`, the others divided by 1 - p; x itself without a key.

    The key is passed at each call, and the same key drops the same elements: use another one for each layer and step.
    The loss of `ts.train` needs none: there each call without one gets its own at each step. Elsewhere TS374 warns
    where a gradient is taken, but not under `@ts.compile(mode="inference")`.
    """

    p: float

    def __init__(self, p: float = 0.5) -> None:
        self.p = float(p)

    def __call__(self, x, key=None):
        key = implied_key(x, self.p) if key is None else key
        return x if key is None else ts.dropout(x, key, self.p)


class MLP(Module):
    """Linear, `act`, Linear: [..., D] to [..., D], or to as many features as `outputs` says, `hidden` between."""

    up: Linear
    down: Linear
    act: Callable

    def __init__(
        self, features: int, hidden: int, outputs: int | None = None, *, key: int | None = None,
        act: Callable[..., Any] = ts.gelu, bias: bool = True, dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        first, second = init.split(key, 2)
        self.up = Linear(features, hidden, key=first, bias=bias, dtype=dtype)
        self.down = Linear(hidden, features if outputs is None else outputs, key=second, bias=bias, dtype=dtype)
        self.act = act

    def __call__(self, x):
        return self.down(self.act(self.up(x)))


class SwiGLU(Module):
    """(silu(x G) * (x U)) W, without biases: [..., D] to [..., D] (N. Shazeer, "GLU variants improve transformer",
    2020)."""

    gate: Linear
    up: Linear
    down: Linear

    def __init__(self, features: int, hidden: int, *, key: int | None = None, dtype: Any = ts.f32) -> None:
        a, b, c = init.split(key, 3)
        self.gate = Linear(features, hidden, key=a, bias=False, dtype=dtype)
        self.up = Linear(features, hidden, key=b, bias=False, dtype=dtype)
        self.down = Linear(hidden, features, key=c, bias=False, dtype=dtype)

    def __call__(self, x):
        return self.down(ts.silu(self.gate(x)) * self.up(x))
