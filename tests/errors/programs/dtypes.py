"""Element types that do not go together."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, accum, bf16, f16, f32, f64, int32


@ts.function
def no_logarithm(x: Tensor["D", "bool"]):
    return ts.log(x)
    #             ^ TS301


@ts.function
def wrong_way_round(ids: Tensor["N", "int64"], table: Tensor["V", "D", f32]):
    return ts.embedding(table, ids)
    #                   ^^^^^ TS301
    # says: the indices first and then the weight


@ts.function
def no_common(x: Tensor["D", f16], y: Tensor["D", bf16]):
    return x + y
    #      ^^^^^ TS302
    # says: f16 and bf16 have no common dtype
    # fix: return x + y.cast("f16")


@ts.function
def widened(x: Tensor["D", bf16]) -> Tensor["D", bf16]:
    return x + ts.cast(x, f32)
    #      ^^^^^^^^^^^^^^^^^^^ TS303 has dtype f32
    # says: Expected: Tensor["D", bf16]
    # says: Received: Tensor["D", f32]
    # fix: return (x + ts.cast(x, f32)).cast(bf16)


@ts.function
def half(x: Tensor["D", f16]):
    return x * 2


@ts.function
def given_other(x: Tensor["D", f64]):
    return half(x)
    #           ^ TS304
    # says: Convert it with cast(..., f16)
    # fix: return half(x.cast(ts.f16))


@ts.function
def disagree(x: Tensor["D", bf16 @ accum(f32)], y: Tensor["D", bf16 @ accum(f64)]):
    return x + y
    #      ^^^^^ TS305


@ts.function
def placed(x: Tensor["D", f32 @ ts.device("gpu:0")]):
    #         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    y: Tensor["D", f32 @ ts.stochastic_round] = x * 2.0
    #  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    # says: @stochastic_round is not enforced for tensors of a program, which would need a key
    return y


@ts.function
def both(x: Tensor["D", f32]) -> tuple[Tensor["D", f32 @ ts.device("gpu:0")], Tensor["D", f32]]:
    #                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    return x, x


@ts.function
def held(x: Tensor["D", f16 @ ts.saturate]) -> Tensor["D", f16 @ ts.saturate]:
    return x * x


@ts.function
def not_held(x: Tensor["D", f16]) -> Tensor["D", f16 @ ts.saturate]:
    #                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    # says: say it of a parameter that the value comes from
    return x * x


@ts.function
def whole_numbers(x: Tensor["D", ts.int8 @ ts.saturate]):
    #                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    # says: use ts.saturate_cast
    return x + x


@ts.function
def dynamic(x: Tensor["D", f16 @ ts.loss_scale("dynamic")]):
    #          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    # says: give it to an optimizer
    return x + x


@ts.kernel
def rounding(x: Tensor["D", f16 @ ts.saturate], y: Tensor["D", f16]):
    #        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    i = ts.tile.linear_id()
    if i < D:
        y[i] = x[i]


@ts.kernel
def wide(x: Tensor["D", f32 @ accum(f64)], y: Tensor["D", f32 @ accum(f32) @ ts.deterministic]):
    #    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS306
    i = ts.tile.linear_id()
    if i < D:
        y[i] = x[i]


@ts.function
def inverse_of_integers(x: Tensor["N", ts.int64]):
    y = x ** -1
       #^ TS301
    # says: int64 to the power of -1 is not int64; write x ** -1.0
    return y


@ts.kernel
def inverse_of_lanes(x: Tensor["N", ts.int32], y: Tensor["N", ts.int32]):
    i = ts.tile.linear_id()
    y[i] = x[i] ** -2
          #^^^^^^^^^^ TS301
    # says: int32 to the power of -2 is not int32
