"""Adafactor against PyTorch, Shampoo and SOAP against their formulas in NumPy, and the iterations that they rest on."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.optimizers import SOAP, Adafactor, AdamW, Shampoo
from tessera.optimizers.preconditioned import inverse_fourth_root
from tests.conftest import require

torch = require("torch")
rng = np.random.default_rng(3)
SHAPES = {"matrix": (5, 5), "vector": (6,), "stack": (2, 3, 4)}
P = {n: rng.standard_normal(s) for n, s in SHAPES.items()}
G = [{n: rng.standard_normal(s) for n, s in SHAPES.items()} for _ in range(25)]


def after(opt, parameters=P, gradients=G):
    model, state = dict(parameters), opt.init(parameters)
    for g in gradients:
        model, state = opt.update(model, g, state)
    assert state.report.applied and int(state.step) == len(gradients)
    return {n: np.asarray(p) for n, p in model.items()}


@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-7), (np.float32, 1e-6)])
def test_adafactor_is_pytorchs(dtype, close):
    """Its `eps` of f64 is f32's, so that they differ in what that leaves."""
    parameters = {n: p.astype(dtype) for n, p in P.items()}
    gradients = [{n: p.astype(dtype) for n, p in g.items()} for g in G]
    theirs = {n: torch.nn.Parameter(torch.tensor(p)) for n, p in parameters.items()}
    other = torch.optim.Adafactor(theirs.values(), lr=1e-2, weight_decay=0.1)
    for g in gradients:
        for n, p in theirs.items():
            p.grad = torch.tensor(g[n])
        other.step()
    for n, p in after(Adafactor(1e-2, weight_decay=0.1), parameters, gradients).items():
        np.testing.assert_allclose(p, theirs[n].detach().numpy(), atol=close)


def test_adafactor_keeps_rows_and_columns():
    state = Adafactor(1e-2).init({"w": ts.zeros((300, 200)), "b": ts.zeros((200,))})
    assert sum(m.size for m in state.moments["w"].values()) == 500 and state.moments["b"]["second"].size == 200


def power(a, exponent):
    values, vectors = np.linalg.eigh(a)
    return (vectors * values**exponent) @ vectors.T


def test_shampoo_is_its_formula():
    p, left, right, m, lr, eps = P["matrix"], np.zeros((5, 5)), np.zeros((5, 5)), 0.0, 1e-2, 1e-6
    for step, gradient in enumerate(G):
        g = gradient["matrix"]
        m, left, right = 0.9 * m + g, left + g @ g.T, right + g.T @ g
        if step % 10 == 0:
            a, b = (power(x + eps * np.trace(x) * np.eye(5), -0.25) for x in (left, right))
        p = p * (1 - lr * 0.1) - lr * a @ m @ b
    found = after(Shampoo(lr, weight_decay=0.1))
    np.testing.assert_allclose(found["matrix"], p, rtol=1e-9)
    p, m, second = P["vector"], 0.0, 0.0
    for gradient in G:
        m, second = 0.9 * m + gradient["vector"], second + gradient["vector"] ** 2
        p = p * (1 - lr * 0.1) - lr * m / np.sqrt(second + eps**2)
    np.testing.assert_allclose(found["vector"], p, rtol=1e-9)


def test_soap_is_its_formula():
    p, left, right, q, s = P["matrix"], np.zeros((5, 5)), np.zeros((5, 5)), np.eye(5), np.eye(5)
    first = second = 0.0
    for step, gradient in enumerate(G, 1):
        g = gradient["matrix"]
        first, second = 0.95 * first + 0.05 * g, 0.95 * second + 0.05 * (q.T @ g @ s) ** 2
        n = (q.T @ first @ s) / (1 - 0.95**step) / (np.sqrt(second / (1 - 0.95**step)) + 1e-8)
        p = p - 1e-2 * q @ n @ s.T
        left, right = 0.95 * left + 0.05 * g @ g.T, 0.95 * right + 0.05 * g.T @ g
        if (step - 1) % 10 == 0:
            q, s = np.linalg.qr(left @ q)[0], np.linalg.qr(right @ s)[0]
    found = after(SOAP(1e-2, weight_decay=0.0))
    np.testing.assert_allclose(found["matrix"], p, rtol=1e-9)
    np.testing.assert_allclose(
        found["vector"], after(AdamW(1e-2, (0.95, 0.95), weight_decay=0.0))["vector"], rtol=1e-12
    )


def test_long_axes_go_without_a_preconditioner():
    state = SOAP(1e-2, largest=4).init({"w": ts.zeros((5, 3))})
    assert set(state.moments["w"]) == {"first", "second"}
    assert set(Shampoo(1e-2, largest=4).init({"w": ts.zeros((5, 3))}).moments["w"]) == {"momentum", "second"}


@pytest.mark.parametrize("rank", [24, 5, 0])
def test_an_inverse_root_of_any_rank(rank):
    """Relative to its largest element, where the smallest eigenvalue is 1e-6 of the largest and eps of f32 1e-7."""
    x = rng.standard_normal((24, rank))
    a = (x @ x.T).astype(np.float32)
    found = np.asarray(ts.function(lambda a: inverse_fourth_root(a, 1e-6))(a))
    assert np.all(np.isfinite(found))
    if rank:
        want = power(a.astype(np.float64) + 1e-6 * np.trace(a) * np.eye(24), -0.25)
        assert np.abs(found - want).max() < 5e-3 * np.abs(want).max()


@pytest.mark.parametrize("rank", [24, 5, 0])
def test_an_orthogonal_factor_of_any_rank(rank):
    a = (rng.standard_normal((24, rank)) @ rng.standard_normal((rank, 24))).astype(np.float32)
    q = np.asarray(ts.linalg.qr(a)[0]).astype(np.float64)
    assert np.abs(q.T @ q - np.eye(24)).max() < 1e-5
    assert np.abs(np.tril(q.T @ a, -1)).max() <= 1e-5 * max(1, np.abs(a).max())


@pytest.mark.parametrize("make", [Adafactor, Shampoo, SOAP])
def test_a_gradient_that_is_not_finite_changes_nothing(make):
    opt = make(1e-2)
    state = opt.init(P)
    bad = {**G[0], "matrix": np.full((5, 5), np.nan)}
    model, after_it = opt.update(P, bad, state)
    assert not after_it.report.applied and "matrix" in after_it.report.reason
    for n in P:
        assert np.array_equal(np.asarray(model[n]), P[n])
        for moment, array in after_it.moments[n].items():
            assert np.array_equal(np.asarray(array), np.asarray(state.moments[n][moment]))


def test_the_state_of_another_rule_is_refused():
    with pytest.raises(ts.LaunchError, match=r"TS362[\s\S]*Shampoo keeps momentum and left"):
        Shampoo(1e-2).update(P, G[0], SOAP(1e-2).init(P))
