"""Registers that are spilled to memory, blamed on the values that they hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.base import Artifact, SpilledValue
from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.sass import listing
from tessera.compiler.targets.cuda.sass.flow import Webs, in_loops, moved
from tessera.compiler.targets.cuda.sass.spills import spilled_values
from tessera.errors import TargetError, source_line
from tests import kernel_runner
from tests.conftest import require
from tests.unit.cli.test_cli import answered

FEW = 40
"""registers that a thread is given where a kernel is made to spill"""


@ts.kernel(num_warps=1)
def keeps(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32]):
    early = x[tile_n : tile_n + 1536]
    for k in ts.tile.range_k(0, 9):
        y[tile_n : tile_n + 1536] = y[tile_n : tile_n + 1536] * 3 + k
    z[tile_n : tile_n + 1536] = early


@ts.kernel(num_warps=1)
def widths(x: ts.Tensor["n", ts.f64], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f64], w: ts.Tensor["n", ts.f32]):
    wide = x[tile_n : tile_n + 512] * 2.5
    narrow = y[tile_n : tile_n + 512] * 2.5
    for _ in ts.tile.range_k(0, 9):
        y[tile_n : tile_n + 512] = y[tile_n : tile_n + 512] * narrow
    for _ in ts.tile.range_k(0, 9):
        z[tile_n : tile_n + 512] = z[tile_n : tile_n + 512] * wide
    z[tile_n : tile_n + 512] = wide
    w[tile_n : tile_n + 512] = narrow


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16]) -> ts.Tensor["M", "N", ts.f32]:
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK))
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN))
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, ctx.BK):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc


def with_registers(most: int) -> Callable[..., Any]:
    """NVRTC with so many registers for a thread."""

    def bounded(source: str, *rest: Any, compile_code: Any = nvrtc.compile_code) -> Any:
        return compile_code(re.sub(r"__launch_bounds__\(\d+\)", f"__maxnreg__({most})", source), *rest)

    return bounded


def compiled(kernel: Any, arch: str, *arrays: Any, **config: int) -> tuple[Artifact, str, list[SpilledValue]]:
    """The artefact, its assembly, and what is spilled."""
    require("cuda.bindings")
    target: Any = base.get(arch)
    artifact = generate(lower(kernel_runner.check(kernel, *arrays, **config).unit(), target).program, target)
    assembly = target.assembly(artifact)
    return artifact, assembly, target.spilled(artifact, assembly)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_a_tile_that_waits_for_a_loop_is_named_with_its_bytes(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """48 registers that only the end needs, 40 for each thread: what does not fit lies in local memory."""
    monkeypatch.setattr(nvrtc, "compile_code", with_registers(FEW))
    f = np.zeros(1536, np.float32)
    artifact, assembly, values = compiled(keeps, arch, f, f, f)
    (early,) = [v for v in values if v.name == "early"]
    assert (early.kind, early.what, early.of) == ("value", "1536 f32", 4 * 48)
    assert (source_line(early.file, early.line) or "").strip().startswith("early = ")
    assert 4 * (48 - FEW) <= early.bytes <= 4 * 48
    moves = [one for one in code_of(assembly) if one.spill]
    where = {byte for one in moves for byte in moved(one).bytes}  # type: ignore[union-attr]
    assert -(-len(where) // 8) * 8 == artifact.resources["keeps"]["stack"], "all of the stack is told"
    assert sum(v.stores + v.loads for v in values) >= len(moves)
    assert not [v for v in values if v.kind == "unknown"]


def code_of(assembly: str) -> list[listing.SassInstruction]:
    (code,) = listing.spilling_kernels(assembly, ".cu").values()
    return code


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_instructions_agree_with_the_names(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of f64 are multiplied by DMUL, those of f32 by FMUL: that tells tiles apart without any line."""
    monkeypatch.setattr(nvrtc, "compile_code", with_registers(FEW))
    d, f = np.zeros(512), np.zeros(512, np.float32)
    _, assembly, values = compiled(widths, arch, d, f, d, f)
    code = code_of(assembly)
    webs = Webs(code)
    made: dict[str, set[tuple[int, int]]] = {"DMUL": set(), "FMUL": set()}
    for i, one in enumerate(code):
        for _, word in moved(one).words if one.spill and one.opcode == "STL" else ():  # type: ignore[union-attr]
            web = webs.web((i, -1 - word))
            for operation in {code[m].opcode for m in webs.defined[web]} & made.keys():
                made[operation].add(web)
    told = {v.name: v.bytes for v in values if v.kind == "value"}
    assert 0 < told["wide"] <= 4 * len(made["DMUL"])
    assert sum(n for name, n in told.items() if "narrow" in name) <= 4 * len(made["FMUL"])


@pytest.mark.parametrize(("arch", "smaller"), [("sm_80", (256, 128)), ("sm_90a", (256, 128))])
def test_a_large_accumulator_is_blamed_and_what_is_advised_helps(arch: str, smaller: tuple[int, int]) -> None:
    h = np.zeros((512, 512), np.float16)
    artifact, _, values = compiled(product, arch, h, h, BM=256, BN=256, BK=32)
    acc = values[0]
    assert (acc.name, acc.what, acc.of) == ("acc", "256 x 256 f32", 1024) and acc.in_loops > 0
    assert (source_line(acc.file, acc.line) or "").strip().startswith("acc = ts.tile.zeros")
    assert acc.bytes > sum(v.bytes for v in values) / 2
    assert not [v for v in values if v.kind == "value" and v is not acc]
    notes = artifact.meta["kernels"]["product"]["notes"]
    assert "acc of {} x {} instead of 256 x 256 would make room".format(*smaller) in notes
    better, assembly, none = compiled(product, arch, h, h, BM=smaller[0], BN=smaller[1], BK=32)
    assert better.resources["product"]["spills"] == 0 and none == [] and "//## Registers" not in assembly


LISTING = """//--------------------- .text.k_kernel                  --------------------------
.text.k_kernel:
{}
"""


def assembly_of(*instructions: tuple[Any, ...]) -> str:
    """(line, text, written, read) of each; a text alone is a label."""
    out: list[str] = []
    for n, one in enumerate(instructions):
        if len(one) == 1:
            out.append(f"{one[0]}:")
            continue
        line, text, writes, reads = one
        spill = "; spill" if text.split()[0].partition(".")[0] in ("STL", "LDL") else ""
        out.append(f'\t//## File "k.cu", line {line}')
        out.append(f"\t//## Registers: writes {writes}; reads {reads}{spill}")
        out.append(f"        /*{16 * n:04x}*/                   {text} ;")
    return LISTING.format("\n".join(out))


SOURCE = [
    "auto x = ts::load<Vec>(a, {i});",
    "auto y = ts::mul(x, 2.0f);",
    "auto z = ts::add(x, 3.0f);",
    "ts::store<Box>(b, y, {i});",
    "ts::scatter(b, z, {i});",
]
VALUES = [
    {
        "name": name,
        "what": "32 f32",
        "file": "user.py",
        "line": 10 + n,
        "bytes": 4,
        "kind": "float",
        "variables": [name],
    }
    for n, name in enumerate("xyz")
]
LINES = {n: ("user.py", 9 + n) for n in range(1, 6)}


def blamed(*instructions: tuple[Any, ...]) -> dict[str, tuple[int, int, int, int]]:
    code = listing.spilling_kernels(assembly_of(*instructions), "k.cu")["k_kernel"]
    found = spilled_values("k", code, SOURCE, VALUES, LINES)
    return {v.name or f"{v.kind} {v.line}": (v.bytes, v.stores, v.loads, v.in_loops) for v in found}


LOAD = (1, "LDG.E R4, [R2.64]", "4", "2 3")
Y, Z = (2, "FMUL R5, R4, 2", "5", "4"), (3, "FADD R6, R4, 3", "6", "4")


def test_one_place_for_two_values_is_counted_for_both() -> None:
    assert blamed(
        LOAD,
        Y,
        (2, "STL [R1+0x8], R5", "", "1 5"),
        (4, "LDL R7, [R1+0x8]", "7", "1"),
        (4, "STG.E [R2.64], R7", "", "2 3 7"),
        Z,
        (3, "STL [R1+0x8], R6", "", "1 6"),
        (5, "LDL R5, [R1+0x8]", "5", "1"),
        (5, "STG.E [R2.64], R5", "", "2 3 5"),
        (5, "EXIT", "", ""),
    ) == {"y": (4, 1, 1, 0), "z": (4, 1, 1, 0)}


def test_values_are_followed_through_copies_and_wide_moves() -> None:
    assert blamed(
        LOAD,
        Y,
        Z,
        (3, "MOV R8, R5", "8", "5"),
        (3, "IMAD.MOV.U32 R9, RZ, RZ, R6", "9", "6"),
        (3, "STL.64 [R1], R8", "", "1 8 9"),
        (4, "LDL R5, [R1]", "5", "1"),
        (4, "STG.E [R2.64], R5", "", "2 3 5"),
        (5, "LDL R5, [R1+0x4]", "5", "1"),
        (5, "STG.E [R2.64], R5", "", "2 3 5"),
        (5, "EXIT", "", ""),
    ) == {"y": (4, 1, 1, 0), "z": (4, 1, 1, 0)}


def test_what_nobody_named_gets_no_name() -> None:
    """A shared address, a number that one statement alone needs, and a mixture of two values."""
    assert blamed(
        (1, "IMAD.WIDE R10, R0, 4, R2", "10 11", "0 2 3"),
        (1, "STL [R1], R10", "", "1 10"),
        LOAD,
        Y,
        (4, "LDL R10, [R1]", "10", "1"),
        (4, "STG.E [R10.64], R5", "", "5 10 11"),
        (3, "FADD R12, R4, 1", "12", "4"),
        (3, "STL [R1+0x4], R12", "", "1 12"),
        (3, "LDL R13, [R1+0x4]", "13", "1"),
        (3, "FMUL R6, R13, 3", "6", "13"),
        (3, "@P0 FMUL R6, R13, 2", "6", "13"),
        (2, "@P1 MOV R6, R5", "6", "5"),
        (3, "STL [R1+0x8], R6", "", "1 6"),
        (5, "LDL R6, [R1+0x8]", "6", "1"),
        (5, "STG.E [R2.64], R6", "", "2 3 6"),
        (5, "EXIT", "", ""),
    ) == {"compiler 10": (4, 1, 1, 0), "temporary 12": (4, 1, 1, 0), "compiler 11": (4, 1, 1, 0)}


def test_variables_that_the_line_table_does_not_tell_apart_are_both_named() -> None:
    """Two loads, and two stores: an instruction of one may stand under the line of the other."""
    source = [
        "auto x = ts::load<A>(a, {i});",
        "auto y = ts::load<B<1>>(b, {i});",
        "ts::f(y);",
        "ts::store<C>(c, x, {i});",
    ]
    source.append("ts::store<C>(d, y, {i});")

    def names(first: int, other: int, last: int) -> list[str]:
        text = assembly_of(
            (first, "LDG.E R4, [R2.64]", "4", "2 3"),
            (first, "STL [R1], R4", "", "1 4"),
            (last, "LDL R4, [R1]", "4", "1"),
            (other, "STG.E [R2.64], R4", "", "2 3 4"),
            (last, "EXIT", "", ""),
        )
        code = listing.spilling_kernels(text, "k.cu")["k_kernel"]
        return [v.name for v in spilled_values("k", code, source, VALUES, LINES)]

    assert names(1, 4, 4) == names(2, 5, 5) == names(1, 5, 5) == ["x or y"]
    assert names(1, 3, 3) == names(2, 3, 3) == ["y"], "only y is used there"


def test_moves_in_loops_are_counted_apart() -> None:
    assert blamed(
        LOAD,
        Y,
        (2, "STL [R1], R5", "", "1 5"),
        (".L_x_1",),
        (4, "LDL R5, [R1]", "5", "1"),
        (4, "STG.E [R2.64], R5", "", "2 3 5"),
        (4, "@P0 BRA `(.L_x_1)", "", ""),
        (4, "EXIT", "", ""),
    ) == {"y": (4, 1, 1, 1)}
    assert in_loops([[1], [2], [1, 3], [], [4]]) == {1, 2, 4}


def test_flow_that_is_not_known_is_said_so() -> None:
    moves = (LOAD, Y, (2, "STL [R1], R5", "", "1 5"), (4, "LDL R5, [R1]", "5", "1"))
    assert blamed(*moves, (4, "BRX R8 -0x10", "", "8")) == {"unknown 0": (4, 1, 1, 0)}
    assert blamed(*moves, (4, "BRA `(.L_elsewhere)", "", "")) == {"unknown 0": (4, 1, 1, 0)}
    computed = (LOAD, Y, (2, "STL [R8], R5", "", "5 8"), (4, "EXIT", "", ""))
    assert blamed(*computed) == {"unknown 0": (0, 1, 0, 0)}


def test_a_products_sum_is_one_value_through_its_steps() -> None:
    """Both halves of a product stand on one line; what is stored between them is the accumulator all the same, and the
    operand is not."""
    source = ["auto acc = ts::full<L>(0.0f);", "auto acc_2 = ts::mma(a, b, acc);", "ts::store<Box>(c, acc, {i});"]
    values = [{**VALUES[0], "name": "acc", "variables": ["acc", "acc_2"]}]
    text = assembly_of(
        (1, "CS2R R4, SRZ", "4 5", ""),
        (2, "LDSM.16.M88.2 R8, [R3]", "8 9", "3"),
        (2, "STL [R1+0x8], R8", "", "1 8"),
        (2, "HMMA.16816.F16 R4, R8, R10, R4", "4 5", "4 5 8 9 10 11"),
        (2, "STL.64 [R1], R4", "", "1 4 5"),
        (2, "LDL R8, [R1+0x8]", "8", "1"),
        (2, "LDL.64 R12, [R1]", "12 13", "1"),
        (2, "HMMA.16816.F16 R12, R8, R10, R12", "12 13", "8 9 10 11 12 13"),
        (3, "STG.E.64 [R2.64], R12", "", "2 3 12 13"),
        (3, "EXIT", "", ""),
    )
    code = listing.spilling_kernels(text, "k.cu")["k_kernel"]
    found = spilled_values("k", code, source, values, LINES)
    assert [(v.kind, v.name, v.bytes) for v in found] == [("value", "acc", 8), ("temporary", "", 4)]


FAT = """import tessera as ts


@ts.kernel
def fat(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16]) -> ts.Tensor["M", "N", ts.f32]:
    a = ts.tile.load(A, shape=(256, 32))
    b = ts.tile.load(B, shape=(32, 256))
    acc = ts.tile.zeros((256, 256), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc
"""


def test_the_card_tells_what_is_spilled(tmp_path: Path) -> None:
    require("cuda.bindings")
    (tmp_path / "fat.py").write_text(FAT)
    command = ("compile", "fat.py:fat", "--target", "sm_80", "--dims", "M=512,N=512,K=512")
    told = answered(*command, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert re.search(r"  spilled  acc: 256 x 256 f32, 1024 B a thread, line 8: \d+ B", told.stdout)
    assert "//##" not in (tmp_path / "fat.sass").read_text()
    values = json.loads(answered(*command, "--json", cwd=tmp_path).stdout)["spilled"]
    assert values[0]["name"] == "acc" and values[0]["bytes"] > 0


def test_a_target_that_does_not_tell_refuses() -> None:
    f = np.zeros(1536, np.float32)
    compiled = ts.compile(keeps, target="reference", arguments=(f, f, f))
    with pytest.raises(TargetError, match=r"TS602[\s\S]*reference target does not tell"):
        compiled.spills()
    assert compiled.explain().spilled == []
