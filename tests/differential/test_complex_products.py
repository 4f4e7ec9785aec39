"""Products of complex numbers, where targets have them, and the code for a GPU that has none here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import knobs
from tests.conftest import require


def complex_array(*shape: int) -> Any:
    rng = np.random.default_rng(3)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


A, B = complex_array(37, 45), complex_array(45, 20)


@ts.function
def products(a: Any, b: Any) -> Any:
    return a @ b, a[0] @ b, a[0] @ a[1], ts.einsum("ik,jk->ij", a, a)


@ts.function
def product(a: Any, b: Any) -> Any:
    return a @ b


@ts.function
def reductions(x: Any) -> Any:
    return ts.sum(x), ts.prod(x, axis=0), ts.mean(x, axis=1), ts.cumsum(x, axis=1), ts.any(x, axis=0), ts.exp(x) / x


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_75", "emulator:sm_90a"])
def test_products(target: str) -> None:
    require("g++")
    with knobs.target.override(target):
        got = products(A, B)
    for mine, want in zip(got, (A @ B, A[0] @ B, A[0] @ A[1], A @ A.T), strict=True):
        np.testing.assert_allclose(np.asarray(mine), want, rtol=2e-5, atol=2e-5)


@example((1, 5, 129), "c8", True)  # one row that is wider than the padding of rows
@given(st.tuples(*[st.sampled_from([0, 1, 2, 5, 64, 129])] * 3), st.sampled_from(["c8", "c16"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_products_of_any_size_on_the_cpu(sizes: tuple[int, int, int], dtype: str, turned: bool) -> None:
    m, k, n = sizes
    a, b = complex_array(m, k).astype(dtype), complex_array(k, n).astype(dtype)
    given_b = np.ascontiguousarray(b.T).T if turned else b
    tolerance = 1e-4 if dtype == "c8" else 1e-12
    np.testing.assert_allclose(np.asarray(product(a, given_b)), a @ b, rtol=tolerance, atol=tolerance)


def test_bits_do_not_depend_on_threads() -> None:
    a, b = complex_array(300, 400), complex_array(400, 200)
    before = ts.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            ts.set_num_threads(count)
            results.append(np.asarray(product(a, b)).tobytes())
    finally:
        ts.set_num_threads(before)
    assert results[0] == results[1]


@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_nvrtc_takes_them(target: str) -> None:
    require("cuda.bindings")
    for program, arguments in ((products, [A, B]), (reductions, [A])):
        artifact = ts.compile(program, target=target, arguments=arguments).artifact
        assert artifact.files["code.cubin"][:4] == b"\x7fELF"
