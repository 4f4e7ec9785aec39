"""Kernels as users write them, called with tensors of the GPU: attention, products of odd sizes, 8-bit floats, grouped
heads, several launches a call. Everything is compared with float64 arithmetic."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import pytest

import tessera as ts
from tests.conftest import require
from tests.device import gpu
from tests.emulator.warpgroup_kernels import attention

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)
torch = require("torch")

BLOCKS = [{"BLOCK_M": m, "BLOCK_N": n, "num_warps": w, "num_stages": s} for m, n, w, s in
          ((64, 64, 4, 1), (64, 64, 4, 2), (128, 64, 8, 3), (64, 32, 4, 2))]  # fmt: skip


@ts.kernel(BM=64, BN=64, BK=32)
def product(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["M", "N"]):
    ctx = ts.tile.context()
    acc = ts.tile.zeros((ctx.BM, ctx.BN), ts.f32)
    for k in ts.tile.range_k(0, ctx.K, ctx.BK):
        acc += ts.tile.mma(A[tile_m : tile_m + ctx.BM, k : k + ctx.BK], B[k : k + ctx.BK, tile_n : tile_n + ctx.BN])
    C[tile_m : tile_m + ctx.BM, tile_n : tile_n + ctx.BN] = acc


def normal(*shape: int, dtype: Any) -> Any:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(*shape, device="cuda", generator=generator).to(dtype)


def softmax_product(q: Any, k: Any, v: Any, causal: bool) -> Any:
    q, k, v = (x.double() for x in (q, k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("s", "d"), [(512, 64), (512, 128), (500, 64), (130, 128)])
def test_attention(s: int, d: int, dtype: str, causal: bool) -> None:
    q, k, v = (normal(3, s + 0 * i, d, dtype=getattr(torch, dtype)).roll(i) for i in range(3))
    want = softmax_product(q, k, v, causal)
    tolerance = 2e-2 if dtype == "bfloat16" else 3e-3
    for block in BLOCKS:
        kernel = attention.with_config(**block)
        got = kernel(q, k, v, causal)
        torch.testing.assert_close(
            got.double(), want, rtol=tolerance, atol=tolerance, msg=lambda m, b=block: f"{b}: {m}"
        )
        assert torch.equal(got, kernel(q, k, v, causal)), f"{block} differs from run to run"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_attention_safe_with_grouped_heads(d: int, causal: bool) -> None:
    q, k, v = (normal(2, h, 200, d, dtype=torch.bfloat16) for h in (8, 2, 2))
    got = ts.kernels.attention_safe(q, k, v, causal=causal)
    want = softmax_product(q, *(x.repeat_interleave(4, 1) for x in (k, v)), causal)
    torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(512, 384, 256), (301, 211, 173), (65, 7, 33), (1, 129, 96), (128, 256, 31)])
def test_products_of_any_size(shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    kind = getattr(torch, dtype, None)
    if kind is None:
        pytest.skip(f"PyTorch has no {dtype}")
    a, b = normal(m, k, dtype=kind), normal(k, n, dtype=kind)
    want = a.double() @ b.double()
    first: Any = None
    for blocks in ({}, {"BM": 128, "BN": 64, "BK": 64}, {"BM": 32, "BN": 128, "BK": 32, "num_stages": 3}):
        c = torch.full((m, n), math.nan, device="cuda")
        product.with_config(**blocks)(a, b, c)
        torch.testing.assert_close(c.double(), want, rtol=1e-4, atol=1e-4 * math.sqrt(k))
        first = c if first is None else first
        assert torch.equal(c, first), f"{blocks} give other bits"


def test_functions_of_several_launches_repeat() -> None:
    @ts.function
    def layers(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "D", ts.f32]):
        h = ts.softmax(x @ w) @ w
        return h, h.sum(axis=0)

    for _ in range(4):
        x, w = (torch.randn(*s, device="cuda") for s in ((70, 96), (96, 96)))
        h, total = layers(x, w)
        want = torch.softmax(x.double() @ w.double(), -1) @ w.double()
        torch.testing.assert_close(h.double(), want, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(total.double(), want.sum(0), rtol=1e-3, atol=1e-3)


def test_in_place_and_overlapping_arguments() -> None:
    @ts.kernel
    def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], a: ts.f32):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = a * x[i] + y[i]

    x = torch.arange(5000, device="cuda", dtype=torch.float32)
    for _ in range(2):
        saxpy(x, x, 1.0)
        with pytest.raises(ts.LaunchError, match="TS507"):
            saxpy(x[1:], x[:-1], 1.0)
    torch.testing.assert_close(x, 4 * torch.arange(5000, device="cuda", dtype=torch.float32))


def test_arrays_of_jax_may_go_right_after_the_call() -> None:
    """In a process of its own: the tests' JAX keeps to the processor, and on a GPU it would take most of its memory."""
    pytest.importorskip("jax")
    env = {**os.environ, "JAX_PLATFORMS": "", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=False)
    if "no GPU" in done.stdout:
        pytest.skip("JAX has no GPU here")
    assert done.returncode == 0, done.stderr[-3000:]


@ts.function
def twice(x: ts.Tensor["n", ts.f32]):
    return ts.tanh(x) * 2


def with_jax() -> None:
    import jax

    if not any(d.platform == "gpu" for d in jax.devices()):
        print("no GPU")
        return
    results = [twice(jax.numpy.full(1 << 20, float(i) / 50, jax.numpy.float32)) for i in range(50)]
    for i, result in enumerate(results):
        assert abs(float(result[123]) - 2 * math.tanh(i / 50)) < 1e-5


def test_reductions_of_nothing() -> None:
    f = ts.function(lambda x: (ts.sum(x, axis=1), ts.prod(x, axis=1)))
    total, product_ = f(torch.zeros(4, 0, device="cuda"))
    assert total.tolist() == [0.0] * 4 and product_.tolist() == [1.0] * 4


if __name__ == "__main__":
    with_jax()
