"""Programs of several kernels: each part compiles by itself to the instructions that the whole text has."""

from __future__ import annotations

import re
from functools import cache

import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.targets import base
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cuda import cubin, nvrtc
from tessera.compiler.targets.cuda.parts import MOST, SourcePart, file_of
from tessera.errors import TargetError
from tests.conftest import require

require("cuda.bindings")


@ts.function
def several(x: Tensor[96, 64, ts.bf16], w: Tensor[64, 64, ts.bf16], n: Tensor[96, ts.int32]):
    product = ts.softmax(x @ w, axis=-1)
    return ts.sort(product.to(ts.f32), axis=0), ts.cumsum(n), ts.sum(product, axis=0)


@ts.function
def chain(x: Tensor[32, 32]):
    for k in range(10):
        x = ts.cumsum(x * (k + 2.0), axis=k % 2)
    return x


@cache
def compiled(arch: str) -> Artifact:
    return ts.compile(several, target=arch).artifact


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_parts_have_the_instructions_of_the_whole(arch: str) -> None:
    artifact = compiled(arch)
    parts = artifact.meta["parts"]
    assert len(parts) > 2 and sorted(n for p in parts for n in p["kernels"]) == sorted(artifact.meta["kernels"])
    whole = nvrtc.compile_code(artifact.files["code.cu"].decode(), arch, artifact.name, []).cubin
    want = _text_of(whole)
    found = [_text_of(artifact.files[file_of("code.cubin", i)]) for i in range(len(parts))]
    assert {name: code for part in found for name, code in part.items()} == want
    assert sum(map(len, found)) == len(want) == len(artifact.meta["kernels"])


def _text_of(code: bytes) -> dict[str, bytes]:
    """The machine code of each kernel."""
    return {s.name: s.data for s in cubin._sections(code) if s.name.startswith(".text.")}


def test_lines_of_parts_are_those_of_the_file() -> None:
    artifact = compiled("sm_80")
    source = artifact.files["code.cu"].decode()
    for part in artifact.meta["parts"]:
        text = SourcePart(**part).text(source)
        assert len(text.splitlines()) == len(source.splitlines())
        assert all(line in ("", want) for line, want in zip(text.splitlines(), source.splitlines(), strict=True))
        assert sorted(re.findall(r"(\w+)_kernel\(", text)) == sorted(part["kernels"])
    assembly = base.get("sm_80").assembly(artifact)  # type: ignore[attr-defined]
    assert all(f".text.{name}_kernel" in assembly for name in artifact.meta["kernels"])


def test_many_kernels_have_few_parts() -> None:
    parts = ts.compile(chain, target="emulator:sm_80").artifact.meta["parts"]
    assert len(parts) == 1, "the emulator compiles the whole text"
    artifact = ts.compile(chain, target="sm_80").artifact
    assert len(artifact.meta["kernels"]) > MOST == len(artifact.meta["parts"])
    assert all(file_of("code.cubin", i) in artifact.files for i in range(MOST))


def test_the_first_error_in_order_is_reported() -> None:
    sources = ["// a\nthis is wrong;\n", "// a\n\nso is this;\n"]
    for _ in range(3):
        with pytest.raises(TargetError, match="generated line 2: this is wrong"):
            nvrtc.compile_parts(sources, "sm_80", "k", [])
