"""Products on tensor cores: every dtype, on architectures that have its instruction and on those that do without."""

from __future__ import annotations

import struct
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import cubin, nvrtc_library
from tessera.language import dtypes as dt
from tests.conftest import require
from tests.emulator import kernels as k
from tests.emulator.harness import Case, Ready, check, checked, ready, run
from tests.machine_code import instructions

ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_120")
DTYPES = (dt.fp8_e4m3, dt.fp8_e5m2, dt.bf16, dt.f16, dt.int8, dt.uint8, dt.f64)


def product(dtype: dt.DType, transposed: str = "", **sizes: Any) -> Case:
    """A contraction whose result is what f64 (integers: int64) arithmetic gives, before it is rounded to `dtype`."""
    case = k.matmul(**({"m": 32, "n": 32, "k": 96} | sizes), dtype=dtype, transposed=transposed)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        case.inputs = {
            n: k.RNG.integers(info.min, info.max, v.shape, endpoint=True).astype(dtype.numpy)
            for n, v in case.inputs.items()
        }
        case.expected = None
    if dtype.bits == 8 and not dtype.is_integer:
        # Sums of multiples of a quarter are exact in any order: then the result is the exact one, rounded once.
        case.inputs = {n: (k.RNG.integers(-3, 4, v.shape) * 0.25).astype(dtype.numpy) for n, v in case.inputs.items()}
        case.expected, case.rtol, case.atol = None, 0, 0
    return case


@checked(seeds=(3,))
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_agree_with_the_interpreter(arch: str, dtype: dt.DType) -> Ready:
    return ready(product(dtype), f"emulator:{arch}")


@pytest.mark.parametrize("dtype", [dt.fp8_e4m3, dt.int8, dt.f64], ids=str)
@pytest.mark.parametrize("transposed", ["A", "B", "AB"])
def test_operands_lie_either_way_round(dtype: dt.DType, transposed: str) -> None:
    for arch in ("sm_80", "sm_89"):
        case = product(dtype, transposed)
        check(case, target=f"emulator:{arch}", seeds=(0,))


@pytest.mark.parametrize("dtype", [dt.fp8_e4m3, dt.fp8_e5m2], ids=str)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89"])
def test_every_8_bit_float_keeps_its_value(arch: str, dtype: dt.DType) -> None:
    """Each of the 256 times one: subnormals, the largest, infinities and NaN."""
    case = k.gemm(m=64, n=64, k=64, dtype=dtype, block=(64, 64, 64))
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(every.astype("f4")), every, dtype.numpy.type(0))
    a, b = np.zeros((64, 64), dtype.numpy), np.eye(64, dtype=np.float32).astype(dtype.numpy)
    a[:4] = finite.reshape(4, 64)
    case.inputs |= {"A": a, "B": b, "C": np.zeros((64, 64), np.float32)}
    np.testing.assert_array_equal(run(case, f"emulator:{arch}")["C"], a.astype(np.float32))
    odd = every[~np.isfinite(every.astype("f4"))]
    a[:] = 0
    a[np.arange(len(odd)), np.arange(len(odd))] = odd
    ones = np.ones((64, 64), np.float32).astype(dtype.numpy)
    case.inputs |= {"A": a, "B": ones}
    got = run(case, f"emulator:{arch}")["C"]
    want = odd.astype(np.float32)[:, None] + np.zeros((1, 64), np.float32)
    np.testing.assert_array_equal(got[: len(odd)], want)


INSTRUCTIONS: dict[dt.DType, dict[str, str]] = {
    dt.fp8_e4m3: {"sm_75": "HMMA.1688", "sm_80": "HMMA.16816", "sm_89": "QMMA", "sm_120": "QMMA"},
    dt.fp8_e5m2: {"sm_80": "HMMA.16816", "sm_89": "QMMA", "sm_100": "MMA", "sm_120": "QMMA"},
    dt.int8: {"sm_75": "IMMA.8816", "sm_80": "IMMA.16832", "sm_90a": "IMMA", "sm_120": "IMMA"},
    dt.uint8: {"sm_80": "IMMA.16832.U8.U8"},
    dt.f64: {"sm_80": "DMMA", "sm_86": "DFMA", "sm_90a": "DMMA", "sm_100": "DMMA"},
}


@cache
def sass(arch: str) -> dict[dt.DType, str]:
    """The machine code of a product of each dtype that one instruction of the architecture is looked for in."""
    dtypes = [d for d, expected in INSTRUCTIONS.items() if arch in expected]
    cubins = [generate(product(d).program, base.get(arch)).files["code.cubin"] for d in dtypes]
    return dict(zip(dtypes, instructions(arch, cubins), strict=True))


@pytest.mark.parametrize("dtype", INSTRUCTIONS, ids=str)
def test_the_instructions_are_there(dtype: dt.DType) -> None:
    require("cuda.bindings")
    for arch, instruction in INSTRUCTIONS[dtype].items():
        assert instruction in sass(arch)[dtype], (arch, instruction)


def test_without_an_instruction_none_multiplies() -> None:
    require("cuda.bindings")
    assert "MMA" not in sass("sm_86")[dt.f64]


@pytest.mark.parametrize("transposed", ["", "A", "B", "AB"])
def test_sm_70_multiplies_by_fourths_of_a_warp(transposed: str) -> None:
    for block, warps in (((32, 8), 1), ((64, 32), 4), ((32, 64), 4)):
        case = product(dt.f16, transposed, m=64, n=64, block=block, warps=warps)
        check(case, target="emulator:sm_70", seeds=(0, 3))


@checked(seeds=(0, 3))
def test_results_of_fourths_of_a_warp_are_reduced_and_multiplied_again() -> Ready:
    return ready(k.attention(dtype=dt.f16), "emulator:sm_70")


def opcodes(code: bytes) -> Counter[int]:
    """How often each opcode occurs: the low 12 bits of the 16 bytes of every instruction."""
    (text,) = (s.data for s in cubin._sections(code) if s.name.startswith(".text."))
    return Counter(word & 0xFFF for (word, _) in struct.iter_unpack("<QQ", text))


def test_sm_70_has_its_instruction() -> None:
    """Disassemblers of CUDA 13.1 and later do not read sm_70: 0x236 is HMMA.884, four to a product of 32 x 8 x 4."""
    if nvrtc_library.library(12) is None:
        pytest.skip("CUDA 12's NVRTC is not installed")
    found = {d: opcodes(generate(product(d).program, base.get("sm_70")).files["code.cubin"]) for d in (dt.f16, dt.bf16)}
    assert found[dt.f16][0x236] and found[dt.f16][0x236] % (4 * 8) == 0, "32 of k at a time"
    assert not found[dt.bf16][0x236]
