"""Products of small floats with a scale for each block along K, and of fp6 and fp4: equal numbers on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.language import dtypes as dt
from tessera.language.dtypes import DType
from tests.kernel_runner import check, codes, program, run

TARGETS = ("reference", "cpu", "emulator:sm_80")
rng = np.random.default_rng(29)


def scaled(A: Tensor["M", "K"], AS: Tensor["M", "S"], B: Tensor["K", "N"], BS: Tensor["N", "S"],
           C: Tensor["M", "N", ts.f32]):  # fmt: skip
    """A @ B over two blocks a step, with ragged edges everywhere."""
    acc, block = ts.tile.zeros((16, 16)), ts.tile.context().BLOCK
    for j in ts.tile.range_k(0, S, 2):
        k = j * block
        acc = ts.tile.mma(
            A[tile_m : tile_m + 16, k : k + 2 * block], B[k : k + 2 * block, tile_n : tile_n + 16], acc,
            a_scale=AS[tile_m : tile_m + 16, j : j + 2], b_scale=BS[tile_n : tile_n + 16, j : j + 2].T,
        )  # fmt: skip
    C[tile_m : tile_m + 16, tile_n : tile_n + 16] = acc


def elements(dtype: DType, *shape: int) -> Any:
    """Values whose products and sums are exact in f32."""
    return rng.integers(-4, 5, shape).astype(np.float32).astype(dtype.numpy)


def scales(dtype: DType, *shape: int) -> Any:
    return (2.0 ** rng.integers(-3, 4, shape)).astype(np.float32).astype(dtype.numpy)


def wanted(a: Any, a_scale: Any, b: Any, b_scale: Any) -> Any:
    block = a.shape[-1] // a_scale.shape[-1]
    left, right = (x.astype(np.float64) for x in (a, b))
    left = left * np.repeat(a_scale.astype(np.float64), block, -1)
    return left @ (right * np.repeat(b_scale.astype(np.float64), block, -1).T)


FORMATS = {
    "mxfp8": (dt.fp8_e4m3, dt.fp8_e5m2, dt.fp8_e8m0),
    "mxfp6": (dt.fp6_e2m3, dt.fp6_e3m2, dt.fp8_e8m0),
    "mxfp4": (dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e8m0),
    "mixed": (dt.fp4_e2m1, dt.bf16, dt.fp8_e8m0),
    "nvfp4": (dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e4m3),
}


def operands(name: str, m: int, n: int, blocks: int) -> tuple[Any, ...]:
    a, b, scale = FORMATS[name]
    block = 32 if scale is dt.fp8_e8m0 else 16
    k = block * blocks
    return elements(a, m, k), scales(scale, m, blocks), elements(b, k, n), scales(scale, n, blocks)


def run_scaled(name: str, given_: tuple[Any, ...], target: str, debug: bool = True) -> Any:
    out = np.full((given_[0].shape[0], given_[2].shape[1]), 99, np.float32)
    run(scaled, *given_, out, target=target, debug=debug, BLOCK=given_[0].shape[1] // given_[1].shape[1])
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FORMATS)
def test_formats_against_numpy(name: str, target: str) -> None:
    given_ = operands(name, 20, 18, 3)
    np.testing.assert_array_equal(run_scaled(name, given_, target), wanted(*given_))


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
@settings(max_examples=6, deadline=None)
def test_all_sizes(name: str, m: int, n: int, blocks: int) -> None:
    given_ = operands(name, m, n, blocks)
    np.testing.assert_array_equal(run_scaled(name, given_, "cpu"), wanted(*given_))


@pytest.mark.parametrize("target", TARGETS)
def test_scales_at_the_ends(target: str) -> None:
    """2**127 times 2**-127 is 1; NaN is a scale too, and concerns its own row alone."""
    a, a_scale, b, b_scale = operands("mxfp8", 4, 4, 1)
    a[0] = np.sign(a[0].astype(np.float32)).astype(a.dtype)  # 2 * 2**127 is infinite
    a_scale.view(np.uint8)[:] = [[254], [0], [255], [127]]
    b_scale.view(np.uint8)[:] = [[0], [127], [127], [127]]
    found = run_scaled("mxfp8", (a, a_scale, b, b_scale), target, debug=False)
    products = a.astype(np.float64) @ b.astype(np.float64)
    assert found[0, 0] == products[0, 0] and np.isnan(found[2]).all()
    np.testing.assert_array_equal(found[3], [products[3, 0] * 2.0**-127, *products[3, 1:]])
    np.testing.assert_array_equal(found[1, 1:], (products[1, 1:] * 2.0**-127).astype(np.float32))


def one_scale(A: Tensor["B", "M", "K", ts.fp4_e2m1], S: Tensor["B", "M", "J", ts.fp8_e8m0],
              W: Tensor["K", "N", ts.bf16], C: Tensor["B", "M", "N", ts.f32]):  # fmt: skip
    block = ts.tile.mma(A[0:2, 0:16, 0:64], W[0:64, :], a_scale=S[0:2, 0:16, 0:2])
    C[0:2, 0:16, :] = block


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_with_one_scale(target: str) -> None:
    a, s, w = elements(dt.fp4_e2m1, 2, 16, 64), scales(dt.fp8_e8m0, 2, 16, 2), elements(dt.bf16, 64, 8)
    out = np.full((2, 16, 8), 99, np.float32)
    run(one_scale, a, s, w, out, target=target)
    wide = a.astype(np.float64) * np.repeat(s.astype(np.float64), 32, -1)
    np.testing.assert_array_equal(out, wide @ w.astype(np.float64))


def plain(A: Tensor["M", "K"], B: Tensor["K", "N"], C: Tensor["M", "N", ts.f32]):
    C[tile_m : tile_m + 16, :] = A[tile_m : tile_m + 16, :] @ B[:, :]


@pytest.mark.parametrize("dtype", [dt.fp6_e2m3, dt.fp6_e3m2, dt.fp4_e2m1, dt.fp8_e8m0], ids=str)
def test_small_floats_without_scales(dtype: DType) -> None:
    """All values of fp6 and fp4 are f16's, and tensor cores take them as such."""
    made = scales if dtype is dt.fp8_e8m0 else elements
    a, b = made(dtype, 20, 32), made(dtype, 32, 16)
    if dtype is dt.fp8_e8m0:
        a.view(np.uint8)[0] = 0  # 2**-127, a subnormal number of bf16
        b.view(np.uint8)[:] += 100
    for target in TARGETS:
        out = np.full((20, 16), 99, np.float32)
        run(plain, a, b, out, target=target)
        np.testing.assert_array_equal(out, a.astype(np.float64) @ b.astype(np.float64))
    source = generate(program(plain, a, b, out), base.get("sm_80")).source
    assert "ts::Fragment" in source


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_100", "sm_120"])
def test_scaled_products_are_assembled(target: str) -> None:
    out = np.empty((32, 32), np.float32)
    made = generate(program(scaled, *operands("mxfp4", 32, 32, 2), out, BLOCK=32), base.get(target))
    assert made.files


def packed(A: Tensor["M", "H", ts.uint8], S: Tensor["M", "J", ts.fp8_e8m0], W: Tensor["K", "N", ts.bf16],
           C: Tensor["M", "N", ts.f32]):  # fmt: skip
    """Rows of fp4, two to a byte; K is ragged."""
    acc = ts.tile.zeros((16, 8))
    for j in ts.tile.range_k(0, J, 2):
        a = ts.tile.unpack_fp4(A[tile_m : tile_m + 16, j * 16 : j * 16 + 32])
        acc = ts.tile.mma(a, W[j * 32 : j * 32 + 64, :], acc, a_scale=S[tile_m : tile_m + 16, j : j + 2])
    C[tile_m : tile_m + 16, :] = acc


@pytest.mark.parametrize("target", TARGETS)
def test_two_in_a_byte(target: str) -> None:
    codes_ = rng.integers(0, 16, (20, 96)).astype(np.uint8)
    s, w = scales(dt.fp8_e8m0, 20, 3), elements(dt.bf16, 96, 8)
    out = np.full((20, 8), 99, np.float32)
    run(packed, codes_[:, ::2] | codes_[:, 1::2] << 4, s, w, out, target=target)
    wide = codes_.view(dt.fp4_e2m1.numpy).astype(np.float64) * np.repeat(s.astype(np.float64), 32, -1)
    np.testing.assert_array_equal(out, wide @ w.astype(np.float64))


def first_axis(x: Tensor["H", "N", ts.uint8], y: Tensor["M", "N", ts.fp4_e2m1], most: Tensor["N", ts.f32]):
    """All codes, with a ragged edge that no maximum sees."""
    block = ts.tile.unpack_fp4(x[0:10, :], axis=0)
    y[0:20, :] = block
    most[:] = ts.tile.max(block, axis=0)


@pytest.mark.parametrize("target", TARGETS)
def test_every_code(target: str) -> None:
    codes_ = np.stack([np.arange(16, dtype=np.uint8), np.full(16, 15, np.uint8)], 1)
    y, most = np.zeros((16, 2), dt.fp4_e2m1.numpy), np.full(2, 99, np.float32)
    run(first_axis, codes_[::2] | codes_[1::2] << 4, y, most, target=target)
    np.testing.assert_array_equal(y.view(np.uint8), codes_)
    np.testing.assert_array_equal(most, [6, -6])


# what is refused


def no_bytes(A: Tensor["M", "K", ts.int8], C: Tensor["M", "N", ts.f32]):
    C[0:4, 0:8] = ts.tile.unpack_fp4(A[0:4, 0:4])


def wrong_scale(A: Tensor["M", "K", ts.fp4_e2m1], S: Tensor["M", "J", ts.f32], C: Tensor["M", "M", ts.f32]):
    a = A[0:16, 0:32]
    C[0:16, 0:16] = ts.tile.mma(a, a.T, a_scale=S[0:16, 0:1])


def too_few(A: Tensor["M", "K", ts.fp4_e2m1], S: Tensor["M", "J", ts.fp8_e8m0], C: Tensor["M", "M", ts.f32]):
    a = A[0:16, 0:64]
    C[0:16, 0:16] = ts.tile.mma(a, a.T, a_scale=S[0:16, 0:1])


def too_wide(A: Tensor["M", "K", ts.f32], S: Tensor["M", "J", ts.fp8_e8m0], C: Tensor["M", "M", ts.f32]):
    a = A[0:16, 0:32]
    C[0:16, 0:16] = ts.tile.mma(a, a.T, a_scale=S[0:16, 0:1])


def of_another_rank(A: Tensor["M", "K", ts.fp4_e2m1], S: Tensor["M", "J", ts.fp8_e8m0], C: Tensor["M", "M", ts.f32]):
    a = A[0:16, 0:32]
    C[0:16, 0:16] = ts.tile.mma(a, a.T, b_scale=S[0, 0:16])


@pytest.mark.parametrize(
    ("kernel", "code", "says"),
    [
        (wrong_scale, "TS302", "fp8_e8m0 for each 32 elements or fp8_e4m3 for each 16 elements"),
        (too_few, "TS402", "a_scale has one for each 32 of axis 1"),
        (too_wide, "TS302", "bf16 or a float of up to 8 bits, not f32"),
        (of_another_rank, "TS402", "as many axes as b"),
        (no_bytes, "TS301", "unpack_fp4 takes bytes"),
    ],
)
def test_what_is_refused(kernel: Callable[..., Any], code: str, says: str) -> None:
    assert codes(kernel)[:1] == [code]
    assert any(says in d.message for d in check(kernel).diagnostics)


def integers(A: Tensor["M", "K"], B: Tensor["K", "N"], C: Tensor["M", "N", ts.int32]):
    acc = ts.tile.zeros((16, 16), ts.int32)
    for k in ts.tile.range_k(0, K, 16):
        acc = ts.tile.mma(A[tile_m : tile_m + 16, k : k + 16], B[k : k + 16, tile_n : tile_n + 16], acc)
    C[tile_m : tile_m + 16, tile_n : tile_n + 16] = acc


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pair", [(np.int8, np.uint8), (np.uint8, np.int8), (np.int32, np.int8)])
def test_integers_meet_in_a_dtype_that_holds_both(pair: tuple[Any, Any], target: str) -> None:
    limits = [np.iinfo(np.int16 if p is np.int32 else p) for p in pair]
    a, b = (rng.integers(n.min, n.max, (20, 20)).astype(p) for n, p in zip(limits, pair, strict=True))
    out = np.zeros((20, 20), np.int32)
    run(integers, a, b, out, target=target)
    np.testing.assert_array_equal(out, a.astype(np.int64) @ b.astype(np.int64))
