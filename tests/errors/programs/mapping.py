"""What `ts.vmap` and `ts.scan` cannot do, and what they do one after the other. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, f32


@ts.function
def by_name(x: Tensor["D", "B"], w: Tensor["D", "K"]):
    return ts.vmap(lambda x: ts.softmax(x @ w), in_dims="B")(x)


@ts.function
def running(x: Tensor["N", "D"]):
    return ts.scan(lambda c, v: (c + v, c), ts.zeros((x.shape[1],)), x)


@ts.function
def axes(x: Tensor["B", "D"]):
    return ts.vmap(lambda a: ts.sum(a), in_axes=2)(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS204
    # says: vmap maps over axis 2 of argument 0, which is a tensor [B, D] f32; in_axes=None passes it as it is


@ts.function
def counts(x: Tensor["B", "D"], y: Tensor["B+1", "D"]):
    return ts.vmap(lambda a, b: a * b)(x, y)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS213
    # says: vmap maps over as many elements of all arguments: B, and B+1 of argument 1


@ts.function
def no_elements(x: Tensor["B", "D"]):
    return ts.vmap(lambda a: a * 2, in_axes=None)(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: in_axes name no tensor to map over


@ts.function
def a_name_that_is_not_there(x: Tensor["B", "D"]):
    return ts.vmap(lambda a: a * 2, in_dims="S")(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: no argument has the dim S


@ts.function
def a_name_of_what_is_computed(x: Tensor["B", "D"]):
    return ts.vmap(lambda a: a * 2, in_dims="B")(x + 1)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: in_dims looks for B in the annotations of parameters


@ts.function
def a_result_that_differs(x: Tensor["B", "D"]):
    return ts.vmap(lambda a: a * 2, out_axes=None)(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: out_axes of vmap is None for a result that is not the same for all elements


@ts.function
def a_carry_that_changes(x: Tensor["N", "D"]):
    return ts.scan(lambda c, v: (c + v, c), 0, x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS212
    # says: a scan carries [] int64 and its function gives [D] f32


@ts.function
def no_pair(x: Tensor["N", "D"]):
    return ts.scan(lambda c, v: c + v, x[0], x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: the function of a scan gives (carry, result), not a tensor [D] f32


@ts.function
def no_length(x: Tensor["N", "D"]):
    return ts.scan(lambda c, v: (c, c), x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: scan without anything to go through needs length=


@ts.function
def a_list_from_outside(x: Tensor["B", "D"]):
    found = [x]
    y = ts.vmap(lambda a: [found.append(a), a][1])(x)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS102
    # says: an object, list or dict from outside is changed in a function that vmap maps
    return y, found[-1]


@ts.kernel
def doubled(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] * 2


@ts.function
def kernels(x: Tensor["B", "N", f32]):
    def one(x: Tensor["N", f32]):
        y = ts.zeros_like(x)
        doubled(x, y)
    #   ^^^^^^^^^^^^^ TS359
    # says: vmap does a kernel for one element after the other
        return y

    return ts.vmap(one)(x)
