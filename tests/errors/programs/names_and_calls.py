"""Names that do not exist and calls that do not fit."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import math
from dataclasses import dataclass

import tessera as ts
from tessera import Tensor, softmax

SCALE = 0.125


@dataclass
class Config:
    heads: int = 8
    width: int = 64


config = Config(heads=4)


@ts.function
def misspelt(x: Tensor["B", "D"]):
    y = sotmax(x)
    #   ^^^^^^ TS103
    # says: did you mean 'softmax'?
    # fix: y = softmax(x)
    z = ts.sofmax(x)
    #   ^^^^^^^^^ TS104
    # fix: z = ts.softmax(x)
    w = x.summ(-1)
    #   ^^^^^^ TS104
    # fix: w = x.sum(-1)
    return x * SCAL
    #          ^^^^ TS103
    # fix: return x * SCALE


@ts.function
def quiet_afterwards(x: Tensor["B", "D"]):
    """One mistake is one finding: what depends on it stays quiet."""
    y = nothing_of_this_name(x)
    #   ^^^^^^^^^^^^^^^^^^^^ TS103
    z = y + x.sum(-1)
    if y:
        z = z @ y.foo(1, 2)[3]
    return z.reshape(7, y)


@ts.function
def record(x: Tensor["B", "D"]):
    return x * config.height
    #          ^^^^^^^^^^^^^ TS104


def scaled(x, factor, *, shift=0.0):
    return x * factor + shift


@ts.function
def calls(x: Tensor["B", "D"]):
    a = scaled(x)
    #   ^^^^^^^^^ TS105
    # says: scaled needs 'factor'
    b = scaled(x, 2.0, 3.0)
    #   ^^^^^^^^^^^^^^^^^^^ TS105
    c = scaled(x, 2.0, shfit=1.0)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: did you mean 'shift'?
    # fix: c = scaled(x, 2.0, shift=1.0)
    d = softmax(x, axes=1)
    #   ^^^^^^^^^^^^^^^^^^ TS105
    e = x.sum(0, 1, 2, 3)
    #   ^^^^^^^^^^^^^^^^^ TS105
    f = SCALE(x)
    #   ^^^^^^^^ TS105
    return a, b, c, d, e, f


@ts.function
def stepped(x: Tensor["D"], n: ts.int8, rate: float = 0.1):
    return x * n + rate


@ts.function
def wrong_numbers(x: Tensor["D"]):
    a = stepped(x, 300)
    #              ^^^ TS304
    # says: n of stepped is a number of int8, which cannot hold 300
    b = stepped(x, 3, x)
    #                 ^ TS105
    # says: rate of stepped is a number of f32, a tensor [D] f32 is given
    return a, b


@ts.function
def not_ours(x: Tensor["B", "D"]):
    return math.exp(x)
    #      ^^^^^^^^^^^ TS105
    # fix: return ts.exp(x)


@ts.function
def optional(x: Tensor["B", "D"], bias: Tensor["D"] | None = None):
    return x + bias
    #      ^^^^^^^^ TS105
    # says: when bias is None


@ts.function
def unpacked(x: Tensor["B", "S", "D"]):
    B, D = x.shape
   #^^^^ TS105
    # says: 2 values are expected here, 3 are given
    return x


@ts.function
def forever(x: Tensor["D"], n: int):
    return again(x)
    #      ^^^^^^^^ TS108
    # says: calls itself more than


def again(x):
    return again(x + 1)


@ts.function
def sometimes(x: Tensor["D"]):
    if x.sum() > 0:
        y = x * 2
    return y
    #      ^ TS110


@ts.function
def on_one_path_again(x: Tensor["D"]):
    for i in ts.range(3):
        x = x + i
    if x.sum() > 0:
        i = 2
    return x * i
    #          ^ TS110


@ts.function
def too_early(x: Tensor["D"]):
    z = late * 2
    #   ^^^^ TS110
    late = x
    return z


@ts.function
def in_a_function(x: Tensor["D"]):
    i = ts.tile.linear_id()
    #   ^^^^^^^^^^^^^^^^^^^ TS401
    return x


@ts.function
def a_keyword_of_another_library(x: Tensor["B", "D"]):
    return x.mean(axes=1)
    #      ^^^^^^^^^^^^^^ TS105
    # says: has no parameter 'axes'; did you mean 'axis'?
    # fix: return x.mean(axis=1)


@ts.function
def drops_without_a_key(x: Tensor["B", "D"], training: bool = True):
    if training:
        x = ts.dropout(x, p=0.1)
           #^^^^^^^^^^^^^^^^^^^^ TS105
    # says: the same key drops the same ones
    # fix: x = ts.dropout(x, p=0.1, key=key)
    return x


@ts.function
def drops_by_probability(x: Tensor["B", "D"]):
    return ts.dropout(x, 0.1)
                      #  ^^^ TS301
    # says: p comes after it


@ts.function
def drops_while_training(x: Tensor["B", "D"], key: ts.int64, training: bool):
    return ts.dropout(x, key, p=0.1, training=training)
          #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: write `if training: x = ts.dropout(x, key, p)`
