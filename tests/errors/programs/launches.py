"""Kernels that functions call: arguments that do not fit, and stores that nobody would see."""
# fmt: off
# ruff: noqa

import tessera as ts
from tessera import Tensor, f16, f32, int8


@ts.kernel
def scaled(x: Tensor["M", "N", f32], by: Tensor["N", f32], a: float) -> Tensor["M", "N", f32]:
    return x * by * a


@ts.kernel
def decay(state: Tensor["K", f32], new: Tensor["K", f32], rate: float):
    i = ts.tile.linear_id()
    state[i] = state[i] * (1.0 - rate) + new[i] * rate


@ts.kernel
def swapped(x: Tensor["K", f32], y: Tensor["K", f32]):
    i = ts.tile.linear_id()
    v = x[i] * 1.0
    x[i] = y[i]
    y[i] = v


@ts.kernel
def fours(x: Tensor["K", f32], n: int8) -> Tensor["K", f32]:
    assert K % 4 == 0
    i = ts.tile.linear_id()
    return x[i] * 4.0


@ts.kernel
def mistaken(x: Tensor["M", "N", f32]) -> Tensor["M", "N", f32]:
    return x * missing
    #          ^^^^^^^ TS103


@ts.kernel
def mistaken_rows(x: Tensor[..., "N", f32]) -> Tensor[..., f32]:
    return ts.tile.row_sum(x) * missing
    #                           ^^^^^^^ TS103


@ts.function
def other_sizes(x: Tensor["B", "D", f32], w: Tensor["E", f32]):
    return scaled(x, w, 2.0)
    #                ^ TS208
    # says: N is D (axis 1 of x) and E (axis 0 of by)


@ts.function
def other_rank(x: Tensor["B", "D", f32]):
    return scaled(x, by=x, a=2.0)
    #                   ^ TS209


@ts.function
def other_dtype(x: Tensor["B", "D", f16], w: Tensor["D", f32]):
    return scaled(x, w, 2.0)
    #             ^ TS304


@ts.function
def no_number(x: Tensor["B", "D", f32], w: Tensor["D", f32]):
    return scaled(x, w, w)
    #                   ^ TS105
    # says: a number of f32, a tensor [D] f32 is given


@ts.function
def no_tensor(x: Tensor["B", "D", f32]):
    return scaled(x, 2.0, 2.0)
    #                ^^^ TS105


@ts.function
def too_large(x: Tensor[8, f32]):
    return fours(x, 1000)
    #               ^^^^ TS304


@ts.function
def too_few(x: Tensor["B", "D", f32]):
    return scaled(x)
    #      ^^^^^^^^^ TS105
    # says: needs 'by' and 'a'


@ts.function
def asserted(x: Tensor[6, f32]):
    return fours(x, 1)
    #      ^^^^^^^^^^^ TS106
    # says: fours with these arguments: assert K % 4 == 0 is false


@ts.function
def of_a_mistaken_kernel(x: Tensor["B", "D", f32]):
    y = mistaken(x)
    return y.sum(2)
    #      ^^^^^^^^ TS204


@ts.function
def of_mistaken_rows(x: Tensor["A", "B", "D", f32]):
    y = mistaken_rows(x)
    return y.sum(1) + y.sum(2)
    #                 ^^^^^^^^ TS204
    # says: [A, B], which has 2 axes


@ts.function
def no_variable(state: Tensor["P", f32]):
    decay(state * 2, state, 0.5)
    #     ^^^^^^^^^ TS406
    return state


@ts.function
def one_variable_for_two(x: Tensor["P", f32]):
    swapped(x, x)
    #       ^ TS406
    #          ^ TS406
    return x


@ts.function
def what_no_one_reads(state: Tensor["P", f32], x: Tensor["P", f32]):
    decay(state, x, 0.5)
#   ^^^^^^^^^^^^^^^^^^^^ TS416
    # says: decay stores to state, and nothing reads what it stored
    return x * 2


def step(state, x):
    decay(state, x, 0.5)
#   ^^^^^^^^^^^^^^^^^^^^ TS416


@ts.function
def lost_in_a_helper(state: Tensor["P", f32], x: Tensor["P", f32]):
    step(state, x)
    return state


@ts.function
def all_is_well(state: Tensor["P", f32], x: Tensor["P", f32], y: Tensor["P", f32]):
    decay(state, x, 0.5)
    swapped(x, y)
    return state + x
