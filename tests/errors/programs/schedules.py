"""Configurations that a program has no use for, and spaces that make no sense."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import autotune


@autotune.space(configs=[{"warps": 4}, {"warps": 8}])
@ts.function
def whole_tensors(x: ts.Tensor["N", ts.f32]):
#   ^^^^^^^^^^^^^ TS105
# says: a block and a scheduler, so there is no warps to set
    return x + 1.0


@autotune.space(configs=[{"block": 0}])
def nothing(x: ts.Tensor["N", ts.f32]):
#   ^^^^^^^ TS404
# says: one to three sizes of at least 1, not 0
    return x + 1.0


@ts.kernel.autotune(space=dict(BLOCK=1024))
#^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
# says: autotune needs a list of values for BLOCK, not 1024
def no_list(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i]


@ts.autotune(space=dict(BLOCK=[64, 128]), metric="speed")
#^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
# says: metric is "time", "throughput" or a function
@ts.kernel
def no_metric(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i]
