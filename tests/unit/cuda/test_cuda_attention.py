"""Attention and its gradient as CUDA: compiled for architectures without a GPU, and executed by the emulator."""

from __future__ import annotations

import re

import pytest

import tessera as ts
from tessera import Tensor, knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.types import TensorType
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cuda import cubin
from tests.conftest import require
from tests.differential.test_attention_gradients import CASES, agrees, drawn


@ts.function
def step(
    q: Tensor["B", "H", "S", "D"], k: Tensor["B", "G", "S", "D"], v: Tensor["B", "G", "S", "D"],
    ct: Tensor["B", "H", "S", "D"],
):  # fmt: skip
    return ts.grad(lambda q, k, v: ts.sum(ts.attention(q, k, v, causal=True) * ct), argnums=(0, 1, 2))(q, k, v)


def compiled(arch: str, dtype: ts.DType, features: int) -> Artifact:
    require("cuda.bindings")
    types = {n: TensorType((2, h, 256, features), dtype) for n, h in (("q", 4), ("k", 2), ("v", 2), ("ct", 4))}
    target = base.get(arch)
    return generate(lower(analyse(step.definition(), types).unit(), target).program, target)


@pytest.mark.parametrize("features", [64, 128, 256])
@pytest.mark.parametrize(("arch", "instruction"), [("sm_80", "HMMA.16816"), ("sm_90a", "HGMMA")])
def test_products_are_on_tensor_cores_and_nothing_spills(arch: str, instruction: str, features: int) -> None:
    artifact = compiled(arch, ts.bf16, features)
    steps = {name: figures for name, figures in artifact.resources.items() if name.startswith("attention")}
    assert len(steps) == (3 if features <= 128 else 4)  # dk and dv of wide heads apart
    for name, figures in steps.items():
        assert figures["registers"] <= 255 and not figures["spills"], (name, figures)
    found = re.findall(r"\s(HG?MMA\.?\w*)", cubin.disassemble(artifact.files["code.cubin"]))
    assert any(f.startswith(instruction) for f in found)


@pytest.mark.parametrize(("arch", "dtype"), [("sm_75", ts.f16), ("sm_90a", ts.f32), ("sm_120", ts.bf16)])
def test_other_architectures(arch: str, dtype: ts.DType) -> None:
    assert compiled(arch, dtype, 64).files["code.cubin"][:4] == b"\x7fELF"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("kept", [ts.bf16, ts.f32])
def test_a_token_walks_the_keys_that_there_are(arch: str, kept: ts.DType) -> None:
    """The loop of what NVRTC compiled ends at an element of `lengths`; keys of fewer bits are not converted before."""
    require("cuda.bindings")
    shapes = {"q": (2, 4, 1, 64), "k": (2, 2, 2048, 64), "v": (2, 2, 2048, 64)}
    types = {n: TensorType(s, ts.f32 if n == "q" else kept) for n, s in shapes.items()}
    types["lengths"] = TensorType((2,), ts.int64)
    target = base.get(arch)
    artifact = generate(lower(analyse(token.definition(), types).unit(), target).program, target)
    assert artifact.files["code.cubin"][:4] == b"\x7fELF"
    ((name, figures),) = artifact.resources.items()
    assert name == "attention_forward" and not figures["spills"]
    source = artifact.files["code.cu"].decode()
    (bound,) = re.findall(r"for \(ts::idx j = [^;]*; j < (\w+);", source)
    assert f"ts::idx {bound} = (ts::idx)keys;" in source and "auto keys = ts::minimum(lengths" in source


@ts.function
def token(
    q: Tensor["B", "H", "1", "D"], k: Tensor["B", "G", "T", "D"], v: Tensor["B", "G", "T", "D"], lengths: Tensor["B"]
):
    return ts.attention(q, k, v, lengths=lengths)


@pytest.mark.parametrize("target", ["emulator:sm_80", "emulator:sm_90a"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("causal groups", "float32"),
        ("bias of keys", "bfloat16"),
        ("lengths", "bfloat16"),
        ("window", "float16"),
        ("starts", "float32"),
        ("starts of a causal window", "bfloat16"),
    ],
)
def test_in_the_emulator(name: str, dtype: str, target: str) -> None:
    require("g++")
    kind = getattr(require("ml_dtypes"), dtype, dtype)
    shapes, options = CASES[name]
    tolerance = {"float32": 2e-5, "float16": 8e-3, "bfloat16": 6e-2}[dtype]
    with knobs.target.override(target):
        agrees(drawn(*shapes, dtype=kind), tolerance, **options)
