"""Parameters of a schedule that a kernel does not read."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor


@ts.kernel(BLOCKS=128)
def doubled(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
#   ^^^^^^^ TS105
# says: doubled reads no parameter BLOCKS: did you mean BLOCK?
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] * 2
