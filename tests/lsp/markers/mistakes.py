"""Mistakes with shapes that people make in models, each reported once. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations
import math
import tessera as ts
from tessera import Tensor, Const, f16, bf16, f32, int64, int32

@ts.function
def pooled_without_keepdim(x: Tensor["B", "C", "H", "W"]) -> Tensor["B", "C", 1, 1]:
    pooled = x.mean(axis=(2, 3))  #: [B, C] f32
    #        ^^^^^^^^^^^^^^^^^^^ TS201
    return pooled

@ts.function
def scores_without_transpose(q: Tensor["B", "H", "S", "D"], k: Tensor["B", "H", "T", "D"]):
    return q @ k
    #      ^^^^^ TS203

@ts.function
def mean_without_keepdim(x: Tensor["B", "S", "D"]):
    mu = x.mean(axis=-1)  #: [B, S] f32
    return x - mu
    #      ^^^^^^ TS202

@ts.function
def heads_checked_at_launch(x: Tensor["B", "S", "D"], H: Const["H"]):
    return x.reshape(B, S, H, D // H)

@ts.function
def heads_that_do_not_fit(x: Tensor["B", "S", "D"]):
    assert D % 8 == 0
    y = x.reshape(B, S, 8, D // 4)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^ TS205
    return y

@ts.function
def joined_along_the_wrong_axis(x: Tensor["B", "S", "D"], skip: Tensor["B", "C", "D"]):
    return ts.concat([x, skip], axis=-1)
    #                    ^^^^ TS206

@ts.function
def weight_the_other_way_round(x: Tensor["B", "S", "D"], w: Tensor["E", "D"], b: Tensor["E"]) -> Tensor["B", "S", "E"]:
    return x @ w + b
    #      ^^^^^ TS203

@ts.function
def gain_of_rows(x: Tensor["B", "S", "D"], g: Tensor["S"]):
    return x * g
    #      ^^^^^ TS202

@ts.function
def einsum_of_two_lengths(a: Tensor["B", "S", "D"], b: Tensor["B", "T", "D"]):
    return ts.einsum("bsd,btd->bst", a, b) + ts.einsum("bsd,bse->bde", a, b)
    #                                                                  ^ TS210

@ts.function
def two_parts_for_three_names(x: Tensor["B", "S", "D"]):
    q, k, v = ts.split(x, 2, axis=-1)
  # ^^^^^^^ TS105
    return q

@ts.function
def returned_transposed(x: Tensor["B", "S", "D"]) -> Tensor["B", "D", "S"]:
    return x
    #      ^ TS201

@ts.function
def axis_out_of_range(x: Tensor["B", "S", "D"]):
    return x.transpose(1, 3)
    #      ^^^^^^^^^^^^^^^^^ TS204

@ts.function
def too_many_indices(x: Tensor["B", "S", "D"]):
    return x[:, :, :, 0]
    #      ^ TS207

@ts.function
def indices_out_of_range(x: Tensor["B", 8, "D"]):
    return x[:, 8], x[:, -9], x[:, 2:12]
    #      ^ TS207
    #               ^ TS207

@ts.function
def stencil_without_its_edge(u: Tensor["N", "M"], dt: f32):
    lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u
    #     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS202
    return u + dt * lap

@ts.function
def mask_without_an_axis(x: Tensor["B", "S", "D"], mask: Tensor["B", "S"]):
    scores = x @ x.mT  #: [B, S, S] f32
    return ts.where(mask, scores, -1e9)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS202

@ts.function
def float_index(x: Tensor["B", "S", f32], i: Tensor["B", f32]):
    return x[i]
    #      ^ TS301

@ts.function
def stacked_unequal(x: Tensor["B", "S"]):
    return ts.stack([x, x[:, 1:]])
    #                   ^^^^^^^^ TS206

@ts.function
def optional_not_asked(x: Tensor["B", "S", "D"], y: Tensor["B", "S", "D"] | None = None):
    return x + y
    #      ^^^^^ TS105

@ts.function
def branches_of_two_shapes(x: Tensor["B", "S", "D"], n: Tensor["B", int64]):
    if x.sum() > 0:
    #  ^^^^^^^^^^^ TS212
        y = x[:, 1:]  #: [B, S-1, D] f32
    else:
        y = x  #: [B, S, D] f32
    return y

@ts.function
def loop_that_grows(x: Tensor["B", "S", "D"]):
    h = x  #: [B, S, D] f32
    for t in ts.range(3):  #: [] int64
  # ^^^^^^^^^^^^^^^^^^^^ TS212
        h = ts.concat([h, x], axis=1)  #: [B, 2*S, D] f32
    return h

@ts.function
def order_is_no_shape(x: Tensor["B", "S", "D"], w: Tensor["D", "D"]):
    assert S <= 4096
    big = x.reshape(B * S, D) @ w  #: [B*S, D] f32
    return big.reshape(B, D, S)

@ts.function
def sum_over_no_axis(x: Tensor["B", "S", "D"]):
    return x.sum(axis=3)
    #      ^^^^^^^^^^^^^ TS204

@ts.function
def squeezed_too_much(x: Tensor["B", "S", "D"]):
    return ts.softmax(x, axis=-1).squeeze(1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS213

@ts.function
def two_policies(x: Tensor["B", "S", bf16 @ ts.accum(f32)], y: Tensor["B", "S", bf16 @ ts.accum(ts.f64)]):
    return x + y
    #      ^^^^^ TS305

def helper(a: Tensor["N", "K"], b: Tensor["K", "M"]) -> Tensor["N", "M"]:
    return a @ b

@ts.function
def helper_with_the_wrong_weight(x: Tensor["B", "D"], w: Tensor["E", "D"]):
    return helper(x, w)
    #                ^ TS208

@ts.function
def scores_of_split(x: Tensor["B", "S", "D"], w: Tensor["D", "3*D"]):
    qkv = x @ w  #: [B, S, 3*D] f32
    q, k, v = ts.split(qkv, 3, axis=-1)  #: [B, S, D] f32 | [B, S, D] f32 | [B, S, D] f32
    return q @ k
    #      ^^^^^ TS203

@ts.function
def minus_one(x: Tensor["B", "S", "D"]):
    y = x.reshape(B, -1, S, D, 7)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^ TS205
    z = x.reshape(-1, -1)
    #   ^^^^^^^^^^^^^^^^^ TS205
    return y

@ts.function
def permutations(x: Tensor["B", "S", "D"]):
    return x.permute(0, 1), x.permute(0, 1, 1), ts.transpose(x, (0, 2))
    #      ^^^^^^^^^^^^^^^ TS204
    #                       ^^^^^^^^^^^^^^^^^^ TS204
    #                                           ^^^^^^^^^^^^^^^^^^^^^^^ TS204

@ts.function
def expanded_too_far(x: Tensor["B", "S", "D"]):
    return x.expand(B, S, D, 4), ts.broadcast_to(x, (B, S, 2 * D))
    #      ^ TS202
    #                                            ^ TS202

@ts.function
def product_of_rows(x: Tensor["B", "S"], y: Tensor["B", "S"]):
    return ts.matmul(x, y)
    #      ^^^^^^^^^^^^^^^ TS203

@ts.function
def upsampled_skip(x: Tensor["B", "C", "H", "W"], skip: Tensor["B", "K", "H", "W"]):
    down = x.reshape(B, C, H // 2, 2, W // 2, 2).mean((3, 5))  #: [B, C, H//2, W//2] f32
    up = ts.repeat(ts.repeat(down, 2, axis=2), 2, axis=3)  #: [B, C, 2*(H//2), 2*(W//2)] f32
    return ts.concat([up, skip], axis=1)

@ts.function
def positions(x: Tensor["B", "T", "D"], pos: Tensor["S", "D"]):
    return x + pos[:T]

@ts.function
def heads_by_number(x: Tensor["B", "S", "D"]):
    z = x.view(B, S, 12, 64)
    #   ^^^^^^^^^^^^^^^^^^^^ TS205
    return z

@ts.function
def heads_of_a_number(x: Tensor["B", "S", 512]):
    z = x.view(B, S, 12, 64)
    #   ^^^^^^^^^^^^^^^^^^^^ TS205
    return z

@ts.function
def gain_of_another_axis(x: Tensor["B", "S", "D"], gain: Tensor["D"]):
    return ts.layer_norm(x, gain, axis=1)
    #                       ^^^^ TS213

@ts.function
def outer_flattens(x: Tensor["N", "M"], y: Tensor["N", "M"]):
    return ts.outer(x, y)

@ts.function
def lengths_as_a_row(x: Tensor["B", "S", "D"], lens: Tensor["B", int32]):
    mask = ts.arange(S) < lens
    #      ^^^^^^^^^^^^^^^^^^^ TS202
    return x * mask[..., None]
