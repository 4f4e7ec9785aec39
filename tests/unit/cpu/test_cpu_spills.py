"""Vector registers that are spilled to the stack, blamed on the values that they hold, and lines of instructions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.targets import base
from tessera.compiler.targets.base import SpilledValue
from tessera.compiler.targets.cpu.assembly import listing
from tessera.compiler.targets.cpu.assembly.places import with_places
from tessera.compiler.targets.cpu.assembly.source import SourceText
from tessera.compiler.targets.cpu.assembly.spills import spilled_values
from tessera.compiler.targets.cpu.llvm import jit
from tessera.errors import source_line
from tessera.runtime.code.assembly import assembly_of
from tests.unit.cli.test_cli import answered

CPU: Any = base.get("cpu")


@ts.function
def waits(x: Tensor["M", "N"]) -> Tensor["M", "N"]:
    early = ts.gelu(x)
    late = ts.sin(x) * early
    return ts.softmax(early + late, axis=-1)


@ts.function
def few(x: Tensor["N"], y: Tensor["N"]) -> Tensor["N"]:
    return x + y


@ts.function
def layer(x: Tensor["M", "K"], w: Tensor["K", "N"]) -> Tensor["M", "N"]:
    return ts.gelu(x @ w)


def compiled(program: Any, **dims: int) -> tuple[Any, list[SpilledValue]]:
    made = ts.compile(program, target="cpu", dims=dims)
    return made, made.spills()


def test_a_value_that_waits_for_a_call_is_named_with_its_bytes() -> None:
    """The sine of large numbers is a call, and no vector register survives one: what is needed behind it must be
    stored. Each vector of `early` that is stored once lies in as many bytes as a register has."""
    made, values = compiled(waits, M=64, N=512)
    (early,) = [v for v in values if v.name == "early"]
    assert (early.kind, early.where) == ("value", "on the stack") and early.what.endswith(" x 512 f32")
    assert (source_line(early.file, early.line) or "").strip().startswith("early = ")
    vector = CPU.isa.bits // 8
    assert early.bytes > 0 and early.bytes % vector == 0 and early.stores * vector >= early.bytes
    assert early.loads >= 1
    assert "B of each thread lie on the stack" in str(early) and "early" in str(made.explain())


def test_code_that_needs_few_registers_spills_none() -> None:
    made, values = compiled(few, N=4096)
    assert values == [] and made.explain().spilled == []


@pytest.mark.parametrize(("program", "dims"), [(waits, {"M": 64, "N": 512}), (layer, {"M": 64, "K": 96, "N": 128})])
def test_debug_information_changes_no_instruction(program: Any, dims: dict[str, int]) -> None:
    """What the views show is what runs: the text without it gives the same instructions in the same order."""
    source = ts.compile(program, target="cpu", dims=dims).artifact.source
    plain = jit.assembly(jit.parsed(source), CPU.isa)
    marked = jit.assembly(jit.parsed(with_places(source, jit.parsed(source))), CPU.isa)
    shown = [one.text for _, code in listing.functions(listing.marked_assembly(source, CPU.isa)) for one in code]
    assert instructions(plain) == instructions(marked) == [" ".join(text.split()) for text in shown]


def instructions(assembly: str) -> list[str]:
    """Without comments and what belongs to debugging; those of a whole file."""
    code = re.split(r"\n\s+\.section\s+(?:\.debug|__DWARF)", assembly)[0]
    lines = (re.sub(r"\s*(#+|//|;) .*", "", line) for line in code.splitlines())
    return [" ".join(line.split()) for line in lines if re.match(r"\t[a-z]", line)]


@pytest.mark.parametrize(("program", "dims"), [(waits, {"M": 64, "N": 512}), (layer, {"M": 64, "K": 96, "N": 128})])
def test_every_spill_of_a_vector_belongs_to_a_value(program: Any, dims: dict[str, int]) -> None:
    """LLVM counts its spills in comments; no store or load is lost or told twice."""
    made, values = compiled(program, **dims)
    source = made.artifact.source
    raw = jit.assembly(jit.parsed(source), CPU.isa)
    sizes = [int(n) for n in re.findall(r"(\d+)-byte (?:Folded )?(?:Spill|Reload)", raw)]
    assert sum(v.stores + v.loads for v in values) >= sum(size >= 16 for size in sizes)
    assert sum(v.stores + v.loads for v in values) <= len(sizes)
    assert not [v for v in values if v.kind == "unknown"]


def test_instructions_have_lines() -> None:
    """Those of packing and multiplying have the line of the product that calls them."""
    made, _ = compiled(layer, M=64, K=96, N=128)
    code = CPU.machine_code(made.artifact, assembly_of(made.artifact) or "")
    own = [one for one in code if one.kernel == "layer_0_contract_gelu"]
    assert len(own) > 200
    assert sum(bool(one.user_line) for one in own) >= 0.95 * len(own)
    assert {(source_line(one.file, one.user_line) or "").strip() for one in own if one.user_line} == {
        "return ts.gelu(x @ w)"
    }
    assert any(one.text.startswith(("vfmadd", "fmla", "mulps")) for one in own if one.user_line)


LISTING = """\
kernel:
\t//## depth 0
\t//## Spill 32 v1
\tvmovaps\t%ymm3, 64(%rsp)
\t//## depth 2
.LBB0_1:
\t//## Reload 32
\tvaddps\t64(%rsp), %ymm1, %ymm1
\tjne\t.LBB0_1
\t//## depth 0
\t//## Spill 32 v2
\tvmovaps\t%ymm4, 64(%rsp)
\t//## Spill 8
\tmovq\t%rax, 128(%rsp)
\t//## Reload 32
\tvmovaps\t64(%rsp), %ymm0
\tretq
"""


def known(names: dict[str, str]) -> SourceText:
    source = SourceText.__new__(SourceText)
    rows = {x: {"name": name, "what": "f32", "file": "a.py", "line": 7} for x, name in names.items()}
    source.values, source.defined, source.lines = {"kernel": rows}, {"kernel": {"v2": ("a.py", 9)}}, {}
    source._own = []
    return source


def test_a_place_on_the_stack_that_is_used_twice_holds_two_values() -> None:
    ((name, code),) = listing.functions(LISTING)
    first, second = spilled_values("kernel", code, known({"v1": "early"}), name)
    assert (first.name, first.bytes, first.stores, first.loads, first.in_loops) == ("early", 32, 1, 1, 1)
    assert (second.kind, second.line, second.bytes, second.stores, second.loads) == ("temporary", 9, 32, 1, 1)


def test_a_jump_to_a_computed_place_is_said() -> None:
    ((name, code),) = listing.functions(LISTING.replace("jne\t.LBB0_1", "jmpq\t*%rax"))
    (unknown,) = spilled_values("kernel", code, known({}), name)
    assert unknown.kind == "unknown" and "jumps to a computed place" in str(unknown)
    assert unknown.stores + unknown.loads == 4


def test_the_command_line_tells_them(tmp_path: Path) -> None:
    path = tmp_path / "waits.py"
    text = Path(__file__).read_text()
    body = text[text.index("@ts.function\ndef waits") : text.index("@ts.function\ndef few")]
    path.write_text(f"import tessera as ts\nfrom tessera import Tensor\n\n\n{body}")
    words = ("compile", f"{path}:waits", "--target", "cpu", "--dims", "M=64,N=512", "-o", tmp_path)
    out = answered(*words, cwd=tmp_path)
    assert re.search(r"spilled  early: .* on the stack", out.stdout), out.stderr
    told = json.loads(answered(*words, "--json", cwd=tmp_path).stdout)
    assert "early" in [value["name"] for value in told["spilled"]]
