"""Reductions of no elements: NumPy's values on every target, and the diagnostic where NumPy raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cuda import host_library
from tests.conftest import require
from tests.together import ahead

SHAPES = [((4, 0), 1), ((0, 4), 0), ((0,), 0), ((3, 0, 2), (0, 1)), ((4, 0), 0), ((0, 0), None)]


@pytest.fixture(params=["reference", "cpu", "emulator:sm_80", "emulator:sm_90a"])
def target(request: Any, monkeypatch: Any) -> str:
    if request.param.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    return request.param


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "any", "all", "std"])
def test_reductions_of_nothing_are_numpys(target: str, name: str) -> None:
    dtypes = (np.float32, np.bool_) if name in ("any", "all") else (np.float32,)
    calls = [(ts.function(lambda x, a=axis: getattr(ts, name)(x, axis=a)), np.zeros(shape, dtype), axis)
             for shape, axis in SHAPES for dtype in dtypes]  # fmt: skip
    with host_library.together():
        for f, x, _ in calls:
            ahead(target, f, x)
    for f, x, axis in calls:
        found = np.asarray(f(x))
        want = getattr(np, name)(x, axis=axis)
        np.testing.assert_array_equal(found, want, err_msg=f"{x.shape} along {axis}")
        assert found.shape == np.shape(want)


def test_what_stands_around_them(target: str) -> None:
    """The sums of integers are 64 bits wide; what follows a reduction is fused with its value."""

    @ts.function
    def f(x: ts.Tensor["B", "S", ts.int32], y: ts.Tensor["B", ts.f32]):
        return ts.sum(x, axis=1), ts.prod(x * 2, axis=1, keepdims=True), y + ts.mean(ts.cast(x, ts.f32), axis=1), y * 2

    total, product, mean, other = f(np.zeros((3, 0), np.int32), np.ones(3, np.float32))
    assert total.dtype == np.int64 and (total == 0).all()
    assert product.shape == (3, 1) and (product == 1).all()
    assert np.isnan(mean).all() and (other == 2).all()


def test_a_product_over_nothing_is_zero(target: str) -> None:
    out = ts.function(lambda a, b: a @ b)(np.zeros((4, 0), np.float32), np.zeros((0, 5), np.float32))
    np.testing.assert_array_equal(out, np.zeros((4, 5), np.float32))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_to_no_key_is_zero(target: str, causal: bool) -> None:
    def attended(q, k, v):
        return ts.attention(q, k, v, causal=causal)

    q, k = np.ones((1, 2, 3, 4), np.float32), np.zeros((1, 2, 0, 4), np.float32)
    np.testing.assert_array_equal(ts.function(attended)(q, k, k), np.zeros_like(q))
    by_q, by_v = ts.grad(lambda q, v: ts.sum(attended(q, k, v)), argnums=(0, 1))(q, k)
    assert not np.asarray(by_q).any() and by_v.shape == k.shape


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_the_largest_of_nothing_is_an_error(target: str, name: str) -> None:
    with pytest.raises(ts.CompileError, match=r"TS213[\s\S]*size 0"):
        ts.function(lambda x: getattr(ts, name)(x, axis=1))(np.zeros((4, 0), np.float32))
