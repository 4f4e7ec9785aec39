"""Attention and its derivative, a block of queries or keys at a time: what `ts.attention` runs.

The scores never stand in memory. Forward is the online softmax (M. Milakov and N. Gimelshein, "Online normalizer
calculation for softmax", 2018; T. Dao and others, "FlashAttention", 2022), which also stores the logarithm of each
row's sum. Backward computes the scores again from it, block by block. One program has a block of queries for dq, one a
block of keys for dk and dv, and each sums in ascending order, so that no two programs store to one place and the bits
are always the same. That costs two more products than adding to dq from everywhere, and needs no atomics. Where one
program may have all keys of a head, it adds to dq in the same order.

All take q [B, H, S, D], k [B, G, T, D] and v [B, G, T, E], where H is a multiple of G, and may take `bias`
[B or 1, H or 1, S or 1, T or 1], of bools (true: attend) or floats (added to the scores), `lengths` [B], how many of
the keys there are, and `starts` [B], the position of query 0 among the keys (None: 0). `causal`: a query sees the keys
up to its position; `window`: those less than so many places away; `softcap`: scores are softcap * tanh(scores /
softcap). `spread` says along which of its axes `bias` has more than one element. Arithmetic is f32 (f64 for f64); the
weights meet v in the dtype of q. Keys and values of the forward pass may be narrower than q.

`literal` says that products and a softmax are written out: scores are rounded to the dtype of q after each step, false
elements of `bias` make them `hidden`, and a query that sees no key gets NaN. `reach` [B, G] of the forward pass: up to
which key every query goes, though it may not see it, since 0 times what is not finite is NaN.

Scores are in units of log(2) where nothing is added to them: the scale takes the factor, and a power of two takes less
than one of e. Masks of numbers may be as small as numbers get, and have no room for a factor.
"""

from __future__ import annotations

import math

import tessera as ts
from tessera import Tensor

LOG2_E = 1 / math.log(2)


@ts.kernel(ROWS=64, COLUMNS=64)
def attention_forward(
    q: Tensor["B", "H", "S", "D"],
    k: Tensor["B", "G", "T", "D"],
    v: Tensor["B", "G", "T", "E"],
    bias: Tensor["Bb", "Hb", "Sb", "Tb"] | None,
    lengths: Tensor["B"] | None,
    starts: Tensor["B"] | None,
    reach: Tensor["B", "G"] | None,
    out: Tensor["B", "H", "S", "E"],
    lse: Tensor["B", "H", "S"] | None,
    causal: bool = False,
    window=None,
    softcap=None,
    scale=None,
    hidden=-math.inf,
    literal: bool = False,
    spread=(True, True, True, True),
):
    """`out` [B, H, S, E] is softmax(scores) v; `lse` [B, H, S] is log(sum(exp(scores))) of each row.

    A query that sees no key gets 0, and an infinite `lse`, so that its weights are 0 in what goes backwards; with
    `literal` both are NaN or make it.
    """
    ctx = ts.tile.context()
    rows, columns, wide, bits = ctx.ROWS, ctx.COLUMNS, wide_of(q), in_bits(bias, literal)
    ts.tile.grid(ctx.B, ctx.H, ts.tile.cdiv(ctx.S, rows))
    b, h, i = ts.tile.program_id(0), ts.tile.program_id(1), ts.tile.program_id(2) * rows
    g = h // (ctx.H // ctx.G)
    keys = ctx.T if lengths is None else min(counted(lengths[b]), ctx.T)
    at = i if starts is None else i + counted(starts[b])
    x = q[b, h, i : i + rows, :]
    top = ts.tile.full((rows,), -math.inf, wide)
    total = ts.tile.zeros((rows,), wide)
    sums = ts.tile.zeros((rows, ctx.E), wide)
    first, last = keys_seen(at, rows, columns, keys, causal, window)
    if reach is not None:
        last = min(max(last, reach[b, g]), keys)
    for j in ts.tile.range_k(first, last, columns):
        y = widened(k[b, g, j : j + columns, :], q)
        raw = scaled(ts.tile.mma(x, y.T), scale, ctx.D, q, literal, bits and softcap is None)
        s = capped(raw, softcap, bits)
        if bias is not None:
            s = biased(s, block_of(bias, spread, b, h, i, rows, j, columns), hidden, q, literal)
        s = visible(s, at, rows, j, columns, keys, lengths is not None, causal, window)
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        base = ts.tile.where(new == -math.inf, 0.0, new)
        p, shrink = power(s - base, bits), power(top - base, bits)
        total = total * shrink + ts.tile.row_sum(p)
        sums = sums * shrink + ts.tile.mma(ts.tile.cast(p, q.dtype), widened(v[b, g, j : j + columns, :], q))
        top = new
    some = total if literal else ts.tile.where(total == 0, 1.0, total)
    out[b, h, i : i + rows, :] = sums / some
    if lse is not None:
        sums_log = (top * math.log(2) if bits else top) + ts.tile.log(some)
        lse[b, h, i : i + rows] = sums_log if literal else ts.tile.where(total == 0, math.inf, sums_log)


@ts.kernel(ROWS=64, COLUMNS=64)
def attention_backward_queries(
    q: Tensor["B", "H", "S", "D"],
    k: Tensor["B", "G", "T", "D"],
    v: Tensor["B", "G", "T", "E"],
    bias: Tensor["Bb", "Hb", "Sb", "Tb"] | None,
    lengths: Tensor["B"] | None,
    starts: Tensor["B"] | None,
    ct: Tensor["B", "H", "S", "E"],
    lse: Tensor["B", "H", "S"],
    along: Tensor["B", "H", "S"],
    dq: Tensor["B", "H", "S", "D"],
    causal: bool = False,
    window=None,
    softcap=None,
    scale=None,
    hidden=-math.inf,
    literal: bool = False,
    spread=(True, True, True, True),
):
    """`dq` [B, H, S, D], given the cotangent `ct` of the result, `lse`, and `along`: sum(ct * out) less the cotangent
    of `lse`."""
    ctx = ts.tile.context()
    rows, columns, bits = ctx.ROWS, ctx.COLUMNS, in_bits(bias, literal)
    ts.tile.grid(ctx.B, ctx.H, ts.tile.cdiv(ctx.S, rows))
    b, h, i = ts.tile.program_id(0), ts.tile.program_id(1), ts.tile.program_id(2) * rows
    g = h // (ctx.H // ctx.G)
    keys = ctx.T if lengths is None else min(counted(lengths[b]), ctx.T)
    at = i if starts is None else i + counted(starts[b])
    x, c = q[b, h, i : i + rows, :], ct[b, h, i : i + rows, :]
    own, mean = unit(lse[b, h, i : i + rows], bits)[:, None], along[b, h, i : i + rows][:, None]
    sums = ts.tile.zeros((rows, ctx.D), lse.dtype)
    first, last = keys_seen(at, rows, columns, keys, causal, window)
    for j in ts.tile.range_k(first, last, columns):
        y = k[b, g, j : j + columns, :]
        raw = scaled(ts.tile.mma(x, y.T), scale, ctx.D, q, literal, bits and softcap is None)
        s = capped(raw, softcap, bits)
        if bias is not None:
            block = block_of(bias, spread, b, h, i, rows, j, columns)
            s = biased(s, block, hidden, q, literal)
        p = power(visible(s, at, rows, j, columns, keys, lengths is not None, causal, window) - own, bits)
        ds = p * (ts.tile.mma(c, v[b, g, j : j + columns, :].T) - mean)
        if bias is not None:
            ds = seen_only(ds, block, literal)
        sums = sums + ts.tile.mma(ts.tile.cast(uncapped(ds, raw, softcap), q.dtype), y)
    dq[b, h, i : i + rows, :] = sums * scaling(scale, ctx.D)


@ts.kernel(ROWS=64, COLUMNS=64)
def attention_backward_keys(
    q: Tensor["B", "H", "S", "D"],
    k: Tensor["B", "G", "T", "D"],
    v: Tensor["B", "G", "T", "E"],
    bias: Tensor["Bb", "Hb", "Sb", "Tb"] | None,
    lengths: Tensor["B"] | None,
    starts: Tensor["B"] | None,
    ct: Tensor["B", "H", "S", "E"],
    lse: Tensor["B", "H", "S"],
    along: Tensor["B", "H", "S"],
    dk: Tensor["B", "G", "T", "D"] | None,
    dv: Tensor["B", "G", "T", "E"] | None,
    causal: bool = False,
    window=None,
    softcap=None,
    scale=None,
    hidden=-math.inf,
    literal: bool = False,
    spread=(True, True, True, True),
):
    """`dk` [B, G, T, D] and `dv` [B, G, T, E]: a block of keys with all queries of its group, one head after the other.

    Scores stand here with a row for each key, so that no operand of a product is turned.
    """
    ctx = ts.tile.context()
    rows, columns, bits = ctx.ROWS, ctx.COLUMNS, in_bits(bias, literal)
    ts.tile.grid(ctx.B, ctx.G, ts.tile.cdiv(ctx.T, rows))
    b, g, j = ts.tile.program_id(0), ts.tile.program_id(1), ts.tile.program_id(2) * rows
    served = ctx.H // ctx.G
    keys = ctx.T if lengths is None else min(counted(lengths[b]), ctx.T)
    behind = j if starts is None else j - counted(starts[b])
    y, z = k[b, g, j : j + rows, :], v[b, g, j : j + rows, :]
    if dk is not None:
        dy = ts.tile.zeros((rows, ctx.D), lse.dtype)
    if dv is not None:
        dz = ts.tile.zeros((rows, ctx.E), lse.dtype)
    first, last = queries_seen(behind, rows, columns, ctx.S, causal, window)
    for r in ts.tile.range_k(0, served):
        h = g * served + r
        for i in ts.tile.range_k(first, last, columns):
            x, c = q[b, h, i : i + columns, :], ct[b, h, i : i + columns, :]
            raw = scaled(ts.tile.mma(y, x.T), scale, ctx.D, q, literal, bits and softcap is None)
            s = capped(raw, softcap, bits)
            if bias is not None:
                block = turned(block_of(bias, spread, b, h, i, columns, j, rows), spread)
                s = biased(s, block, hidden, q, literal)
            s = seen_from_keys(s, i, columns, j, rows, behind, keys, lengths is not None, causal, window)
            p = power(s - unit(lse[b, h, i : i + columns], bits)[None, :], bits)
            if dv is not None:
                dz = dz + ts.tile.mma(ts.tile.cast(p, v.dtype), c)
            if dk is not None:
                ds = p * (ts.tile.mma(z, c.T) - along[b, h, i : i + columns][None, :])
                if bias is not None:
                    ds = seen_only(ds, block, literal)
                dy = dy + ts.tile.mma(ts.tile.cast(uncapped(ds, raw, softcap), q.dtype), x)
    if dk is not None:
        dk[b, g, j : j + rows, :] = dy * scaling(scale, ctx.D)
    if dv is not None:
        dv[b, g, j : j + rows, :] = dz


@ts.kernel(ROWS=64, COLUMNS=64)
def attention_backward(
    q: Tensor["B", "H", "S", "D"],
    k: Tensor["B", "G", "T", "D"],
    v: Tensor["B", "G", "T", "E"],
    bias: Tensor["Bb", "Hb", "Sb", "Tb"] | None,
    lengths: Tensor["B"] | None,
    starts: Tensor["B"] | None,
    ct: Tensor["B", "H", "S", "E"],
    lse: Tensor["B", "H", "S"],
    along: Tensor["B", "H", "S"],
    dq: Tensor["B", "H", "S", "D"],
    dk: Tensor["B", "G", "T", "D"],
    dv: Tensor["B", "G", "T", "E"],
    causal: bool = False,
    window=None,
    softcap=None,
    scale=None,
    hidden=-math.inf,
    literal: bool = False,
    spread=(True, True, True, True),
):
    """All three cotangents, `dq` in the dtype of sums: one program has all keys and all queries of heads that share
    keys. It walks the keys in blocks, as `attention_backward_keys`, and adds to `dq` in ascending order.
    """
    ctx = ts.tile.context()
    rows, columns, bits = ctx.ROWS, ctx.COLUMNS, in_bits(bias, literal)
    ts.tile.grid(ctx.B, ctx.G)
    b, g = ts.tile.program_id(0), ts.tile.program_id(1)
    served = ctx.H // ctx.G
    keys = ctx.T if lengths is None else min(counted(lengths[b]), ctx.T)
    for r in ts.tile.range_k(0, served):
        for i in ts.tile.range_k(0, ctx.S, columns):
            dq[b, g * served + r, i : i + columns, :] = ts.tile.zeros((columns, ctx.D), lse.dtype)
    for j in ts.tile.range_k(0, ctx.T, rows):
        behind = j if starts is None else j - counted(starts[b])
        y, z = k[b, g, j : j + rows, :], v[b, g, j : j + rows, :]
        dy, dz = ts.tile.zeros((rows, ctx.D), lse.dtype), ts.tile.zeros((rows, ctx.E), lse.dtype)
        first, last = queries_seen(behind, rows, columns, ctx.S, causal, window)
        for r in ts.tile.range_k(0, served):
            h = g * served + r
            for i in ts.tile.range_k(first, last, columns):
                x, c = q[b, h, i : i + columns, :], ct[b, h, i : i + columns, :]
                raw = scaled(ts.tile.mma(y, x.T), scale, ctx.D, q, literal, bits and softcap is None)
                s = capped(raw, softcap, bits)
                if bias is not None:
                    block = turned(block_of(bias, spread, b, h, i, columns, j, rows), spread)
                    s = biased(s, block, hidden, q, literal)
                s = seen_from_keys(s, i, columns, j, rows, behind, keys, lengths is not None, causal, window)
                p = power(s - unit(lse[b, h, i : i + columns], bits)[None, :], bits)
                dz = dz + ts.tile.mma(ts.tile.cast(p, v.dtype), c)
                ds = p * (ts.tile.mma(z, c.T) - along[b, h, i : i + columns][None, :])
                if bias is not None:
                    ds = seen_only(ds, block, literal)
                ds = ts.tile.cast(uncapped(ds, raw, softcap), q.dtype)
                dy = dy + ts.tile.mma(ds, x)
                dq[b, h, i : i + columns, :] = dq[b, h, i : i + columns, :] + ts.tile.mma(ds.T, y)
        dk[b, g, j : j + rows, :] = dy * scaling(scale, ctx.D)
        dv[b, g, j : j + rows, :] = dz
    for r in ts.tile.range_k(0, served):
        h = g * served + r
        for i in ts.tile.range_k(0, ctx.S, columns):
            dq[b, h, i : i + columns, :] = dq[b, h, i : i + columns, :] * scaling(scale, ctx.D)


@ts.kernel(ROWS=64, COLUMNS=64)
def attention_backward_bias(
    q: Tensor["B", "H", "S", "D"],
    k: Tensor["B", "G", "T", "D"],
    v: Tensor["B", "G", "T", "E"],
    bias: Tensor["Bb", "Hb", "Sb", "Tb"],
    lengths: Tensor["B"] | None,
    starts: Tensor["B"] | None,
    ct: Tensor["B", "H", "S", "E"],
    lse: Tensor["B", "H", "S"],
    along: Tensor["B", "H", "S"],
    dbias: Tensor["Bb", "Hb", "Sb", "Tb"],
    causal: bool = False,
    window=None,
    softcap=None,
    scale=None,
    hidden=-math.inf,
    literal: bool = False,
    spread=(True, True, True, True),
):
    """`dbias`, of the shape of `bias`: the cotangents of the scores, summed along the axes where it has one element."""
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    across = ts.tile.cdiv(ctx.T, columns) if spread[3] else 1
    ts.tile.grid(ctx.Bb, ctx.Hb, ts.tile.cdiv(ctx.S, rows) * across if spread[2] else across)
    block = ts.tile.program_id(2)
    top, left = block // across * rows, block % across * columns
    keys = ctx.T if lengths is None else counted(lengths[ts.tile.program_id(0)])
    start = 0 if starts is None else counted(starts[ts.tile.program_id(0)])
    sums = ts.tile.zeros((rows, columns), lse.dtype)
    for each_batch in ts.tile.range_k(0, 1 if spread[0] else ctx.B):
        b = ts.tile.program_id(0) + each_batch
        if lengths is not None:
            keys = counted(lengths[b])
        if starts is not None:
            start = counted(starts[b])
        for each_head in ts.tile.range_k(0, 1 if spread[1] else ctx.H):
            h = ts.tile.program_id(1) + each_head
            g = h // (ctx.H // ctx.G)
            for i in ts.tile.range_k(top, top + rows if spread[2] else ctx.S, rows):
                x, c = q[b, h, i : i + rows, :], ct[b, h, i : i + rows, :]
                own, mean = lse[b, h, i : i + rows][:, None], along[b, h, i : i + rows][:, None]
                for j in ts.tile.range_k(left, left + columns if spread[3] else ctx.T, columns):
                    s = scaled(ts.tile.mma(x, k[b, g, j : j + columns, :].T), scale, ctx.D, q, literal, False)
                    s = capped(s, softcap, False)
                    s = biased(s, block_of(bias, spread, b, h, i, rows, j, columns), hidden, q, literal)
                    s = visible(s, i + start, rows, j, columns, keys, lengths is not None, causal, window)
                    sums += ts.tile.exp(s - own) * (ts.tile.mma(c, v[b, g, j : j + columns, :].T) - mean)
    b, h = ts.tile.program_id(0), ts.tile.program_id(1)
    if spread[2] and spread[3]:
        dbias[b, h, top : top + rows, left : left + columns] = sums
    elif spread[2]:
        dbias[b, h, top : top + rows, 0] = ts.tile.row_sum(sums)
    elif spread[3]:
        dbias[b, h, 0, left : left + columns] = ts.tile.col_sum(sums)
    else:
        dbias[b, h, 0, 0] = ts.tile.sum(sums)


def wide_of(x):
    """The dtype of scores and sums."""
    return ts.f64 if x.dtype == ts.f64 else ts.f32


def widened(block, like):
    """Keys or values that may be kept in fewer bits than queries."""
    return block if block.dtype == like.dtype else ts.tile.cast(block, like.dtype)


def counted(x):
    """A length or a start, where no sum or difference of positions leaves the numbers of its dtype."""
    return ts.tile.cast(x, ts.int64)


def scaling(scale, features):
    return 1 / math.sqrt(features) if scale is None else scale


def in_bits(bias, literal):
    """Whether scores are in units of log(2)."""
    return bias is None and not literal


def unit(x, bits):
    """A logarithm in the unit of the scores."""
    return x * LOG2_E if bits else x


def power(x, bits):
    return ts.tile.exp2(x) if bits else ts.tile.exp(x)


def capped(s, softcap, bits):
    return s if softcap is None else unit(softcap, bits) * ts.tile.tanh(s / softcap)


def uncapped(ds, raw, softcap):
    """The cotangent of the scores before `capped`, from that behind it."""
    if softcap is None:
        return ds
    bent = ts.tile.tanh(raw / softcap)
    return ds * (1 - bent * bent)


def block_of(bias, spread, b, h, i, rows, j, columns):
    """What of `bias` concerns queries from i and keys from j: [rows, columns], or less where it has one element."""
    b, h = b * spread[0], h * spread[1]
    if spread[2] and spread[3]:
        return bias[b, h, i : i + rows, j : j + columns]
    if spread[2]:
        return bias[b, h, i : i + rows, 0][:, None]
    if spread[3]:
        return bias[b, h, 0, j : j + columns][None, :]
    return bias[b, h, 0, 0]


def turned(block, spread):
    """The block of a bias with a row for each key."""
    return block.T if spread[2] or spread[3] else block


def biased(s, block, hidden, like, literal):
    return ts.tile.where(block, s, hidden) if block.dtype == ts.bool else rounded(s + block, like, literal)


def seen_only(ds, block, literal):
    """Scores that are replaced by `hidden` have no cotangent; if that is not infinite, their weights may be above 0."""
    return ts.tile.where(block, ds, 0.0) if literal and block.dtype == ts.bool else ds


def scaled(s, scale, features, like, literal, bits):
    return rounded(rounded(s, like, literal) * unit(scaling(scale, features), bits), like, literal)


def rounded(s, like, literal):
    return ts.tile.cast(ts.tile.cast(s, like.dtype), s.dtype) if literal and like.dtype != s.dtype else s


def keys_seen(i, rows, columns, keys, causal, window):
    """Between which keys, in whole blocks, lies all that queries at positions i to i + rows may see."""
    first, last = 0, keys
    if causal:
        last = min(last, i + rows)
    elif window is not None:
        last = min(last, i + rows + window - 1)
    if window is not None:
        first = max(i - window + 1, 0) // columns * columns
    return first, last


def queries_seen(j, rows, columns, queries, causal, window):
    """Between which queries, in whole blocks, lie all that may see keys j to j + rows, counted from query 0."""
    first, last = 0, queries
    if causal:
        first = max(j, 0) // columns * columns
    elif window is not None:
        first = max(j - window + 1, 0) // columns * columns
    if window is not None:
        last = min(last, j + rows + window - 1)
    return first, last


def visible(s, i, rows, j, columns, keys, short, causal, window):
    """Scores [rows, columns] of queries at positions from i and keys from j, with -inf where one may not be seen."""
    if not (short or causal or window is not None):
        return s
    query = ts.tile.cast(ts.tile.arange(rows), ts.int32)[:, None]
    key = ts.tile.cast(ts.tile.arange(columns), ts.int32)[None, :]
    return masked(s, query, rows, key, columns, i - j, keys - j, short, causal, window)


def seen_from_keys(s, i, columns, j, rows, behind, keys, short, causal, window):
    """The same for scores [rows, columns] of keys from j, which lie `behind` query 0, and queries from i."""
    if not (short or causal or window is not None):
        return s
    query = ts.tile.cast(ts.tile.arange(columns), ts.int32)[None, :]
    key = ts.tile.cast(ts.tile.arange(rows), ts.int32)[:, None]
    return masked(s, query, columns, key, rows, i - behind, keys - j, short, causal, window)


def masked(s, query, queries, key, keys, ahead, left, short, causal, window):
    """Queries and keys count from those of the block, so that 32 bits do: the first query is `ahead` of the first key,
    from which on there are `left`."""
    if short:
        s = ts.tile.where(key < between(0, left, keys), s, -math.inf)
    if causal:
        s = ts.tile.where(key <= query + between(-queries, ahead, keys), s, -math.inf)
    elif window is not None:
        s = ts.tile.where(key < query + between(-queries, ahead + window, keys), s, -math.inf)
    if window is not None:
        s = ts.tile.where(query < key + between(-keys, window - ahead, queries), s, -math.inf)
    return s


def between(least, x, most):
    """A distance, no further than where nothing, or all, is seen."""
    return ts.tile.cast(min(max(x, least), most), ts.int32)
