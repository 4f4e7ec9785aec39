"""Kernels of a program that are the same CUDA code are written and compiled once."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tessera as ts
from tests.conftest import require

rng = np.random.default_rng(3)


@ts.function
def three(x: ts.Tensor["S", "D", ts.f32], a: ts.Tensor["D", "D", ts.f32], b: ts.Tensor["D", "D", ts.f32]):  # type: ignore[name-defined]
    p = ts.softmax(x @ a)
    q = ts.softmax(x @ b)
    return p, q, ts.softmax(x)


def kernels_in(source: str) -> list[str]:
    return re.findall(r"__global__[^(]*?(\w+)\(", source)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "emulator:sm_80"])
def test_the_source_has_each_once(target: str) -> None:
    require("cuda.bindings" if target.startswith("sm_") else "g++")
    compiled = ts.compile(three, target=target, dims={"S": 24, "D": 16})
    launches = [k.kernel for k in compiled.built.plan.launches]
    assert len(launches) == 5 and len(compiled.artifact.meta["kernels"]) == 2
    assert set(launches) <= set(compiled.resources)  # each launch has its figures
    assert all(k["layouts"] for k in compiled.explain().kernels)
    if target.startswith("emulator"):
        x, a, b = (rng.normal(size=s).astype(np.float32) for s in ((24, 16), (16, 16), (16, 16)))
        for got, logits in zip(compiled(x, a, b), (x @ a, x @ b, x), strict=True):
            want = np.exp(logits - logits.max(-1, keepdims=True))
            np.testing.assert_allclose(got, want / want.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)
