"""Attention to keys that are kept: token by token against the whole at once, in parts, in pages."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KVCache, Tensor, knobs, nn
from tests.conftest import require


def attention(q: Any, k: Any, v: Any) -> Any:
    """The last query stands at the last key."""
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    seen = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    return weights / weights.sum(-1, keepdims=True) @ v


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@ts.function
def goes_on(layer: nn.MultiHeadAttention, x: Tensor["B", "S", "D"], cache: KVCache):
    return layer(x, cache=cache)


@pytest.mark.parametrize("positions", [None, "rotary", "alibi"])
@pytest.mark.parametrize("overflow", ["refuse", "wrap"])
@pytest.mark.parametrize("goes_on", [goes_on, goes_on.__wrapped__], ids=["compiled", "plain"])
def test_token_by_token_is_the_whole_at_once(positions: str | None, overflow: str, goes_on: Any) -> None:
    """Outside of functions, too, where a cache that is read is the memory that appending changes."""
    layer = nn.MultiHeadAttention(16, 4, key=0, groups=2, causal=True, positions=positions)
    x = normal(2, 7, 16)
    cache = KVCache(2, 2, 8, 4, dtype=ts.f32, overflow=overflow)
    found = [goes_on(layer, x[:, :3], cache), *(goes_on(layer, x[:, i : i + 1], cache) for i in range(3, 7))]
    np.testing.assert_allclose(np.concatenate(found, 1), layer(x), atol=1e-6)


def test_a_circular_cache_is_a_window() -> None:
    layer = nn.MultiHeadAttention(8, 2, key=1, causal=True, positions="rotary")
    x, cache = normal(1, 9, 8), KVCache(1, 2, 4, 4, dtype=ts.f32, overflow="wrap")
    found = np.concatenate([goes_on(layer, x[:, i : i + 1], cache) for i in range(9)], 1)
    apart = np.arange(9)[:, None] - np.arange(9)
    want = layer(x, mask=(apart >= 0) & (apart < 4))
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_a_sliding_window_goes_on_from_a_cache() -> None:
    layer = nn.SlidingWindowAttention(8, 2, 3, key=1, positions="rotary")
    x, cache = normal(1, 7, 8), KVCache(1, 2, 8, 4, dtype=ts.f32)
    found = np.concatenate([goes_on(layer, x[:, i : i + 2], cache) for i in (0, 2, 4, 6)], 1)
    np.testing.assert_allclose(found, layer(x), atol=1e-6)


def test_a_stack_of_blocks_with_caches() -> None:
    stack = nn.Stack(lambda key: nn.TransformerBlock(8, 2, key=key, positions="rotary"), 2, key=3)
    x, caches = normal(1, 4, 8), [KVCache(1, 2, 4, 4, dtype=ts.f32) for _ in range(2)]

    @ts.function
    def step(stack: nn.Stack, x: Tensor["B", "S", "D"], caches: list[KVCache]):
        return stack(x, caches=caches)

    found = np.concatenate([step(stack, x[:, i : i + 2], caches) for i in (0, 2)], 1)
    np.testing.assert_allclose(found, stack(x), atol=1e-6)
    before = [c.keys.numpy().copy() for c in caches]
    with pytest.raises(ts.LaunchError, match=r"TS382[\s\S]*1 further token did not fit into a KVCache"):
        step(stack, x[:, :1], caches)
    for c, b in zip(caches, before, strict=True):
        np.testing.assert_array_equal(c.keys.numpy(), b)


EDGES = [0, 1, 15, 16, 17, 63, 64, 65, 128, 129, 199, 200]


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_behind_a_length_are_not_read(target: str, dtype: str) -> None:
    """Rows of each length, at edges of blocks of 64: NaN in the blocks behind them changes nothing."""
    if target != "cpu":
        require("g++")
    kind = getattr(require("ml_dtypes"), dtype, dtype)
    lengths = np.array(EDGES)
    q, k, v = (normal(len(EDGES), h, s, 8, seed=h + s) for h, s in ((4, 3), (2, 200), (2, 200)))
    held = np.arange(200)[:, None] < (lengths + 63)[:, None, None, None] // 64 * 64
    attended = ts.function(lambda q, k, v, n: ts.attention(q, k, v, None, n, n - q.shape[2], causal=True))
    with knobs.target.override(target):
        found = attended(*(x.astype(kind) for x in (q, np.where(held, k, np.nan), np.where(held, v, np.nan))), lengths)
    for b, n in enumerate(EDGES):
        rows = min(n, 3)  # of fewer keys than queries, the first queries see none
        given = (x[b : b + 1].astype(kind).astype(np.float32) for x in (q[:, :, 3 - rows :], k[:, :, :n], v[:, :, :n]))
        want = attention(*given) if n else np.zeros((1, 4, 0, 8))
        one = np.asarray(found[b : b + 1]).astype(np.float32)
        np.testing.assert_allclose(one[:, :, 3 - rows :], want, atol=2e-6 if dtype == "float32" else 3e-2)
        assert not one[:, :, : 3 - rows].any()


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
def test_narrow_caches_are_widened_as_far_as_they_are_read(target: str) -> None:
    if target != "cpu":
        require("g++")
    narrow, lengths = require("ml_dtypes").bfloat16, np.array([1, 64, 90])
    q, k, v = normal(3, 4, 1, 16), normal(3, 2, 128, 16, seed=1).astype(narrow), normal(3, 2, 128, 16).astype(narrow)
    attended = ts.function(lambda q, k, v, n: ts.attention(q, k, v, lengths=n))
    with knobs.target.override(target):
        found = attended(q, k, v, lengths)
        assert len(attended.explain().kernels) == 1  # no other one converts the whole
    for b, n in enumerate(lengths):
        want = attention(q[b : b + 1], *(x[b : b + 1, :, :n].astype(np.float32) for x in (k, v)))
        np.testing.assert_allclose(found[b : b + 1], want, atol=2e-6)


@pytest.mark.parametrize("heads", [2, 6])
def test_bits_do_not_depend_on_the_room(heads: int) -> None:
    layer = nn.MultiHeadAttention(48, heads, key=0, groups=2, causal=True, positions="rotary")
    x, found = normal(2, 130, 48), []
    for room in (130, 192, 1000):
        cache = KVCache(2, 2, room, 48 // heads, dtype=ts.f32)
        parts = [goes_on(layer, x[:, :62], cache), *(goes_on(layer, x[:, i : i + 1], cache) for i in range(62, 130))]
        found.append(np.concatenate(parts, 1))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], layer(x), atol=2e-6)


def test_several_tokens_of_an_open_size() -> None:
    layer, x = nn.MultiHeadAttention(16, 4, key=0, groups=2, causal=True, positions="rotary"), normal(2, 9, 16)
    continued = ts.function(open_dims="S")(_continued)
    for overflow in ("refuse", "wrap"):
        cache = KVCache(2, 2, 16, 4, dtype=ts.f32, overflow=overflow)
        found = [continued(layer, x[:, a:b], cache) for a, b in ((0, 5), (5, 6), (6, 9))]
        np.testing.assert_allclose(np.concatenate(found, 1), layer(x), atol=2e-6)


def _continued(layer: nn.MultiHeadAttention, x: Tensor["B", "S", "D"], cache: KVCache):
    return layer(x, cache=cache)


def test_positions_without_tokens_cost_nothing() -> None:
    """The best of 20 tokens in a small cache, and in one of 34 MB: reading that takes 100 times as long as a token."""
    layer, x, best = nn.MultiHeadAttention(64, 2, key=0, causal=True), normal(1, 1, 64), []
    for room in (64, 2**16):
        cache, times = KVCache(1, 2, room, 32, dtype=ts.f32), []
        for _ in range(20):
            start = time.perf_counter()
            goes_on(layer, x, cache)
            times.append(time.perf_counter() - start)
        best.append(min(times))
    assert best[1] < 5 * best[0], best


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
def test_in_parts(target: str, monkeypatch: Any) -> None:
    if target != "cpu":
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target)
    q, k, v = normal(2, 4, 2, 8), normal(2, 2, 11, 8, seed=1), normal(2, 2, 11, 6, seed=2)
    decode = ts.function(lambda layer, q, k, v, n: layer(q, k, v, n))
    layer = nn.FlashDecoding(part=4)
    for n in (11, 7, 2):
        want = attention(q, k[:, :, :n], v[:, :, :n])
        np.testing.assert_allclose(decode(layer, q, k, v, np.array(n)), want, atol=1e-6)
    np.testing.assert_allclose(layer(q, k, v), attention(q, k, v), atol=1e-6)


def test_parts_without_keys_cost_nothing() -> None:
    """The best of 20 calls with 10 and with all of 65,536 keys."""
    q, k, best = normal(1, 2, 1, 32), normal(1, 2, 2**16, 32), []
    layer, decode = nn.FlashDecoding(part=1024), ts.function(lambda layer, q, k, n: layer(q, k, k, n))
    for length in (10, 2**16):
        n, times = np.array([length]), []
        for _ in range(20):
            start = time.perf_counter()
            decode(layer, q, k, n)
            times.append(time.perf_counter() - start)
        best.append(min(times))
    assert best[1] > 10 * best[0], best


def test_the_gradient_of_parts() -> None:
    q, k, v, n = normal(2, 4, 3, 8), normal(2, 2, 11, 8, seed=1), normal(2, 2, 11, 6, seed=2), np.array([11, 5])

    def of(attend):
        return ts.function(lambda q, k, v: ts.grad(lambda *x: ts.sum(ts.sin(attend(*x))), argnums=(0, 1, 2))(q, k, v))

    parts = of(lambda q, k, v: nn.FlashDecoding(part=4)(q, k, v, n))
    whole = of(lambda q, k, v: ts.attention(q, k, v, lengths=n, starts=n - 3, causal=True))
    for found, want in zip(parts(q, k, v), whole(q, k, v), strict=True):
        np.testing.assert_allclose(found, want, atol=2e-6)


def test_lengths_of_their_own_and_nothing_to_see() -> None:
    q, k = normal(3, 2, 1, 4), normal(3, 2, 9, 4, seed=1)
    found = nn.FlashDecoding(part=4)(q, k, k, np.array([9, 5, 0]))
    for b, n in enumerate((9, 5)):
        want = attention(q[b : b + 1], k[b : b + 1, :, :n], k[b : b + 1, :, :n])
        np.testing.assert_allclose(found[b : b + 1], want, atol=1e-6)
    assert not np.asarray(found)[2].any()


def test_pages() -> None:
    """Three sequences of lengths of their own over pages in any order, against each alone."""
    table = np.array([[5, 0, -1], [2, 6, 1], [4, -1, -1]])
    cache = nn.PagedCache(8, 2, 2, 4, batch=3, table=table, dtype=ts.f32)
    cache.lengths = ts.asarray(np.array([1, 3, 0]))
    k, v = normal(3, 2, 6, 4, seed=1), normal(3, 2, 6, 4, seed=2)
    pages = cache.keys.numpy(), cache.values.numpy()
    for b, n in enumerate((1, 3, 0)):
        for i in range(n):
            for page, given in zip(pages, (k, v), strict=True):
                page[table[b, i // 2], i % 2] = given[b, :, i]

    @ts.function
    def step(layer: nn.PagedAttention, q: Tensor["B", "H", "1", "D"], k: Tensor["B", "G", "1", "D"],
             v: Tensor["B", "G", "1", "D"], cache: nn.PagedCache):  # fmt: skip
        cache.append(k, v)
        return layer(q, cache)

    lengths, keys = np.array([1, 3, 0]), cache.keys
    for i in range(2):
        q = normal(3, 4, 1, 4, seed=10 + i)
        given = [np.stack([x[b, :, n : n + 1] for b, n in enumerate(lengths)]) for x in (k, v)]
        found = step(nn.PagedAttention(), q, *given, cache)
        lengths += 1
        np.testing.assert_array_equal(cache.lengths, lengths)
        for b, n in enumerate(lengths):
            want = attention(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n])
            np.testing.assert_allclose(found[b : b + 1], want, atol=1e-6)
    assert cache.keys is keys
    with pytest.raises(ts.LaunchError, match=r"TS382[\s\S]*1 further token did not fit into a PagedCache"):
        step(nn.PagedAttention(), q, *given, cache)
    np.testing.assert_array_equal(cache.lengths, np.minimum(lengths + 1, [4, 6, 2]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("given", ["lengths", "starts", "both", "mask", "mask of heads", "window"])
def test_heads_that_share_keys_and_have_one_query(given: str, causal: bool) -> None:
    """As if each head had keys of its own."""
    q, k, v = normal(3, 6, 1, 8), normal(3, 2, 20, 8), normal(3, 2, 20, 8)
    lengths = np.array([0, 5, 20]) if given in ("lengths", "both", "mask") else None
    starts = np.array([3, 9, 19]) if given in ("starts", "both", "window") else None
    mask = None if "mask" not in given else normal(3, 6 if "heads" in given else 1, 1, 20) > 0
    options = {"causal": causal, "window": 4 if given == "window" else None}
    found = ts.attention(q, k, v, mask, lengths, starts, **options)
    apart = ts.attention(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1), mask, lengths, starts, **options)
    np.testing.assert_allclose(found, apart, rtol=1e-6, atol=1e-7)
