"""What is compiled again and again, for other sizes alone, is said: with what to write."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tessera.runtime.code import why_recompiled
from tessera.runtime.eager import calls


def sizes(call, count):
    """Calls with that many sizes; the warnings that came."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, count + 1):
            call(np.ones((2, n), np.float32))  # [2, 2] has no size that grows alone
    return [w for w in caught if issubclass(w.category, ts.RecompilationWarning)]


def test_a_function_names_its_open_dims():
    @ts.function
    def growing(x: Tensor["B", "T", f32]):
        return ts.sum(x * 2)

    assert not sizes(growing, why_recompiled.AGAIN - 1)
    (said,) = sizes(growing, why_recompiled.AGAIN + 3)
    text = str(said.message)
    assert "TS508" in text and "growing has been compiled 8 times" in text and said.filename == __file__
    assert "argument x axis 1: 7 -> 8" in text and '@ts.function(open_dims="T") compiles once' in text


def test_a_function_without_names_is_told_to_name_them():
    @ts.function
    def unnamed(x):
        return ts.sum(x * 3)

    (said,) = sizes(unnamed, 12)
    assert 'x: Tensor["B", "T"]' in str(said.message)


def test_other_reasons_to_compile_are_not_sizes():
    @ts.function
    def factor(x: Tensor["B", "T", f32], n: int):
        return ts.sum(x * n)

    @ts.function(open_dims="T")
    def once(x: Tensor["B", "T", f32]):
        return ts.sum(x * 4)

    numbers = iter(range(100))
    assert not sizes(lambda x: factor(x, next(numbers)), 12) and not sizes(once, 12)


def numbers(call, values):
    """Calls with these numbers; the warnings that came."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in values:
            call(np.ones(3, np.float32), value)
    return [str(w.message) for w in caught if issubclass(w.category, ts.RecompilationWarning)]


def test_a_number_without_annotation_is_told_its_annotation():
    @ts.function
    def noisy(x, key, scale=1.0):
        return x + scale * ts.normal(key, x.shape)

    @ts.function
    def scaled(x, rate):
        return x * rate

    @ts.function
    def annotated(x, key: ts.int64):
        return x + ts.normal(key, x.shape)

    assert not numbers(noisy, range(why_recompiled.AGAIN - 1))
    (said,) = numbers(noisy, range(7, 20))
    assert (
        "TS508" in said
        and "noisy has been compiled 8 times, for another number each time: argument key: 6 -> 7" in said
    )
    assert "write key: ts.int64; int says" in said
    (said,) = numbers(scaled, [0.1 * i for i in range(12)])
    assert "write rate: ts.f32." in said
    assert not numbers(annotated, range(12))


def test_flags_and_names_are_not_numbers_that_change():
    @ts.function
    def chosen(x, how):
        return x * len(how)

    assert not numbers(chosen, ["a" * i for i in range(12)])


def test_other_numbers_of_axes_are_not_sizes():
    @ts.function
    def product(a, b):
        return a @ b

    def call(x):
        product(x, np.ones((x.shape[1], 2), np.float32))
        product(x, np.ones(x.shape[1], np.float32))

    assert not sizes(call, why_recompiled.AGAIN)
    assert "argument b shape: [8, 2] -> [8]" in str(ts.why_recompiled(product))


@pytest.fixture
def counted(monkeypatch):
    """As in a new process: what other tests have called does not count."""
    monkeypatch.setattr(calls, "_sizes", type(calls._sizes)())
    monkeypatch.setattr(calls, "_told", set())
    monkeypatch.setattr(calls, "_calls", calls.Recent(calls.KEPT))
    monkeypatch.setattr(calls, "_sites", {})


def test_operators_outside_of_functions_are_said_once(counted):
    def written(x):
        return ts.exp(ts.sin(x))

    assert not sizes(written, calls.SIZES - 1)
    (said,) = sizes(written, calls.SIZES + 2)
    assert "TS508" in str(said.message) and "sin has been compiled for 32 sizes" in str(said.message)
    assert "the last time for [2, 33]" in str(said.message) and said.filename == __file__


def test_layers_of_other_widths_are_not_sizes_that_grow(counted):
    """A model of many layers: each product has shapes of its own."""
    assert not sizes(lambda x: [ts.asarray(x) @ np.ones((x.shape[1], w), np.float32) for w in (3, 5, 7)], 12)
