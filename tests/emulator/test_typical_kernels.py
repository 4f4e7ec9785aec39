"""Typical kernels, executed from the generated CUDA C++."""

from __future__ import annotations

import pytest

from tessera.language import dtypes as dt
from tests.emulator import kernels as k
from tests.emulator.harness import Case, check, checked


@checked(seeds=(0, 1, 99))
@pytest.mark.parametrize("name", k.TYPICAL)
def test_agrees_with_numpy_under_every_interleaving(name: str) -> Case:
    return k.TYPICAL[name]()


@pytest.mark.parametrize(
    "make",
    [
        k.softmax,
        k.layernorm,
        k.saxpy,
        lambda warps: k.softmax(cols=3001, block=1, dim=k.N, warps=warps),
        lambda warps: k.gemm(m=64, k=64, warps=warps),
        lambda warps: k.matmul(warps=warps),
    ],
    ids=["softmax", "layernorm", "saxpy", "softmax_symbolic", "gemm", "matmul"],
)
def test_the_number_of_warps_changes_no_bit(make) -> None:
    results = []
    for warps in (1, 2, 8):
        k.RNG = k.np.random.default_rng(5)
        results.append(check(make(warps=warps), seeds=(3,)))
    for other in results[1:]:
        assert all(other[name].tobytes() == value.tobytes() for name, value in results[0].items())


@checked
@pytest.mark.parametrize("transposed", ["A", "B", "AB"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16], ids=str)
def test_transposed_operands_of_a_contraction(transposed: str, dtype: dt.DType) -> Case:
    return k.matmul(m=64, n=64, k=40, dtype=dtype, transposed=transposed)


@checked
@pytest.mark.parametrize("dtype", [dt.f64, dt.tf32, dt.f16, dt.fp8_e4m3, dt.int32], ids=str)
def test_dtypes_of_a_contraction(dtype: dt.DType) -> Case:
    case = k.matmul(m=48, n=32, k=40, dtype=dtype)
    if dtype.is_integer:
        case.inputs = {n: k.RNG.integers(-9, 9, v.shape).astype("i4") for n, v in case.inputs.items()}
        case.expected = {"C": case.inputs["A"] @ case.inputs["B"]}
    if dtype == dt.fp8_e4m3:
        case.rtol = case.atol = 0.2
    return case


def test_older_architecture_without_async_copies_or_bf16_products() -> None:
    check(k.gemm(m=64, k=64), target="emulator:sm_75")
    check(k.gemm(m=64, k=64, dtype=dt.f16), target="emulator:sm_75")
