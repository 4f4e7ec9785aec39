"""Products that users write, on sm_90a: wgmma whatever the tiles, stages and warps; against NumPy in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import host_library
from tessera.kernels import attention_safe
from tests.emulator.warpgroup_kernels import (
    PRODUCED,
    SM90,
    attention,
    compiled,
    lowered,
    normal,
    produced,
    product,
    run,
    safe,
    softmax_product,
    source,
)
from tests.together import builds

F16, BF16 = np.float16, ml_dtypes.bfloat16
BLOCKS = [(64, 64), (64, 32), (16, 64), (48, 32), (128, 64)]


def qkv(s: int, d: int, dtype: Any = BF16) -> tuple[Any, Any, Any]:
    q, k, v = (normal(1, s, d, dtype=dtype, seed=i) for i in range(3))
    return q, k, v


CONFIG = {"BLOCK_M": 64, "BLOCK_N": 64, "num_stages": 2}


@builds(lambda s, d, dtype, causal: compiled(attention, *qkv(s, d, dtype), causal, **CONFIG))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(("s", "d"), [(100, 64), (130, 128), (70, 32), (33, 48), (64, 16)])
def test_attention(s: int, d: int, dtype: Any, causal: bool, built: Callable[[], Any]) -> None:
    q, k, v = qkv(s, d, dtype)
    text = source(attention, q, k, v, causal, **CONFIG)
    assert text.count("ts::mma_warpgroups(") == 2 and text.count(".fetch(") == 3
    assert "ts::mma(" not in text and "copy_async" not in text
    got = built()
    tolerance = 2e-3 if dtype == F16 else 2e-2
    np.testing.assert_allclose(got.astype(np.float64), softmax_product(q, k, v, causal), rtol=tolerance, atol=tolerance)


def test_attention_has_the_same_bits_for_any_rows_stages_and_warps() -> None:
    q, k, v = qkv(150, 32)
    found: dict[int, set[bytes]] = {}
    runs: list[tuple[int, Callable[[], Any]]] = []
    with host_library.together():
        for bm, bn in BLOCKS:
            for stages, warps in ((1, 4), (2, 4), (3, 8)):
                config = {"BLOCK_M": bm, "BLOCK_N": bn, "num_stages": stages, "num_warps": warps}
                runs.append((bn, compiled(attention, q, k, v, True, **config)))
    for bn, run_it in runs:
        found.setdefault(bn, set()).add(run_it().tobytes())
    assert all(len(bits) == 1 for bits in found.values())


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_products_have_the_same_bits_for_any_tile(dtype: Any) -> None:
    a, b = normal(100, 144, dtype=dtype), normal(144, 72, dtype=dtype)
    bits: set[bytes] = set()
    runs: list[Callable[[], Any]] = []
    with host_library.together():
        for bm, bn, bk, stages, warps in (
            (64, 64, 16, 2, 4),
            (16, 8, 48, 3, 4),
            (8, 24, 32, 2, 1),
            (128, 32, 64, 4, 8),
            (1, 40, 16, 2, 4),
            (200, 72, 144, 1, 4),
        ):
            config = {"BM": bm, "BN": bn, "BK": bk, "AHEAD": stages, "num_stages": stages, "num_warps": warps}
            text = source(product, a, b, **config)
            assert "ts::mma_warpgroups(" in text and "copy_async" not in text
            runs.append(compiled(product, a, b, **config))
    for run_it in runs:
        got = run_it()
        bits.add(got.tobytes())
        np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)
    assert len(bits) == 1


@pytest.mark.parametrize("stages", [1, 3])
def test_operands_that_tensor_copies_cannot_fetch_are_copied_by_threads(stages: int) -> None:
    a, b = normal(70, 100), normal(100, 50)
    config = {"BM": 48, "BN": 24, "BK": 32, "AHEAD": stages, "num_stages": stages}
    text = source(product, a, b, **config)
    assert "ts::mma_warpgroups(" in text and ".fetch(" not in text and "clear_padding" in text
    if stages > 1:
        assert "// Without tensor copies: its lines may start between 16-byte boundaries." in text
        (kernel,) = generate(lowered(product, a, b, **config), base.get(SM90)).meta["kernels"].values()
        assert any("copied by threads, not by tensor copies: its lines" in note for note in kernel["notes"])
        assert kernel["layouts"]["shared A_ahead"] == "48x32 in 64x32, wgmma's swizzle of 64 bytes, 3 stages"
    np.testing.assert_allclose(
        run(product, a, b, **config), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4
    )


def test_how_operands_arrive_changes_no_bit() -> None:
    """The same numbers in rows of 104 elements, which tensor copies take, and of 100, which they do not."""
    a, b = normal(64, 100), normal(100, 48)
    wide = np.zeros((64, 104), BF16), np.zeros((104, 48), BF16)
    wide[0][:, :100], wide[1][:100] = a, b
    config = {"BM": 64, "BN": 48, "BK": 32, "AHEAD": 2, "num_stages": 2}
    assert ".fetch(" in source(product, *wide, **config) and ".fetch(" not in source(product, a, b, **config)
    assert run(product, *wide, **config).tobytes() == run(product, a, b, **config).tobytes()


def test_what_wgmma_does_not_take_keeps_to_mma() -> None:
    for a, b, bk in (
        (normal(64, 64, dtype=np.float32), normal(64, 64, dtype=np.float32), 32),
        (normal(64, 64), normal(64, 64), 8),
        (normal(64, 64, dtype=ml_dtypes.float8_e4m3fn), normal(64, 64, dtype=ml_dtypes.float8_e4m3fn), 32),
    ):
        text = source(product, a, b, BM=32, BN=32, BK=bk, AHEAD=2)
        assert "ts::mma(" in text and "warpgroups" not in text


def test_rows_of_more_than_256_columns_keep_to_mma() -> None:
    a, b = normal(32, 32), normal(32, 264)
    config = {"BM": 32, "BN": 264, "BK": 32, "AHEAD": 1}
    assert "warpgroups" not in source(product, a, b, **config)
    got = run(product, a, b, seeds=(0,), **config)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)
    q = np.zeros((1, 64, 512), BF16)
    made = generate(lowered(attention, q, q, q, False, BLOCK_M=64, BLOCK_N=32, num_stages=2), base.get(SM90))
    assert "ts::mma(" in made.source and "warpgroups" not in made.source
    (kernel,) = made.meta["kernels"].values()
    assert any("not multiplied by wgmma: more than 256 columns" in note for note in kernel["notes"])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(("s", "d"), [(70, 64), (40, 32), (66, 128)])
def test_attention_safe(s: int, d: int, dtype: Any, causal: bool) -> None:
    got, wanted = safe(s, d, causal=causal, dtype=dtype)
    tolerance = 2e-3 if dtype == F16 else 2e-2
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


def test_attention_safe_stages_its_operands() -> None:
    text = source(attention_safe, *qkv(64, 64), BLOCK_M=64, BLOCK_N=64)
    assert text.count("ts::mma_warpgroups(") == 2 and "ts::mma(" not in text
    assert "b_staged_2.fetch(V_map, copies.expect(" in text, "values are fetched by tensor copies"
    assert "ts::transposed(b_staged)" in text and "ts::store_shared(b_staged" in text, "keys lie as they were loaded"


def test_two_warpgroups_have_a_producer() -> None:
    q, k, v = qkv(300, 16)
    text = source(attention, q, k, v, False, **PRODUCED)
    assert "if (ts::is_producer()) {" in text and "ts::Ring<2, 8, 1>" in text
    got, wanted = produced()
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2e-2, atol=2e-2)
    one = run(attention, q, k, v, False, **{**PRODUCED, "BLOCK_M": 64})
    assert one.tobytes() == got.tobytes()
    assert "is_producer" not in source(attention, q, k, v, False, **{**PRODUCED, "BLOCK_M": 64})
