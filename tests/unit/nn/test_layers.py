"""Layers against PyTorch: values, and gradients by every parameter, from equal weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tests.conftest import require

torch = require("torch")
F = torch.nn.functional
rng = np.random.default_rng(5)
X = rng.standard_normal((2, 5, 8)).astype(np.float32)


@ts.function
def derived(layer, x):
    def loss(layer, x):
        y = layer(x)
        return ts.mean(ts.sin(y)), y

    return ts.value_and_grad(loss, argnums=(0, 1), has_aux=True)(layer, x)


def randomised(layer):
    """The layer with other values than 0 and 1 where it starts with them."""
    arrays = {n: rng.standard_normal(p.shape).astype(np.float32) / 2 for n, p in layer.named_parameters().items()}
    layer.load_state_dict(arrays)
    return layer


def check(layer, wanted: Callable, x=X):
    """`wanted(parameters, x)` is the same in PyTorch."""
    layer = randomised(layer)
    weights = {n: torch.tensor(p, requires_grad=True) for n, p in layer.named_parameters().items()}
    given = torch.tensor(x, requires_grad=True)
    expected = wanted(weights, given)
    torch.sin(expected).mean().backward()
    (_, found), (by_layer, by_x) = derived(layer, x)
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(by_x, given.grad.numpy(), rtol=1e-4, atol=1e-5)
    gradients = by_layer.named_parameters()
    assert gradients.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(gradients[name], weight.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(params=["cpu", "reference"])
def target(request, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", request.param)


def linear(p, x, name=""):
    y = x @ p[f"{name}weight"]
    return y + p[f"{name}bias"] if f"{name}bias" in p else y


def test_linear(target):
    check(nn.Linear(8, 3, key=0), linear)
    check(nn.Linear(8, 3, key=0, bias=False), linear)


def test_a_function_after_a_product():
    check(nn.FusedLinearGeLU(8, 3, key=0), lambda p, x: F.gelu(linear(p, x)))
    layer = randomised(nn.FusedLinearSiLU(8, 3, key=0, bias=False))
    check(layer, lambda p, x: F.silu(linear(p, x)))
    compiled = ts.compile(ts.function(lambda layer, x: layer(x)), arguments=(layer, X))
    assert compiled.ir("schedule").count(" = group(") == 1  # one kernel


def test_norms(target):
    check(nn.LayerNorm(8, eps=0.1), lambda p, x: F.layer_norm(x, (8,), p["weight"], p["bias"], 0.1))
    check(nn.LayerNorm(8, bias=False), lambda p, x: F.layer_norm(x, (8,), p["weight"]))
    check(nn.RMSNorm(8, eps=0.1), lambda p, x: F.rms_norm(x, (8,), p["weight"], 0.1))


def test_group_norm(target):
    x = rng.standard_normal((2, 6, 3, 2)).astype(np.float32)
    check(nn.GroupNorm(3, 6, eps=0.1), lambda p, x: F.group_norm(x, 3, p["weight"], p["bias"], 0.1), x)


def mlp(p, x, name=""):
    return linear(p, F.gelu(linear(p, x, f"{name}up.")), f"{name}down.")


def swiglu(p, x, name=""):
    return linear(p, F.silu(linear(p, x, f"{name}gate.")) * linear(p, x, f"{name}up."), f"{name}down.")


def test_feed_forward(target):
    check(nn.MLP(8, 6, key=1), mlp)
    check(nn.SwiGLU(8, 6, key=1), swiglu)


def test_the_emulator_gives_the_same(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "emulator:sm_90a")
    check(nn.Linear(8, 3, key=0), linear)


def turned(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def attention(p, x, name="", heads=4, groups=4, causal=False, positions=None):
    def part(which, count):
        return linear(p, x, f"{name}{which}.").unflatten(-1, (count, -1)).transpose(-2, -3)

    q, k, v = part("query", heads), part("key", groups), part("value", groups)
    if positions == "rotary":
        q, k = turned(q), turned(k)
    places, mask = torch.arange(x.shape[-2]), None
    if positions == "alibi":
        slopes = 2.0 ** (-8 * (torch.arange(heads) + 1) / heads)
        mask = -slopes[:, None, None] * (places[:, None] - places).abs()
        mask = mask.masked_fill(places[:, None] < places, -math.inf) if causal else mask
    seen = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal and mask is None, enable_gqa=True)
    return linear(p, seen.transpose(-2, -3).flatten(-2), f"{name}out.")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 2, "causal": True, "positions": "rotary"},
        {"groups": 1, "causal": True, "positions": "alibi"},
    ],
    ids=str,
)
def test_attention(options, target):
    layer = nn.MultiHeadAttention(8, 4, key=2, bias=True, **options)
    check(layer, lambda p, x: attention(p, x, **options))


def test_attention_of_a_mask():
    layer, mask = nn.MultiHeadAttention(8, 2, key=2), np.tri(5, dtype=bool)
    masked = ts.function(lambda layer, x, mask: layer(x, mask))(layer, X, mask)
    causal = nn.MultiHeadAttention(8, 2, key=2, causal=True)
    np.testing.assert_allclose(masked, derived(causal, X)[0][1], rtol=1e-5, atol=1e-6)


def test_a_block_of_a_transformer(target):
    def wanted(p, x):
        x = x + attention(p, F.layer_norm(x, (8,), p["before_attention.weight"], p["before_attention.bias"]),
                          "attention.", causal=True)  # fmt: skip
        return x + mlp(p, F.layer_norm(x, (8,), p["before_feed.weight"], p["before_feed.bias"]), "feed.")

    check(nn.TransformerBlock(8, 4, key=3, hidden=12), wanted)


def test_a_block_with_swiglu():
    def wanted(p, x):
        normed = F.rms_norm(x, (8,), p["before_attention.weight"], 1e-6)
        x = x + attention(p, normed, "attention.", groups=2, causal=True, positions="rotary")
        return x + swiglu(p, F.rms_norm(x, (8,), p["before_feed.weight"], 1e-6), "feed.")

    block = nn.TransformerBlock(8, 4, key=3, groups=2, positions="rotary", feed_forward="swiglu")
    assert block.feed.up.weight.shape == (8, 24)
    check(block, wanted)


def test_lstm(target):
    def wanted(p, x):
        layer = torch.nn.LSTM(8, 3, batch_first=True)
        named = {"weight_ih_l0": p["input"].T, "weight_hh_l0": p["state"].T, "bias_ih_l0": p["bias"]}
        return torch.func.functional_call(layer, {**named, "bias_hh_l0": torch.zeros(12)}, x)[0]

    check(nn.LSTM(8, 3, key=4), wanted)


def test_gru(target):
    def wanted(p, x):
        layer = torch.nn.GRU(8, 3, batch_first=True)
        named = {"weight_ih_l0": p["input"].T, "weight_hh_l0": p["state"].T, "bias_ih_l0": p["bias"]}
        return torch.func.functional_call(layer, {**named, "bias_hh_l0": p["state_bias"]}, x)[0]

    check(nn.GRU(8, 3, key=4), wanted)


@ts.function
def tied(table, rows, y):
    return ts.value_and_grad(lambda table: ts.mean(ts.square(table.transposed(table(rows)) - y)))(table)


def test_embedding(target):
    table, rows = randomised(nn.Embedding(6, 3, key=0)), np.array([[1, 5], [1, 0]])
    y = rng.standard_normal((2, 2, 6)).astype(np.float32)
    weight = torch.tensor(table.weight, requires_grad=True)
    expected = (F.embedding(torch.tensor(rows), weight) @ weight.T - torch.tensor(y)).square().mean()
    expected.backward()
    found, gradient = tied(table, rows, y)
    np.testing.assert_allclose(found, expected.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient.weight, weight.grad.numpy(), rtol=1e-4, atol=1e-6)


@ts.function
def called(layer, x, key: ts.Int):
    return layer(x, key)


def test_dropout_is_a_function_of_its_key(target):
    layer, x = nn.Dropout(0.25), np.ones((40, 50), np.float32)
    first, again, other = called(layer, x, 1), called(layer, x, 1), called(layer, x, 2)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)} and abs(first.mean() - 1) < 0.1
    assert nn.Dropout(0.25)(x) is x


def test_layers_of_a_stack_drop_each_their_own():
    class Add(nn.Module):
        drop: nn.Dropout
        weight: object

        def __call__(self, x, key=None):
            return x + self.drop(self.weight, key)

    stack = nn.Stack(lambda key: Add(nn.Dropout(0.5), np.ones(200, np.float32)), 2, key=0)
    found = called(stack, np.zeros(200, np.float32), 3)
    assert set(found.tolist()) == {0.0, 2.0, 4.0}  # with one key for both, no element were 2


def test_losses():
    x, y = rng.standard_normal((2, 30)).astype(np.float32) * 40
    labels = (y > 0).astype(np.float32)
    expected = F.binary_cross_entropy_with_logits(torch.tensor(x), torch.tensor(labels))
    bce, huber = ts.function(nn.binary_cross_entropy), ts.function(nn.huber)
    np.testing.assert_allclose(bce(x, labels), expected, rtol=1e-5)
    expected = F.huber_loss(torch.tensor(x), torch.tensor(y), delta=3.0)
    np.testing.assert_allclose(huber(x, y, 3.0), expected, rtol=1e-5)


def test_what_does_not_fit_is_said():
    for wrong in (
        lambda: nn.MultiHeadAttention(8, 3, key=0),
        lambda: nn.MultiHeadAttention(8, 4, groups=3, key=0),
        lambda: nn.MultiHeadAttention(12, 4, key=0, positions="rotary"),
        lambda: nn.MultiHeadAttention(12, 3, key=0, positions="alibi"),
        lambda: nn.MultiHeadAttention(12, 3, key=0, positions="learned"),
        lambda: nn.GroupNorm(3, 8),
        lambda: nn.TransformerBlock(8, 2, key=0, feed_forward="relu"),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ts.CompileError, match="TS20"):
        derived(nn.Linear(7, 2, key=0), X)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "groups": 2}, {"padding": "same", "dilation": 2}])
def test_convolutions(options, target):
    x = rng.standard_normal((2, 4, 6, 5)).astype(np.float32)
    layer = nn.Conv2d(4, 6, 3, key=0, **options)
    check(layer, lambda p, x: F.conv2d(x, p["weight"], p["bias"], **options), x)


def test_convolutions_of_other_ranks():
    check(nn.Conv1d(5, 2, 2, key=0, bias=False), lambda p, x: F.conv1d(x, p["weight"]))
    x = rng.standard_normal((1, 2, 3, 4, 3)).astype(np.float32)
    check(nn.Conv3d(2, 3, 2, key=0), lambda p, x: F.conv3d(x, p["weight"], p["bias"]), x)
    x = rng.standard_normal((2, 4, 3, 3)).astype(np.float32)
    options = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}
    layer = nn.ConvTranspose2d(4, 6, 3, key=0, **options)
    check(layer, lambda p, x: F.conv_transpose2d(x, p["weight"], p["bias"], **options), x)
