"""The emulator finds what a GPU would let pass: each fault is planted into a generated kernel and must be reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import SharedType, TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import host_library
from tessera.compiler.targets.cuda.emulate import EmulatedExecutable
from tessera.errors import DebugCheckError, TargetError
from tessera.language import dtypes as dt
from tests.emulator import kernels as k
from tests.emulator.harness import Arg, Case, LineBuilder, build, run


def planted(case: Case, *changes: tuple[str, str], target: str = "emulator:sm_80") -> EmulatedExecutable:
    """The case's kernel with its text changed; every change must apply."""
    compiled = base.get(target)
    artifact = generate(case.program, compiled)
    source = artifact.source
    for old, new in changes:
        assert old in source, source
        source = source.replace(old, new)
    artifact.source, artifact.files["code.cu"] = source, source.encode()
    executable = EmulatedExecutable(artifact)
    _ = executable.path  # raises where it does not compile
    return executable


def fails(case: Case, match: str, *changes: tuple[str, str], seed: int = 0) -> DebugCheckError:
    executable = planted(case, *changes)
    with pytest.raises(DebugCheckError, match=match) as e:
        run(case, executable=executable, seed=seed)
    return e.value


def turned() -> Case:
    """A tile goes through shared memory and comes back turned: its only barrier is what keeps it right."""

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        s = t.value("tile.alloc_shared", (), SharedType((32, 32), dt.f32), hint="stage")
        t.op("tile.store_shared", [s, t.load(x, t.ints(0, 0), (32, 32))])
        t.op("tile.barrier")
        tile = t.value("tile.load_shared", (s,), TileType((32, 32), dt.f32))
        t.store(y, t.transpose(tile, (1, 0)), t.ints(0, 0))

    args = [Arg("x", (32, 32), dt.f32), Arg("y", (32, 32), dt.f32, out=True)]
    return Case(build("turned", args, (1,), body), {"x": k.normal(32, 32)})


def test_a_race_through_global_memory() -> None:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        t.store(y, t.load(x, [t.index(0)], (512,)), [t.index(0)])
        t.store(y, t.load(y, [t.index(1)], (511,)), [t.index(0)])

    args = [Arg("x", (512,), dt.f32), Arg("y", (512,), dt.f32, out=True)]
    case = Case(build("shift", args, (1,), body), {"x": k.normal(512)})
    for seed in (0, 5):
        error = fails(case, "race on y.*without a barrier between", ("ts::sync();", ""), seed=seed)
        (d,) = error.diagnostics
        assert d.span.file == "kernel.py" and d.span.line > 1
        assert any("ts::" in note.message for note in d.notes)


def test_a_copy_that_has_not_landed() -> None:
    fails(k.gemm(m=64, k=64), "asynchronous copy into it is under way", ("ts::barrier();", "ts::sync();"))


def test_a_copy_that_has_landed_but_is_not_seen_by_all() -> None:
    error = fails(
        k.gemm(m=64, k=64), "race on shared memory|under way", ("ts::barrier();", "ts::hw::wait_all_async();")
    )
    assert "ts::mma" in str(error)


def test_a_shared_tile_overwritten_while_it_is_read() -> None:
    fails(k.gemm(m=64, k=128), "race on shared memory", ("    ts::sync();\n", ""), seed=11)


def test_shared_memory_read_before_it_is_written() -> None:
    fails(turned(), "read before anything was written", ("ts::store_shared(stage, x_tile);", ""))


def test_accesses_outside_a_buffer() -> None:
    fails(
        k.softmax(rows=6),
        "belong to no buffer|out of range.*of x, which has 4800",
        ("x{x_data, {6, 200}", "x{x_data, {60, 2000}"),
        ("program * 2;", "program * 30;"),
    )
    fails(turned(), "belong to no buffer|out of range", ("x{x_data,", "x{x_data + 100000,"))


def test_stores_to_what_is_not_an_output() -> None:
    fails(turned(), "does not declare as an output", ("y{y_data", "y{(float*)x_data"))


def test_alignment_is_what_was_proved() -> None:
    fails(turned(), "misaligned: 16 bytes at byte 4 of x", ("x{x_data,", "x{x_data + 1,"))


def test_barriers_must_be_reached_by_all() -> None:
    fails(
        turned(),
        "wait at a barrier that the others do not reach",
        ("  ts::store<", "  if (ts::hw::thread() < 40) ts::sync();\n  ts::store<"),
    )


def test_warps_must_not_diverge() -> None:
    case = k.softmax(rows=1, cols=64, block=1, warps=1)
    fails(
        case,
        "wait at a barrier|diverged",
        ("auto sum = ts::sum(exp);", "float sum = 0; if (ts::hw::thread() % 2) sum = ts::sum(exp);"),
    )


def test_programs_must_not_write_the_same_element() -> None:
    fails(k.saxpy(), "written by program 0", ("program * 256;", "program * 128;"))


def test_shared_memory_beyond_what_was_asked_for() -> None:
    fails(turned(), "of shared memory, which has", ("stage(shared + 0)", "stage(shared + 8192)"))


def test_a_program_must_wait_for_its_copies() -> None:
    case = k.gemm(m=64, k=64)
    fails(
        case,
        "ended with asynchronous copies|under way",
        (
            "ts::store<",
            "ts::sync();\n  ts::copy_async<ts::Box<64, 32>, ts::Aligned<>>(smem_a, A, {0, 0});\n  ts::store<",
        ),
    )


def test_a_kernel_the_compiler_rejects_shows_both_lines() -> None:
    case = turned()
    with pytest.raises(TargetError, match="TS603") as e:
        planted(case, ("ts::barrier();", "ts::barier();"))
    assert "barier" in str(e.value) and e.value.diagnostics[0].span.file == "kernel.py"


def test_the_same_library_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target = base.get("emulator:sm_80")
    generate(turned().program, target)

    def no_compiler(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(host_library.subprocess, "run", no_compiler)
    run(turned())


def test_shuffled_threads_are_reproducible() -> None:
    case = k.attention()
    first = run(case, seed=42)
    assert all(np.array_equal(first[n].view(np.uint16), v.view(np.uint16)) for n, v in run(case, seed=42).items())


def scattered(indices: Any) -> Case:
    """y[index] = x, all in one scatter."""
    n = len(indices)

    def body(t: LineBuilder, x: Value, index: Value, y: Value) -> None:
        values, where = t.load(x, t.ints(0), (n,)), t.load(index, t.ints(0), (n,))
        t.op("tile.scatter", [y, values, where])

    args = [Arg("x", (n,), dt.f32), Arg("index", (n,), dt.int64), Arg("y", (2 * n,), dt.f32, out=True)]
    return Case(
        build("scattered", args, (1,), body, num_warps=4), {"x": k.normal(n), "index": np.asarray(indices, np.int64)}
    )


@pytest.mark.parametrize("seed", [0, 1, 2, 7])
@pytest.mark.parametrize(("one", "other"), [(0, 1), (3, 200), (0, 255), (5, 133)])
def test_two_elements_of_a_scatter_at_one_place(one: int, other: int, seed: int) -> None:
    """Held by one thread, by two of a warp, by two warps: told as the reference target tells it."""
    indices = np.arange(256) * 2
    run(scattered(indices), seed=seed)
    indices[other] = indices[one]
    case = scattered(indices)
    said = "Two elements of a scatter go to one place of y: which one stays is not defined."
    error = fails(case, said, seed=seed)
    reference: Any = base.get("reference")
    with pytest.raises(DebugCheckError, match=said) as expected:
        run(case, executable=reference.load(generate(case.program, reference)))
    for e in (error, expected.value):
        assert (e.diagnostics[0].code, e.diagnostics[0].span.line) == ("TS506", error.diagnostics[0].span.line)


def test_two_scatters_to_one_place() -> None:
    """One after the other is in order: the second one stays."""

    def body(t: LineBuilder, x: Value, index: Value, y: Value) -> None:
        values, where = t.load(x, t.ints(0), (64,)), t.load(index, t.ints(0), (64,))
        t.op("tile.scatter", [y, values, where])
        t.op("tile.scatter", [y, t.value("tile.neg", [values], values.type), where])  # type: ignore[arg-type]

    args = [Arg("x", (64,), dt.f32), Arg("index", (64,), dt.int64), Arg("y", (64,), dt.f32, out=True)]
    x = k.normal(64)
    out = run(Case(build("twice", args, (1,), body), {"x": x, "index": np.arange(64)[::-1].copy()}), seed=3)
    np.testing.assert_array_equal(out["y"], -x[::-1])


@pytest.mark.parametrize("order", [("x", "none"), ("none", "x")])
def test_an_array_without_elements_where_another_begins(order: tuple[str, str]) -> None:
    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        t.store(y, t.load(a if order[0] == "x" else b, t.ints(0), (64,)), t.ints(0))

    sizes = {"x": 64, "none": 0}
    args = [*(Arg(name, (sizes[name],), dt.f32) for name in order), Arg("y", (64,), dt.f32, out=True)]
    program = build("beside", args, (1,), body)
    target: Any = base.get("emulator:sm_80")
    executable = target.load(generate(program, target))
    x, y = k.normal(64), np.zeros(64, np.float32)
    executable.run([x.ctypes.data, x.ctypes.data, y.ctypes.data], [], [])
    np.testing.assert_array_equal(y, x)


def test_a_fault_has_its_line_where_the_cache_is_reached_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").symlink_to(os.environ["TESSERA_CACHE_DIR"])
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    error = fails(turned(), "read before anything was written", ("ts::store_shared(stage, x_tile);", ""))
    assert error.diagnostics[0].span.file == "kernel.py"
