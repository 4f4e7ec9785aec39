"""Code for 64-bit ARM, which LLVM selects instructions for on any machine: it is written, and uses NEON's vectors.

Nothing of it runs here: what the instructions compute is LLVM's business, and order and masks are those of other
instruction sets.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cpu.kernel.program import ProgramWriter
from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.target import CpuTarget
from tests.conftest import require

NEON = VectorISA("neon", 128, 32, "+neon,+fp-armv8", "", cached_bytes=1 << 24)


class Arm(CpuTarget):
    """Gives assembly instead of code."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["isa"] = NEON

    def compile(self, program: Any, *, profile: bool = False, debug: bool = False) -> Artifact:
        text, _ = ProgramWriter(program, self.isa, profile, debug).render()
        return Artifact("cpu", program.name, text, {}, None, {}, {})


def assembly(function: Any, **dims: int) -> str:
    llvm = require("llvmlite.binding")
    jit.binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    program = ts.compile(function, target="cpu", dims=dims).lowered.program
    text = generate(program, Arm()).source
    assert "llvm.x86" not in text
    machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        features=NEON.features, opt=1, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    return machine.emit_assembly(module)


@ts.function
def product(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return ts.gelu(x @ w)


@ts.function
def narrow(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["K", "N", ts.bf16]):
    return x @ w


@ts.function
def rows(x: ts.Tensor["M", "K", ts.f32]):
    return ts.softmax(x), ts.cumsum(ts.sort(x), axis=0)


@ts.function
def halves(x: ts.Tensor["M", "K", ts.f16]):
    return ts.exp(x) * x.T.T


@pytest.mark.parametrize("sizes", [(256, 300, 96), (3, 70, 33)], ids=str)
@pytest.mark.parametrize("function", [product, narrow], ids=lambda f: f.name)
def test_products_are_fused_multiply_adds_of_vectors(function: Any, sizes: tuple[int, int, int]) -> None:
    for dims in (dict(zip("MKN", sizes, strict=True)), dict(zip("KN", sizes[1:], strict=True))):
        text = assembly(function, **dims)
        assert len(re.findall(r"\tfmla\tv\d+\.4s", text)) >= 6


@pytest.mark.parametrize("function", [rows, halves], ids=lambda f: f.name)
def test_rows_have_vectors(function: Any) -> None:
    text = assembly(function, M=64, K=333)
    assert len(re.findall(r"\tf\w+\tv\d+\.4s", text)) >= 16


def test_registers_hold_the_block_of_sums() -> None:
    """As many registers as AVX-512 has, of a quarter of the width: none of the 28 sums is spilled in the inner loop."""
    text = assembly(product, M=256, K=512, N=256)
    start = text.index("micro_matmul_f32_f32_f32")
    body = text[text.index("\n", start) : text.index(".Lfunc_end", start)]
    loops = [part for part in re.split(r"\n\.LBB\w+:", body) if part.count("fmla") >= 16]
    assert loops
    for loop in loops:
        assert not re.search(r"\b(str|stp|ldr|ldp)\tq\d+, .*\[sp", loop.split("b.l")[0])
