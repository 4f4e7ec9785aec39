"""Compiling for every architecture without a GPU, and what the machine code says."""

from __future__ import annotations

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tessera.compiler.targets import base
from tessera.compiler.targets.base import CUDA_ARCHITECTURES, Artifact
from tessera.compiler.targets.cuda import cubin
from tessera.errors import TargetError
from tessera.language import dtypes as dt
from tests.conftest import require
from tests.emulator import kernels as k

require("cuda.core")

SIMPLE = [name for name in k.TYPICAL if name not in ("attention", "matmul_f32")]


@pytest.fixture(scope="module")
def artifacts() -> dict[tuple[str, str], Artifact]:
    jobs = [(arch, name) for name in k.TYPICAL for arch in CUDA_ARCHITECTURES]
    programs = {name: make().program for name, make in k.TYPICAL.items()}
    with ThreadPoolExecutor(4) as pool:
        made = pool.map(lambda job: base.get(job[0]).compile(programs[job[1]]), jobs)
        return dict(zip(jobs, made, strict=True))


def test_every_kernel_compiles_for_every_architecture(artifacts: dict[tuple[str, str], Artifact]) -> None:
    for (arch, name), artifact in artifacts.items():
        assert artifact.files["code.cubin"][:4] == b"\x7fELF", (arch, name)
        for figures in artifact.resources.values():
            assert 0 < figures["registers"] <= 255
            assert 0 < figures["occupancy"] <= 1


def test_nothing_spills(artifacts: dict[tuple[str, str], Artifact]) -> None:
    spilled = {key: a.resources for key, a in artifacts.items() if any(f["spills"] for f in a.resources.values())}
    assert not spilled


def test_tensor_cores_and_async_copies_where_the_architecture_has_them(
    artifacts: dict[tuple[str, str], Artifact],
) -> None:
    def sass(arch: str, name: str) -> str:
        return cubin.disassemble(artifacts[arch, name].files["code.cubin"])

    for arch in ("sm_80", "sm_86", "sm_89"):
        for name in ("gemm_bf16", "gemm_f16", "matmul_bf16", "attention"):
            text = sass(arch, name)
            assert "HMMA.16816" in text and "LDGSTS" in text and "LDSM" in text, (arch, name)
    older = sass("sm_75", "gemm_f16")
    assert "HMMA.1688" in older and "LDGSTS" not in older
    assert "HMMA" in sass("sm_120", "gemm_bf16")
    assert "HMMA" not in sass("sm_80", "matmul_f32")
    assert "FFMA" in sass("sm_80", "matmul_f32")


def test_rows_are_read_in_whole_vectors() -> None:
    program = k.softmax(rows=64, cols=1024, block=1).program
    text = cubin.disassemble(base.get("sm_80").compile(program).files["code.cubin"])
    assert text.count("LDG.E.128") == text.count("STG.E.128") == 2
    assert "LDG.E " not in text, "no element goes alone where all is proved aligned"


def test_figures_agree_with_cuobjdump(artifacts: dict[tuple[str, str], Artifact]) -> None:
    for key in (("sm_80", "attention"), ("sm_90a", "gemm_bf16"), ("sm_75", "softmax")):
        code = artifacts[key].files["code.cubin"]
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


def test_machine_code_maps_to_generated_and_user_lines(artifacts: dict[tuple[str, str], Artifact]) -> None:
    artifact = artifacts["sm_80", "gemm_bf16"]
    target: Any = base.get("sm_80")
    products = [i for i in target.machine_code(artifact) if "HMMA" in i.text]
    source = artifact.source.splitlines()
    assert products and {source[i.line - 1].strip() for i in products} == {
        next(s.strip() for s in source if "ts::mma(" in s)
    }
    assert {i.file for i in products} == {"kernel.py"} and all(i.user_line > 1 for i in products)


@pytest.mark.parametrize("dtype", [dt.complex64, dt.complex128, dt.f32, dt.f64, dt.bf16, dt.int64, dt.uint8], ids=str)
def test_every_scalar_function_compiles(dtype: dt.DType) -> None:
    from tessera.language.scalars import TABLE
    from tests.emulator.test_tile_ops import accepts, elementwise_case

    names = [name for name, s in TABLE.items() if accepts(s, dtype)]
    for arch in ("sm_75", "sm_90a"):
        base.get(arch).compile(elementwise_case(dtype, names).program)


def test_all_conversions_compile_below_and_above_sm_80() -> None:
    from tests.emulator.test_tile_ops import conversions

    kinds = [dt.f32, dt.f64, dt.bf16, dt.f16, dt.fp8_e4m3, dt.int64, dt.uint8, dt.bool_]
    for arch in ("sm_75", "sm_89"):
        base.get(arch).compile(conversions(kinds).program)


def test_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(TargetError, match="TS601") as e:
        base.get("sm_61")
    assert all(arch in str(e.value) for arch in CUDA_ARCHITECTURES)


def test_a_rejected_kernel_shows_both_lines() -> None:
    from tessera.compiler.targets.cuda import nvrtc

    head = "#include <tessera/memory.cuh>\nnamespace ts = tessera;\n"
    source = head + 'extern "C" __global__ void k() {\n  auto x = ts::nonsense(1);\n}\n'
    with pytest.raises(TargetError, match="TS603") as e:
        nvrtc.compile_cubin(source, "sm_80", "k", [[3, "user.py", 7], [4, "user.py", 8]])
    (d,) = e.value.diagnostics
    assert (d.span.file, d.span.line) == ("user.py", 8)
    assert any("generated line 4: auto x = ts::nonsense(1);" in note.message for note in d.notes)


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    from tessera.compiler.targets.cuda import nvrtc
    from tessera.errors import MissingDependency

    real = importlib.import_module

    def without(name: str, *rest: str) -> object:
        if name.startswith("cuda"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    nvrtc.version.cache_clear()
    with pytest.raises(MissingDependency, match=r"tessera\[cuda\]"):
        nvrtc.compile_cubin("", "sm_80", "k", [])
    nvrtc.version.cache_clear()
