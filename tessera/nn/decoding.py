"""Attention of a few queries to many cached keys, in one cache or in pages."""

from __future__ import annotations

import math
from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.nn.module import Module
from tessera.nn.state import StatefulObject, refuse


def split_attention(q, k, v, lengths, scale=None):
    """q [B, H, S, D] to the first `lengths` [B or 1] keys of C parts, k [B, G, C, L, D] and v [B, G, C, L, E]:
    [B, H, S, E]. The last query is at the last key, and sees it and those before.

    Parts are attended to side by side, as `ts.attention` does with one of them, and those without keys cost nothing.
    They are combined in the fixed order of `ts.sum`, so the bits do not depend on the number of programs (T. Dao et
    al., "Flash-Decoding", 2023). A query that sees no key gives 0. H is a multiple of G; sums are f32.
    """
    batch, heads, queries, width = q.shape
    groups, parts, part = k.shape[1], k.shape[2], k.shape[3]
    shared, all_parts = heads // groups, batch * groups * parts
    rows = ts.cast(q, ts.f32) if q.dtype in (ts.f16, ts.bf16) else q  # the mean of parts is rounded once
    rows = ts.reshape(rows, (batch, groups, 1, shared, queries, width))
    rows = ts.reshape(
        ts.broadcast_to(rows, (batch, groups, parts, shared, queries, width)), (all_parts, shared, queries, width)
    )
    held = ts.reshape(lengths, (-1, 1, 1)) - ts.arange(parts) * part
    held = ts.reshape(ts.broadcast_to(held, (batch, groups, parts)), (all_parts,))
    k, v = (ts.reshape(x, (all_parts, 1, part, x.shape[-1])) for x in (k, v))
    means, sums = ts.attention_with_logsumexp(
        rows, k, v, lengths=ts.clip(held, 0, part), starts=held - queries, causal=True, scale=scale
    )
    means = ts.reshape(means, (batch, groups, parts, shared * queries, v.shape[-1]))
    sums = ts.reshape(sums, (batch, groups, parts, shared * queries, 1))
    top = ts.max(sums, axis=2, keepdims=True)
    share = ts.exp(sums - ts.where(top > -math.inf, top, 0.0))
    total = ts.sum(share, axis=2)
    joined = ts.sum(means * share, axis=2) / ts.where(total > 0, total, 1.0)
    return ts.reshape(ts.cast(joined, q.dtype), (batch, heads, queries, v.shape[-1]))


class FlashDecoding(Module):
    """Attention of a few queries q [B, H, S, D] to the first `length` of many keys: k, v [B, G, T, D] to [B, H, S, D].

    The keys are split into parts of `part`, which are combined in a fixed order: see `split_attention`. `length` is a
    number or one for each batch [B], passed as data, so it never recompiles; None is all keys. The last query is at the
    position of the last key, and sees it and those before.
    """

    part: int = 256
    scale: float | None = None

    def __call__(
        self, q: Tensor["B", "H", "S", "D"], k: Tensor["B", "G", "T", "D"], v: Tensor["B", "G", "T", "E"], length=None
    ):
        keys = k.shape[2]
        part = min(self.part, keys)
        parts = -(-keys // part)
        if parts * part != keys:
            more = ((0, 0), (0, 0), (0, parts * part - keys), (0, 0))
            k, v = ts.pad(k, more), ts.pad(v, more)
        k = ts.reshape(k, (*k.shape[:2], parts, part, k.shape[3]))
        v = ts.reshape(v, (*v.shape[:2], parts, part, v.shape[3]))
        length = keys if length is None else length
        counts = ts.full((1,), length, ts.int64) if isinstance(length, int) else length
        return split_attention(q, k, v, counts, self.scale)


class PagedCache(StatefulObject):
    """Keys and values in pages that the sequences of a batch share (W. Kwon et al., "PagedAttention", 2023).

    keys and values [P, L, G, D]: P pages of L tokens. `table` [B, N] int64: the pages of each sequence, in order;
    `lengths` [B]: how many tokens each has. Both are data: set them (`cache.table = ...`) to give pages to another
    sequence. Without `table`, each sequence has its own N = P // B pages.
    """

    keys: Tensor["P", "L", "G", "D"]
    values: Tensor["P", "L", "G", "D"]
    table: Tensor["B", "N", ts.int64]
    lengths: Tensor["B", ts.int64]
    refused: Tensor[ts.int64]

    def __init__(
        self, pages: int, page: int, heads: int, features: int, *, batch: int, table: Any = None, dtype: Any = ts.bf16
    ) -> None:
        self.keys = ts.zeros((pages, page, heads, features), dtype)
        self.values = ts.zeros((pages, page, heads, features), dtype)
        own = ts.reshape(ts.arange(batch * (pages // batch)), (batch, pages // batch))
        self.table = own if table is None else ts.asarray(table).astype(ts.int64)
        self.lengths, self.refused = ts.zeros((batch,), ts.int64), ts.zeros((), ts.int64)

    @ts.effect("append")
    def append(self, k: Tensor["B", "G", "1", "D"], v: Tensor["B", "G", "1", "D"]):
        """Appends one token to each sequence. A sequence whose pages are full is an error (TS382)."""
        pages, page, heads, width = self.keys.shape
        batch, most = self.table.shape
        mine = ts.reshape(self.lengths // page, (batch, 1))
        number = ts.reshape(ts.take_along_axis(self.table, ts.minimum(mine, most - 1), axis=1), (batch,))
        fits = (self.lengths < most * page) & (number >= 0)
        at = ts.where(fits, number * page + self.lengths % page, pages * page)  # outside nothing is put
        rows = (pages * page, heads, width)
        keys = ts.put(ts.reshape(self.keys, rows), at, k[:, :, 0].to(self.keys.dtype))
        values = ts.put(ts.reshape(self.values, rows), at, v[:, :, 0].to(self.values.dtype))
        self.keys, self.values = ts.reshape(keys, self.keys.shape), ts.reshape(values, self.values.shape)
        self.refused = self.refused + ts.sum(ts.where(fits, 0, 1))
        self.lengths = self.lengths + ts.where(fits, 1, 0)

    def check(self) -> None:
        refuse(self, "pages of the table are full: give the sequence more pages")


class PagedAttention(Module):
    """Attention of the last tokens of each sequence, q [B, H, S, D], to the pages of a `PagedCache`: [B, H, S, D].

    Each page is one part: see `split_attention`. The last query is at the last token of its sequence.
    """

    scale: float | None = None

    def __call__(self, q: Tensor["B", "H", "S", "D"], cache):
        held = ts.maximum(cache.table, 0)  # behind the last page nothing is seen
        k = ts.permute(ts.take(cache.keys, held, axis=0), (0, 3, 1, 2, 4))
        v = ts.permute(ts.take(cache.values, held, axis=0), (0, 3, 1, 2, 4))
        return split_attention(q, k, v, cache.lengths, self.scale)
