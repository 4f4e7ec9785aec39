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
    #      ^^^^^^^^^ TS208
    # says: N is B (axis 0 of x) and D (axis 1 of x)


@ts.function
def wrong_rank(x: Tensor["B", "S", "D"]):
    return square(x)
    #      ^^^^^^^^^ TS209


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
        x = x * 2
    return x


@ts.shape_checked
def heads(x: Tensor["B", "S", "D"], num_heads: Const["H"]) -> Tensor["B", "S", "D"]:
    split = x.reshape(B, S, H, D // H)
    return split.reshape(B, S, H * (D // H))
