"""Rows of `python -m benchmarks cpu` in bf16, and causal attention in both widths, beside PyTorch with oneDNN.

Of products with constant weights both have packed the weights before: PyTorch by an operator of oneDNN's, where the
processor has the instructions that it asks for, and Tessera as arrays that are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

import tessera as ts
from benchmarks.harness import Work


def workloads(size: int) -> Iterator[Callable[[], Work]]:
    yield lambda: product(1024 // size, packed=False)
    yield lambda: product(2048 // size, packed=False)
    yield lambda: product(2048 // size, packed=True)
    yield lambda: mlp(1024 // size)
    yield lambda: causal(4, 8, 1024 // size, 64, "f32")
    yield lambda: causal(4, 8, 1024 // size, 64, "bf16")


def pair(*shape: int, scale: float = 1.0) -> tuple[Any, torch.Tensor]:
    """The same numbers of bf16 for NumPy and for PyTorch."""
    x = (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(ml_dtypes.bfloat16)
    return x, torch.from_numpy(x.astype(np.float32)).bfloat16()


def product(n: int, packed: bool) -> Work:
    @ts.function
    def run(a, b):
        return a @ b

    (a, ta), (b, tb) = pair(n, n), pair(n, n, scale=0.5)
    out = torch.empty(n, n, dtype=torch.bfloat16)
    peer: Callable[[], Any] = lambda: torch.mm(ta, tb, out=out)  # noqa: E731
    if packed and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        weights = torch.ops.mkldnn._reorder_linear_weight(tb.T.contiguous(), n)
        peer = lambda: torch.ops.mkldnn._linear_pointwise(ta, weights, None, "none", [], "")  # noqa: E731
    want = a.astype("f8") @ b.astype("f8")
    name, goal = (f"matmul bf16 {n}, packed weights", 1.2) if packed else (f"matmul bf16 {n}", 1.05)
    tolerance = float(np.abs(want).max()) / 256
    b = ts.frozen(b) if packed else b
    ours = lambda: run(a, b)  # noqa: E731
    return Work(name, ours, {"torch": peer}, ours, want, 2 * n**3, "GF/s", tolerance, goal, products="bf16")


def mlp(n: int) -> Work:
    @ts.function
    def run(x, w, b):
        return ts.gelu_tanh(x @ w + b)

    (x, tx), (w, tw), (b, tb) = pair(n, n), pair(n, 4 * n, scale=0.03), pair(4 * n)
    v = x.astype("f8") @ w.astype("f8") + b.astype("f8")
    want = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    peers: dict[str, Callable[[], Any]] = {"eager": lambda: F.gelu(F.linear(tx, tw.T, tb), approximate="tanh")}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        weights = torch.ops.mkldnn._reorder_linear_weight(tw.T.contiguous(), n)
        peers["torch"] = lambda: torch.ops.mkldnn._linear_pointwise(tx, weights, tb, "gelu", [], "tanh")
    w = ts.frozen(w)
    name, amount = f"matmul + bias + gelu bf16 {n}, packed weights", 8 * n**3
    ours = lambda: run(x, w, b)  # noqa: E731
    return Work(name, ours, peers, ours, want, amount, "GF/s", 0.1, 1.5, products="bf16")


def causal(batch: int, heads: int, length: int, depth: int, dtype: str) -> Work:
    @ts.function
    def run(q, k, v):
        return ts.attention(q, k, v, causal=True)

    given = [pair(batch, heads, length, depth, scale=s) for s in (1.0, 0.9, 0.8)]
    ours, theirs = [x for x, _ in given], [x for _, x in given]
    if dtype == "f32":
        ours, theirs = [x.astype(np.float32) for x in ours], [x.float() for x in theirs]
    want = F.scaled_dot_product_attention(*(x.double() for x in theirs), is_causal=True).numpy()
    peers = {"torch": lambda: F.scaled_dot_product_attention(*theirs, is_causal=True)}
    amount = 2 * batch * heads * length**2 * depth
    name, goal, tolerance = f"causal attention {batch}x{heads}x{length}x{depth} {dtype}", 1.6, 1e-4
    if dtype == "bf16":
        goal, tolerance = 2.4, 0.03
    return Work(name, lambda: run(*ours), peers, lambda: run(*ours), want, amount, "GF/s", tolerance, goal)
