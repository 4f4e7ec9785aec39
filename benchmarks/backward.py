"""Gradients on the CPU beside PyTorch and JAX: value and gradient in one call, as a step of training asks for them.

Rows of `python -m benchmarks cpu`. PyTorch runs eagerly, where its fused kernels are; JAX is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import torch

import tessera as ts
from benchmarks.harness import Work

DTYPES = {"f32": (torch.float32, "float32"), "bf16": (torch.bfloat16, "bfloat16")}
"""PyTorch's and JAX's"""


def workloads(size: int) -> Iterator[Callable[[], Work]]:
    yield lambda: attention(2, 8, 1024 // size, 64, "f32")
    yield lambda: attention(2, 8, 1024 // size, 64, "bf16")
    yield lambda: rows("softmax", 4096 // size, 4096)
    yield lambda: rows("layer_norm", 4096 // size, 4096)
    yield lambda: rows("rms_norm", 4096 // size, 4096)
    yield lambda: cross_entropy(1024 // size, 32768)


def attention(batch: int, heads: int, length: int, depth: int, dtype: str) -> Work:
    """Causal attention and its cotangents of q, k and v."""

    @ts.function
    def run(q, k, v, ct):
        def loss(q, k, v):
            return ts.sum(ts.cast(ts.attention(q, k, v, causal=True), ts.f32) * ts.cast(ct, ts.f32))

        return ts.grad(loss, argnums=(0, 1, 2))(q, k, v)

    rng = np.random.default_rng(0)
    exact = [torch.from_numpy(rng.standard_normal((batch, heads, length, depth))) for _ in range(4)]
    wide = [x.to(DTYPES[dtype][0]).double() for x in exact]
    given = [x.to(DTYPES[dtype][0]) for x in exact]

    def pulled(q: Any, k: Any, v: Any, ct: Any) -> Any:
        with torch.enable_grad():
            q, k, v = (x.requires_grad_() for x in (q.detach(), k.detach(), v.detach()))
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return torch.autograd.grad(out, (q, k, v), ct)

    def of_jax(q: Any, k: Any, v: Any, ct: Any) -> Any:
        return jax.vjp(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), q, k, v)[1](ct)

    jitted = jax.jit(of_jax)
    jgiven = [jax.numpy.asarray(x.float().numpy().swapaxes(1, 2)).astype(DTYPES[dtype][1]) for x in given]
    want = np.stack([x.numpy() for x in pulled(*wide)])
    peers = {"torch": lambda: pulled(*given), "jax": lambda: jax.block_until_ready(jitted(*jgiven))}

    def result() -> Any:
        return np.stack([x.float().numpy() for x in run(*given)])

    amount = 7 * batch * heads * length**2 * depth  # seven products, of which half is seen
    name, tolerance = f"attention back {batch}x{heads}x{length}x{depth} {dtype}", 1e-3 if dtype == "f32" else 0.2
    return Work(name, lambda: run(*given), peers, result, want, amount, "GF/s", tolerance)


def rows(name: str, count: int, length: int) -> Work:
    """The cotangents of x, and of a weight where the operator has one."""
    ours = {
        "softmax": lambda x, w: ts.softmax(x),
        "layer_norm": lambda x, w: ts.layer_norm(x, w),
        "rms_norm": lambda x, w: ts.rms_norm(x, w),
    }[name]
    functional = torch.nn.functional
    theirs = {
        "softmax": lambda x, w: torch.softmax(x, -1),
        "layer_norm": lambda x, w: functional.layer_norm(x, (length,), w),
        "rms_norm": lambda x, w: functional.rms_norm(x, (length,), w, 1e-6),
    }[name]

    def of_jax(x: Any, w: Any) -> Any:
        if name == "softmax":
            return jax.nn.softmax(x)
        far = x - x.mean(-1, keepdims=True) if name == "layer_norm" else x
        return far * jax.lax.rsqrt((far * far).mean(-1, keepdims=True) + (1e-5 if name == "layer_norm" else 1e-6)) * w

    by = (0,) if name == "softmax" else (0, 1)

    @ts.function
    def run(x, w, ct):
        return ts.grad(lambda x, w: ts.sum(ours(x, w) * ct), argnums=by)(x, w)

    rng = np.random.default_rng(0)
    x, ct = (rng.standard_normal((count, length)).astype(np.float32) for _ in range(2))
    w = rng.standard_normal(length).astype(np.float32)

    def pulled(x: Any, w: Any, ct: Any) -> Any:
        with torch.enable_grad():
            leaves = [v.detach().requires_grad_() for v in (x, w)]
            return torch.autograd.grad(theirs(*leaves), [leaves[i] for i in by], ct)

    given = [torch.from_numpy(v) for v in (x, w, ct)]
    want = pulled(*(v.double() for v in given))[0].numpy()
    jitted = jax.jit(lambda x, w, ct: [jax.vjp(of_jax, x, w)[1](ct)[i] for i in by])
    jgiven = [jax.numpy.asarray(v) for v in (x, w, ct)]
    peers = {"torch": lambda: pulled(*given), "jax": lambda: jax.block_until_ready(jitted(*jgiven))}
    return Work(
        f"{name} back {count}x{length}", lambda: run(x, w, ct), peers, lambda: run(x, w, ct)[0], want, 12 * x.size,
        "GB/s",
    )  # fmt: skip


def cross_entropy(count: int, classes: int) -> Work:
    """The loss and its gradient by the logits."""

    @ts.function
    def run(x, labels):
        return ts.value_and_grad(lambda x: ts.cross_entropy(x, labels))(x)

    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((count, classes)).astype(np.float32), rng.integers(0, classes, count)
    tx, tlabels = torch.from_numpy(x), torch.from_numpy(labels)

    def pulled(x: Any) -> Any:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            loss = torch.nn.functional.cross_entropy(leaf, tlabels)
            return loss, *torch.autograd.grad(loss, leaf)

    def of_jax(x: Any) -> Any:
        return -jax.nn.log_softmax(x)[jax.numpy.arange(count), labels].mean()

    jitted, jx = jax.jit(jax.value_and_grad(of_jax)), jax.numpy.asarray(x)
    peers = {"torch": lambda: pulled(tx), "jax": lambda: jax.block_until_ready(jitted(jx))}
    want = pulled(tx.double())[1].numpy()
    name = f"cross_entropy back {count}x{classes}"
    return Work(name, lambda: run(x, labels), peers, lambda: run(x, labels)[1], want, 8 * x.size, "GB/s")
