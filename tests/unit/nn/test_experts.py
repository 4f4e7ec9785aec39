"""Mixtures of experts against each token going through its experts by itself, in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tests.conftest import require

torch = require("torch")
F = torch.nn.functional
rng = np.random.default_rng(2)
X = rng.standard_normal((3, 7, 8)).astype(np.float32)


@ts.function
def derived(layer, x):
    def loss(layer, x):
        y, balance = layer(x)
        return ts.sum(ts.sin(y)) + balance, (y, balance)

    return ts.value_and_grad(loss, argnums=(0, 1), has_aux=True)(layer, x)


def mixture(p, x, k, capacity):
    """(y, balance), one choice after the other."""
    tokens, experts = x.reshape(-1, x.shape[-1]), p["up"].shape[0]
    probabilities = F.softmax(tokens @ p["router.gate.weight"], -1)
    weights, chosen = probabilities.topk(k)
    if k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    most = int(np.ceil(capacity * k * len(tokens) / experts)) if capacity else len(tokens)
    used, y = [0] * experts, [torch.zeros(x.shape[-1]) for _ in tokens]
    for j in range(k):
        for n, token in enumerate(tokens):
            e = int(chosen[n, j])
            used[e] += 1
            if used[e] <= most:
                y[n] = y[n] + weights[n, j] * (F.gelu(token @ p["up"][e]) @ p["down"][e])
    share = torch.bincount(chosen.flatten(), minlength=experts) / chosen.numel()
    return torch.stack(y).reshape(x.shape), experts * (share * probabilities.mean(0)).sum()


def made(k, capacity, lean=0.0):
    """A layer whose router prefers the first expert by `lean`."""
    layer = nn.MixtureOfExperts(8, 12, 4, key=0, k=k, capacity=capacity)
    layer.router.gate.weight = rng.standard_normal((8, 4)).astype(np.float32)
    x = X.copy()
    if lean:
        layer.router.gate.weight[0] = [lean, 0, 0, 0]
        x[..., 0] = 1
    return layer, x


@pytest.mark.parametrize("lean", [0.0, 30.0], ids=["spread", "experts-without-tokens"])
@pytest.mark.parametrize("k, capacity", [(1, 1.25), (2, 0.5), (2, None), (1, None)])
def test_values_and_gradients(k, capacity, lean):
    layer, x = made(k, capacity, lean)
    weights = {n: torch.tensor(np.asarray(p), requires_grad=True) for n, p in layer.named_parameters().items()}
    given = torch.tensor(x, requires_grad=True)
    expected, spread = mixture(weights, given, k, capacity)
    (torch.sin(expected).sum() + spread).backward()
    (_, (y, balance)), (by_layer, by_x) = derived(layer, x)
    np.testing.assert_allclose(y, expected.detach(), rtol=1e-5, atol=1e-6)
    assert float(balance) == pytest.approx(spread.item(), rel=1e-5)
    np.testing.assert_allclose(by_x, given.grad, rtol=1e-4, atol=1e-5)
    for name, found in by_layer.named_parameters().items():
        np.testing.assert_allclose(found, weights[name].grad, rtol=1e-4, atol=1e-5, err_msg=name)
    if lean and k == 1:
        assert not by_layer.up[1:].any() and by_layer.up[0].any()


def test_the_reference_and_any_number_of_threads_agree(monkeypatch):
    layer, x = made(2, 1.25)
    found = derived(layer, x)[0]
    before = ts.get_num_threads()
    try:
        ts.set_num_threads(1)
        assert np.array_equal(derived(layer, x)[0][1][0], found[1][0])
    finally:
        ts.set_num_threads(before)
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    np.testing.assert_allclose(derived(layer, x)[0][1][0], found[1][0], rtol=1e-5, atol=1e-6)


def test_work_grows_with_the_tokens_that_are_chosen():
    @ts.function
    def run(layer, x):
        return layer(x)[0]

    x = rng.standard_normal((512, 8)).astype(np.float32)
    for capacity, slots in ((1.0, 512), (None, (512 + 16 * 31) // 32 * 32)):
        layer = nn.MixtureOfExperts(8, 16, 16, key=0, k=1, capacity=capacity)
        text = ts.compile(run, arguments=(layer, x)).ir("graph")
        assert f"[{slots // 32}, 32, 16] f32" in text


def test_a_switch_transformer():
    model = nn.SwitchTransformer(8, 2, 4, 3, key=0, hidden=12, capacity=2.0)
    (_, (y, balance)), (gradient, _) = derived(model, X)
    assert y.shape == X.shape and 0.9 < float(balance) < 3
    assert all(np.abs(g).max() > 0 for n, g in gradient.named_parameters().items())

    def block(p, x, name):
        norm = F.layer_norm(x, (8,), p[f"{name}.before_attention.weight"], p[f"{name}.before_attention.bias"])
        parts = (norm @ p[f"{name}.attention.{w}.weight"] for w in ("query", "key", "value"))
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(-2, -3) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2)
        x = x + seen @ p[f"{name}.attention.out.weight"]
        norm = F.layer_norm(x, (8,), p[f"{name}.before_feed.weight"], p[f"{name}.before_feed.bias"])
        if f"{name}.feed.router.gate.weight" in p:
            own = {n.removeprefix(f"{name}.feed."): a for n, a in p.items() if n.startswith(f"{name}.feed.")}
            more, spread = mixture(own, norm, 1, 2.0)
            return x + more, spread
        inner = F.gelu(norm @ p[f"{name}.feed.up.weight"] + p[f"{name}.feed.up.bias"])
        return x + inner @ p[f"{name}.feed.down.weight"] + p[f"{name}.feed.down.bias"], 0

    weights = {n: torch.tensor(np.asarray(a)) for n, a in model.named_parameters().items()}
    expected, total = torch.tensor(X), 0
    for i in range(4):
        expected, spread = block(weights, expected, f"blocks.{i}")
        total = total + spread
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert float(balance) == pytest.approx(float(total) / 2, rel=1e-5)


def test_what_does_not_fit_is_said():
    for wrong in (
        lambda: nn.TopKRouter(8, 4, key=0, k=5),
        lambda: nn.MixtureOfExperts(8, 8, 4, key=0, capacity=0),
        lambda: nn.SwitchTransformer(8, 2, 1, 4, key=0),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ts.CompileError, match="TS20"):
        derived(nn.MixtureOfExperts(7, 8, 4, key=0), X)
