"""Compiling for every architecture without a GPU, and what the machine code says."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.base import CUDA_ARCHITECTURES, Artifact
from tessera.compiler.targets.cuda import cubin, nvrtc, nvrtc_library
from tessera.compiler.tile.program import Program
from tessera.errors import MissingDependency, TargetError
from tessera.language import dtypes as dt
from tessera.runtime.code.assembly import plain_assembly
from tests.conftest import IN_CI, require
from tests.emulator import kernels as k
from tests.machine_code import instructions

require("cuda.bindings")

ARCHITECTURES = [a for a in CUDA_ARCHITECTURES if a != "sm_70" or IN_CI or nvrtc_library.library(12) is not None]
"""sm_70 takes CUDA 12's NVRTC beside CUDA 13's; CI has both."""


def moves() -> Program:
    """A prefix sum, a sort, a gather and a scatter."""
    n = 96

    def body(t: k.LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, [t.index(0)], (n,))
        sums = t.value("tile.scan", (tile,), tile.type, {"op": "sum", "axis": 0})
        places = {"axis": 0, "descending": False, "positions": True}
        order = t.value("tile.sort", (sums,), TileType((n,), dt.int64), places)
        t.op("tile.scatter", [y, t.value("tile.gather", [x, order], tile.type, {"fill": 0.0}), order])

    return k.build("moves", [k.Arg("x", (n,), dt.f32), k.Arg("y", (n,), dt.f32, out=True)], (1,), body)


KERNELS: dict[str, Callable[[], Any]] = {
    **k.TYPICAL,
    "moves": moves,
    "attention_f16": lambda: k.attention(dtype=dt.f16),
    "gemm_fp8": lambda: k.gemm(dtype=dt.fp8_e4m3, block=(64, 64, 96)),
    "matmul_fp8": lambda: k.matmul(m=128, n=64, k=128, dtype=dt.fp8_e5m2, block=(64, 64), transposed="B"),
    "matmul_int8": lambda: k.matmul(dtype=dt.int8),
    "matmul_tf32": lambda: k.matmul(m=128, n=64, k=128, dtype=dt.tf32, block=(64, 64), transposed="B"),
    "matmul_f64": lambda: k.matmul(dtype=dt.f64),
}


@cache
def compiled(arch: str, name: str) -> Artifact:
    """Kept for all tests of this file."""
    case = KERNELS[name]()
    return generate(case if isinstance(case, Program) else case.program, base.get(arch))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_compiles_without_warnings_or_spills(arch: str) -> None:
    for name in KERNELS:
        artifact = compiled(arch, name)
        assert artifact.files["code.cubin"][:4] == b"\x7fELF", name
        assert "warning" not in artifact.source, name
        for figures in artifact.resources.values():
            assert 0 < figures["registers"] <= 255 and not figures["spills"], (name, figures)
            assert 0 < figures["occupancy"] <= 1


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_code_with_phases_compiles_and_reads_the_clock(arch: str) -> None:
    """Sums of phases take hardly a register. ptxas for sm_70 puts one value of two kernels into memory."""
    for name in ("softmax", "gemm_bf16", "attention", "matmul_f32"):
        artifact = generate(KERNELS[name]().program, base.get(arch), profile=True)
        assert artifact.files["code.cubin"][:4] == b"\x7fELF" and "warning" not in artifact.source, name
        assert b"%clock" in artifact.files.get("code.ptx", b"%clock"), "architectures of one GPU have no PTX"
        for kernel, figures in artifact.resources.items():
            plain = compiled(arch, name).resources[kernel]
            assert figures["spills"] <= (8 if arch == "sm_70" else 0), (name, figures)
            assert figures["registers"] <= plain["registers"] + 16, (name, figures, plain)


# The instruction that multiplies, by kernel, on sm_75, 80, 86, 89, 90a, 100a and 120 (120f: the same).
MULTIPLIES = {
    "gemm_f16": "HMMA.1688 HMMA.16816 HMMA.16816 HMMA.16816 HGMMA HMMA.16816 HMMA.16816",
    "gemm_bf16": "FFMA HMMA.16816 HMMA.16816 HMMA.16816 HGMMA HMMA.16816 HMMA.16816",
    "attention": "FFMA HMMA.16816 HMMA.16816 HMMA.16816 HGMMA HMMA.16816 HMMA.16816",
    "matmul_tf32": "FFMA HMMA.1688 HMMA.1688 HMMA.1688 HGMMA HMMA.1688 HMMA.1688",
    "gemm_fp8": "HMMA.1688 HMMA.16816 HMMA.16816 QMMA.16832 HMMA.16816 HMMA.16816 QMMA.16832",
    "matmul_int8": "IMMA.8816 IMMA.16832 IMMA.16832 IMMA.16832 IMMA.16832 IMMA.16832 IMMA.16832",
    "matmul_f64": "DFMA DMMA.884 DFMA DFMA DMMA.8x8x4 DMMA.8x8x4 DFMA",
    "matmul_f32": "FFMA FFMA FFMA FFMA FFMA FFMA FFMA",
}


@cache
def sass(arch: str) -> dict[str, str]:
    """The instructions of the products for one architecture."""
    names = (*MULTIPLIES, "matmul_bf16")
    return dict(zip(names, instructions(arch, [compiled(arch, n).files["code.cubin"] for n in names]), strict=True))


@pytest.mark.parametrize("arch", [a for a in ARCHITECTURES if a != "sm_70"])
def test_every_product_has_its_architectures_instruction(arch: str) -> None:
    others = [a for a in CUDA_ARCHITECTURES if a != "sm_70"]
    for name, wanted in MULTIPLIES.items():
        found = set(re.findall(r"\s((?:[HIQD]G?MMA|[FD]FMA)(?:\.\w+)?)", sass(arch)[name]))
        expected = wanted.split()[others.index(arch.rstrip("f"))]
        assert any(instruction.startswith(expected) for instruction in found), (name, found)
        if "MMA" not in expected:
            assert not any("MMA" in instruction for instruction in found), (name, found)


def test_tensor_cores_and_async_copies_where_the_architecture_has_them() -> None:
    for arch in ("sm_80", "sm_86", "sm_89"):
        for name in ("gemm_bf16", "gemm_f16", "matmul_bf16", "attention"):
            text = sass(arch)[name]
            assert "HMMA.16816" in text and "LDGSTS" in text and "LDSM" in text, (arch, name)
    older = sass("sm_75")["gemm_f16"]
    assert "HMMA.1688" in older and "LDGSTS" not in older
    assert "HMMA" in sass("sm_120")["gemm_bf16"]
    assert "HMMA" not in sass("sm_80")["matmul_f32"]
    assert "FFMA" in sass("sm_80")["matmul_f32"]


def test_rows_are_read_in_whole_vectors() -> None:
    program = k.softmax(rows=64, cols=1024, block=1).program
    text = cubin.disassemble(generate(program, base.get("sm_80")).files["code.cubin"])
    assert text.count("LDG.E.128") == text.count("STG.E.128") == 2
    assert "LDG.E " not in text, "no element goes alone where all is proved aligned"


def test_warps_share_out_what_they_fold_together() -> None:
    """Eight partial results of a thread, eight warps: each folds one of them, instead of every warp all."""
    artifact = generate(k.softmax(rows=64, cols=1024, block=4, warps=8).program, base.get("sm_80"))
    assert cubin.disassemble(artifact.files["code.cubin"]).count("LDS") <= 2 * (8 + 8)
    assert artifact.resources["softmax"]["registers"] <= 72


def test_figures_agree_with_cuobjdump() -> None:
    for key in (("sm_80", "attention"), ("sm_90a", "gemm_bf16"), ("sm_75", "softmax")):
        code = compiled(*key).files["code.cubin"]
        with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
            Path(f.name).write_bytes(code)
            out = subprocess.run(
                [cubin.binary("cuobjdump"), "-res-usage", f.name], capture_output=True, text=True, check=True
            ).stdout
        for name, figures in cubin.resources(code).items():
            assert f"Function {name}:" in out
            line = out.split(f"Function {name}:")[1].splitlines()[1]
            said = dict(part.split(":") for part in line.split() if ":" in part)
            assert (int(said["REG"]), int(said["STACK"])) == (figures.registers, figures.stack)


def test_machine_code_maps_to_generated_and_user_lines() -> None:
    artifact = compiled("sm_80", "gemm_bf16")
    target: Any = base.get("sm_80")
    code = target.machine_code(artifact, target.assembly(artifact))
    products = [i for i in code if "HMMA" in i.text]
    source = artifact.source.splitlines()
    assert products and {source[i.line - 1].strip() for i in products} == {
        next(s.strip() for s in source if "ts::mma(" in s)
    }
    assert {i.file for i in products} == {"kernel.py"} and all(i.user_line > 1 for i in products)
    assert {i.kernel for i in code} == set(artifact.resources)
    attributed = [i for i in code if i.user_line]
    assert len(attributed) >= 0.95 * len(code)
    most = max(i.live or 0 for i in code)
    assert most <= artifact.resources["gemm"]["registers"] < most + 32, "the compiler gives out few more than it needs"


@pytest.mark.parametrize("dtype", [dt.complex64, dt.complex128, dt.f32, dt.f64, dt.bf16, dt.int64, dt.uint8], ids=str)
def test_every_scalar_function_compiles(dtype: dt.DType) -> None:
    from tessera.language.scalars import TABLE
    from tests.emulator.test_tile_ops import accepts, elementwise_case

    names = [name for name, s in TABLE.items() if accepts(s, dtype)]
    for arch in ("sm_75", "sm_90a"):
        generate(elementwise_case(dtype, names).program, base.get(arch))


def test_all_conversions_compile_below_and_above_sm_80() -> None:
    from tests.emulator.test_tile_ops import conversions

    kinds = [dt.f32, dt.f64, dt.bf16, dt.f16, dt.fp8_e4m3, dt.int64, dt.uint8, dt.bool_]
    for arch in ("sm_75", "sm_89"):
        generate(conversions(kinds).program, base.get(arch))


def test_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(TargetError, match="TS601") as e:
        base.get("sm_61")
    assert all(arch in str(e.value) for arch in CUDA_ARCHITECTURES)


def test_a_rejected_kernel_shows_both_lines() -> None:
    head = "#include <tessera/memory.cuh>\nnamespace ts = tessera;\n"
    source = head + 'extern "C" __global__ void k() {\n  auto x = ts::nonsense(1);\n}\n'
    with pytest.raises(TargetError, match="TS603") as e:
        nvrtc.compile_cubin(source, "sm_80", "k", [[3, "user.py", 7], [4, "user.py", 8]])
    (d,) = e.value.diagnostics
    assert (d.span.file, d.span.line) == ("user.py", 8)
    assert any("generated line 4: auto x = ts::nonsense(1);" in note.message for note in d.notes)


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_library, "library", lambda major: None)
    for arch, extra in (("sm_80", "cuda"), ("sm_90a", "cuda"), ("sm_70", "cuda12")):
        with pytest.raises(MissingDependency, match=rf"TS604[\s\S]*{arch}[\s\S]*tessera\[{extra}\]"):
            nvrtc.compile_cubin("", arch, "k", [])


def test_each_architecture_is_compiled_by_the_newest_library_that_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Library = nvrtc_library.NvrtcLibrary
    both = {13: Library(None, (13, 4), frozenset((75, 90))), 12: Library(None, (12, 9), frozenset((70, 75, 90)))}
    monkeypatch.setattr(nvrtc_library, "library", both.get)
    assert [nvrtc.version(arch) for arch in ("sm_70", "sm_75", "sm_90a")] == ["12.9", "13.4", "13.4"]
    del both[13]
    assert nvrtc.version("sm_90a") == "12.9", "CUDA 12's alone serves"
    with pytest.raises(MissingDependency, match=r"sm_120[\s\S]*tessera\[cuda\]"):
        nvrtc.version("sm_120")


def test_both_libraries_compile_in_one_process() -> None:
    if nvrtc_library.library(12) is None:
        pytest.skip("CUDA 12's NVRTC is not installed")
    program = k.saxpy(n=100).program
    versions = {base.get(arch).fingerprint.split()[1].partition(".")[0] for arch in ("sm_70", "sm_80")}
    assert versions == {"nvrtc-12", "nvrtc-13"}
    for arch in ("sm_70", "sm_80", "sm_70"):
        assert generate(program, base.get(arch)).files["code.cubin"][:4] == b"\x7fELF"


def test_machine_code_that_nvdisasm_does_not_read_is_said_so() -> None:
    with pytest.raises(TargetError, match=r"TS602.*\n.*nvdisasm cannot show"):
        cubin.disassemble(b"not a cubin")


def test_a_compiler_that_warns_is_heard() -> None:
    source = 'extern "C" __global__ void k(int* p) { int unused = 1; p[0] = 1; }\n'
    code, warnings = nvrtc.compile_cubin(source, "sm_80", "k", [])
    assert code[:4] == b"\x7fELF" and "k.cu(1)" in warnings and "unused" in warnings


def test_assembly_is_plain_sass(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compiled("sm_80", "saxpy")
    text = plain_assembly(artifact)
    assert text is not None and "STG" in text and "//##" not in text

    def absent(name: str) -> str:
        raise MissingDependency(name, "cuda", "Showing machine code")

    monkeypatch.setattr(cubin, "binary", absent)
    artifact.assembly = None
    assert plain_assembly(artifact) == text, "the disk has it"
    artifact.assembly = None
    monkeypatch.setenv("TESSERA_CACHE_SIZE", "0")
    with pytest.raises(MissingDependency, match="nvdisasm"):
        plain_assembly(artifact)
