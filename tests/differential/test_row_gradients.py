"""Gradients of softmax, norms and cross-entropy are one or two passes over rows, and sums across them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.conftest import require

torch = require("torch")
F = torch.nn.functional
rng = np.random.default_rng(0)
X, CT = (rng.standard_normal((6, 33)).astype(np.float32) for _ in range(2))
WEIGHT, BIAS = (rng.standard_normal(33).astype(np.float32) for _ in range(2))
LABELS = np.array([0, 32, 5, 5, 1, 9])


@ts.function
def softmax(x: Tensor["B", "D"], ct: Tensor["B", "D"]):
    return ts.grad(lambda x: ts.sum(ts.softmax(x) * ct))(x)


@ts.function
def log_softmax(x: Tensor["B", "D"], ct: Tensor["B", "D"]):
    return ts.grad(lambda x: ts.sum(ts.log_softmax(x) * ct))(x)


@ts.function
def layer_norm(x: Tensor["B", "D"], ct: Tensor["B", "D"], w: Tensor["D"], b: Tensor["D"]):
    return ts.grad(lambda x, w, b: ts.sum(ts.layer_norm(x, w, b) * ct), argnums=(0, 1, 2))(x, w, b)


@ts.function
def rms_norm(x: Tensor["B", "D"], ct: Tensor["B", "D"], w: Tensor["D"]):
    return ts.grad(lambda x, w: ts.sum(ts.rms_norm(x, w) * ct), argnums=(0, 1))(x, w)


@ts.function
def cross_entropy(x: Tensor["B", "D"], y: Tensor["B", ts.int64]):
    return ts.value_and_grad(lambda x: ts.cross_entropy(x, y, label_smoothing=0.1))(x)[1]


CASES: dict[str, tuple[Any, tuple[Any, ...], Callable[..., Any], int]] = {
    "softmax": (softmax, (X, CT), lambda x, ct: (torch.softmax(x, -1) * ct).sum(), 2),
    "log_softmax": (log_softmax, (X, CT), lambda x, ct: (torch.log_softmax(x, -1) * ct).sum(), 2),
    "layer_norm": (
        layer_norm, (X, CT, WEIGHT, BIAS), lambda x, ct, w, b: (F.layer_norm(x, (33,), w, b) * ct).sum(), 4,
    ),
    "rms_norm": (rms_norm, (X, CT, WEIGHT), lambda x, ct, w: (F.rms_norm(x, (33,), w, 1e-6) * ct).sum(), 3),
    "cross_entropy": (cross_entropy, (X, LABELS), lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_torch_in_few_launches(name: str) -> None:
    f, arrays, peer, launches = CASES[name]
    found = f(*arrays)
    found = found if isinstance(found, tuple) else (found,)
    given = [torch.tensor(a, requires_grad=a.dtype == np.float32) for a in arrays]
    wanted = torch.autograd.grad(peer(*given), [given[0], *given[2:]] if len(given) > 2 else [given[0]])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=2e-5, atol=2e-6)
    assert str(f.explain()).count("  launches  ") <= launches


def test_labels_outside_of_the_classes_give_nothing() -> None:
    found = np.asarray(ts.grad(lambda x: ts.cross_entropy(x, np.array([-1, 33, 2, 0, 0, 0])))(X))
    assert not found[:2].any() and found[2:].any(1).all()


def test_second_order() -> None:
    x, w = X[:2, :4].astype(np.float64), WEIGHT[:4].astype(np.float64)
    ts.check_grad(lambda x, w: ts.sum(ts.sin(ts.layer_norm(x, w))), x, w, order=2)
    ts.check_grad(lambda x, w: ts.sum(ts.sin(ts.rms_norm(x, w, axis=0))), x, WEIGHT[:2].astype(np.float64), order=2)
    ts.check_grad(lambda x: ts.sin(ts.cross_entropy(x, LABELS[2:4] % 4)), x, order=2)
