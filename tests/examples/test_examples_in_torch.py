"""The programs of examples/ beside the same in PyTorch: equal losses for 100 steps from equal weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.nn import tree
from tests.conftest import require
from tests.examples.test_training_examples import TEXT, example

torch = require("torch")
F = torch.nn.functional


def compare(step: Callable, model: Any, batches: Iterator[tuple], wanted: Callable, lr: float, rel: float) -> None:
    """100 steps of AdamW. `step` gives (loss, gradient), `wanted(weights, *batch)` the loss in PyTorch."""
    opt = ts.optimizers.AdamW(lr, weight_decay=0.1, clip=1.0)
    state = opt.init(model)
    weights = {n: torch.tensor(np.array(p), requires_grad=True) for n, p in tree.parameters(model).items()}
    theirs = torch.optim.AdamW(weights.values(), lr, weight_decay=0.1)
    losses = []
    for i, batch in zip(range(100), batches, strict=False):
        loss, gradient = step(model, *batch)
        model, state = opt.update(model, gradient, state)
        theirs.zero_grad()
        expected = wanted(weights, *map(torch.tensor, batch))
        expected.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        theirs.step()
        losses.append(float(loss))
        assert losses[-1] == pytest.approx(expected.item(), rel=rel), f"step {i}"
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def linear(p, x, name):
    y = x @ p[f"{name}.weight"]
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def normed(p, x, name):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"])


def turned(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def attended(p, x, name, causal=False, rotary=False):
    """x with what two heads of attention add."""
    inner = normed(p, x, f"{name}.before_attention")
    q, k, v = (linear(p, inner, f"{name}.attention.{w}").unflatten(-1, (2, -1)).transpose(1, 2)
               for w in ("query", "key", "value"))  # fmt: skip
    q, k = (turned(q), turned(k)) if rotary else (q, k)
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return x + linear(p, seen.transpose(1, 2).flatten(-2), f"{name}.attention.out")


def fed(p, x, name):
    inner = F.gelu(linear(p, normed(p, x, f"{name}.before_feed"), f"{name}.feed.up"))
    return x + linear(p, inner, f"{name}.feed.down")


def images(count: int = 8) -> Iterator[tuple]:
    drawn, labels = example("digits").drawn(100 * count, seed=0)
    yield from zip(np.split(drawn, 100), np.split(labels, 100), strict=True)


def texts(length: int, count: int = 4) -> Iterator[tuple]:
    batch = example("language_model").batch
    yield from ((batch(TEXT, count, length, seed=i),) for i in range(100))


def cross_entropy(logits, text):
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten().long())


def test_digits():
    digits = example("digits")

    def wanted(p, x, labels):
        h = F.max_pool2d(F.relu(F.conv2d(x, p["first.weight"], p["first.bias"], padding=1)), 2)
        h = F.relu(F.conv2d(h, p["second.weight"], p["second.bias"], padding=1))
        return F.cross_entropy(linear(p, normed(p, h.flatten(1), "norm"), "out"), labels)

    compare(digits.step, digits.make(4), images(), wanted, 3e-3, 1e-4)


def test_vision_transformer():
    vit = example("vit")

    def wanted(p, x, labels, _):
        h = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2).flatten(1, 3)
        h = linear(p, h, "patch") + p["places"]
        h = fed(p, attended(p, h, "blocks.layers.0"), "blocks.layers.0")
        return F.cross_entropy(linear(p, normed(p, h, "norm").mean(1), "out"), labels, label_smoothing=0.1)

    batches = ((*batch, i) for i, batch in enumerate(images()))
    compare(vit.step, vit.make(16, 2, 1, dropout=0.0), batches, wanted, 3e-3, 1e-4)


def test_lstm():
    lstm = example("lstm")
    layer = torch.nn.LSTM(8, 12, batch_first=True)

    def wanted(p, text):
        x = p["table.weight"][text[:, :-1].int()]
        named = {"weight_ih_l0": p["memory.input"].T, "weight_hh_l0": p["memory.state"].T}
        named |= {"bias_ih_l0": p["memory.bias"], "bias_hh_l0": torch.zeros(48)}
        return cross_entropy(linear(p, torch.func.functional_call(layer, named, x)[0], "out"), text)

    compare(lstm.step, lstm.make(8, 12), texts(10), wanted, 1e-2, 1e-4)


def test_mixture():
    mixture = example("mixture")

    def step(model, text):
        (loss, _), gradient = mixture.step(model, text)
        return loss, gradient

    def experts(p, x, name):
        tokens, count = normed(p, x, f"{name}.before_feed").flatten(0, 1), 3
        probabilities = F.softmax(tokens @ p[f"{name}.feed.router.gate.weight"], -1)
        best, chosen = probabilities.max(-1)
        room, y = -(-len(tokens) * 125 // (100 * count)), torch.zeros_like(tokens)
        for e in range(count):
            own = (chosen == e).nonzero()[:room, 0]
            found = F.gelu(tokens[own] @ p[f"{name}.feed.up"][e]) @ p[f"{name}.feed.down"][e]
            y = y.index_add(0, own, found * best[own, None])
        share = torch.bincount(chosen, minlength=count) / len(tokens)
        return x + y.view(x.shape), count * (share * probabilities.mean(0)).sum()

    def wanted(p, text):
        x = p["table.weight"][text[:, :-1].int()]
        x = fed(p, attended(p, x, "body.blocks.0", causal=True, rotary=True), "body.blocks.0")
        x, balance = experts(p, attended(p, x, "body.blocks.1", causal=True, rotary=True), "body.blocks.1")
        return cross_entropy(normed(p, x, "norm") @ p["table.weight"].T, text) + mixture.BALANCE * balance

    compare(step, mixture.make(8, 2, 2, 3), texts(12), wanted, 5e-3, 1e-4)


def test_heat():
    heat = example("heat")
    rng = np.random.default_rng(0)

    def wanted(p, x, t):
        x, t = x.requires_grad_(), t.requires_grad_()
        h = torch.stack([2 * x - 1, 2 * t - 1], -1)
        h = torch.tanh(linear(p, torch.tanh(linear(p, h, "layers.layers.0")), "layers.layers.2"))
        u = torch.sin(torch.pi * x) + t * x * (1 - x) * linear(p, h, "layers.layers.4")[:, 0]
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        return (u_t - heat.CONDUCTIVITY * u_xx).square().mean()

    batches = (tuple(rng.random((2, 32), dtype=np.float32)) for _ in range(100))
    compare(heat.step, heat.make(8), batches, wanted, 5e-3, 1e-3)


def test_maml():
    maml = example("maml")
    rng = np.random.default_rng(0)

    def error(own, x, y):
        h = torch.relu(torch.relu(x @ own[0] + own[1]) @ own[2] + own[3])
        return (h @ own[4] + own[5] - y).square().mean()

    def wanted(p, *batch):
        losses = []
        for x, y, more_x, more_y in zip(*batch, strict=True):  # one task after the other
            own = list(p.values())
            gradient = torch.autograd.grad(error(own, x, y), own, create_graph=True)
            losses.append(error([a - maml.RATE * g for a, g in zip(own, gradient, strict=True)], more_x, more_y))
        return torch.stack(losses).mean()

    batches = (tuple(maml.tasks(4, 5, rng)) for _ in range(100))
    compare(maml.step, maml.make(8), batches, wanted, 3e-3, 1e-3)


def test_diffusion():
    diffusion = example("diffusion")
    rng = np.random.default_rng(0)

    def wanted(p, x, left, key):
        which = ts.random_bits(int(key), (2,))
        t = torch.tensor(np.array(ts.randint(which[0], x.shape[:1], 0, diffusion.STEPS)))
        noise = torch.tensor(np.array(ts.normal(which[1], tuple(x.shape))))
        kept = left[t][:, None]
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        h = linear(p, noisy, "inner") + p["time.weight"][t]
        h = h + linear(p, F.silu(linear(p, h, "hidden.0.up")), "hidden.0.down")
        return (linear(p, h, "out") - noise).square().mean()

    batches = ((diffusion.moons(32, rng), diffusion.LEFT, i) for i in range(100))
    compare(diffusion.step, diffusion.make(12, 1), batches, wanted, 1e-2, 1e-4)


def test_lora():
    lora = example("lora")
    model = lora.make(16, 2, 1, key=0)
    base = {n: torch.tensor(np.array(p)) for n, p in model.named_parameters().items()}

    def wanted(p, text):
        x = base["table.weight"][text[:, :-1].int()]
        name = "blocks.layers.0"
        inner = F.rms_norm(x, (16,), base[f"{name}.before_attention.weight"], 1e-6)
        parts = {w: linear(base, inner, f"{name}.attention.{w}") for w in ("query", "key", "value")}
        for w in ("query", "value"):
            parts[w] = parts[w] + inner @ p[f"0.{w}.down"] @ p[f"0.{w}.up"]
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts.values())
        seen = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + linear(base, seen.transpose(1, 2).flatten(-2), f"{name}.attention.out")
        inner = F.rms_norm(x, (16,), base[f"{name}.before_feed.weight"], 1e-6)
        inner = F.silu(linear(base, inner, f"{name}.feed.gate")) * linear(base, inner, f"{name}.feed.up")
        x = x + linear(base, inner, f"{name}.feed.down")
        return cross_entropy(F.rms_norm(x, (16,), base["norm.weight"], 1e-6) @ base["table.weight"].T, text)

    def step(narrow, text):
        return lora.step(narrow, model, text)

    compare(step, lora.adapters(model, 4, key=1), texts(12), wanted, 3e-2, 1e-5)
