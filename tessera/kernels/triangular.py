"""Systems of equations with triangular matrices, by blocks of rows: what `ts.linalg.solve_triangular` runs.

Rows are solved for in order, a block at a time: what the blocks before contribute is a product. A block is solved for
in the same way, by steps of a few rows, and these row by row. One program solves for a block of columns of one matrix.
Elements are f32 or f64.
"""

from __future__ import annotations

import tessera as ts
from tessera import Tensor


@ts.kernel(BLOCK=32, STEP=8, COLUMNS=64)
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
    nb, few, width = ctx.BLOCK, ctx.STEP, ctx.COLUMNS
    ts.tile.grid(ctx.B, ts.tile.cdiv(ctx.K, width))
    m, c = ts.tile.program_id(0), ts.tile.program_id(1) * width
    at = ts.tile.arange(few)
    ascends = lower != trans
    blocks = ts.tile.cdiv(ctx.N, nb)
    for step in ts.tile.range_k(0, blocks):
        i = (step if ascends else blocks - 1 - step) * nb
        known = ts.tile.zeros((nb, width), a.dtype)
        for j in ts.tile.range_k(0 if ascends else i + nb, i if ascends else ctx.N, nb):
            known += ts.tile.mma(part(a, m, i, j, trans, nb), rows_of(out, m, j, c, nb, width))
        out[m, i : i + nb, c : c + width] = b[m, i : i + nb, c : c + width] - known
        parts = ts.tile.cdiv(min(nb, ctx.N - i), few)
        for p in ts.tile.range_k(0, parts):
            s = i + (p if ascends else parts - 1 - p) * few
            x = rows_of(out, m, s, c, few, width)
            for j in ts.tile.range_k(i if ascends else s + few, s if ascends else i + nb, few):
                x -= ts.tile.mma(part(a, m, s, j, trans, few), rows_of(out, m, j, c, few, width))
            d = part(a, m, s, s, trans, few)
            for q in ts.tile.range_k(0, few):
                r = q if ascends else few - 1 - q
                row = x[r] if unit else x[r] / ts.tile.where(s + r < ctx.N, d[r, r], 1.0)
                rest = ts.tile.where(at > r if ascends else at < r, d[:, r], 0.0)
                x = ts.tile.where((at == r)[:, None], row[None, :], x - rest[:, None] * row[None, :])
            out[m, s : s + few, c : c + width] = x


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
    serves once. An element of `x` is taken as a sum in which all others are 0: `x` stays in registers."""
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


def part(a, m, i, j, trans, count):
    """`count` rows and columns of matrix m, or of its transpose, with zeros beyond the edge."""
    if trans:
        return ts.tile.load(a[m, j : j + count, i : i + count], other=0.0).reshape((count, count)).T
    return ts.tile.load(a[m, i : i + count, j : j + count], other=0.0).reshape((count, count))


def rows_of(x, m, i, c, count, width):
    """`count` rows of the columns from c on of matrix m, with zeros beyond the edge."""
    return ts.tile.load(x[m, i : i + count, c : c + width], other=0.0).reshape((count, width))
