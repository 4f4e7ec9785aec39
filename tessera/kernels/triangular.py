"""Systems of equations with triangular matrices, by blocks of rows: what `ts.linalg.solve_triangular` runs.

Rows are solved for in order, a block at a time: what the blocks before contribute is a product, what the rows within a
block contribute is taken away row by row. Elements are taken out of tiles as sums in which all others are 0, which is
quicker than an index that a loop counts. One program solves for a block of columns of one matrix. Elements are f32 or
f64.
"""

from __future__ import annotations

import tessera as ts
from tessera import Tensor


@ts.kernel(BLOCK=32, COLUMNS=64)
def solve_columns(
    a: Tensor["B", "N", "N"],
    b: Tensor["B", "N", "K"],
    out: Tensor["B", "N", "K"],
    lower: bool = True,
    trans: bool = False,
    unit: bool = False,
):
    """`out` with a out = b, or with `trans` a^T out = b, for the `lower` or upper triangle of `a`; `unit`: the diagonal
    counts as 1, and is not read."""
    ctx = ts.tile.context()
    nb, width = ctx.BLOCK, ctx.COLUMNS
    ts.tile.grid(ctx.B, ts.tile.cdiv(ctx.K, width))
    m, c = ts.tile.program_id(0), ts.tile.program_id(1) * width
    at = ts.tile.arange(nb)
    ascends = lower != trans
    blocks = ts.tile.cdiv(ctx.N, nb)
    for step in ts.tile.range_k(0, blocks):
        i = (step if ascends else blocks - 1 - step) * nb
        x = b[m, i : i + nb, c : c + width].reshape((nb, width))
        for j in ts.tile.range_k(0 if ascends else i + nb, i if ascends else ctx.N, nb):
            left = a[m, j : j + nb, i : i + nb].T if trans else a[m, i : i + nb, j : j + nb]
            x -= ts.tile.mma(left, out[m, j : j + nb, c : c + width])
        d = a[m, i : i + nb, i : i + nb].reshape((nb, nb))
        d = d.T if trans else d
        count = min(nb, ctx.N - i)
        for s in ts.tile.range_k(0, count):
            r = s if ascends else count - 1 - s
            column = ts.tile.row_sum(ts.tile.where((at == r)[None, :], d, 0.0)).reshape(nb)
            row = x[r] if unit else x[r] / ts.tile.sum(ts.tile.where(at == r, column, 0.0))
            rest = ts.tile.where(at > r if ascends else at < r, column, 0.0)
            x = ts.tile.where((at == r)[:, None], row[None, :], x - rest[:, None] * row[None, :])
        out[m, i : i + nb, c : c + width] = x


@ts.kernel(BLOCK=32, ROWS=8)
def solve_vector(
    a: Tensor["B", "N", "N"],
    b: Tensor["B", "N", "K"],
    out: Tensor["B", "N", "K"],
    lower: bool = True,
    trans: bool = False,
    unit: bool = False,
):
    """The same for one column, K = 1: what blocks contribute is summed column by column of the blocks, and these 32
    sums at the end; of so many rows at a time that their sums fit registers. Columns of `a` are read from memory: each
    serves once."""
    ctx = ts.tile.context()
    nb, few = ctx.BLOCK, ctx.ROWS
    ts.tile.grid(ctx.B)
    m = ts.tile.program_id(0)
    at = ts.tile.arange(nb)
    ascends = lower != trans
    blocks = ts.tile.cdiv(ctx.N, nb)
    for step in ts.tile.range_k(0, blocks):
        i = (step if ascends else blocks - 1 - step) * nb
        start, stop = 0 if ascends else i + nb, i if ascends else ctx.N
        if trans:
            sums = ts.tile.zeros((nb, nb), a.dtype)
            for j in ts.tile.range_k(start, stop, nb):
                known = out[m, j : j + nb, 0].reshape(nb)
                sums += a[m, j : j + nb, i : i + nb].reshape((nb, nb)) * known[:, None]
            x = b[m, i : i + nb, 0].reshape(nb) - ts.tile.col_sum(sums).reshape(nb)
        else:
            for r in ts.tile.range_k(i, min(i + nb, ctx.N), few):
                sums = ts.tile.zeros((few, nb), a.dtype)
                for j in ts.tile.range_k(start, stop, nb):
                    known = out[m, j : j + nb, 0].reshape(nb)
                    sums += a[m, r : r + few, j : j + nb].reshape((few, nb)) * known[None, :]
                out[m, r : r + few, 0] = b[m, r : r + few, 0].reshape(few) - ts.tile.row_sum(sums).reshape(few)
            x = out[m, i : i + nb, 0].reshape(nb)
        count = min(nb, ctx.N - i)
        for s in ts.tile.range_k(0, count):
            r = s if ascends else count - 1 - s
            column = (a[m, i + r, i : i + nb] if trans else a[m, i : i + nb, i + r]).reshape(nb)
            own = ts.tile.sum(ts.tile.where(at == r, x, 0.0))
            own = own if unit else own / a[m, i + r, i + r]
            rest = ts.tile.where(at > r if ascends else at < r, column, 0.0)
            x = ts.tile.where(at == r, own, x - rest * own)
        out[m, i : i + nb, 0] = x
