"""Products by instructions that take scales of blocks (sm_120f): their dtypes, edges, and lanes that give scales."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cuda import cubin, nvrtc
from tessera.language import dtypes as dt
from tessera.language.dtypes import DType
from tests.conftest import require
from tests.kernel_runner import check
from tests.together import builds

SMALL = (dt.fp8_e4m3, dt.fp8_e5m2, dt.fp6_e2m3, dt.fp6_e3m2, dt.fp4_e2m1)
TARGET = "emulator:sm_120f"
rng = np.random.default_rng(31)


def wide(A: Tensor["M", "K"], AS: Tensor["M", "S"], B: Tensor["K", "N"], BS: Tensor["S", "N"],
         C: Tensor["M", "N", ts.f32]):  # fmt: skip
    """64 of K at a time: both operands as they lie."""
    acc, step = ts.tile.zeros((32, 16)), ts.tile.context().STEP
    for j in ts.tile.range_k(0, S, step):
        k = j * (64 // step)
        acc = ts.tile.mma(
            A[tile_m : tile_m + 32, k : k + 64], B[k : k + 64, tile_n : tile_n + 16], acc,
            a_scale=AS[tile_m : tile_m + 32, j : j + step], b_scale=BS[j : j + step, tile_n : tile_n + 16],
        )  # fmt: skip
    C[tile_m : tile_m + 32, tile_n : tile_n + 16] = acc


def turned(A: Tensor["K", "M"], AS: Tensor["S", "M"], B: Tensor["N", "K"], BS: Tensor["N", "S"],
           C: Tensor["M", "N", ts.f32]):  # fmt: skip
    """The same of transposed operands and scales."""
    acc, step = ts.tile.zeros((32, 16)), ts.tile.context().STEP
    for j in ts.tile.range_k(0, S, step):
        k = j * (64 // step)
        acc = ts.tile.mma(
            A[k : k + 64, tile_m : tile_m + 32].T, B[tile_n : tile_n + 16, k : k + 64].T, acc,
            a_scale=AS[j : j + step, tile_m : tile_m + 32].T, b_scale=BS[tile_n : tile_n + 16, j : j + step].T,
        )  # fmt: skip
    C[tile_m : tile_m + 32, tile_n : tile_n + 16] = acc


def elements(dtype: DType, *shape: int) -> Any:
    return rng.choice([-1.0, -0.5, 0, 0.5, 1, 1.5, 2], shape).astype(np.float32).astype(dtype.numpy)


def scales(dtype: DType, *shape: int) -> Any:
    """Of fp8_e4m3 with signs, fractions and zeros; sums of 256 products stay exact in f32."""
    if dtype is dt.fp8_e4m3:
        return rng.choice([-3.0, -1.5, -0.25, 0, 0.5, 1, 2, 5], shape).astype(np.float32).astype(dtype.numpy)
    return (2.0 ** rng.integers(-2, 4, shape)).astype(np.float32).astype(dtype.numpy)


def operands(a: DType, b: DType, scale: DType, m: int, n: int, k: int) -> tuple[Any, ...]:
    blocks = k // (32 if scale is dt.fp8_e8m0 else 16)
    return elements(a, m, k), scales(scale, m, blocks), elements(b, k, n), scales(scale, blocks, n)


def wanted(a: Any, a_scale: Any, b: Any, b_scale: Any) -> Any:
    left, right = (x.astype(np.float64) for x in (a, b))
    block = a.shape[1] // a_scale.shape[1]
    return (left * np.repeat(a_scale.astype(np.float64), block, 1)) @ (
        right * np.repeat(b_scale.astype(np.float64), block, 0)
    )


def compiled(
    kernel: Callable[..., Any], *args: Any, target: str = TARGET, debug: bool = False, **config: Any
) -> Artifact:
    """For this very target, so that its own passes run."""
    analysis = check(kernel, *args, **config)
    assert analysis.op is not None, analysis.diagnostics
    chosen = base.get(target)
    return generate(lower(analysis.unit(), chosen, lambda _, op: verify(op)).program, chosen, debug=debug)


def run(kernel: Callable[..., Any], *args: Any, target: str = TARGET, **config: Any) -> Artifact:
    made = compiled(kernel, *args, target=target, **config)
    base.get(target).load(made).run([a.ctypes.data for a in args], [], [])
    return made


def step_of(scale: DType) -> int:
    return 2 if scale is dt.fp8_e8m0 else 4


def notes(made: Artifact) -> str:
    return "\n".join(n for facts in made.meta["kernels"].values() for n in facts["notes"])


@dataclass
class Compared:
    """A kernel that is compiled, and what it should give."""

    made: Artifact
    args: tuple[Any, ...]
    out: Any
    expected: Any

    def check(self) -> None:
        assert "ts::mma_scaled(" in self.made.source
        base.get(TARGET).load(self.made).run([a.ctypes.data for a in (*self.args, self.out)], [], [])
        np.testing.assert_array_equal(self.out, self.expected)


def compared(kernel: Callable[..., Any], given_: tuple[Any, ...], scale: DType, expected: Any) -> Compared:
    out = np.full(expected.shape, 99, np.float32)
    return Compared(compiled(kernel, *given_, out, STEP=step_of(scale)), given_, out, expected)


def differ(kernel: Callable[..., Any], given_: tuple[Any, ...], scale: DType, expected: Any) -> None:
    compared(kernel, given_, scale, expected).check()


def pair(a: DType, b: DType) -> Compared:
    given_ = operands(a, b, dt.fp8_e8m0, 32, 16, 128)
    return compared(wide, given_, dt.fp8_e8m0, wanted(*given_))


@builds(pair)
@pytest.mark.parametrize(("a", "b"), [(d, SMALL[i - n]) for n in (0, 1) for i, d in enumerate(SMALL)], ids=str)
def test_pairs_with_powers_of_two(a: DType, b: DType, built: Compared) -> None:
    built.check()


def sized(kernel: Any, dtype: DType, scale: DType, m: int, n: int, k: int) -> Compared:
    given_ = operands(dtype, dtype, scale, m, n, k)
    expected = wanted(*given_)
    given_ = given_ if kernel is wide else tuple(np.ascontiguousarray(x.T) for x in given_)
    return compared(kernel, given_, scale, expected)


@builds(sized)
@pytest.mark.parametrize("kernel", [wide, turned])
@pytest.mark.parametrize(
    ("dtype", "scale"), [(dt.fp4_e2m1, dt.fp8_e4m3), (dt.fp4_e2m1, dt.fp8_e8m0), (dt.fp8_e4m3, dt.fp8_e8m0)], ids=str
)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 48, 128), (45, 21, 96), (1, 1, 32)])
def test_sizes_and_edges(kernel: Any, dtype: DType, scale: DType, m: int, n: int, k: int, built: Compared) -> None:
    built.check()


@given(
    st.integers(0, 2**32),
    st.sampled_from([(dt.fp4_e2m1, dt.fp8_e4m3), (dt.fp4_e2m1, dt.fp8_e8m0), (dt.fp6_e3m2, dt.fp8_e8m0)]),
)
@settings(max_examples=4, deadline=None)
def test_one_scale_is_felt_by_its_own_row_and_block_alone(seed: int, dtypes: tuple[DType, DType]) -> None:
    """All scales are 1 but one of each operand: another lane, byte or block would change other elements."""
    dtype, scale = dtypes
    a, a_scale, b, b_scale = operands(dtype, dtype, scale, 32, 16, 64)
    one = np.float32(1).astype(scale.numpy)
    a_scale[:], b_scale[:] = one, one
    picks = np.random.default_rng(seed)
    for s in (a_scale, b_scale):
        s[tuple(picks.integers(0, n) for n in s.shape)] = np.float32(8).astype(scale.numpy)
    differ(wide, (a, a_scale, b, b_scale), scale, wanted(a, a_scale, b, b_scale))


@pytest.mark.parametrize("scale", [dt.fp8_e8m0, dt.fp8_e4m3], ids=str)
def test_a_scale_that_is_nan_concerns_its_own_row(scale: DType) -> None:
    a, a_scale, b, b_scale = operands(dt.fp4_e2m1, dt.fp4_e2m1, scale, 32, 16, 64)
    a_scale[5, 1] = np.float32(np.nan).astype(scale.numpy)
    out = np.zeros((32, 16), np.float32)
    run(wide, a, a_scale, b, b_scale, out, STEP=step_of(scale))
    assert np.isnan(out[5]).all() and not np.isnan(np.delete(out, 5, 0)).any()


def one_scale(A: Tensor["B", "M", "K", ts.fp4_e2m1], S: Tensor["B", "M", "J", ts.fp8_e4m3],
              W: Tensor["K", "N", ts.fp4_e2m1], C: Tensor["B", "M", "N", ts.f32]):  # fmt: skip
    C[0:2, 0:16, :] = ts.tile.mma(A[0:2, 0:16, 0:64], W[0:64, :], a_scale=S[0:2, 0:16, 0:4])


def test_a_batch_with_one_scale() -> None:
    a, s, w = elements(dt.fp4_e2m1, 2, 16, 64), scales(dt.fp8_e4m3, 2, 16, 4), elements(dt.fp4_e2m1, 64, 8)
    out = np.full((2, 16, 8), 99, np.float32)
    made = run(one_scale, a, s, w, out)
    assert made.source.count("ts::mma_scaled(") == 2
    np.testing.assert_array_equal(
        out, (a.astype(np.float64) * np.repeat(s.astype(np.float64), 16, -1)) @ w.astype(np.float64)
    )


def shared(A: Tensor["M", "K", ts.fp8_e4m3], AS: Tensor["M", "S", ts.fp8_e8m0], B: Tensor["K", "N", ts.fp8_e5m2],
           BS: Tensor["S", "N", ts.fp8_e8m0], C: Tensor["M", "N", ts.f32]):  # fmt: skip
    """The author's own shared tiles."""
    step = ts.tile.context().STEP
    a, b = ts.tile.alloc_shared((32, 64), ts.fp8_e4m3), ts.tile.alloc_shared((64, 16), ts.fp8_e5m2)
    ts.tile.cp_async(a, A[0:32, 0:64])
    ts.tile.cp_async(b, B[0:64, 0:16])
    ts.tile.barrier()
    C[0:32, 0:16] = ts.tile.mma(a, b, a_scale=AS[0:32, 0:step], b_scale=BS[0:step, 0:16])


def test_shared_tiles() -> None:
    given_ = operands(dt.fp8_e4m3, dt.fp8_e5m2, dt.fp8_e8m0, 32, 16, 64)
    differ(shared, given_, dt.fp8_e8m0, wanted(*given_))


def mixed(A: Tensor["M", "K", ts.fp4_e2m1], AS: Tensor["M", "S", ts.fp8_e4m3], B: Tensor["K", "N", ts.fp4_e2m1],
          BS: Tensor["S", "N", ts.fp8_e4m3], D: Tensor["M", "L", ts.f32], E: Tensor["L", "N", ts.f32],
          C: Tensor["M", "N", ts.f32]):  # fmt: skip
    acc = ts.tile.mma(A[0:32, 0:64], B[0:64, 0:16], a_scale=AS[0:32, 0:4], b_scale=BS[0:4, 0:16])
    C[0:32, 0:16] = ts.tile.mma(D[0:32, 0:8], E[0:8, 0:16], acc)


def test_a_sum_that_a_product_without_tensor_cores_adds_to() -> None:
    given_ = operands(dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e4m3, 32, 16, 64)
    d, e, out = np.ones((32, 8), np.float32), np.ones((8, 16), np.float32), np.zeros((32, 16), np.float32)
    made = run(mixed, *given_, d, e, out)
    np.testing.assert_array_equal(out, wanted(*given_) + 8)
    assert "another product that adds to the same sum" in notes(made)


def narrow(A: Tensor["M", "K"], AS: Tensor["M", "S"], B: Tensor["K", "N"], C: Tensor["M", "N", ts.f32]):
    m, k, s = ts.tile.context().ROWS, ts.tile.context().DEPTH, ts.tile.context().BLOCKS
    C[0:m, 0:8] = ts.tile.mma(A[0:m, 0:k], B[0:k, 0:8], a_scale=AS[0:m, 0:s])


@pytest.mark.parametrize(
    ("a", "b", "scale", "rows", "depth", "why"),
    [
        (dt.fp4_e2m1, dt.bf16, dt.fp8_e8m0, 16, 64, "no instruction takes fp4_e2m1 and bf16"),
        (dt.fp8_e4m3, dt.fp8_e4m3, dt.fp8_e4m3, 16, 64, "takes fp8_e4m3 and fp8_e4m3 with scales in fp8_e4m3"),
        (dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e4m3, 16, 32, "multiples of 64 of K with scales in fp8_e4m3, and it has 32"),
        (dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e8m0, 8, 64, "multiples of 16 rows and 8 columns, and it has 8 x 8"),
        (dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e8m0, 16, 32, ""),
    ],
    ids=str,
)  # fmt: skip
def test_what_no_instruction_takes_stays_in_bf16_and_says_why(
    a: DType, b: DType, scale: DType, rows: int, depth: int, why: str
) -> None:
    blocks = depth // (32 if scale is dt.fp8_e8m0 else 16)
    given_ = elements(a, rows, depth), scales(scale, rows, blocks), elements(b, depth, 8)
    out = np.full((rows, 8), 99, np.float32)
    made = run(narrow, *given_, out, ROWS=rows, DEPTH=depth, BLOCKS=blocks)
    left = given_[0].astype(np.float64) * np.repeat(given_[1].astype(np.float64), depth // blocks, 1)
    np.testing.assert_array_equal(out, left @ given_[2].astype(np.float64))
    assert ("mma_scaled" in made.source) == (not why)
    assert why in notes(made) and ("behind its scales" in notes(made)) == bool(why)


@pytest.mark.parametrize("target", ["emulator:sm_120", "emulator:sm_100", "emulator:sm_90a", "cpu", "reference"])
def test_other_targets_multiply_in_bf16(target: str) -> None:
    given_ = operands(dt.fp4_e2m1, dt.fp4_e2m1, dt.fp8_e8m0, 32, 16, 64)
    out = np.full((32, 16), 99, np.float32)
    made = run(wide, *given_, out, target=target, STEP=2)
    assert "mma_scaled" not in made.source
    np.testing.assert_array_equal(out, wanted(*given_))


@pytest.mark.parametrize(
    ("scale", "instruction"),
    [(dt.fp8_e4m3, "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"), (dt.fp8_e8m0, "OMMA.SF.16864.F32.E2M1.E2M1.E8")],
    ids=str,
)
def test_the_instruction_of_fp4_is_there(scale: DType, instruction: str) -> None:
    require("cuda.bindings")
    target: Any = base.get("sm_120f")
    given_ = operands(dt.fp4_e2m1, dt.fp4_e2m1, scale, 64, 32, 128)
    made = compiled(wide, *given_, np.empty((64, 32), np.float32), target="sm_120f", STEP=step_of(scale))
    assert instruction in target.assembly(made)
    assert "code.ptx" not in made.files


def test_every_pair_has_its_instruction() -> None:
    """All in one kernel: a name that is exchanged would be missed by the others."""
    require("cuda.bindings")
    calls = [
        f"ts::hw::mma_scaled_k32<ts::{a.name}, ts::{b.name}>(d, a, b, s[0], s[1]);" for a, b in product(SMALL, SMALL)
    ]
    source = f"""#include <tessera/mma_scaled.cuh>
    namespace ts = tessera;
    extern "C" __global__ void k_kernel(float* out, const ts::u32* given) {{
      float d[4] = {{0, 0, 0, 0}};
      ts::u32 a[4], b[2], s[2];
      for (int i = 0; i < 4; ++i) a[i] = given[i], b[i % 2] = given[4 + i % 2], s[i % 2] = given[6 + i % 2];
      {" ".join(calls)}
      for (int i = 0; i < 4; ++i) out[i] = d[i];
    }}"""
    text = cubin.disassemble(nvrtc.compile_code(source, "sm_120f", "k", []).cubin)
    found = re.findall(r"QMMA\.SF\.16832\.F32\.(\w+)\.(\w+)\.E8", text)
    assert found == [(a.name[4:].upper(), b.name[4:].upper()) for a, b in product(SMALL, SMALL)]


def test_names_of_the_family() -> None:
    for name in ("rtx5090", "sm_120a", "sm_121a"):
        assert base.get(name).name == "sm_120f"
