"""The quick-start's attention, as written and put right, against its arithmetic in NumPy and PyTorch's attention."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch

import tessera as ts
from tests.kernel_runner import check, program, run
from tests.seeds.kernels import flash_attention

both = pytest.mark.parametrize("target", ["reference", "cpu"])
rng = np.random.default_rng(3)


def inputs(batch: int, S: int, D: int) -> tuple[np.ndarray, ...]:
    return tuple(rng.standard_normal((batch, S, D)).astype(ml_dtypes.bfloat16) for _ in range(3))


def torch_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    parts = [torch.from_numpy(x.astype(np.float32)) for x in (q, k, v)]
    return torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal).numpy()


def as_written(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, block: int) -> np.ndarray:
    """The seed's algorithm in float64: beta rescales row sums that were taken relative to the new maximum already."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    batch, S, D = q.shape
    acc, m, total = np.zeros((batch, S, D)), np.full((batch, S), -np.inf), np.zeros((batch, S))
    for at in range(0, S, block):
        scores = q @ k[:, at : at + block].transpose(0, 2, 1) / math.sqrt(D)
        if causal:
            scores = np.where(np.arange(S)[:, None] >= np.arange(at, min(at + block, S)), scores, -np.inf)
        peak = scores.max(-1)
        new = np.maximum(m, peak)
        alpha, beta = np.exp(m - new), np.exp(peak - new)
        p = np.exp(scores - new[..., None])
        total = alpha * total + beta * p.sum(-1)
        acc = alpha[..., None] * acc + p @ v[:, at : at + block]
        m = new
    return acc / total[..., None]


@both
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("S", "D"), [(64, 64), (40, 16), (1, 8)])
def test_one_block_of_keys_is_attention(S: int, D: int, causal: bool, target: str) -> None:
    """While the maximum cannot grow, beta is 1 and the seed's mistake does not show."""
    q, k, v = inputs(3, S, D)
    got = run(flash_attention, q, k, v, causal, target=target).astype(np.float32)
    np.testing.assert_allclose(got, torch_attention(q, k, v, causal), atol=2e-2)


@both
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("S", "block_m", "block_n"), [(128, 64, 64), (100, 32, 32), (70, 16, 32), (65, 64, 16)])
def test_as_written(S: int, block_m: int, block_n: int, causal: bool, target: str) -> None:
    q, k, v = inputs(2, S, 16)
    got = run(flash_attention, q, k, v, causal, BLOCK_M=block_m, BLOCK_N=block_n, target=target).astype(np.float64)
    np.testing.assert_allclose(got, as_written(q, k, v, causal, block_n), atol=3e-2, rtol=3e-2)


def test_the_second_rescale_is_pointed_out_without_running_anything() -> None:
    analysis = check(flash_attention)
    assert analysis.ok
    (warning,) = [d for d in analysis.diagnostics if d.severity == "warning"]
    assert warning.code == "TS311"
    assert analysis.definition.text.segment(warning.span) == "beta * ts.tile.row_sum(p)"


def test_the_missing_barrier_is_inserted_with_a_note() -> None:
    (note,) = [d for d in check(flash_attention).diagnostics if d.severity == "note"]
    assert note.code == "TS408" and "smem_k" in note.message
    assert check(flash_attention).definition.text.segment(note.span).startswith("ts.tile.cp_async(smem_k")


def test_grid_is_batches_by_query_blocks() -> None:
    q, k, v = inputs(6, 100, 16)
    assert program(flash_attention, q, k, v, True, BLOCK_M=32).launches[0].kernel.attrs["grid"] == (6, 4)


def corrected(
    Q: ts.Tensor["B*H", "S", "D", ts.bf16],
    K: ts.Tensor["B*H", "S", "D", ts.bf16],
    V: ts.Tensor["B*H", "S", "D", ts.bf16],
    is_causal: bool = True,
) -> ts.Tensor["B*H", "S", "D", ts.bf16]:
    ctx = ts.tile.context()
    BM, BN = ctx.BLOCK_M, ctx.BLOCK_N
    acc = ts.tile.zeros((BM, ctx.D))
    m_i = ts.tile.full((BM,), -float("inf"))
    l_i = ts.tile.zeros((BM,))
    for q_block in ts.tile.range(0, ctx.S, BM):
        q = Q[q_block : q_block + BM]
        for kv_block in ts.tile.range(0, ctx.S, BN):
            scores = ts.tile.mma(q, K[kv_block : kv_block + BN].T) * (1.0 / math.sqrt(ctx.D))
            if is_causal:
                scores = ts.tile.causal_mask(scores, q_block, kv_block)
            m_new = ts.tile.maximum(m_i, ts.tile.row_max(scores))
            alpha = ts.tile.exp(m_i - m_new)
            p = ts.tile.exp(scores - m_new)
            l_i = alpha * l_i + ts.tile.row_sum(p)
            acc = alpha * acc + ts.tile.mma(p, V[kv_block : kv_block + BN])
            m_i = m_new
    return acc / l_i[:, None]


@both
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("S", "D", "block_m", "block_n"), [(128, 32, 64, 64), (100, 16, 32, 32), (33, 16, 16, 64), (64, 64, 64, 64)]
)
def test_corrected_is_attention_for_all_blocks(
    S: int, D: int, block_m: int, block_n: int, causal: bool, target: str
) -> None:
    q, k, v = inputs(2, S, D)
    assert not [d for d in check(corrected).diagnostics if d.code == "TS311"]
    got = run(corrected, q, k, v, causal, BLOCK_M=block_m, BLOCK_N=block_n, target=target).astype(np.float32)
    np.testing.assert_allclose(got, torch_attention(q, k, v, causal), atol=2e-2)
