"""Functions that cannot be distributed as their decorator says, each with the operator that stands against it."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor

mesh = ts.mesh(4)


@ts.distributed(mesh, over="B")
@ts.function
def running(x: Tensor["B", "D"]):
    near = x - ts.cumsum(x, axis=0)
    #          ^^^^^^^^^^^^^^^^^^^^ TS801 needs all of B
    # says: running cannot be distributed over B: cumsum in line 16 needs the whole of B, for it runs along B
    # says: take this step outside of the function
    return near * 2


@ts.distributed(over="S")
@ts.function
def attends(q: Tensor["B", "H", "S", "D"], k: Tensor["B", "H", "S", "D"], v: Tensor["B", "H", "S", "D"]):
    return ts.attention(q, k, v)
    #      ^^^^^^^^^^^^^^^^^^^^^ TS801 needs all of S


@ts.distributed
def bare(x: Tensor["B", "D"], note="é"):
    y = ts.flip(x, 0)
    #   ^^^^^^^^^^^^^ TS801
    # says: it reverses B
    return y


@ts.distributed(mesh, over="N")
@ts.function
def without_the_dim(x: Tensor["B", "D"]):
   #^^^^^^^^^^^^^^^ TS802
    # says: no parameter of without_the_dim has an axis N; its dims are B, D
    return x * 2


@ts.distributed(mesh)
@ts.function
def joined_axes(x: Tensor["B*S", "D"], y: Tensor["B"]):
    #           ^^^^^^^^^^^^^^^^^^^^^ TS802
    # says: give B an axis of its own, and reshape inside
    return x * 2


@ts.distributed(mesh, over=3)
#^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
@ts.function
def over_a_number(x: Tensor["B", "D"]):
    return x * 2


@ts.distributed(mesh)
#^^^^^^^^^^^^^^^^^^^^ TS802
# says: what is distributed is a @ts.function
@ts.kernel
def kernel(x: Tensor["n"]):
    i = ts.tile.linear_id()
    if i < n:
        x[i] = x[i] * 2


@ts.kernel
def twice(x: Tensor["n"]) -> Tensor["n"]:
    i = ts.tile.linear_id()
    return x[i] * 2


@ts.distributed(mesh)
@ts.function
def launches(x: Tensor["B"], y: Tensor["D"]):
    return twice(x), twice(y)
    #      ^^^^^^^^ TS801
    # says: twice in line 80 needs the whole of B, for a kernel may read and store anywhere along B


@ts.distributed(mesh)
@ts.function
def held(x: Tensor["B", "D"], more: list[Tensor["B", "D"]]):
    #                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS802
    # says: more holds tensors with an axis B, and only those that are parameters themselves are cut
    return x * 2


@ts.distributed(mesh)
@ts.function
def right(x: Tensor["B", "D"], w: Tensor["D", "H"]):
    return ts.softmax(x @ w), (x @ w).sum(axis=0), x - x.mean(axis=0)


@ts.distributed(mesh, axis="B")
#^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
# says: distributed has no parameter 'axis'; what is cut into parts is one dim of the arguments
@ts.function
def another_librarys_keyword(x: Tensor["B", "D"]):
    return x
