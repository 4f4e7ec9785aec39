"""Tensors of any rank: what is wrong where `...` stands for one axis or more, even if they are the same everywhere."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, f32


@ts.function
def linear(x: Tensor["...", "D"], w: Tensor["D", "E"], b: Tensor["E"] | None = None) -> Tensor["...", "E"]:
    y = x @ w
    return y if b is None else y + b


@ts.function
def wrong_width(x: Tensor["...", "D"], w: Tensor["D", "E"]) -> Tensor["...", "D"]:
    return x @ w
    #      ^^^^^ TS201 has shape [..., E]
    # says: for example D=2, E=3
    # says: `...` was tried as 1 to 4 axes


@ts.function
def centred(x: Tensor[..., "D"]):
    return x - x.mean(-1)
    #      ^^^^^^^^^^^^^^ TS202
    # fix: return x - x.mean(-1, keepdim=True)


@ts.function
def of_images(x: Tensor[..., "C"]):
    N, H, W, C2 = x.shape
    return x.reshape(N, H * W, C2)


@ts.function
def attention(q: Tensor["...", "S", "D"], k: Tensor["...", "T", "D"], v: Tensor["...", "T", "E"]) -> Tensor["...", "S", "E"]:
    scores = ts.einsum("...sd,...td->...st", q, k) * D ** -0.5
    return ts.softmax(scores) @ v


@ts.function
def wrong_values(q: Tensor["...", "S", "D"], k: Tensor["...", "T", "D"], v: Tensor["...", "S", "E"]):
    return ts.softmax(q @ k.mT) @ v
    #      ^^^^^^^^^^^^^^^^^^^^^^^^ TS203
    # says: contracted dimensions T and S differ


@ts.function
def in_the_middle(x: Tensor["B", "...", "D"]) -> Tensor["B", "...", 1]:
    return x.reshape(B, -1, D).mean(1).sum(-1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS201


@ts.kernel
def row_sums(x: Tensor["...", "S", "D", f32], y: Tensor["...", "S", f32]):
    for s in ts.tile.range(0, S, 16):
        y[s:s + 16] = ts.tile.row_sum(x[s:s + 16])


@ts.function
def unfinished(x: Tensor["...", "D"]):
    return x + absent
    #          ^^^^^^ TS103


@ts.function
def named_axes(x: Tensor["*batch", "D"]):
    #                    ^^^^^^^^ TS211
    # says: '*batch' is not a dim expression; any number of axes is `...`
    # fix: def named_axes(x: Tensor["...", "D"]):
    return x
