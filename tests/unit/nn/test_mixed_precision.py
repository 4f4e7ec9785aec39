"""Products in bf16, all else in f32: what is computed in which dtype, what the report says, and how well it learns."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, bf16, f16, f32, nn
from tessera.optimizers import AdamW

rng = np.random.default_rng(5)
X, W = rng.standard_normal((16, 64)).astype(np.float32), rng.standard_normal((64, 32)).astype(np.float32)


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@ts.function
def product(x: Tensor["M", "K"], w: Tensor["K", "N"]):
    return x @ w


@ts.function
def loss(w: Tensor["K", "N"], b: Tensor["N"], x: Tensor["M", "K"]):
    return ts.mean(ts.square(ts.softmax(ts.layer_norm(x @ w + b))))


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_operands_are_rounded_and_results_are_not(target):
    mixed = ts.to_mixed_precision(product, compute=bf16, accumulate=f32)
    with ts.knobs.target.override(target):
        found = np.asarray(mixed(X, W))
    exact = rounded(X) @ rounded(W)
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max() < np.abs(X @ W - exact).max()


def test_only_products_are_narrow():
    mixed = ts.to_mixed_precision(loss)
    mixed(W, W[0], X)
    text = str(mixed.ir())
    narrow = [line for line in text.splitlines() if "] bf16" in line.split("//")[0].partition(" : ")[2]]
    assert len(narrow) == 2 and all("cast(" in line for line in narrow), text


def test_cotangents_stay_wide():
    """The gradient of w is a product of rounded operands, summed and kept in f32."""
    w, ct = W, rng.standard_normal((16, 32)).astype(np.float32)
    mixed = ts.to_mixed_precision(ts.function(lambda w, x, ct: ts.sum((x @ w) * ct)))
    found = np.asarray(ts.grad(mixed)(w, X, ct))
    exact = rounded(X).T @ rounded(ct)
    assert found.dtype == np.float32 and np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()


class Net(nn.Module):
    table: nn.Embedding
    norm: nn.LayerNorm
    up: nn.Linear
    out: nn.Linear

    def __call__(self, tokens):
        return self.out(ts.gelu(self.up(self.norm(self.table(tokens)))))


TOKENS = rng.integers(0, 12, 64)


@ts.function
def step(model: nn.MixedPrecision, tokens: Tensor["B", ts.int64]):
    return ts.value_and_grad(lambda model: ts.cross_entropy(model(tokens), tokens))(model)


@ts.function
def plain_step(model: Net, tokens: Tensor["B", ts.int64]):
    return ts.value_and_grad(lambda model: ts.cross_entropy(model(tokens), tokens))(model)


def net():
    return Net(
        nn.Embedding(12, 16, key=0, std=1.0), nn.LayerNorm(16), nn.Linear(16, 32, key=1), nn.Linear(32, 12, key=2)
    )


def learned(model, step, **options):
    opt = AdamW(3e-3, **options)
    state = opt.init(model)
    for _ in range(60):
        value, gradient = step(model, TOKENS)
        model, state = opt.update(model, gradient, state)
    return float(value), model


def test_the_report_says_what_and_why():
    mixed = net().to_mixed_precision(compute=bf16, accumulate=f32, storage=ts.fp8)
    report = mixed.report
    assert "products round their operands to bf16 and sum in f32" in report
    assert "norm.weight: f32, as it was (one axis)" in report
    assert "up.weight: f32 -> fp8_e4m3, 512 bytes; rounding took 2" in report
    assert mixed.model.up.weight.dtype == ts.fp8_e4m3 and mixed.model.up.bias.dtype == f32


@pytest.mark.parametrize("storage", [None, bf16, ts.fp8])
def test_a_model_in_each_storage_gives_what_it_gave(storage):
    value, gradient = step(net().to_mixed_precision(storage=storage), TOKENS)
    exact, _ = plain_step(net(), TOKENS)
    assert abs(float(value) - float(exact)) < (5e-2 if storage == ts.fp8 else 1e-2)
    assert gradient.model.up.weight.dtype == (storage or f32) and gradient.model.up.bias.dtype == f32


def test_it_learns_as_f32_does():
    exact, _ = learned(net(), plain_step)
    assert exact < 0.1
    for model, options in (
        (net().to_mixed_precision(), {}),
        (net().to_mixed_precision(storage=bf16), {"master": True}),
        (net().to_mixed_precision(storage=bf16), {"numerics": ts.stochastic_round}),
    ):
        found, after = learned(model, step, **options)
        assert abs(found - exact) < 0.3 * exact, (found, exact, options)
        assert model.model.up.weight.dtype == after.model.up.weight.dtype


def test_master_weights_are_kept_of_narrow_parameters():
    model = {"w": ts.ones((3,), bf16), "b": ts.ones((3,))}
    opt = AdamW(1e-4, master=True)
    state = opt.init(model)
    assert set(state.moments["w"]) == {"first", "second", "master"} and "master" not in state.moments["b"]
    for _ in range(20):
        model, state = opt.update(model, {"w": ts.ones((3,), bf16), "b": ts.ones((3,))}, state)
    np.testing.assert_allclose(np.asarray(state.moments["w"]["master"]), np.asarray(model["b"]), rtol=1e-6)
    assert model["w"].tolist() == state.moments["w"]["master"].astype(bf16).tolist()


def test_what_cannot_be_mixed_is_refused():
    with pytest.raises(ts.LaunchError, match="a model or a @ts"):
        ts.to_mixed_precision(3)
    with pytest.raises(ts.LaunchError, match="storage is for models"):
        ts.to_mixed_precision(product, storage=f16)
    with pytest.raises(ValueError, match="compute needs f16, bf16 or tf32"):
        net().to_mixed_precision(compute=ts.int8)
