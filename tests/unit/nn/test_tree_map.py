"""`ts.tree_map`, in functions and outside."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn


def mean(a, b):
    return 0.9 * a + 0.1 * b


@ts.function
def polyak(target: nn.MLP, model: nn.MLP):
    return ts.tree_map(mean, target, model)


@pytest.mark.parametrize("call", [polyak, lambda t, m: ts.tree_map(mean, t, m)], ids=["function", "outside"])
def test_models_are_mapped(call):
    target, model = nn.MLP(4, 8, key=0), nn.MLP(4, 8, key=1)
    found = call(target, model)
    assert type(found) is nn.MLP and found.act is model.act
    for name, p in found.named_parameters().items():
        wanted = mean(np.asarray(target.named_parameters()[name]), np.asarray(model.named_parameters()[name]))
        np.testing.assert_allclose(p, wanted, rtol=1e-6)


def test_what_is_no_array_stays():
    found = ts.tree_map(lambda a: a * 2, {"a": [np.ones(2), 3], "b": (np.ones(1), "name")})
    assert found["a"][1] == 3 and found["b"][1] == "name" and found["a"][0].tolist() == [2, 2]


def test_gradients_go_through():
    def loss(model):
        return sum(ts.sum(p) for p in ts.tree_map(lambda p: p * p, model).parameters())

    model = nn.Linear(3, 2, key=0)
    np.testing.assert_allclose(ts.grad(loss)(model).weight, 2 * np.asarray(model.weight))


def test_trees_that_differ_are_refused():
    with pytest.raises(ts.errors.LaunchError, match="only one of the trees 0 and 1 has an array at 'weight'"):
        ts.tree_map(mean, {}, nn.Linear(3, 2, key=0, bias=False))

    @ts.function
    def f(x: Tensor["N"]):
        return ts.tree_map(mean, [x], [x, x])

    with pytest.raises(ts.errors.CompileError, match="only one of the trees 0 and 1 has an array at '1'"):
        f(np.ones(2))
