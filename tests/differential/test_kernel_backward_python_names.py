"""Derived backwards of kernels that call Python's `abs`, `max`, `min`, `pow` and `round` on tiles."""

from __future__ import annotations

import numpy as np

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import backward_refusal, check_backward

rng = np.random.default_rng(5)


@ts.kernel(BLOCK=8)
def by_names_of_python(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    return abs(x[i]) * max(x[i], y[i]) + min(x[i] * 2, y[i]) + pow(abs(y[i]), 1.5) + round(x[i]) * x[i]


def test_the_gradient_is_that_of_the_functions_of_tiles():
    args = [rng.standard_normal(19).astype(np.float32) for _ in range(2)]
    check_backward(
        by_names_of_python,
        lambda x, y: ts.abs(x) * ts.maximum(x, y) + ts.minimum(x * 2, y) + ts.abs(y) ** 1.5 + ts.round(x) * x,
        args,
        "cpu",
    )


def test_what_combines_items_is_refused():
    @ts.kernel
    def summed(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
        i = ts.tile.linear_id()
        return x[i] + sum([x[i], y[i]])

    assert backward_refusal(summed).startswith("3: ") and "does not look into sum" in backward_refusal(summed)
