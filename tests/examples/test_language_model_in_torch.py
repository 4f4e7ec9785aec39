"""The language model of examples/ beside the same in PyTorch: equal losses for 100 steps from equal weights."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tests.conftest import require
from tests.examples.test_training_examples import TEXT, example

torch = require("torch")
F = torch.nn.functional
WIDTH, HEADS, LAYERS = 16, 2, 2


def turned(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def loss_in_torch(p, text):
    def norm(x, name):
        return F.rms_norm(x, (WIDTH,), p[f"{name}.weight"], 1e-6)

    x = p["table.weight"][text[:, :-1]]
    for i in range(LAYERS):
        block = f"blocks.layers.{i}"
        n = norm(x, f"{block}.before_attention")
        parts = (n @ p[f"{block}.attention.{w}.weight"] for w in ("query", "key", "value"))
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + seen.transpose(1, 2).flatten(-2) @ p[f"{block}.attention.out.weight"]
        n = norm(x, f"{block}.before_feed")
        inner = F.silu(n @ p[f"{block}.feed.gate.weight"]) * (n @ p[f"{block}.feed.up.weight"])
        x = x + inner @ p[f"{block}.feed.down.weight"]
    return F.cross_entropy((norm(x, "norm") @ p["table.weight"].T).flatten(0, 1), text[:, 1:].flatten())


def test_losses_are_equal_for_100_steps():
    gpt = example("language_model")
    model = gpt.make(WIDTH, HEADS, LAYERS, key=0)
    opt = ts.optimizers.AdamW(3e-3, weight_decay=0.1, clip=1.0)
    state = opt.init(model)
    weights = {n: torch.tensor(p.numpy().copy(), requires_grad=True) for n, p in model.named_parameters().items()}
    theirs = torch.optim.AdamW(weights.values(), 3e-3, weight_decay=0.1)
    for i in range(100):
        text = gpt.batch(TEXT, 4, 12, seed=i)
        loss, gradient = gpt.step(model, text)
        model, state = opt.update(model, gradient, state)
        theirs.zero_grad()
        expected = loss_in_torch(weights, torch.tensor(text, dtype=torch.int64))
        expected.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        theirs.step()
        assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
        assert i % 20 or state.report.grad_norm == pytest.approx(norm.item(), rel=1e-4)
    assert float(loss) < 4 and np.isfinite(float(loss))
