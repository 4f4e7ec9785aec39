"""Calls that are like those before them run as straight code; all others take the usual way, with the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.runtime.call import dispatch, straight

factor = 2.0


@dataclass
class Layer:
    weight: Any
    scale: float = 1.0
    act: Any = ts.relu


@ts.function
def applied(layer, x, n: ts.f32):
    return layer.act(layer.weight * x * layer.scale * factor) + n


@ts.function
def doubled(held, x):
    return {"sum": held["a"] + x, "pair": [held["a"], x]}


def expected(layer, x, n):
    product = np.asarray(layer.weight) * np.asarray(x) * np.float32(layer.scale) * np.float32(factor)
    return (np.maximum(product, 0) if layer.act is ts.relu else np.tanh(product)) + np.float32(n)


def site_of(fn):
    (site,) = [s for s in fn.launcher.sites.values() if s.call is not s.usual] or [None]
    return site


def settled(fn, *args):
    """A function whose site has straight code for these arguments."""
    for _ in range(dispatch.LIKE_BEFORE + 1):
        result = fn(*args)
    assert site_of(fn) is not None
    return result


def arrays(dtype=np.float32, shape=(3,)):
    return np.arange(1, 1 + np.prod(shape), dtype=dtype).reshape(shape)


def with_usual(fn, *args):
    """The result the usual way, whatever the site has."""
    site = fn.launcher.sites[tuple(map(type, args))]
    return site.usual(*args)


def test_what_a_call_depends_on_is_compared():
    layer, x = Layer(ts.asarray(arrays())), arrays()
    settled(applied, layer, x, 0.5)
    site = site_of(applied)
    others = [
        (layer, x, 1.5),
        (Layer(ts.asarray(-arrays())), -x, 0.5),
        (Layer(arrays()), x, 0.5),  # of another library
        (Layer(ts.asarray(arrays()), 3.0), x, 0.5),
        (Layer(ts.asarray(arrays()), -0.0), x, 0.0),
        (Layer(ts.asarray(arrays()), 0.0), x, 0.0),
        (Layer(ts.asarray(arrays()), act=ts.tanh), x, 0.5),
        (Layer(ts.asarray(arrays(shape=(2, 3)))), x, 0.5),
        (layer, arrays(shape=(1,)), 0.5),
        (layer, arrays(np.float64), 0.5),
        (layer, np.arange(6, dtype=np.float32)[::2], 0.5),
        (layer, x[:, None][:, 0], 0.5),
        (layer, np.frombuffer(arrays().tobytes(), np.float32), 0.5),
    ]
    for args in others:
        found, usual = applied(*args), with_usual(applied, *args)
        assert type(found) is type(usual)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(usual))
        np.testing.assert_allclose(np.asarray(found), expected(*args), rtol=1e-5)
        assert np.asarray(found).dtype == np.asarray(usual).dtype
        assert site_of(applied) is site


def test_other_values_of_what_is_read_from_outside(monkeypatch):
    layer, x = Layer(ts.asarray(arrays())), arrays()
    settled(applied, layer, x, 0.5)
    monkeypatch.setitem(globals(), "factor", 5.0)
    np.testing.assert_allclose(np.asarray(applied(layer, x, 0.5)), expected(layer, x, 0.5), rtol=1e-6)


def test_results_are_built_anew():
    held, x = {"a": ts.asarray(arrays())}, ts.asarray(arrays())
    first = settled(doubled, held, x)
    second = doubled(held, x)
    assert type(second) is dict and type(second["pair"]) is type(first["pair"]) and second["sum"] is not first["sum"]
    np.testing.assert_array_equal(second["sum"].numpy(), 2 * arrays())
    assert set(doubled({"b": x, "a": x}, x)) == {"sum", "pair"}


def test_tensors_that_require_gradients_are_recorded():
    held, x = {"a": ts.asarray(arrays())}, ts.asarray(arrays())
    settled(doubled, held, x)
    a = ts.asarray(arrays()).requires_grad_()
    doubled({"a": a}, x)["sum"].sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), np.ones(3))


def test_listeners_see_repeated_calls():
    held, x = {"a": ts.asarray(arrays())}, ts.asarray(arrays())
    settled(doubled, held, x)
    with ts.profiler() as profile:
        doubled(held, x)
    assert len(profile.launches()) >= 1


def test_a_site_that_changes_all_the_time_goes_back_to_looking_keys_up():
    @ts.function
    def negated(x):
        return -x

    a, b = arrays(), arrays(shape=(4,))
    for _ in range(dispatch.TURNS + 1):
        for x in (a, b):
            for _ in range(dispatch.LIKE_BEFORE):
                np.testing.assert_array_equal(negated(x), -x)
    (site,) = negated.launcher.sites.values()
    assert site.call is site.usual
    np.testing.assert_array_equal(negated(a), -a)


def test_launches_that_are_forgotten_lose_their_straight_code():
    @ts.function
    def tripled(x):
        return x * 3

    x = arrays()
    settled(tripled, x)
    (site,) = tripled.launcher.sites.values()
    dispatch._kept.forget()
    assert site.call is site.usual and not site.table
    np.testing.assert_array_equal(settled(tripled, x), 3 * x)


def test_arrays_of_rank_0_are_compared():
    @ts.function
    def scaled(x, by):
        return x * by, by + 1

    x = arrays()
    for by in (np.int32(3), np.int64(4), np.float32(0.5)):
        by = np.asarray(by)
        for _ in range(dispatch.LIKE_BEFORE + 2):
            product, next_ = scaled(x, by)
            np.testing.assert_allclose(product, x * by)
            assert next_.dtype == by.dtype


def test_state_is_checked_after_repeated_calls():
    cache = ts.KVCache(B=1, H=1, S_max=6, D_h=2, dtype=ts.f32)

    @ts.function
    def appended(cache: ts.KVCache, k, v):
        cache.append(k, v)
        return cache.length

    k = np.ones((1, 1, 1, 2), np.float32)
    for i in range(6):
        assert int(appended(cache, k, k)) == i + 1
    assert site_of(appended) is not None
    with pytest.raises(ts.LaunchError, match="did not fit"):
        appended(cache, k, k)
    assert int(cache.length) == 6


@dataclass(frozen=True)
class Rates:
    first: float
    others: tuple[float, ...] = (0.5, 0.25)


@dataclass
class Loose:
    first: float


@ts.function
def with_rates(x: Tensor["N"], rates):
    return x * rates.first


@pytest.mark.parametrize("kind", [Rates, Loose])
def test_settings_that_change_are_seen(kind):
    """Frozen ones are known by identity; all others are looked into, and equal ones of another object are the same."""
    x, rates = np.ones(4, np.float32), kind(2.0)
    for _ in range(6):
        np.testing.assert_array_equal(with_rates(x, rates), x * 2)
    np.testing.assert_array_equal(with_rates(x, kind(2.0)), x * 2)
    np.testing.assert_array_equal(with_rates(x, kind(3.0)), x * 3)
    if kind is Loose:
        rates.first = 5.0
        np.testing.assert_array_equal(with_rates(x, rates), x * 5)


@dataclass
class Scaled:
    weight: Any
    by: float

    def __call__(self, x):
        return x * self.weight * self.by


COMMON = Scaled(np.full(4, 2.0, np.float32), 3.0)


@ts.function
def with_common(layer: Scaled, x: Tensor["N"]):
    return layer(x) + COMMON.by


@pytest.mark.parametrize("common", [True, False])
def test_what_a_layer_holds_is_compared_at_each_call(common):
    """Whether or not the function reads the same object by a name of its own."""
    layer, x = COMMON if common else Scaled(np.full(4, 2.0, np.float32), 3.0), np.ones(4, np.float32)
    for _ in range(6):
        np.testing.assert_array_equal(with_common(layer, x), x * 9)
    try:
        layer.by = 5.0
        np.testing.assert_array_equal(with_common(layer, x), x * 10 + COMMON.by)
        COMMON.by = 7.0
        np.testing.assert_array_equal(with_common(layer, x), x * 2 * layer.by + 7)
    finally:
        COMMON.by = 3.0


@ts.function
def with_layer(layer: Scaled, x: Tensor["N"]):
    return layer(x)


def test_arguments_are_not_looked_at_twice():
    """Their dataclasses are compared by the key; a guard that walks their copies takes longer than the key."""
    layer, x = Scaled(np.full(4, 2.0, np.float32), 3.0), np.ones(4, np.float32)
    for _ in range(6):
        with_layer(layer, x)
    ready = dispatch.launcher_of(with_layer).ready
    assert not {"weight", "by"} & {*ready.guard.__code__.co_names}


def test_launches_of_many_arrays_have_straight_code_of_their_own_later(monkeypatch):
    written: list[int] = []
    generated = straight.generated_run
    monkeypatch.setattr(straight, "generated_run", lambda p: written.append(len(p.slots)) or generated(p))

    @ts.function
    def moved(xs):
        return [x + 1 for x in xs]

    def call(size: int, count: int) -> None:
        xs = [np.full(size, i, np.float32) for i in range(count)]
        for x, y in zip(xs, moved(xs), strict=True):
            np.testing.assert_array_equal(y, x + 1)

    for _ in range(straight.BEFORE):  # in turns, so that no call is like the one before it
        call(3, straight.MANY)
        call(4, 2)
        assert written == [4]
    call(3, straight.MANY)
    assert written == [4, 2 * straight.MANY]
    call(3, straight.MANY)
    assert written == [4, 2 * straight.MANY]
