"""A byte-level language model: a small transformer, trained on texts that every Python has, in a few minutes on a CPU.

    python examples/language_model.py                  # 600 steps
    python examples/language_model.py --steps 200 --folder run   # keeps its state in run/, and resumes from there

The texts are the documentation strings of the standard library. For comparison it says what a model of pairs of bytes
reaches, counted over the whole training text.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import pkgutil
import sys
import time
from pathlib import Path

import numpy as np

import tessera as ts
from tessera import Tensor, nn

KNOWN = ("argparse", "asyncio", "collections", "dataclasses", "datetime", "decimal", "difflib", "email", "fractions",
         "functools", "inspect", "itertools", "json", "logging", "pathlib", "random", "statistics", "string",
         "subprocess", "tarfile", "threading", "unittest", "urllib", "zipfile")  # fmt: skip


class LanguageModel(nn.Module):
    """Bytes [B, S] to logits [B, S, 256] of the byte after each; the table of bytes is the output layer too."""

    table: nn.Embedding
    blocks: nn.Stack
    norm: nn.RMSNorm

    def __call__(self, text: Tensor["B", "S", ts.uint8], caches=None) -> Tensor["B", "S", 256]:
        """`caches`: one for each block, of the bytes before this text."""
        return self.table.transposed(self.norm(self.blocks(self.table(text.to(ts.int64)), caches=caches)))


def make(width: int, heads: int, layers: int, key: int) -> LanguageModel:
    first, second = nn.init.split(key, 2)
    block = functools.partial(nn.TransformerBlock, width, heads, positions="rotary", feed_forward="swiglu")
    return LanguageModel(nn.Embedding(256, width, key=first), nn.Stack(block, layers, key=second), nn.RMSNorm(width))


def loss_of(model: LanguageModel, text: Tensor["B", "S1", ts.uint8]):
    """The mean of -log p of each byte but the first, in nats."""
    return ts.cross_entropy(model(text[:, :-1]), text[:, 1:].to(ts.int64))


@ts.function
def evaluate(model: LanguageModel, text: Tensor["B", "S1", ts.uint8]):
    return loss_of(model, text)


@ts.function
def step(model: LanguageModel, text: Tensor["B", "S1", ts.uint8]):
    return ts.value_and_grad(loss_of)(model, text)


@ts.function
def following(model: LanguageModel, text: Tensor["B", "S", ts.uint8], caches: list[ts.KVCache]):
    """The logits of the byte after a text that goes on from what the caches hold, and are held by them then."""
    return model(text, caches=caches)[:, -1]


@ts.function(open_dims="S")
def reading(model: LanguageModel, text: Tensor["B", "S", ts.uint8], caches: list[ts.KVCache]):
    """The same for a text of any length, compiled once. One byte at a time is quicker where its length is known."""
    return following(model, text, caches)


def generate(model: LanguageModel, prompt: bytes, count: int, temperature: float = 0.0, seed: int = 0) -> bytes:
    """The prompt with `count` further bytes: the likeliest ones, or drawn where the temperature is above 0. Each byte
    costs what one byte costs: keys and values of those before it are kept."""
    attention = model.blocks.layers[0].attention
    room = -(-(len(prompt) + count) // 256) * 256  # texts of about one length share their code
    width = model.table.weight.shape[1] // attention.heads
    caches = [ts.KVCache(1, attention.groups, room, width, dtype=ts.f32) for _ in model.blocks.layers]
    text, rng = bytearray(prompt), np.random.default_rng(seed)
    logits = reading(model, np.frombuffer(prompt, np.uint8)[None], caches)
    for _ in range(count):
        scores = logits.numpy()[0].astype(np.float64)
        if temperature > 0:
            scores = scores / temperature + rng.gumbel(size=256)
        text.append(int(scores.argmax()))
        logits = following(model, np.array([[text[-1]]], np.uint8), caches)
    return bytes(text)


def corpus() -> np.ndarray:
    """Documentation strings of modules of the standard library, and of what they hold, each once."""
    texts: dict[str, None] = {}
    for name in KNOWN:
        module = __import__(name)
        pages = [
            module,
            *(getattr(module, m.name, None) for m in pkgutil.iter_modules(getattr(module, "__path__", ()))),
        ]
        for page in pages:
            for _, held in [("", page), *inspect.getmembers(page)]:
                texts[inspect.getdoc(held) or ""] = None
                if inspect.isclass(held):
                    texts.update(dict.fromkeys(inspect.getdoc(m) or "" for _, m in inspect.getmembers(held)))
    whole = "\n\n".join(sorted(t for t in texts if len(t) > 80))
    return np.frombuffer(whole.encode(), np.uint8)


def pairs_loss(text: np.ndarray, held_out: np.ndarray) -> float:
    """What a model of pairs of bytes reaches on a text that it has not seen, in nats a byte (counts plus 0.1)."""
    counts = np.full((256, 256), 0.1)
    np.add.at(counts, (text[:-1], text[1:]), 1)
    likely = counts / counts.sum(1, keepdims=True)
    return float(-np.log(likely[held_out[:-1], held_out[1:]]).mean())


def halves(text: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """What is learned from, nine tenths of the text or of `corpus()`, and what is held out."""
    text = corpus() if text is None else text
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


def compared(evaluate, model: nn.Module, text: np.ndarray, held_out: np.ndarray, length: int, say):
    """The loss on held out text, and that of pairs of bytes, which are said."""
    tests = np.concatenate([batch(held_out, 32, length, seed) for seed in range(4)])
    reached, pairs = float(evaluate(model, tests)), pairs_loss(text, held_out)
    say(f"held out text: {reached:.3f} nats a byte; pairs of bytes: {pairs:.3f}")
    return reached, pairs


def batch(text: np.ndarray, count: int, length: int, seed: int) -> np.ndarray:
    starts = np.random.default_rng(seed).integers(0, len(text) - length - 1, count)
    return text[starts[:, None] + np.arange(length + 1)]


def train(
    steps: int = 600, width: int = 96, heads: int = 4, layers: int = 3, length: int = 96, count: int = 16,
    folder: str | None = None, say=print, text: np.ndarray | None = None, until: int | None = None, speak: int = 200,
) -> tuple[float, float]:  # fmt: skip
    """The loss on held out text after training, and that of pairs of bytes. `until`: a step to stop at before; `speak`:
    how many bytes the model writes at the end."""
    text, held_out = halves(text)
    model = make(width, heads, layers, key=0)
    matrices = ts.optimizers.Group(lambda name, p: len(p.shape) < 2, weight_decay=0.0)
    rate = ts.optimizers.Cosine(0.3 / width, steps, warmup=max(steps // 20, 1))
    opt = ts.optimizers.AdamW(rate, betas=(0.9, 0.98), weight_decay=0.05, clip=1.0, groups=(matrices,))
    state, start = opt.init(model), 0
    if folder and Path(folder, "manifest.json").is_file():
        saved = ts.checkpoint.load(folder, model=model, optimizer=state)
        model, state, start = saved["model"], saved["optimizer"], saved["step"]
    say(f"{len(text):,} bytes of text, {model.count:,} parameters, from step {start}")
    begun = time.perf_counter()
    for i in range(start, until or steps):
        loss, gradient = step(model, batch(text, count, length, seed=i))
        model, state = opt.update(model, gradient, state)
        if (i + 1) % 50 == 0 or i + 1 == (until or steps):
            each = (time.perf_counter() - begun) / (i + 1 - start)
            say(f"step {i + 1}: loss {float(loss):.3f}, {state.report.grad_norm:.2f}, {each * 1e3:.0f} ms a step")
            if folder:
                ts.checkpoint.save(folder, model=model, optimizer=state, step=i + 1)
    reached, pairs = compared(evaluate, model, text, held_out, length, say)
    if speak:
        say(generate(model, b"Return the ", speak, temperature=0.7).decode(errors="replace"))
    return reached, pairs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--folder", help="where training state is kept")
    given = parser.parse_args()
    reached, pairs = train(given.steps, folder=given.folder)
    sys.exit(reached >= pairs)
