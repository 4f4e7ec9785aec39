"""Findings about a kernel's memory and products agree with what the compiler for GPUs does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.machines import CUDA_ARCHITECTURES, SHARED_LIMITS, TENSOR_CORE_DTYPES, architecture_of
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.layouts.groups import TensorCores, on_tensor_cores
from tessera.compiler.targets.cuda.target import tensor_core_dtypes
from tessera.errors import TargetError

PROGRAM = Path(__file__).parents[2] / "errors/programs/memory.py"
HEAD = "import tessera as ts\nfrom tessera import Tensor, bf16, f16, f32, f64, int8\n\n@ts.kernel\n"


def read(text: str) -> list[Analysis]:
    file = FileAnalysis("model.py")
    file.update(text)
    assert not file.problems
    return file.analyses


def shared(bytes: int) -> str:
    return f"""{HEAD}def f(x: Tensor["M", 4, f32], y: Tensor["M", f32]):
    s = ts.tile.alloc_shared(({bytes // 16}, 4), f32)
    for m in ts.tile.range(0, M, {bytes // 16}):
        ts.tile.cp_async(s, x[m:m + {bytes // 16}, 0:4])
        ts.tile.barrier()
        y[m:m + {bytes // 16}] = ts.tile.row_sum(s)
"""


def test_the_budget_is_that_of_the_configured_target() -> None:
    text = shared(80 * 1024)
    want = {"auto": 0, "cuda": 0, "cpu": 0, "t4": 1, "sm_75": 1, "emulator:sm_75": 1, "a100": 0, "h100": 0}
    for target, count in want.items():
        with knobs.target.override(target):
            found = [d.code for a in read(text) for d in a.diagnostics]
        assert found == ["TS405"] * count, target
    with knobs.target.override("cpu"):
        assert not [d for a in read(shared(512 * 1024)) for d in a.diagnostics], "a CPU keeps such tiles in memory"


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_86"])
def test_what_is_said_to_exceed_the_budget_is_refused(target: str) -> None:
    arch = architecture_of(target)
    assert arch is not None
    with knobs.target.override(target):
        (a,) = read(shared(SHARED_LIMITS[arch] + 16))
    assert [d.code for d in a.diagnostics] == ["TS405"] and a.op is not None
    with pytest.raises(TargetError, match="TS405"):
        chosen = base.get(f"emulator:{target}")
        generate(lower(analyse(a.definition, None, {"M": SHARED_LIMITS[arch]}).unit(), chosen).program, chosen)


def test_targets_and_their_architectures() -> None:
    assert [architecture_of(t) for t in ("h100", "SM_80", "emulator:sm_90a", "auto", "cpu", "abacus")] == [
        90, 80, 90, None, None, None,
    ]  # fmt: skip
    assert {architecture_of(a) for a in CUDA_ARCHITECTURES} == set(SHARED_LIMITS)
    assert set[object]().union(*(tensor_core_dtypes(a) for a in SHARED_LIMITS)) == TENSOR_CORE_DTYPES


@pytest.mark.parametrize("m, n, k", [(16, 8, 16), (12, 8, 16), (16, 12, 16), (16, 8, 8), (64, 64, 32), (8, 8, 16)])
@pytest.mark.parametrize("dtype, acc", [("bf16", "f32"), ("int8", "ts.int32")])
def test_products_said_to_have_no_instruction_have_none(m: int, n: int, k: int, dtype: str, acc: str) -> None:
    (a,) = read(f"""{HEAD}def f(a: Tensor["M", "K", {dtype}], b: Tensor["K", "N", {dtype}], c: Tensor["M", "N", {acc}]):
    acc = ts.tile.zeros(({m}, {n}), {acc})
    for k in ts.tile.range_k(0, K, {k}):
        acc = ts.tile.mma(a[tile_m:tile_m + {m}, k:k + {k}], b[k:k + {k}, tile_n:tile_n + {n}], accumulator=acc)
    c[tile_m:tile_m + {m}, tile_n:tile_n + {n}] = acc
""")
    assert a.op is not None
    (product,) = [op for op in a.op.walk() if op.name == "tile.mma"]
    cores = [TensorCores(frozenset(tensor_core_dtypes(arch))) for arch in SHARED_LIMITS]  # pyright: ignore
    taken = any(on_tensor_cores(product, c) for c in cores)
    assert [d.code for d in a.diagnostics] == ([] if taken else ["TS410"])


def test_what_nobody_reads_is_taken_out() -> None:
    text = PROGRAM.read_text()
    found = [(a.name, d) for a in read(text) for d in a.diagnostics if d.code == "TS413"]
    assert len(found) == 2
    for name, d in found:
        mended = apply(text, d.fixes[0])
        assert len(mended.split("\n")) == len(text.split("\n")) - 1
        assert not next(a for a in read(mended) if a.name == name).diagnostics


def test_a_statement_that_shares_its_line_stays() -> None:
    """The fix takes out whole lines."""
    lines = PROGRAM.read_text().split("\n")
    for a in read(PROGRAM.read_text()):
        for d in a.diagnostics:
            if d.code == "TS413":
                line = lines[d.span.line - 1]
                for rest, offered in (("; later = 1", False), ("  # never read", True)):
                    shared = "\n".join([*lines[: d.span.line - 1], line + rest, *lines[d.span.line :]])
                    again = next(b for b in read(shared) if b.name == a.name)
                    assert [bool(e.fixes) for e in again.diagnostics if e.code == "TS413"] == [offered], line


def test_a_note_can_be_ignored() -> None:
    text = f"""{HEAD}def f(a: Tensor["M", "N", f32], y: Tensor["M", f32]):
    y[tile_m:tile_m + 64] = a[tile_m:tile_m + 64, 3]  # tessera: ignore[TS412]
"""
    (a,) = read(text)
    assert not a.diagnostics
    (b,) = read(text.replace("ignore[TS412]", "ignore[TS410]"))
    assert [(d.code, d.severity) for d in b.diagnostics] == [("TS412", "note")]


COLUMN = '@ts.kernel\ndef column(a: Tensor["M", "N", f32], y: Tensor["M", f32]):\n'
READS = "    y[tile_m:tile_m + 64] = a[tile_m:tile_m + 64, 3]\n"


@pytest.mark.parametrize(
    "more, offered",
    [
        ("", True),
        ("    y[tile_m:tile_m + 64] += a[tile_m:tile_m + 64, 1]  # of the same array\n", True),
        ("    y[tile_m:tile_m + 64] += ts.tile.row_sum(a[tile_m:tile_m + 64])  # by one index\n", False),
        ("\n\ncolumn(1, 2)  # somebody passes an array as it was\n", False),
    ],
)
def test_an_array_is_kept_transposed_where_nobody_else_knows_it(more: str, offered: bool) -> None:
    head = HEAD.removesuffix("@ts.kernel\n")
    text = head + COLUMN + READS + more
    (a,) = read(text)
    found = [d for d in a.diagnostics if d.code == "TS412"]
    assert found and [bool(d.fixes) for d in found] == [offered] * len(found)
    if offered:
        mended = apply(text, found[0].fixes[0])
        assert 'a: Tensor["N", "M", f32]' in mended and "a[3, tile_m:tile_m + 64]" in mended
        assert not read(mended)[0].diagnostics
