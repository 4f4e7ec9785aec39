"""A linear recurrence, one element after the other: the derivative of running products."""

from __future__ import annotations

import tessera as ts
from tessera import Tensor


@ts.kernel(ROWS=16, COLUMNS=1)
def recurrence(
    a: Tensor["A", "N", "B"],
    b: Tensor["A", "N", "B"],
    out: Tensor["A", "N", "B"],
    axis: int = 1,
    reverse: bool = False,
):
    """out[:, i] = a[:, i] * out[:, i - 1] + b[:, i], from 0 before the first; `reverse`: from the last element on.

    `axis` is 1. Narrow floats are computed in f32.
    """
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    ts.tile.grid(ts.tile.cdiv(ctx.A, rows), ts.tile.cdiv(ctx.B, columns))
    i, j = ts.tile.program_id(0) * rows, ts.tile.program_id(1) * columns
    h = ts.tile.zeros((rows, columns), wide_of(a))
    for k in ts.tile.range(ctx.N):
        n = ctx.N - 1 - k if reverse else k
        h = a[i : i + rows, n, j : j + columns] * h + b[i : i + rows, n, j : j + columns]
        out[i : i + rows, n, j : j + columns] = h


def wide_of(x):
    """The dtype of what is carried."""
    return x.dtype if x.dtype in (ts.f64, ts.complex64, ts.complex128) else ts.f32
