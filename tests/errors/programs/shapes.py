"""Shapes that do not fit. A line of carets marks what is underlined and names the code; `fix` shows the line mended."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Const, Tensor


@ts.function
def adaptive_pooling(x: Tensor["B", "C", "H", "W"]) -> Tensor["B", "C", 1, 1]:
    pooled = x.mean(axis=(2, 3))
    #        ^^^^^^^^^^^^^^^^^^^ TS201 has shape [B, C]
    # says: Expected: Tensor["B", "C", 1, 1]   (the return annotation
    # says: Received: Tensor["B", "C"]
    # says: Did you forget keepdim=True in the mean operation?
    # fix: pooled = x.mean(axis=(2, 3), keepdim=True)
    return pooled


@ts.function
def adaptive_pooling_right(x: Tensor["B", "C", "H", "W"]) -> Tensor["B", "C", 1, 1]:
    return x.mean(axis=(2, 3), keepdim=True)


@ts.function
def as_numpy_calls_it(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted / shifted.sum(axis=-1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS202
    # says: Did you forget keepdims=True in the sum operation?
    # fix: return shifted / shifted.sum(axis=-1, keepdims=True)


@ts.function
def two_axes_of_three(x: Tensor["B", "S", "D"]):
    y = x.permute(0, -1)
    #   ^^^^^^^^^^^^^^^^ TS204
    # says: permute names every axis, transpose(0, 2) exchanges two
    # fix: y = x.transpose(0, -1)
    z = ts.permute(x, (1, 2))
    #   ^^^^^^^^^^^^^^^^^^^^^ TS204
    # fix: z = ts.transpose(x, 1, 2)
    return y, z


@ts.function
def two_values(x: Tensor["B", "D"]) -> tuple[Tensor["B"], Tensor["D"]]:
    return x.sum(1), x
    #                ^ TS201
    # says: Received: Tensor["B", "D"]


@ts.function
def wrong_number(x: Tensor["B", "D"]) -> tuple[Tensor["B"], Tensor["D"]]:
    return x.sum(1)
    #      ^^^^^^^^ TS201
    # says: Expected: 2 values


@ts.function
def claimed(x: Tensor["B", "D"]):
    y: Tensor["D", "B"] = x * 2
    #                     ^^^^^ TS201 has shape [B, D]
    return y


@ts.function
def centred(x: Tensor["B", "S", "D"]):
    m = x.mean(-1)
    return x - m
    #      ^^^^^ TS202
    # says: do not broadcast
    # says: for example
    # fix of the line above: m = x.mean(-1, keepdim=True)


@ts.function
def memory_intensive():
    x = ts.zeros((1024, 1024))
    y = ts.ones((2048, 2048))
    return x @ y.T
    #      ^^^^^^^ TS203
    # says: 1024 and 2048 differ


@ts.function
def forgotten_transpose(q: Tensor["S", "D"], k: Tensor["T", "D"]):
    return q @ k
    #      ^^^^^ TS203
    # fix: return q @ k.T


@ts.function
def no_such_axis(x: Tensor["B", "D"]):
    a = x.sum(axis=2)
    #   ^^^^^^^^^^^^^ TS204
    # says: axis=2 is out of range for [B, D]
    b = x.sum(axis=(0, -2))
    #   ^^^^^^^^^^^^^^^^^^^ TS204
    return a, b


@ts.function
def bad_reshape(x: Tensor["B", "S", "D"]):
    return x.reshape(B, S * D + 1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^ TS205


@ts.function
def joined(x: Tensor["B", "D"], y: Tensor["S", "D"]):
    return ts.concat([x, y], axis=1)
    #                    ^ TS206


@ts.function
def indexed(x: Tensor[4, "D"]):
    return x[4]
    #      ^ TS207


@ts.function
def square(x: Tensor["N", "N"]):
    return x


@ts.function
def not_square(x: Tensor["B", "D"]):
    return square(x)
    #             ^ TS208
    # says: N is B (axis 0 of x) and D (axis 1 of x)


@ts.function
def wrong_rank(x: Tensor["B", "S", "D"]):
    return square(x)
    #             ^ TS209


@ts.function
def equation(x: Tensor["B", "D"], y: Tensor["D", "E"]):
    return ts.einsum("bd,de->bz", x, y)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS210


@ts.function
def unclear(x: Tensor["B", D]):
    #                      ^ TS211
    # fix: def unclear(x: Tensor["B", "D"]):
    return x


@ts.function
def branches(x: Tensor["B", "D"]):
    if x.sum() > 0:
    #  ^^^^^^^^^^^ TS212
    # says: 'y' is [B, D] f32 on one path and [B] f32 on the other
        y = x
    else:
        y = x.sum(-1)
    return y


@ts.function
def growing(x: Tensor["B", "D"]):
    y = x
    for i in ts.range(3):
   #^^^^^^^^^^^^^^^^^^^^ TS212
    # says: 'y' is [B, D] f32 before the loop and [2*B, D] f32 after an iteration
        y = ts.concat([y, x], axis=0)
    return y


@ts.function
def truth_of_many(x: Tensor["B"]):
    if x > 0:
    #  ^^^^^ TS213
    # fix: if (x > 0).any():
        x = x * 2
    return x


@ts.shape_checked
def heads(x: Tensor["B", "S", "D"], num_heads: Const["H"]) -> Tensor["B", "S", "D"]:
    split = x.reshape(B, S, H, D // H)
    return split.reshape(B, S, H * (D // H))


@ts.function
def masked(x: Tensor["B", "S", "D"], mask: Tensor["B", "S"]):
    return x * mask
    #      ^^^^^^^^ TS202
    # says: S meets B at axis -2
    # fix: return x * mask[..., None]


@ts.function
def one_row_for_each(x: Tensor["B", "S", "D"], bias: Tensor["B", "D"]):
    return bias + x
    #      ^^^^^^^^ TS202
    # fix: return bias[:, None] + x


@ts.function
def crossed(x: Tensor["B", "D"], y: Tensor["D", "B"]):
    return x + y
    #      ^^^^^ TS202
    # fix: return x + y.T


@ts.function
def transposed_twice(h: Tensor["B", "S", "F"], w: Tensor["F", "D"]) -> Tensor["B", "S", "D"]:
    return h @ w.T
    #      ^^^^^^^ TS203
    # fix: return h @ w


@ts.function
def other_heads(q: Tensor["B", "H", "S", "D"], k: Tensor["B", "G", "D", "S"]):
    return q @ k
    #      ^^^^^ TS202
    # says: [B, H, S, D] @ [B, G, D, S]: batches do not broadcast: H meets G at axis -3


@ts.function
def letters_exchanged(q: Tensor["B", "H", "S", "D"], k: Tensor["B", "H", "D", "T"]) -> Tensor["B", "H", "S", "T"]:
    return ts.einsum("bhsd,bhtd->bhst", q, k)
    #                                   ^ TS210
    # says: d is D and T
    # fix: return ts.einsum("bhsd,bhdt->bhst", q, k)


@ts.function
def unknown_halves(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    a, b = ts.chunk(x, 2, axis=-1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^ TS213
    # fix: a, b = ts.split(x, 2, axis=-1)
    return ts.concat([b, a], axis=-1)


@ts.function
def sequences_joined(x: Tensor["B", "S1", "D"], y: Tensor["B", "S2", "D"]) -> Tensor["B", "S1+S2", "D"]:
    return ts.concat([x, y], axis=0)
    #                    ^ TS206
    # fix: return ts.concat([x, y], axis=1)


@ts.function
def sum_of_lengths(x: Tensor["B", "S1", "D"], y: Tensor["B", "S2", "D"]) -> Tensor["B", "S1", "D"]:
    return ts.concat([x, y], axis=1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^ TS201 has shape [B, S1+S2, D]
    # says: for example S1=2, S2=3: axis 1 has size 5 instead of 2


@ts.function
def an_axis_too_many(x: Tensor["B", "D"]) -> Tensor["B"]:
    return x.sum(-1, keepdim=True)
    #      ^^^^^^^^^^^^^^^^^^^^^^^ TS201
    # fix: return x.sum(-1, keepdim=True).squeeze(-1)


@ts.function
def the_other_way_round(x: Tensor["B", "S", "D"]) -> Tensor["B", "D", "S"]:
    return x * 2
    #      ^^^^^ TS201
    # fix: return (x * 2).mT


@ts.function
def heads_not_merged(x: Tensor["B", "H", "S", "E"]) -> Tensor["B", "S", "E*H"]:
    return x.transpose(1, 2)
    #      ^^^^^^^^^^^^^^^^^ TS201
    # fix: return x.transpose(1, 2).reshape(B, S, E*H)


@ts.function
def a_wrong_weight(x: Tensor["B", "S"], w: Tensor["N", "N"]):
    return square_weight(x, w)
    #                       ^ TS208


@ts.function
def square_weight(x: Tensor["B", "D"], w: Tensor["D", "D"]):
    return x @ w


@ts.function
def both_ways(x: Tensor["B", "D"], w: Tensor["D", "E"] | None = None, bias: Tensor["D"] | None = None) -> Tensor["B", "D"]:
    if bias is None:
        x = x + bias
        #   ^^^^^^^^ TS105
        # says: when bias is None
        # fix: x = (x if bias is None else x + bias)
    if w is None:
        return x
    return x @ w
    #      ^^^^^ TS201


@ts.function
def the_wrong_axis(x: Tensor["B", "S", "D"]) -> Tensor["B", "S"]:
    return x.mean(1)
    #      ^^^^^^^^^ TS201
    # fix: return x.mean(-1)


@ts.function
def with_a_bias(x: Tensor["B", "D"], bias: Tensor["D"] | None = None) -> Tensor["B", "D"]:
    return x + bias
    #      ^^^^^^^^ TS105
    # says: it is None on this path
    # fix: return (x if bias is None else x + bias)


@ts.function
def wrong_without_a_mask(x: Tensor["B", "S", "D"], mask: Tensor["B", "S"] | None = None) -> Tensor["B", "D"]:
    if mask is None:
        return x.mean(1, keepdim=True)
        #      ^^^^^^^^^^^^^^^^^^^^^^^ TS201
        # says: when mask is None
        # fix: return x.mean(1, keepdim=True).squeeze(1)
    return (x * mask[..., None]).mean(1)


@ts.function
def batches_of_an_equation(x: Tensor["B", "I", "J"], y: Tensor["C", "J", "K"]):
    return ts.einsum("...ij,...jk->...ik", x, y)
    #                                      ^ TS210
    # says: an axis of `...` is B and C
