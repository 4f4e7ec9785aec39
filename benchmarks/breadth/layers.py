"""Layers of models, losses, one step of an optimizer, blocks of transformers."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

import tessera as ts
from benchmarks.breadth.row import BF16, Row, integers, normal, row


@row("group norm 16 x 64 x 56 x 56")
def group_norm(n: int) -> Row:
    def run(x, g, b):
        return ts.group_norm(x, 8, g, b)

    given = normal(16 // n, 64, 56, 56), normal(64), normal(64)
    return Row(run, given, torch=lambda x, g, b: F.group_norm(x, 8, g, b))


@row("batch norm 16 x 64 x 56 x 56")
def batch_norm(n: int) -> Row:
    def run(x, g, b):
        return ts.batch_norm(x, None, None, g, b)

    given = normal(16 // n, 64, 56, 56), normal(64), normal(64)
    return Row(run, given, torch=lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True))


@row("layer norm bf16 2048 x 768")
def layer_norm_bf16(n: int) -> Row:
    def run(x, g, b):
        return ts.layer_norm(x, g, b)

    given = normal(2048 // n, 768, dtype=BF16), normal(768, dtype=BF16), normal(768, dtype=BF16)
    return Row(run, given, torch=lambda x, g, b: F.layer_norm(x, x.shape[1:], g, b), tolerance=2e-2)


@row("layer norm backward 4096 x 768")
def layer_norm_backward(n: int) -> Row:
    def run(x, g, b, ct):
        return ts.grad(lambda x, g, b: ts.sum(ts.layer_norm(x, g, b) * ct), argnums=(0, 1, 2))(x, g, b)

    def eager(x, g, b, ct):
        with torch.enable_grad():
            x, g, b = (v.detach().requires_grad_() for v in (x, g, b))
            return torch.autograd.grad(F.layer_norm(x, x.shape[1:], g, b), (x, g, b), ct)

    given = normal(4096 // n, 768), normal(768), normal(768), normal(4096 // n, 768)[::-1].copy()
    return Row(run, given, torch=eager)


@row("log softmax 4096 x 1000")
def log_softmax(n: int) -> Row:
    def run(x):
        return ts.log_softmax(x)

    def arrays(xp, x):
        x = x - x.max(axis=1, keepdims=True)
        return x - xp.log(xp.exp(x).sum(axis=1, keepdims=True))

    return Row(run, (normal(4096 // n, 1000),), torch=lambda x: F.log_softmax(x, -1), arrays=arrays)


@row("softmax bf16 4096 x 1000")
def softmax_bf16(n: int) -> Row:
    return Row(lambda x: ts.softmax(x), (normal(4096 // n, 1000, dtype=BF16),), torch=lambda x: F.softmax(x, -1),
               tolerance=1e-2)  # fmt: skip


@row("cross entropy of 50257 classes")
def cross_entropy(n: int) -> Row:
    def run(x, y):
        return ts.cross_entropy(x, y)

    return Row(run, (normal(512 // n, 50257), integers(50257, 512 // n)), torch=F.cross_entropy)


@row("gelu f16 4M")
def gelu_f16(n: int) -> Row:
    return Row(lambda x: ts.gelu(x), (normal((1 << 22) // n, dtype=np.float16),), torch=F.gelu, tolerance=5e-3)


@row("swiglu MLP 256 x 768")
def swiglu(n: int) -> Row:
    def run(x, w, v, u):
        return (ts.silu(x @ w) * (x @ v)) @ u

    wide = 2048 // n
    given = normal(256, 768), *(normal(768, wide, scale=0.03) for _ in range(2)), normal(wide, 768, scale=0.03)
    return Row(run, given, torch=lambda x, w, v, u: (F.silu(x @ w) * (x @ v)) @ u)


@row("rotary positions 4 x 12 x 512 x 64")
def rotary(n: int) -> Row:
    def run(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + ts.concat([-x[..., half:], x[..., :half]], axis=-1) * sin

    def arrays(xp, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + xp.concatenate([-x[..., half:], x[..., :half]], axis=-1) * sin

    def eager(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    length = 512 // n
    return Row(run, (normal(4, 12, length, 64), normal(length, 64), normal(length, 64)), torch=eager, arrays=arrays)


@row("dropout 4M")
def dropout(n: int) -> Row:
    def run(x, key):
        return ts.dropout(x, key, p=0.3)

    given = np.ones((1 << 22) // n, np.float32), np.asarray(3)
    return Row(run, given, torch=lambda x, key: F.dropout(x, 0.3), tolerance=2e-2,
               seen=lambda y: (np.mean(y), np.mean(y == 0)))  # fmt: skip


@row("embedding of 8192 in 50257 x 768")
def embedding(n: int) -> Row:
    def run(i, w):
        return ts.embedding(i, w)

    return Row(run, (integers(50257 // n, 8192 // n), normal(50257 // n, 768)), torch=F.embedding,
               arrays=lambda xp, i, w: xp.take(w, i, axis=0))  # fmt: skip


@row("gradient of an embedding")
def embedding_gradient(n: int) -> Row:
    def run(i, ct, w):
        return ts.grad(lambda w: ts.sum(ts.embedding(i, w) * ct))(w)

    def eager(i, ct, w):
        return torch.zeros_like(w).index_add_(0, i, ct)

    rows, words = 4096 // n, 10_000 // n
    return Row(run, (integers(words, rows), normal(rows, 256), normal(words, 256)), torch=eager)


@row("mixture of experts: gather, weigh, add")
def experts(n: int) -> Row:
    def run(x, gates, of):
        rows = ts.take(x, ts.reshape(of, (-1,)), axis=0).reshape(gates.shape[0], 2, x.shape[1])
        return ts.sum(rows * gates[:, :, None], axis=1)

    def arrays(xp, x, gates, of):
        return (x[of] * gates[:, :, None]).sum(axis=1)

    tokens = 4096 // n
    return Row(run, (normal(tokens, 512), normal(tokens, 2), integers(tokens, tokens, 2)),
               torch=lambda x, gates, of: (x[of] * gates[:, :, None]).sum(1), arrays=arrays)  # fmt: skip


@row("Adam 4M")
def adam(n: int) -> Row:
    def run(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * (m / 0.1) / (ts.sqrt(v / 0.001) + 1e-8), m, v

    def arrays(xp, p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * (m / 0.1) / (xp.sqrt(v / 0.001) + 1e-8), m, v

    size = (1 << 22) // n
    given = normal(size), normal(1, size)[0], normal(1, 1, size)[0, 0], np.abs(normal(1, 1, 1, size)[0, 0, 0])
    return Row(run, given, torch=lambda *a: arrays(torch, *a), arrays=arrays)


@row("attention written out 2 x 12 x 256 x 64")
def attention(n: int) -> Row:
    def run(q, k, v):
        return ts.softmax(q @ k.mT * 0.125) @ v

    given = tuple(normal(2, 12, 256 // n, 64) * np.float32(s) for s in (1, 0.5, 2))
    return Row(run, given, torch=F.scaled_dot_product_attention)


@row("causal attention bf16 2 x 12 x 256 x 64")
def attention_bf16(n: int) -> Row:
    def run(q, k, v):
        return ts.attention(q, k, v, causal=True)

    given = tuple(normal(2, 12, 256 // n, 64, dtype=BF16) for _ in range(3))
    return Row(run, given, torch=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
               tolerance=2e-2)  # fmt: skip


def block(width: int, tokens: int, causal: bool) -> Row:
    """A transformer block with 64 features per head, norms first."""
    count = width // 64

    def run(x, g1, qkv, out, g2, up, down):
        b, s, d = x.shape
        heads = (ts.layer_norm(x, g1) @ qkv).reshape(b, s, 3, count, 64).permute(2, 0, 3, 1, 4)
        seen = ts.attention(heads[0], heads[1], heads[2], causal=causal)
        x = x + seen.permute(0, 2, 1, 3).reshape(b, s, d) @ out
        return x + ts.gelu_tanh(ts.layer_norm(x, g2) @ up) @ down

    def eager(x, g1, qkv, out, g2, up, down):
        b, s, d = x.shape
        q, k, v = (F.layer_norm(x, (d,), g1) @ qkv).reshape(b, s, 3, count, 64).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + seen.permute(0, 2, 1, 3).reshape(b, s, d) @ out
        return x + F.gelu(F.layer_norm(x, (d,), g2) @ up, approximate="tanh") @ down

    d = width
    weights = [normal(*shape, scale=0.03) for shape in ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))]
    given = normal(1, tokens, d), normal(d), weights[0], weights[1], normal(d), weights[2], weights[3]
    return Row(run, given, torch=eager, tolerance=1e-3)


@row("GPT-2 small block, 256 tokens")
def gpt_block(n: int) -> Row:
    return block(768 if n == 1 else 128, 256 // n, True)


@row("ViT base block, 197 patches")
def vit_block(n: int) -> Row:
    return block(768 if n == 1 else 128, 197 // n, False)


@row("PINN residual of 4096 points")
def pinn(n: int) -> Row:
    """u_t + u u_x of a network of two layers with 64 tanh, at each point."""

    def run(at, w1, b1, w2, b2, w3):
        def u(p):
            return ts.sum(ts.tanh(ts.tanh(p @ w1 + b1) @ w2 + b2) @ w3)

        value, slope = ts.vmap(ts.value_and_grad(u))(at)
        return slope[:, 0] + value * slope[:, 1]

    def eager(at, w1, b1, w2, b2, w3):
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            u = torch.tanh(torch.tanh(at @ w1 + b1) @ w2 + b2) @ w3
            (slope,) = torch.autograd.grad(u.sum(), at)
        return slope[:, 0] + u.detach() * slope[:, 1]

    given = normal(4096 // n, 2), normal(2, 64), normal(64), normal(64, 64, scale=0.1), normal(64), normal(64)
    return Row(run, given, torch=eager)
