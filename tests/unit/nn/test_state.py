"""State: effects in order, on the path that is taken, in the memory of the caller; and what is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KVCache, StatefulObject, Tensor, effect, int64
from tessera.compiler.frontend.incremental import FileAnalysis
from tests.conftest import require


class Counter(StatefulObject):
    total: Tensor["D"]
    steps: Tensor[int64]

    @effect("update")
    def add(self, x: Tensor["D"]):
        self.total = self.total + x
        self.steps = self.steps + 1


class Pair(StatefulObject):
    first: Tensor["D"]
    second: Tensor["D"]
    inner: Counter

    @effect("update")
    def swap(self, x: Tensor["D"]):
        self.first, self.second = self.second, self.first
        self.inner.add(x)


def counter(size: int = 3) -> Counter:
    return Counter(np.zeros(size, np.float32), np.zeros((), np.int64))


def tokens(count: int, seed: int = 0, batch: int = 1, heads: int = 2, width: int = 4) -> Any:
    return np.random.default_rng(seed).normal(size=(batch, heads, count, width)).astype(np.float32)


def test_a_state_that_vmap_is_given_is_not_changed():
    def one(c, x):
        c.add(x)
        return x

    @ts.function
    def f(c: Counter, x: Tensor["B", "D"]):
        return ts.vmap(one, in_axes=(None, 0))(c, x)

    with pytest.raises(ts.CompileError, match=r"(?s)TS102.*Counter is changed by a function that a transform runs"):
        f(counter(), np.ones((2, 3), np.float32))


@ts.function
def added(c: Counter, x: Tensor["D"]):
    before = c.total
    c.add(x)
    middle = c.total
    c.add(x * 2)
    return before, middle, c.total


@ts.function
def conditional(c: Counter, x: Tensor["D"], n: ts.Int):
    for i in ts.range(n):
        if x[i] > 0:
            c.add(x)
        else:
            y = x * 2 if x[0] > 5 else x
            c.add(-y)
    return c.steps


@ts.function
def early(c: Counter, x: Tensor["D"]):
    if ts.sum(x) > 0:
        c.add(x)
        return c.total
    c.add(x)
    c.add(x)
    return c.total * 10


@ts.function
def until(c: Counter, x: Tensor["D"]):
    while ts.sum(c.total) < 10:
        c.add(x)


@pytest.fixture(params=["cpu", "reference", "emulator:sm_80"])
def target(request: Any, monkeypatch: Any) -> str:
    if request.param.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    return request.param


def test_effects_are_in_order_and_in_place(target: str) -> None:
    c, x = counter(), np.array([1, 2, 3], np.float32)
    total = c.total
    before, middle, after = added(c, x)
    np.testing.assert_array_equal(before, 0 * x)
    np.testing.assert_array_equal(middle, x)
    np.testing.assert_array_equal(after, 3 * x)
    assert c.total is total and int(c.steps) == 2
    np.testing.assert_array_equal(total, 3 * x)
    np.testing.assert_array_equal(after, total)
    c.add(x)  # by itself
    np.testing.assert_array_equal(total, 4 * x)
    np.testing.assert_array_equal(after, 3 * x)


def test_only_on_the_path_that_is_taken(target: str) -> None:
    c, x = counter(), np.array([1, -2, 3], np.float32)
    assert int(conditional(c, x, 3)) == 3
    np.testing.assert_array_equal(c.total, x)
    c = counter()
    np.testing.assert_array_equal(early(c, x), x)
    assert int(c.steps) == 1
    np.testing.assert_array_equal(early(c, -x), (x - 2 * x) * 10)
    assert int(c.steps) == 3
    c = counter()
    until(c, x)
    assert int(c.steps) == 5


def test_state_in_state_and_in_lists() -> None:
    @ts.function
    def all_of(pairs: list[Pair], x: Tensor["D"], n: ts.Int):
        for _ in ts.range(n):
            for p in pairs:
                p.swap(x)

    x = np.array([1.0, 2.0], np.float32)
    pairs = [Pair(x + i, -x, counter(2)) for i in range(2)]
    all_of(pairs, x, 3)
    for i, p in enumerate(pairs):
        np.testing.assert_array_equal(p.first, -x)
        np.testing.assert_array_equal(p.second, x + i)
        np.testing.assert_array_equal(p.inner.total, 3 * x)


def test_a_gradient_beside_effects() -> None:
    @ts.function
    def step(c: Counter, w: Tensor["D"], x: Tensor["D"]):
        def loss(w):
            y = w * x
            c.add(y)
            return ts.sum(ts.square(y)) + ts.sum(c.total)

        return ts.value_and_grad(loss)(w)

    c, w, x = counter(), np.array([1, 2, 3], np.float32), np.array([2, 1, 3], np.float32)
    value, gradient = step(c, w, x)
    np.testing.assert_allclose(gradient, 2 * w * x * x + x)
    np.testing.assert_allclose(c.total, w * x)
    assert float(value) == float(np.sum((w * x) ** 2) + np.sum(w * x))


class Rows(ts.StatefulTensor):
    shape: tuple[str, ...] = ("B", "D")
    dtype: Any = ts.f32
    seen: Tensor["B", "D"]

    @effect("update")
    def add(self, x: Tensor["B", "D"]) -> None:
        self.seen = self.seen + x


class Both(Rows):
    more: Tensor["B", "D"]


def test_states_of_one_shape_are_made_from_their_sizes() -> None:
    rows = Rows(2, D=3)
    rows.add(np.ones((2, 3), np.float32))
    assert rows.seen.tolist() == [[1] * 3] * 2 and rows.shape == ("B", "D")
    assert Both(B=1, D=2, dtype=ts.bf16).more.dtype == ts.bf16
    with pytest.raises(ts.LaunchError, match="Rows takes a size for each of B, D"):
        Rows(2)


def test_nothing_differentiates_by_state() -> None:
    @ts.function
    def wrong(c: Counter, x: Tensor["D"]):
        return ts.grad(lambda c: ts.sum(c.total * x))(c)

    with pytest.raises(ts.CompileError, match=r"TS351[\s\S]*state"):
        wrong(counter(), np.ones(3, np.float32))


def test_aliases_are_refused_and_the_state_is_intact() -> None:
    @ts.function
    def both(a: Counter, b: Counter, x: Tensor["D"]):
        a.add(x)
        return b.total

    c, x = counter(), np.ones(3, np.float32)
    for call in (lambda: both(c, c, x), lambda: added(c, c.total), lambda: both(c, Counter(c.total, c.steps), x)):
        with pytest.raises(ts.LaunchError, match="TS507"):
            call()
    strided = Counter(np.zeros(6, np.float32)[::2], np.zeros((), np.int64))
    frozen = counter()
    frozen.total.flags.writeable = False
    for state in (strided, frozen):
        with pytest.raises(ts.LaunchError, match="TS503"):
            added(state, x)
    assert int(c.steps) == 0 and not c.total.any()


def test_what_is_not_state_is_not_changed() -> None:
    @ts.function
    def later(c: Counter, x: Tensor["D"]):
        c.steps = c.steps + 1
        return x

    with pytest.raises(ts.CompileError, match=r"TS102[\s\S]*effect"):
        later(counter(), np.ones(3, np.float32))
    with pytest.raises(ts.CompileError, match="append, prefetch, update"):
        effect("delete")


def test_an_interrupt_leaves_the_old_state_or_the_new_one() -> None:
    @ts.function
    def many(c: Counter, x: Tensor["D"]):
        for _ in ts.range(1500):
            c.add(x)

    c, x = counter(100_000), np.ones(100_000, np.float32)
    many(c, x)
    timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        many(c, x)
        timer.join()
        time.sleep(5)
    assert set(c.total.tolist()) == {float(c.steps)} and int(c.steps) in (1500, 3000)


def test_two_threads_with_states_of_their_own() -> None:
    states = [counter() for _ in range(4)]
    x = np.ones(3, np.float32)
    threads = [threading.Thread(target=lambda c=c: [added(c, x) for _ in range(50)]) for c in states]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for c in states:
        np.testing.assert_array_equal(c.total, 150 * x)


# caches


def test_a_cache_keeps_what_is_appended(target: str) -> None:
    cache = KVCache(B=1, H=2, S_max=6, D_h=4, dtype=ts.f32)
    keys, k, v = cache.keys, tokens(5, 1), tokens(5, 2)
    cache.append(k[:, :, :3], v[:, :, :3])
    for i in (3, 4):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
    assert cache.keys is keys and int(cache.length) == 5
    np.testing.assert_array_equal(keys.numpy()[:, :, :5], k)
    np.testing.assert_array_equal(cache.values.numpy()[:, :, :5], v)
    np.testing.assert_array_equal(cache.positions(), [0, 1, 2, 3, 4, -1])
    cache.reset()
    assert int(cache.length) == 0


def test_a_full_cache_refuses_and_stays_as_it_is() -> None:
    cache = KVCache(1, 2, 4, 4, dtype=ts.f32)
    k = tokens(3)
    cache.append(k, k)
    before = cache.keys.numpy().copy()
    for _ in range(2):
        with pytest.raises(
            ts.LaunchError, match=r"TS382[\s\S]*2 further tokens did not fit into a KVCache: it holds 4"
        ):
            cache.append(k[:, :, :2], k[:, :, :2])
        np.testing.assert_array_equal(cache.keys.numpy(), before)
        assert int(cache.length) == 3
    cache.append(k[:, :, :1], k[:, :, :1])
    assert int(cache.length) == 4


def test_a_circular_cache_holds_the_last_tokens() -> None:
    cache = KVCache(1, 2, 4, 4, dtype=ts.f32, overflow="wrap")
    k = tokens(19)
    start = 0
    for count in (3, 2, 1, 4, 1, 7, 1):
        part = k[:, :, start : start + count]
        cache.append(part, -part)
        start += count
        held = cache.positions().numpy()
        assert sorted(held[held >= 0]) == list(range(max(0, start - 4), start))
        for place, position in enumerate(held):
            if position >= 0:
                np.testing.assert_array_equal(cache.keys.numpy()[:, :, place], k[:, :, position])
                np.testing.assert_array_equal(cache.values.numpy()[:, :, place], -k[:, :, position])


@pytest.mark.parametrize("dtype", [ts.bf16, ts.f16, ts.f32])
def test_dtypes_and_sizes(dtype: Any) -> None:
    cache = KVCache(1, 2, 8, D_h=4, dtype=dtype)
    k = tokens(2)
    cache.append(k, k)
    assert cache.keys.dtype == dtype
    np.testing.assert_array_equal(cache.keys.numpy()[:, :, :2], ts.asarray(k).astype(dtype).numpy())
    for wrong in ({"B": 1}, {"B": 1, "H": 1, "S_max": 1, "D_h": 1, "X": 1}):
        with pytest.raises(ts.LaunchError, match="B, H, S_max, D_h"):
            KVCache(**wrong)
    with pytest.raises(ValueError, match="refuse"):
        KVCache(1, 1, 1, 1, overflow="grow")


def test_a_token_costs_its_own_bytes() -> None:
    """No launch of an append moves more than the token, and no new code is made for a further one."""
    cache = KVCache(1, 2, 4096, 64, dtype=ts.f32)
    k = tokens(1, width=64)
    cache.append(k, k)
    cache = KVCache(1, 2, 1 << 18, 64, dtype=ts.f32)
    start = time.process_time()
    for _ in range(200):
        cache.append(k, k)
    assert time.process_time() - start < 5  # 200 copies of its 268 MB would take longer
    launches = [k for k in str(KVCache.append.explain()).splitlines() if k.startswith("  launches")]
    assert any("put; grid 2; 0 FLOP, 1.03 kB" in k for k in launches) and not any("MB" in k for k in launches)


def test_prefetching_changes_nothing() -> None:
    cache = KVCache(1, 2, 8, 4, dtype=ts.f32)
    k = tokens(3)
    cache.append(k, k)
    largest, _ = cache.prefetch_window(0, 3)
    assert float(largest) == k.max()
    np.testing.assert_array_equal(cache.keys.numpy()[:, :, :3], k)
    with pytest.raises(ts.TesseraError, match="TS2"):
        cache.prefetch_window(0, 4.5)


class ByName(StatefulObject):
    d: dict

    @effect("update")
    def step(self, x):
        self.d = {"b": self.d["b"] + x, "a": self.d["a"] * 2}

    @effect("update")
    def lose(self, x):
        self.d = {"b": self.d["b"] + x}


def test_items_of_a_dict_are_kept_by_their_keys():
    @ts.function
    def three(pair: ByName, x):
        for _ in ts.range(3):
            pair.step(x)
        return x

    pair, x = ByName({"a": ts.ones((2,)), "b": ts.zeros((2,))}), np.full(2, 5.0, np.float32)
    pair.step(x)
    assert pair.d["a"].tolist() == [2, 2] and pair.d["b"].tolist() == [5, 5]
    three(pair, x)
    assert pair.d["a"].tolist() == [16, 16] and pair.d["b"].tolist() == [20, 20]
    with pytest.raises(ts.CompileError, match="TS381"):
        pair.lose(x)


SET_BY_INIT = """
import tessera as ts
from tessera import StatefulObject, effect


class Total(StatefulObject):
    def __init__(self):
        self.d = ts.zeros((2,))

    @effect("update")
    def add(self, x):
        self.d = self.d + x
"""


def test_an_effect_returns_nothing_whatever_the_text_says_of_its_state():
    for text, codes in ((SET_BY_INIT, []), (SET_BY_INIT.replace("self.d + x", "y + x"), ["TS103"])):
        (analysis,) = FileAnalysis("total.py").update(text)
        assert [d.code for d in analysis.diagnostics] == codes
