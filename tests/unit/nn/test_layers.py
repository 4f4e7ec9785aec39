"""Layers against PyTorch: values, and gradients by every parameter, from equal weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

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
    for wrong in (x[:, :3], x.transpose(0, 2, 3, 1)):  # as many elements as 6 channels could have
        with pytest.raises(ts.CompileError, match=r"group_norm of \d channels needs as many"):
            nn.GroupNorm(3, 6)(wrong)


def mlp(p, x, name=""):
    return linear(p, F.gelu(linear(p, x, f"{name}up.")), f"{name}down.")


def swiglu(p, x, name=""):
    return linear(p, F.silu(linear(p, x, f"{name}gate.")) * linear(p, x, f"{name}up."), f"{name}down.")


def test_feed_forward(target):
    check(nn.MLP(8, 6, key=1), mlp)
    check(nn.MLP(8, 6, 3, key=1), mlp)
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


def test_attention_in_a_window():
    places = torch.arange(5)
    apart = places[:, None] - places
    mask = (apart >= 0) & (apart < 2)

    def wanted(p, x):
        q, k, v = (linear(p, x, f"{n}.").unflatten(-1, (2, -1)).transpose(-2, -3) for n in ("query", "key", "value"))
        seen = F.scaled_dot_product_attention(q, k, v, mask)
        return linear(p, seen.transpose(-2, -3).flatten(-2), "out.")

    check(nn.SlidingWindowAttention(8, 2, 2, key=2), wanted)
    with pytest.raises(ValueError, match="at least 1"):
        nn.SlidingWindowAttention(8, 2, 0, key=2)


def test_attention_without_parameters():
    layer = nn.FlashAttention2(causal=True, softcap=2.0)
    q, k, v = (rng.standard_normal((2, h, 5, 4)).astype(np.float32) for h in (4, 2, 2))
    assert layer.count == 0
    f = ts.function(lambda layer, q, k, v: layer(q, k, v))
    np.testing.assert_allclose(f(layer, q, k, v), ts.attention(q, k, v, causal=True, softcap=2.0), rtol=1e-6)
    assert (np.asarray(layer(q, k, v, lengths=np.zeros(2, np.int64))) == 0).all()


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


@pytest.mark.parametrize("layer", [nn.LSTM(8, 3, key=4), nn.GRU(8, 3, key=4)], ids=["lstm", "gru"])
def test_a_recurrence_in_two_parts(layer):
    """As in one; and a gradient goes through the state that is handed on."""

    @ts.function
    def parts(layer, x: Tensor["B", "T", "D"]):
        def loss(layer):
            first, state = layer(x[:, :2], layer.initial(x))
            second, last = layer(x[:, 2:], state)
            return ts.sum(ts.sin(second)), (ts.concat([first, second], axis=1), last)

        return ts.value_and_grad(loss, has_aux=True)(layer)

    x = np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32)
    (_, (found, last)), by_parts = parts(layer, x)
    np.testing.assert_allclose(found, layer(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(last[0] if isinstance(layer, nn.LSTM) else last), np.asarray(found)[:, -1])
    whole = ts.grad(lambda layer, x: ts.sum(ts.sin(layer(x)[:, 2:])))(layer, x)
    for name, wanted in whole.named_parameters().items():
        np.testing.assert_allclose(by_parts.named_parameters()[name], wanted, rtol=1e-4, atol=1e-5)


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
def called(layer, x, key: ts.int64):
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
    for layer in (nn.LSTM(8, 4, key=0), nn.GRU(8, 4, key=0)):
        with pytest.raises(ts.LaunchError, match=r"takes sequences \[batch, time, features\], not \[16, 8\]") as e:
            layer(np.ones((16, 8), np.float32))  # 16 steps, which are as many as the gates have features
        assert e.value.diagnostics[0].span.file == __file__


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


def test_transposed_convolutions_of_other_ranks():
    options = {"stride": 2, "padding": 1, "output_padding": 1, "dilation": 2}
    layer = nn.ConvTranspose1d(5, 4, 3, key=0, **options)
    check(layer, lambda p, x: F.conv_transpose1d(x, p["weight"], p["bias"], **options), X)
    x = rng.standard_normal((1, 2, 2, 3, 2)).astype(np.float32)
    layer = nn.ConvTranspose3d(2, 4, 2, key=0, stride=2, groups=2, bias=False)
    check(layer, lambda p, x: F.conv_transpose3d(x, p["weight"], stride=2, groups=2), x)


@ts.function
def forward(layer, x):
    return layer(x)


@pytest.mark.parametrize(
    "layer, wanted, shape",
    [
        (nn.MaxPool1d(2), lambda x: F.max_pool1d(x, 2), (2, 3, 7)),
        (nn.MaxPool2d(3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 6, 7)),
        (nn.MaxPool3d(2), lambda x: F.max_pool3d(x, 2), (1, 2, 4, 4, 4)),
        (nn.AvgPool1d(3), lambda x: F.avg_pool1d(x, 3), (2, 3, 7)),
        (nn.AvgPool2d(2, padding=1), lambda x: F.avg_pool2d(x, 2, padding=1), (2, 3, 6, 7)),
        (nn.AvgPool3d(2, 1), lambda x: F.avg_pool3d(x, 2, 1), (1, 2, 4, 4, 4)),
    ],
    ids=["max1", "max2", "max3", "avg1", "avg2", "avg3"],
)
def test_pools(layer, wanted, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(forward(layer, x), wanted(torch.tensor(x)), rtol=1e-6, atol=1e-6)


def test_layers_and_functions_one_after_the_other(target):
    layers = nn.Sequential(nn.Linear(8, 5, key=0), ts.relu, nn.Linear(5, 2, key=1))
    check(layers, lambda p, x: linear(p, F.relu(linear(p, x, "layers.0.")), "layers.2."))


@pytest.mark.parametrize("row", [nn.Sequential, lambda *layers: nn.Stack(lambda key: layers[key % 3], 3, key=0)])
def test_layers_of_a_row_are_reached_by_number(row):
    made = [nn.Linear(4, 4, key=k) for k in range(3)]
    model, x = row(*made), rng.standard_normal((2, 4)).astype(np.float32)

    @ts.function
    def parts(model, x):
        y = model[0](x)
        for layer in model[1:]:
            y = layer(y)
        for layer in model:
            x = layer(x)
        return x, y, model[-1](x), len(model)

    whole, again, further, count = parts(model, x)
    assert np.array_equal(whole, model(x)) and np.array_equal(again, whole) and count == len(model) == 3
    assert np.array_equal(further, model[2](whole)) and [*model] == model.layers


def test_a_part_of_a_sequential_is_one():
    model, x = nn.Sequential(nn.Linear(4, 8, key=0), ts.relu, nn.Linear(8, 2, key=1)), np.ones((3, 4), np.float32)
    head = model[:-1]
    assert isinstance(head, nn.Sequential) and np.array_equal(model[-1](head(x)), model(x))
    assert np.array_equal(ts.function(lambda model, x: model[2](model[:2](x)))(model, x), model(x))
    with pytest.raises(IndexError):
        model[3]
    model[2] = nn.Linear(8, 3, key=2)
    assert model(x).shape == (3, 3) and "layers.2.weight" in model.named_parameters()


def across(p, x, memory, name, mask=None):
    q, k, v = (linear(p, h, f"{name}{w}.").unflatten(-1, (4, -1)).transpose(-2, -3)
               for w, h in (("query", x), ("key", memory), ("value", memory)))  # fmt: skip
    seen = F.scaled_dot_product_attention(q, k, v, mask)
    return linear(p, seen.transpose(-2, -3).flatten(-2), f"{name}out.")


def normed(p, x, name):
    return F.layer_norm(x, (8,), p[f"{name}.weight"], p[f"{name}.bias"])


def test_an_encoder_layer_sees_both_directions():
    def wanted(p, x):
        x = x + attention(p, normed(p, x, "before_attention"), "attention.")
        return x + mlp(p, normed(p, x, "before_feed"), "feed.")

    check(nn.EncoderLayer(8, 4, key=3, hidden=12), wanted)


def test_a_decoder_layer(target):
    memory, seen = rng.standard_normal((2, 3, 8)).astype(np.float32), np.array([True, True, False])
    layer = randomised(nn.DecoderLayer(8, 4, key=3, hidden=12))
    p = {n: torch.tensor(np.asarray(a)) for n, a in layer.named_parameters().items()}
    x = torch.tensor(X)
    x = x + attention(p, normed(p, x, "block.before_attention"), "block.attention.", causal=True)
    x = x + across(p, normed(p, x, "before_across"), torch.tensor(memory), "across.", torch.tensor(seen)[None])
    x = x + mlp(p, normed(p, x, "block.before_feed"), "block.feed.")
    run = ts.function(lambda layer, x, memory, mask: layer(x, memory, mask=mask))
    found = run(layer, X, memory, np.broadcast_to(seen, (5, 3)))
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)


@ts.function
def normalised(norm, x):
    def loss(norm, x):
        y, moved = norm(x, training=True)
        return ts.mean(ts.sin(y)), (y, moved)

    return ts.value_and_grad(loss, argnums=(0, 1), has_aux=True)(norm, x)


@pytest.mark.parametrize(
    "ours, theirs, shape",
    [
        (nn.BatchNorm1d, torch.nn.BatchNorm1d, (5, 3)),
        (nn.BatchNorm1d, torch.nn.BatchNorm1d, (5, 3, 4)),
        (nn.BatchNorm2d, torch.nn.BatchNorm2d, (2, 3, 4, 2)),
        (nn.BatchNorm3d, torch.nn.BatchNorm3d, (2, 3, 2, 2, 2)),
    ],
    ids=str,
)
def test_batch_normalisation(ours, theirs, shape):
    norm, peer = ours(3, momentum=0.3), theirs(3, momentum=0.3)
    norm.weight, norm.bias = rng.standard_normal((2, 3)).astype(np.float32)
    peer.load_state_dict({"weight": torch.tensor(norm.weight), "bias": torch.tensor(norm.bias)}, strict=False)
    assert list(norm.named_parameters()) == ["weight", "bias"]
    for _ in range(2):
        x = (rng.standard_normal(shape) * 3 + 1).astype(np.float32)
        given = torch.tensor(x, requires_grad=True)
        expected = peer(given)
        peer.zero_grad()
        torch.sin(expected).mean().backward()
        (_, (y, moved)), (gradient, by_x) = normalised(norm, x)
        np.testing.assert_allclose(y, expected.detach(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(by_x, given.grad, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(gradient.weight, peer.weight.grad, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(moved.mean, peer.running_mean, rtol=1e-5, atol=1e-6)  # means may be near 0
        np.testing.assert_allclose(moved.var, peer.running_var, rtol=1e-5)
        assert moved.eps == norm.eps and np.array_equal(moved.weight, norm.weight)
        norm = moved
    peer.eval()
    np.testing.assert_allclose(norm(x), peer(torch.tensor(x)).detach(), rtol=1e-4, atol=1e-5)


def test_batch_normalisation_of_one_value_is_refused():
    with pytest.raises(ts.TesseraError, match="two values in each channel"):
        normalised(nn.BatchNorm1d(3), np.ones((1, 3), np.float32))
    with pytest.raises(ts.CompileError, match="TS20"):
        normalised(nn.BatchNorm2d(3), np.ones((4, 3), np.float32))


def test_names_of_other_libraries():
    assert nn.FusedAdamW is ts.optimizers.AdamW and nn.FusedSGD is ts.optimizers.SGD
    assert nn.cross_entropy_safe is ts.cross_entropy
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(nn.RoPE()(x), nn.rope(x))
    np.testing.assert_array_equal(nn.ALiBi()(x, x), nn.alibi(x, x))


def test_what_does_not_fit_inside_of_a_layer_is_said_at_the_users_call():
    model = nn.Sequential(nn.Linear(4, 8, key=0), ts.relu, nn.Linear(8, 3, key=1))

    def loss(model, x):
        return ts.sum(model(x))

    with pytest.raises(ts.CompileError, match="TS208") as raised:
        ts.grad(loss)(model, np.ones((2, 3), np.float32))
    (found,) = raised.value.diagnostics
    assert (found.span.file, found.function) == (__file__, "loss") and "found in __call__" in str(raised.value)
    text = Path(__file__).read_text("utf-8").splitlines()[found.span.line - 1]
    assert text[found.span.col - 1 : found.span.end_col - 1] == "model(x)"


def test_a_stack_passes_named_arguments_to_each_layer() -> None:
    """The memory of decoder layers, masks of encoder layers, and a key of its own for each layer."""
    decoder = nn.Stack(lambda key: nn.DecoderLayer(8, 2, key=key, dropout=0.5), 2, key=0)
    x, memory = (rng.standard_normal((2, n, 8)).astype(np.float32) for n in (5, 7))

    @ts.function
    def decoded(stack: nn.Stack, x, memory):
        return stack(x, memory=memory)

    @ts.function
    def dropped(stack: nn.Stack, x, memory, key: ts.int64):
        return stack(x, key, memory=memory)

    expected = decoder[1](decoder[0](x, memory), memory)
    assert np.array_equal(decoded(decoder, x, memory), expected)
    keys = np.asarray(ts.random_bits(3, (2,)))
    by_hand = decoder[1](decoder[0](x, memory, key=keys[0]), memory, key=keys[1])
    assert np.array_equal(dropped(decoder, x, memory, 3), by_hand) and not np.array_equal(by_hand, expected)
    for call in (ts.function(lambda stack, x, memory: stack(x, memory)), lambda stack, x, memory: stack(x, memory)):
        with pytest.raises(ts.TesseraError, match=r"TS105(.|\n)*stack\(x, memory=memory\)"):
            call(decoder, x, memory)
    with pytest.raises(ValueError, match="zip"):
        decoder(x, memory=memory, caches=[])


def test_a_mask_goes_to_a_block_by_name() -> None:
    """In PyTorch's layers it is the second argument, where a key stands here."""
    x, memory = (rng.standard_normal((2, n, 8)).astype(np.float32) for n in (5, 7))
    encoder, decoder = nn.EncoderLayer(8, 2, key=0), nn.DecoderLayer(8, 2, key=1)
    seen = np.arange(5) < 3
    for call in (lambda f, *args: f(*args), ts.function(lambda f, *args: f(*args))):
        with pytest.raises(ts.TesseraError, match=r"TS105(.|\n)*not 1 axes of bool(.|\n)*block\(x, mask=mask\)"):
            call(encoder, x, ts.asarray(seen))
        with pytest.raises(ts.TesseraError, match=r"TS105(.|\n)*layer\(x, memory, mask=mask\)"):
            call(decoder, x, memory, ts.ones((5, 7), ts.bool))
    short = encoder(x[:, :3])
    assert np.allclose(encoder(x, mask=ts.asarray(seen))[:, :3], short, atol=1e-5)
