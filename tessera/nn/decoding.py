"""Attention of a few queries to many cached keys, in one cache or in pages."""

from __future__ import annotations

import math
from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.nn.module import Module
from tessera.nn.state import StatefulObject, refuse


def split_attention(q, k, v, seen, scale=None):
    """q [B, H, S, D] to the keys of C parts, k [B, G, C, L, D] and v [B, G, C, L, E]: [B, H, S, E].

    `seen` [B or 1, 1, C, S or 1, L] are bools. Each part has its own largest score, sum and mean. They are combined in
    the fixed order of `ts.sum`, so the bits do not depend on the number of programs (T. Dao et al., "Flash-Decoding",
    2023). A query that sees no key gives 0. H is a multiple of G; scores are f32.
    """
    batch, heads, queries, width = q.shape
    groups = k.shape[1]
    scale = 1 / math.sqrt(width) if scale is None else scale
    rows = ts.reshape(q, (batch, groups, 1, heads // groups * queries, width))
    # [B, G, C, heads of a group * S, L]
    scores = (ts.cast(rows, ts.f32) * scale) @ ts.swapaxes(ts.cast(k, ts.f32), -1, -2)
    if seen.shape[3] != 1:
        seen = ts.concat([seen] * (heads // groups), axis=3)
    scores = ts.where(seen, scores, -math.inf)
    largest = ts.max(scores, axis=-1, keepdims=True)
    base = ts.where(largest > -math.inf, largest, 0.0)
    weights = ts.exp(scores - base)
    sums, means = ts.sum(weights, axis=-1, keepdims=True), weights @ ts.cast(v, ts.f32)
    top = ts.max(largest, axis=2, keepdims=True)
    share = ts.exp(largest - ts.where(top > -math.inf, top, 0.0))
    total = ts.sum(sums * share, axis=2)
    joined = ts.where(total > 0, ts.sum(means * share, axis=2) / ts.where(total > 0, total, 1.0), 0.0)
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
        place = ts.reshape(ts.arange(parts * part), (1, 1, parts, 1, part))
        length = keys if length is None else length
        return split_attention(q, k, v, place <= _last(length, q.shape[2]), self.scale)


def _last(length, queries: int):
    """The position of the last key that each query sees, [B or 1, 1, 1, S, 1]."""
    own = ts.reshape(ts.arange(queries), (queries, 1)) - queries
    return own + (length if isinstance(length, int) else ts.reshape(length, (-1, 1, 1, 1, 1)))


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
        parts, part = cache.table.shape[1], cache.keys.shape[1]
        held = ts.maximum(cache.table, 0)  # behind the last page nothing is seen
        k = ts.permute(ts.take(cache.keys, held, axis=0), (0, 3, 1, 2, 4))
        v = ts.permute(ts.take(cache.values, held, axis=0), (0, 3, 1, 2, 4))
        place = ts.reshape(ts.arange(parts * part), (1, 1, parts, 1, part))
        return split_attention(q, k, v, place <= _last(cache.lengths, q.shape[2]), self.scale)
