"""What has no gradient, and where it is cut off. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations

from dataclasses import dataclass

import tessera as ts
from tessera import Tensor, f32, int32, nn


@ts.function
def squares(w: Tensor["D"], x: Tensor["D"]):
    return ts.sum(ts.square(w) * x)


@ts.function
def gradient(w: Tensor["D"], x: Tensor["D"]):
    return ts.grad(squares)(w, x)


@ts.function
def of_an_integer(n: Tensor["D", int32], x: Tensor["D"]):
    return ts.grad(lambda n, x: ts.sum(n * x))(n, x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS351
    # says: n is a tensor [D] int32: only floats have a gradient


@dataclass
class Counts:
    seen: Tensor["D", int32]
    rate: float


@ts.function
def of_an_object_without_floats(counts: Counts, x: Tensor["D"]):
    return ts.grad(lambda counts: ts.sum(counts.seen * x))(counts)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS351
    # says: it holds only seen (a tensor [D] int32), rate (no array); a parameter is an array of floats


@ts.function
def of_many_numbers(x: Tensor["B", "D"]):
    return ts.grad(lambda x: ts.sum(x * x, axis=-1))(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS352
    # says: this function gives a tensor [B] f32, a number for each element; reduce it with .sum() or .mean()


@ts.function
def of_an_integer_result(x: Tensor["D"]):
    return ts.grad(lambda x: ts.argmax(x))(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS352
    # says: which has no gradient


@ts.function
def of_two_results(x: Tensor["D"]):
    return ts.value_and_grad(lambda x: (ts.sum(x), x))(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS352
    # says: with has_aux=True it may give (value, aux)


@ts.function
def unreached(w: Tensor["D"], b: Tensor["D"], x: Tensor["D"]):
    return ts.grad(lambda w, b: ts.sum(w * x), argnums=(0, 1))(w, b)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS354
    # says: the result does not depend on b: its gradient is 0


@ts.function
def undropped(x: Tensor["D"]):
    return ts.grad(lambda x: ts.sum(nn.Dropout(0.5)(x) * x))(x)
    #                               ^^^^^^^^^^^^^^^^^^ TS374
    # says: dropout without a key drops nothing


@ts.kernel
def doubled(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] * 2


@ts.function
def through_a_kernel(x: Tensor["N", f32]):
    def loss(x):
        y = ts.zeros_like(x)
        doubled(x, y)
    #   ^^^^^^^^^^^^^ TS355
    # says: a kernel has no derivative of its own
        return ts.sum(y)
    return ts.grad(loss)(x)


@ts.kernel
def squared_tiles(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    y[i] = x[i] * x[i]


squared_tiles.vjp(squared_tiles.backward())


@ts.function
def through_a_kernel_with_a_backward(x: Tensor["N", f32]):
    def loss(x):
        y = ts.zeros_like(x)
        squared_tiles(x, y)
        return ts.sum(y)
    return ts.grad(loss)(x)


@ts.function
def by_what_is_not_there(x: Tensor["D"]):
    return ts.grad(lambda x: ts.sum(x), argnums="y")(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: differentiates by 'y', which is not given


@ts.function
def by_nothing(x: Tensor["D"]):
    return ts.grad(lambda x: ts.sum(x), argnums=())(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: argnums of grad are positions or names of parameters, not ()


@ts.function
def of_no_function(x: Tensor["D"]):
    return ts.grad(x)(x)
    #      ^^^^^^^^^^ TS105
    # says: grad takes a function, not a tensor [D] f32


@ts.function
def a_tangent_of_another_shape(x: Tensor["D"], v: Tensor["D", 2]):
    return ts.jvp(lambda x: ts.sin(x), (x,), (v,))
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS357
    # says: tangents[0] must be [D] f32, as its value; [D, 2] f32 is given


@ts.function
def too_few_tangents(x: Tensor["D"]):
    return ts.jvp(lambda x, y: x * y, (x, x), (x,))
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS357
    # says: tangents has another structure


@ts.function
def primals_that_are_no_tuple(x: Tensor["D"]):
    return ts.hvp(lambda x: ts.sum(x * x), x, x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: hvp takes the arguments of the function as a tuple


@ts.function
def a_cotangent_of_another_dtype(x: Tensor["D"]):
    y, back = ts.vjp(lambda x: x.to(ts.f64), x)
    return back(x)
    #      ^^^^^^^ TS357
    # says: the cotangent must be [D] f64


@ts.function
def a_jacobian_of_positions(x: Tensor["D"]):
    return ts.jacobian(lambda x: ts.argmax(x))(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS352
    # says: only floats have derivatives


@ts.function
def ruled(x: Tensor["D"]):
    return x * x


@ruled.vjp
def ruled_back(out, ct, x):
    return ts.sum(ct)


@ts.function
def by_a_rule_that_gives_another_shape(x: Tensor["D"]):
    return ts.grad(lambda x: ts.sum(ruled(x)))(x)
    #                               ^^^^^^^^ TS357
    # says: the result of the rule of ruled[0] must be [D] f32, as its value; [] f32 is given


@ts.kernel
def halved(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] / 2


@halved.vjp
def halved_back(y, ct, x, _):
    return ct / 2, None


@ts.function
def through_a_kernel_with_a_rule(x: Tensor["N", f32]):
    def loss(x):
        y = ts.zeros_like(x)
        halved(x, y)
        return ts.sum(y * y)
    return ts.grad(loss)(x)


@ts.function
def by_one_argument_twice(x: Tensor["D"]):
    return ts.grad(lambda x: ts.sum(x * x), argnums=(0, "x"))(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: argnums of grad name x twice
