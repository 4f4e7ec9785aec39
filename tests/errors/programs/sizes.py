"""Asserts over sizes: false ones, and what they allow."""
# fmt: off
# ruff: noqa

from __future__ import annotations

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
