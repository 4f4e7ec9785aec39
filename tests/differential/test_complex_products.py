"""Products of complex numbers, where targets have them, and the code for a GPU that has none here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
def reductions(x: Any) -> Any:
    return ts.sum(x), ts.prod(x, axis=0), ts.mean(x, axis=1), ts.cumsum(x, axis=1), ts.any(x, axis=0), ts.exp(x) / x


@pytest.mark.parametrize("target", ["reference", "emulator:sm_75", "emulator:sm_90a"])
def test_products(target: str) -> None:
    require("g++")
    with knobs.target.override(target):
        got = products(A, B)
    for mine, want in zip(got, (A @ B, A[0] @ B, A[0] @ A[1], A @ A.T), strict=True):
        np.testing.assert_allclose(np.asarray(mine), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_nvrtc_takes_them(target: str) -> None:
    require("cuda.core")
    for program, arguments in ((products, [A, B]), (reductions, [A])):
        artifact = ts.compile(program, target=target, arguments=arguments).artifact
        assert artifact.files["code.cubin"][:4] == b"\x7fELF"
