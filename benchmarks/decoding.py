"""A small GPT that writes one token after the other with a cache of keys and values, beside PyTorch with its own.

A call writes 32 tokens, each the likeliest behind those before it, from a cache that holds `held` tokens and has room
for `room`. PyTorch's caches are tensors of that room too: a token is stored to its place, and attention takes a view
of the tokens so far. Its programs are run eagerly, and compiled with the number of tokens as a dynamic size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.gpt import Sizes
from tessera import KVCache, Tensor, nn

COUNT = 32


@dataclass(frozen=True)
class Decoding:
    sizes: Sizes
    room: int
    held: int


NANO = Decoding(Sizes(layers=4, heads=4, width=128, words=65, length=1024, count=1), room=1024, held=128)
GPT2_BLOCK = Decoding(Sizes(layers=1, heads=12, width=768, words=65, length=1024, count=1), room=1024, held=512)


class Writer(nn.Module):
    table: nn.Embedding
    places: Tensor["most", "D"]
    blocks: nn.Stack
    norm: nn.LayerNorm

    def __call__(self, text: Tensor["B", "S", ts.int64], caches):
        at = caches[0].length + ts.arange(text.shape[1])
        x = self.table(text) + ts.take(self.places, at, axis=0)
        return self.table.transposed(self.norm(self.blocks(x, caches=caches)))


@ts.function
def following(model: Writer, text: Tensor["B", "S", ts.int64], caches: list[KVCache]):
    """The likeliest token behind each."""
    return ts.argmax(model(text, caches), axis=-1)


def made(sizes: Sizes) -> Writer:
    block = functools.partial(nn.TransformerBlock, sizes.width, sizes.heads)
    places = nn.init.normal((sizes.length, sizes.width), 1, 0.02)
    table = nn.Embedding(sizes.words, sizes.width, key=0)
    return Writer(table, places, nn.Stack(block, sizes.layers, key=2), nn.LayerNorm(sizes.width))


def prompt(given: Decoding) -> np.ndarray:
    return np.random.default_rng(0).integers(0, given.sizes.words, (1, given.held + 1))


def ours(given: Decoding) -> Callable[[], np.ndarray]:
    """A function that writes the tokens and gives them."""
    sizes, text = given.sizes, prompt(given)
    model, width = made(sizes), sizes.width // sizes.heads
    caches = [KVCache(1, sizes.heads, given.room, width, dtype=ts.f32) for _ in range(sizes.layers)]
    following(model, text[:, :-1], caches)
    lengths = [cache.length.numpy() for cache in caches]

    def write() -> np.ndarray:
        for length in lengths:
            length[...] = given.held
        token, found = text[:, -1:], []
        for _ in range(COUNT):
            token = following(model, token, caches)
            found.append(token)
        return np.concatenate(found, 1)

    return write


def by_torch(given: Decoding, compiled: bool) -> Callable[[], np.ndarray]:
    import torch

    F, sizes = torch.nn.functional, given.sizes
    p = {n: torch.tensor(np.array(w)) for n, w in made(sizes).named_parameters().items()}
    shape = (1, sizes.heads, given.room, sizes.width // sizes.heads)
    caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(sizes.layers)]
    text = torch.tensor(prompt(given))

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (sizes.width,), p[f"{name}.weight"], p[f"{name}.bias"])

    def next_of(text: Any, held: int) -> Any:
        count = text.shape[1]
        x = p["table.weight"][text] + p["places"][held : held + count]
        for i, (keys, values) in enumerate(caches):
            name = f"blocks.layers.{i}"
            inner = norm(x, f"{name}.before_attention")
            q, k, v = (
                (inner @ p[f"{name}.attention.{w}.weight"]).unflatten(-1, (sizes.heads, -1)).transpose(1, 2)
                for w in ("query", "key", "value")
            )
            keys[:, :, held : held + count] = k
            values[:, :, held : held + count] = v
            seen = F.scaled_dot_product_attention(
                q, keys[:, :, : held + count], values[:, :, : held + count], is_causal=count > 1
            )
            x = x + seen.transpose(1, 2).flatten(-2) @ p[f"{name}.attention.out.weight"]
            inner = norm(x, f"{name}.before_feed") @ p[f"{name}.feed.up.weight"] + p[f"{name}.feed.up.bias"]
            x = x + F.gelu(inner) @ p[f"{name}.feed.down.weight"] + p[f"{name}.feed.down.bias"]
        return (norm(x, "norm") @ p["table.weight"].T).argmax(-1)

    with torch.inference_mode():
        next_of(text[:, :-1], 0)
    run = torch.compile(next_of) if compiled else next_of

    def write() -> np.ndarray:
        with torch.inference_mode():
            token, found = text[:, -1:], []
            for i in range(COUNT):
                token = run(token, given.held + i)
                found.append(token)
            return torch.cat(found, 1).numpy()

    return write
