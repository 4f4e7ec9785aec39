"""Asserts over sizes: false ones, and what they allow."""
# fmt: off
# ruff: noqa

from __future__ import annotations

from math import prod

import tessera as ts
from tessera import Const, Tensor

D_MODEL, HEADS = 100, 8


@ts.function
def false_assertion(x: Tensor["B", D_MODEL]):
    assert D_MODEL % HEADS == 0, f"{D_MODEL} is not divisible by {HEADS}"
    #      ^^^^^^^^^^^^^^^^^^^^ TS106
    # says: (D_MODEL = 100, HEADS = 8)
    # says: 100 is not divisible by 8
    return x


@ts.function
def heads_must_divide(x: Tensor["B", "S", "D"], num_heads: Const["H"]) -> Tensor["B", "S", "D"]:
    assert D % H == 0, f"hidden dim {D} must be divisible by heads {H}"
    return x.reshape(B, S, H, D // H).transpose(0, 2, 1, 3).transpose(0, 2, 1, 3).reshape(B, S, D)


@ts.function
def guarded(x: Tensor["B", "S", "D"], num_heads: Const["H"]) -> Tensor["B", "S", "D"]:
    if D % H != 0:
        raise ValueError("heads")
    return x.reshape(B, S, H, D // H).reshape(B, S, H * (D // H))


@ts.function
def high_resolution(x: Tensor["B", "C", "H", "W"]) -> Tensor["B", "C", "H", "W"]:
    if H > 224 or W > 224:
        y = x * 2
    else:
        y = x + 1
        z = y @ x.sum(-1)
        #   ^^^^^^^^^^^^^ TS203
    return y


@ts.function
def never(x: Tensor["B", "D"]):
    raise NotImplementedError("later")
   #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS107
    # says: NotImplementedError: later


@ts.function
def divided(x: Tensor["B", "D"]):
    return x * (1 / 0)
    #           ^^^^^ TS107


@ts.function
def from_the_end(x: Tensor["B", "S", "D"], cache: Tensor["B", "L", "D"], window: Const["W"]) -> Tensor["B", "S", "D"]:
    joined = ts.concat([cache, x], axis=1)
    last: Tensor["B", "W", "D"] = joined[:, -W:]
    whole: Tensor["B", "L+S", "D"] = joined[:, -S - L:]
    rest: Tensor["B", "L+S-W", "D"] = joined[:, :-W]
    one: Tensor["B", "D"] = joined[:, -W]
    return joined[:, L:]


@ts.function
def merged_once_too_often(x: Tensor["B", "S", "D"], heads: Const["H"]):
    assert D % H == 0
    q = x.reshape(B, S, H, D // H)
    return q.reshape(B, S, D * H)
    #      ^^^^^^^^^^^^^^^^^^^^^^ TS205
    # says: does not keep the number of elements


@ts.function
def halves_joined(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    assert D % 2 == 0
    a, b = ts.chunk(x, 2, axis=-1)
    return ts.concat([-b, a], axis=-1)


@ts.function
def a_part_that_does_not_divide(x: Tensor["B", 224, 224, 3]):
    return x.reshape(B, 15, -1, 3)
    #      ^^^^^^^^^^^^^^^^^^^^^^^ TS205


@ts.function
def a_half_of_it(x: Tensor["B", "S"]):
    return x[:, : S // 2] + x
    #      ^^^^^^^^^^^^^^^^^^ TS202
    # says: for example S=4: 2 is not 4


@ts.function
def between_orders(x: Tensor["B", "S", "D"], pos: Tensor["P", "D"]) -> Tensor["B", 128, "D"]:
    assert 128 <= S <= P
    x = x + pos[:S]
    return x[:, :128]


@ts.function
def behind_a_guard(x: Tensor["B", "S"]) -> Tensor["B", 4]:
    if S < 4:
        raise ValueError("too short")
    return x[:, :4]


@ts.function
def an_order_hides_nothing(x: Tensor["B", "S", "D"], y: Tensor["S", "D"]):
    assert S >= 256 and D <= 64
    return x @ y
    #      ^^^^^ TS203
    # says: for example D=2, S=25


@ts.function
def relative_to_the_first(x: Tensor["B", "S"], y: Tensor["S", "D"]) -> Tensor["B", "S"]:
    three = x[:, :3]
    centred = three + three[:, : three.shape[1] // 2]
    tall = ts.broadcast_to(y[:1], y.shape)
    return x - x[:, :1]


@ts.function
def made_flat(x: Tensor["B", "S", "D"]) -> Tensor["B*S", "D"]:
    return x.reshape(prod(x.shape[:-1]), D)


@ts.function
def too_much_for_what_is_left(x: Tensor["B", "S", "D"]):
    return x.reshape(B, -1, S, D, 7)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^ TS205
    # says: B*D*S elements are not a multiple of 7*B*D*S


@ts.function
def stretched_too_far(x: Tensor["B", "D"]):
    return ts.broadcast_to(x, (B, 2 * D))
    #                      ^ TS202
    # says: for example D=2: 2 is not 4


@ts.function
def chosen_by_a_flag(x: Tensor["B", "S"], flag: Tensor[(), "bool"]) -> Tensor["B", "S"]:
    return x if flag else -x


def projected(x: Tensor["N", "K"], w: Tensor["K", "M"]) -> Tensor["N", "M"]:
    return x @ w


@ts.function
def projected_by_the_wrong_one(x: Tensor["B", "D"], w: Tensor["E", "D"]):
    return projected(x, w)
    #                   ^ TS208
    # says: E is bound here


@ts.function
def heads_by_default(x: Tensor["B", "S", "D"], num_heads: Const["H"] = 4) -> Tensor["B", "H", "S", "D//H"]:
    assert D % H == 0
    return x.reshape(B, S, num_heads, D // H).transpose(0, 2, 1, 3)


@ts.function
def a_number_that_is_a_dim(x: Tensor["B", "S", "H*E"], y: Tensor["B", "H", "S", "E"], E: Const = 8):
    return x.reshape(B, S, -1, E).transpose(0, 2, 1, 3) + y


@ts.function
def a_number_without_a_default(x: Tensor["B", "S", "H*E"], y: Tensor["B", "S", "H", "E"], E: int, H: Const):
    return x.reshape(B, S, H, E) + y


@ts.function
def another_number(x: Tensor["B", "H*E"], E: Const = 8):
    return x.reshape(B, -1, E) + x.reshape(B, E, -1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS202
    # says: [B, H, 8] and [B, 8, H] do not broadcast


@ts.function
def calls_with_numbers(x: Tensor["B", 6, 20], y: Tensor["B", 5, 6, 4]):
    a = a_number_that_is_a_dim(x, y, E=4)
    return a + a_number_that_is_a_dim(x, y, 5)
    #                                       ^ TS208
    # says: a_number_that_is_a_dim: E is 4 (axis 3 of y) and 5 (E)
