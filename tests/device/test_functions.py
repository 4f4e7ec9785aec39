"""Functions and the seeds' kernels on CuPy and PyTorch arrays, through the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.device import gpu
from tests.seeds import kernels as seeds

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)

RNG = np.random.default_rng(8)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@ts.function
def mlp(x: ts.Tensor["B", "D"], w: ts.Tensor["D", "H"], b: ts.Tensor["H"]) -> ts.Tensor["B", "H"]:
    return ts.gelu(x @ w + b)


@ts.function
def softmax(x: ts.Tensor["B", "D"]) -> ts.Tensor["B", "D"]:
    return ts.softmax(x, axis=-1)


@ts.function
def total(x: ts.Tensor["N"]) -> ts.Tensor[()]:
    return x.sum()


def test_cupy_arrays_stay_on_the_device() -> None:
    import cupy

    x = normal(300, 777)
    out = softmax(cupy.asarray(x))
    assert isinstance(out, cupy.ndarray)
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.get(), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_pytorch_tensors_and_the_current_stream() -> None:
    import torch

    x, w, b = (torch.randn(*s, device="cuda") for s in ((200, 96), (96, 130), (130,)))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = mlp(x, w, b)
    stream.synchronize()
    wanted = torch.nn.functional.gelu(x.double() @ w.double() + b.double())
    torch.testing.assert_close(out.double(), wanted, rtol=1e-4, atol=1e-4)


def test_long_sums_are_the_same_every_time() -> None:
    import cupy

    x = cupy.asarray(normal(3_000_001))
    results = {float(total(x)) for _ in range(5)}
    assert len(results) == 1
    np.testing.assert_allclose(results.pop(), x.get().astype("f8").sum(), rtol=1e-4, atol=1e-2)


def test_saxpy_of_the_seeds() -> None:
    import cupy

    x, y = normal(100_001), normal(100_001)
    out = cupy.asarray(y)
    seeds.saxpy(cupy.asarray(x), out, 2.0)
    np.testing.assert_allclose(out.get(), np.float32(2) * x + y, rtol=1e-6)


def test_gemm_of_the_seeds() -> None:
    import torch

    a, b = (torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.randn(256, 256, device="cuda")
    wanted = c.double() + a.double() @ b.double()
    seeds.gemm(a, b, c)
    torch.testing.assert_close(c.double(), wanted, rtol=1e-3, atol=1e-3)


def test_attention_of_the_seeds_with_one_block() -> None:
    import torch

    q, k, v = (torch.randn(4, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = seeds.flash_attention(q, k, v)
    wanted = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    torch.testing.assert_close(out.float(), wanted, rtol=3e-2, atol=3e-2)
