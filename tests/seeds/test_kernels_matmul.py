"""The seeds' saxpy, gemm, matmul_kernel and safe_softmax against NumPy and PyTorch, at even and ragged sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.kernel_runner import check, codes, program, run
from tests.seeds.kernels import gemm, matmul_kernel, safe_softmax, saxpy

both = pytest.mark.parametrize("target", ["reference", "cpu"])
rng = np.random.default_rng(5)
SHAPES = [(64, 32, 64), (128, 64, 64), (100, 70, 90), (65, 33, 1), (1, 1, 1)]


def bf16(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


@both
@pytest.mark.parametrize("n", [1, 1000, 1024, 1025, 5000])
def test_saxpy(n: int, target: str) -> None:
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    want = np.float32(2.5) * x + y
    got = run(saxpy, x, y, 2.5, target=target)
    assert got is y
    np.testing.assert_array_equal(got, want)


def test_saxpy_is_contiguous_and_unmasked() -> None:
    """`if i < n` says what the end of the arrays says, so it costs nothing."""
    kernel = program(saxpy, *np.zeros((2, 1000), np.float32), 1.0).launches[0].kernel
    names = [op.name for op in kernel.walk()]
    assert "tile.gather" not in names and not any(op.attrs.get("masked") for op in kernel.walk())


@both
@pytest.mark.parametrize("shape", SHAPES)
def test_gemm_accumulates_into_c(shape: tuple[int, int, int], target: str) -> None:
    M, K, N = shape
    a, b, c = bf16(M, K), bf16(K, N), rng.standard_normal((M, N)).astype(np.float32)
    want = (torch.from_numpy(a.astype(np.float32)) @ torch.from_numpy(b.astype(np.float32))).numpy() + c
    got = run(gemm, a, b, c, target=target)
    assert got is c
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_gemm_has_a_serial_loop_over_k_and_stores_once() -> None:
    kernel = program(gemm, bf16(128, 64), bf16(64, 64), np.zeros((128, 64), np.float32)).launches[0].kernel
    assert kernel.attrs["grid"] == (2, 1)
    (loop,) = [op for op in kernel.walk() if op.name == "tile.for"]
    (store,) = [op for op in kernel.walk() if op.name == "tile.store"]
    assert store.block is kernel.region.block and loop.region.block.args[0].hint == "tile_k"


@both
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("config", [{}, {"BM": 16, "BN": 16, "BK": 16}, {"BM": 32, "BN": 8, "BK": 64}])
def test_matmul_kernel(shape: tuple[int, int, int], config: dict[str, int], target: str) -> None:
    M, K, N = shape
    a, b, c = bf16(M, K), bf16(K, N), np.full((M, N), np.nan, np.float32)
    run(matmul_kernel, a, b, c, **config, target=target)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


@both
def test_matmul_does_not_depend_on_its_blocks(target: str) -> None:
    """Where the CPU adds products of bf16 by 32 (decision 117), blocks of 16 along k may give other bits."""
    a, b = bf16(50, 70), bf16(70, 40)
    found = []
    for config in ({}, {"BM": 16, "BN": 32, "BK": 32}, {"BM": 8, "BN": 8, "BK": 64}):
        c = np.empty((50, 40), np.float32)
        run(matmul_kernel, a, b, c, **config, target=target)
        found.append(c)
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


@both
@pytest.mark.parametrize("shape", [(7,), (3, 5), (70, 130), (2, 3, 17), (2, 2, 3, 4), (5, 1)])
def test_safe_softmax(shape: tuple[int, ...], target: str) -> None:
    x = (rng.standard_normal(shape) * 20).astype(np.float32)
    want = torch.softmax(torch.from_numpy(x), -1).numpy()
    np.testing.assert_allclose(run(safe_softmax, x, target=target), want, rtol=1e-5, atol=1e-7)


@both
def test_safe_softmax_at_the_extremes(target: str) -> None:
    x = np.array([[1e38, -1e38, 1e38], [-np.inf, 0.0, -np.inf]], np.float32)
    np.testing.assert_allclose(run(safe_softmax, x, target=target), [[0.5, 0, 0.5], [0, 1, 0]])


@pytest.mark.parametrize("kernel", [saxpy, gemm, matmul_kernel, safe_softmax])
def test_no_errors_from_the_text_alone(kernel: object) -> None:
    assert codes(kernel) == []  # type: ignore[arg-type]


def test_types_are_shown_before_anything_runs() -> None:
    shown = {e.name: e.text for e in check(gemm).expressions if e.kind in ("assign", "param") and e.name}
    assert shown["A"] == "[M, K] bf16" and shown["smem_a"] == "[64, 32] bf16 shared" and shown["acc"] == "[64, 64] f32"
