"""One step of a small GPT in Tessera, PyTorch and JAX, from equal weights: what `benchmarks.training` times.

Norms first, tied output, no biases in attention, gelu with 4 times the width, AdamW over all parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera import Tensor, nn

RATE, DECAY, EPS, BETAS = 1e-3, 0.01, 1e-8, (0.9, 0.999)


@dataclass(frozen=True)
class Sizes:
    layers: int
    heads: int
    width: int
    words: int
    length: int
    count: int

    def text(self) -> np.ndarray:
        return np.random.default_rng(0).integers(0, self.words, (self.count, self.length + 1))


NANO = Sizes(layers=4, heads=4, width=128, words=65, length=64, count=12)
GPT2 = Sizes(layers=12, heads=12, width=768, words=50257, length=64, count=1)


class Model(nn.Module):
    table: nn.Embedding
    places: Tensor["S", "D"]
    blocks: nn.Stack
    norm: nn.LayerNorm

    def __call__(self, text: Tensor["B", "S", ts.int64]):
        return self.table.transposed(self.norm(self.blocks(self.table(text) + self.places)))


def made(sizes: Sizes) -> Model:
    block = functools.partial(nn.TransformerBlock, sizes.width, sizes.heads)
    places = nn.init.normal((sizes.length, sizes.width), 1, 0.02)
    table = nn.Embedding(sizes.words, sizes.width, key=0)
    return Model(table, places, nn.Stack(block, sizes.layers, key=2), nn.LayerNorm(sizes.width))


@ts.function
def derived(model: Model, text: Tensor["B", "S + 1", ts.int64]):
    return ts.value_and_grad(lambda model: ts.cross_entropy(model(text[:, :-1]), text[:, 1:]))(model)


def ours(sizes: Sizes, train: bool = True) -> Callable[[], float]:
    """A function that takes one step more and gives the loss before it; without `train` the gradient alone."""
    held, text = [made(sizes)], sizes.text()
    opt = ts.optimizers.AdamW(RATE, weight_decay=DECAY)
    held += [opt.init(held[0])] if train else [None]

    def step() -> float:
        loss, gradient = derived(held[0], text)
        if train:
            held[:] = opt.update(held[0], gradient, held[1])
        return float(loss)

    return step


def in_place(sizes: Sizes) -> Callable[[], float]:
    """As `ours`, but gradient and update are one program, which changes the model in place."""
    state = ts.optimizers.TrainingState(made(sizes), ts.optimizers.AdamW(RATE, weight_decay=DECAY))
    text = sizes.text()

    @ts.function
    def stepped(state: ts.optimizers.TrainingState, text: Tensor["B", "S + 1", ts.int64]):
        loss, gradient = derived(state.model, text)
        state.step(gradient)
        return loss

    return lambda: float(stepped(state, text))


def weights(sizes: Sizes) -> dict[str, np.ndarray]:
    return {n: np.array(p) for n, p in made(sizes).named_parameters().items()}


def by_torch(sizes: Sizes, train: bool = True, compiled: bool = True) -> Callable[[], float]:
    import torch

    F = torch.nn.functional
    text = torch.tensor(sizes.text())
    p = {n: torch.tensor(w, requires_grad=True) for n, w in weights(sizes).items()}

    def norm(p: Any, x: Any, name: str) -> Any:
        return F.layer_norm(x, (sizes.width,), p[f"{name}.weight"], p[f"{name}.bias"])

    def loss_of(p: Any, text: Any) -> Any:
        x = p["table.weight"][text[:, :-1]] + p["places"]
        for i in range(sizes.layers):
            name = f"blocks.layers.{i}"
            inner = norm(p, x, f"{name}.before_attention")
            q, k, v = (
                (inner @ p[f"{name}.attention.{w}.weight"]).unflatten(-1, (sizes.heads, -1)).transpose(1, 2)
                for w in ("query", "key", "value")
            )
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
            x = x + seen @ p[f"{name}.attention.out.weight"]
            inner = norm(p, x, f"{name}.before_feed") @ p[f"{name}.feed.up.weight"] + p[f"{name}.feed.up.bias"]
            x = x + F.gelu(inner) @ p[f"{name}.feed.down.weight"] + p[f"{name}.feed.down.bias"]
        logits = norm(p, x, "norm") @ p["table.weight"].T
        return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())

    run = torch.compile(loss_of) if compiled else loss_of
    opt = torch.optim.AdamW(p.values(), RATE, BETAS, EPS, DECAY, fused=True) if train else None

    def step() -> float:
        with torch.enable_grad():
            loss = run(p, text)
            loss.backward()
        if opt is not None:
            opt.step()
        for w in p.values():
            w.grad = None
        return loss.item()

    return step


def by_jax(sizes: Sizes, train: bool = True) -> Callable[[], float]:
    import jax

    jnp = jax.numpy
    text = jnp.asarray(sizes.text())
    p = {n: jnp.asarray(w) for n, w in weights(sizes).items()}
    held: list[Any] = [p, *(jax.tree.map(jnp.zeros_like, p) for _ in range(2 if train else 0)), jnp.zeros(())]

    def norm(p: Any, x: Any, name: str) -> Any:
        apart = x - x.mean(-1, keepdims=True)
        scaled = apart * jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + 1e-5)
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    def loss_of(p: Any, text: Any) -> Any:
        x = p["table.weight"][text[:, :-1]] + p["places"]
        for i in range(sizes.layers):
            name = f"blocks.layers.{i}"
            inner = norm(p, x, f"{name}.before_attention")
            q, k, v = (
                (inner @ p[f"{name}.attention.{w}.weight"]).reshape(*inner.shape[:-1], sizes.heads, -1)
                for w in ("query", "key", "value")
            )
            seen = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
            x = x + seen @ p[f"{name}.attention.out.weight"]
            inner = norm(p, x, f"{name}.before_feed") @ p[f"{name}.feed.up.weight"] + p[f"{name}.feed.up.bias"]
            x = x + jax.nn.gelu(inner, approximate=False) @ p[f"{name}.feed.down.weight"] + p[f"{name}.feed.down.bias"]
        logits = jax.nn.log_softmax(norm(p, x, "norm") @ p["table.weight"].T)
        return -jnp.take_along_axis(logits, text[:, 1:, None], -1).mean()

    derived = jax.jit(jax.value_and_grad(loss_of))

    def whole(p: Any, m: Any, v: Any, t: Any, text: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(p, text)
        return loss, *adamw_in_jax(p, gradient, m, v, t)

    jitted = jax.jit(whole, donate_argnums=(0, 1, 2))

    def step() -> float:
        if not train:
            return float(jax.block_until_ready(derived(held[0], text))[0])
        loss, *held[:] = jitted(*held, text)
        return float(jax.block_until_ready((loss, held))[0])

    return step


def adamw_in_jax(p: Any, gradient: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any, Any]:
    """AdamW over trees, to be compiled into a step."""
    import jax

    t, (a, b) = t + 1, BETAS
    m = jax.tree.map(lambda m, g: a * m + (1 - a) * g, m, gradient)
    v = jax.tree.map(lambda v, g: b * v + (1 - b) * g * g, v, gradient)

    def moved(p: Any, m: Any, v: Any) -> Any:
        change = m / (1 - a**t) / (jax.numpy.sqrt(v / (1 - b**t)) + EPS)
        return p - RATE * (change + DECAY * p)

    return jax.tree.map(moved, p, m, v), m, v, t


STEPS: dict[str, Callable[..., Callable[[], float]]] = {"tessera": ours, "torch": by_torch, "jax": by_jax}
