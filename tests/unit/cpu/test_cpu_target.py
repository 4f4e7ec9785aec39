"""The CPU target as a target: artefacts, loading, calls, the fast call, tile records, what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cpu.call import threads
from tessera.compiler.targets.cpu.llvm.isa import LEVELS, from_features, host
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.errors import DebugCheckError, DeviceError, TargetError
from tessera.language import dtypes as dt
from tessera.language.dims import symbol
from tests.emulator.harness import Arg, Case, LineBuilder, build, run
from tests.emulator.programs import assert_program, loop_program, two_step_program

CPU = CpuTarget()


def loaded(program: Any, **options: Any) -> Any:
    return CPU.load(generate(program, CPU, **options))


def scale(n: int = 1000, block: int = 256, dtype: dt.DType = dt.f32) -> Any:
    """y = a * x + y"""

    def body(t: LineBuilder, x: Value, y: Value, a: Value) -> None:
        at = [t.iop("imul", t.program_id(0), t.index(block))]
        product = t.map("mul", t.broadcast(a, (block,), ()), t.load(x, at, (block,)))
        t.store(y, t.map("add", product, t.load(y, at, (block,))), at)

    args = [Arg("x", (n,), dtype), Arg("y", (n,), dtype, out=True), Arg("a", None, dtype)]
    return build("scale", args, (-(-n // block),), body)


def pointers(*arrays: Any) -> list[int]:
    return [a.ctypes.data for a in arrays]


# artefacts
def test_an_artefact_survives_the_disk() -> None:
    artifact = generate(scale(), CPU)
    again = Artifact.restore(artifact.header(), dict(artifact.files))
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    CPU.load(again).run(pointers(x, y), [2.0], [])
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_loading_takes_a_few_milliseconds() -> None:
    artifact = generate(scale(), CPU)
    CPU.load(artifact)
    took: list[float] = []
    for _ in range(9):  # the least of them: other processes take the caches away
        start = time.thread_time()
        CPU.load(artifact)
        took.append(time.thread_time() - start)
    assert min(took) < 0.02


def test_compiling_twice_gives_the_same_bytes() -> None:
    first, second = generate(scale(), CPU), generate(scale(), CPU)
    assert first.files == second.files and first.header() == second.header()


def test_source_lines_are_known() -> None:
    artifact = generate(scale(), CPU)
    lines = artifact.meta["lines"]
    assert lines and all(file == "kernel.py" and user >= 1 for _, file, user in lines)
    assert lines[0][2] == 1, "what goes over programs is the kernel's own"
    text = artifact.source.splitlines()
    adds = [number for number, line in enumerate(text, 1) if "fadd" in line]
    rows = [row for row in lines if row[0] <= adds[0]]
    assert rows[-1][2] == 9  # the add is the eighth op, each on a line of its own after the first


def test_assembly_is_made_from_the_artefact() -> None:
    text = CPU.assembly(generate(scale(), CPU))
    assert "scale" in text and ("zmm" in text or host().bits < 512)


@ts.function
def größe(länge: ts.Tensor["Ä", ts.f32]) -> ts.Tensor["Ä", ts.f32]:
    return ts.softmax(länge * 2, axis=0)


def test_names_may_have_any_letters() -> None:
    np.testing.assert_allclose(größe(np.ones(4, np.float32)), 0.25)


def test_resources_name_every_kernel() -> None:
    program, _, _ = two_step_program()
    found = generate(program, CPU).resources
    assert list(found) == ["scale", "double"]
    assert all(r["vector_bits"] == host().bits and r["stack_bytes"] >= 0 for r in found.values())


def test_the_register_finds_it() -> None:
    assert base.get("llvm").name == "cpu" and base.get("cpu").device == "cpu"
    assert base.get("cpu").fingerprint.startswith("cpu-")


def test_fingerprints_differ_by_instruction_set() -> None:
    kinds = {(i.name, i.cpu, i.features) for i in map(host, LEVELS)}
    assert len({CpuTarget(level).fingerprint for level in LEVELS}) == len(kinds)


def test_code_for_another_processor_is_not_loaded() -> None:
    artifact = generate(scale(), CPU)
    foreign = dataclasses.replace(artifact, meta={**artifact.meta, "features": "+teleportation"})
    with pytest.raises(DeviceError, match="does not have"):
        CPU.load(foreign)


def test_features_decide_and_not_the_processors_name() -> None:
    full = {
        "avx512f": True,
        "avx512bw": True,
        "avx512dq": True,
        "avx512vl": True,
        "avx2": True,
        "fma": True,
        "f16c": True,
    }
    assert from_features(full, "pentium").bits == 512
    assert from_features({**full, "avx512vl": False}).bits == 256
    assert from_features({"sse2": True}).bits == 128


# calls
def test_scalars_of_every_dtype_arrive() -> None:
    values: dict[dt.DType, Any] = {
        dt.f32: 1.5, dt.f64: 0.1, dt.bf16: 1.5, dt.f16: -2.25, dt.int8: -7, dt.int64: -(2**40), dt.uint64: 2**63 + 1,
        dt.uint8: 200, dt.bool_: True, dt.complex64: 1 - 2j, dt.complex128: 0.1 + 3j, dt.fp8_e4m3: 1.75,
    }  # fmt: skip
    for dtype, value in values.items():

        def body(t: LineBuilder, y: Value, a: Value) -> None:
            t.store(y, t.broadcast(a, (5,), ()), t.ints(0))

        program = build("fill", [Arg("y", (5,), dtype, out=True), Arg("a", None, dtype)], (1,), body)
        y = np.zeros(5, dtype.numpy)
        loaded(program).run(pointers(y), [value], [])
        assert (y == np.asarray(value, dtype.numpy)).all(), dtype


def test_temporaries_and_constants() -> None:
    program, x, want = two_step_program()
    y = np.empty_like(x)
    loaded(program).run(pointers(x, y), [], [])
    np.testing.assert_array_equal(y, want)


def test_loops_and_branches_between_kernels() -> None:
    program, want = loop_program()
    x, y = np.array([5.0], np.float32), np.empty(1, np.float32)
    loaded(program).run(pointers(x, y), [], [])
    assert y[0] == np.float32(want)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (7, 33), (1, 1)])
def test_sizes_known_at_launch(sizes: tuple[int, int]) -> None:
    m, n = symbol("m"), symbol("n")

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        row = t.load(x, [t.program_id(0), t.index(0)], (1, n))
        total = t.broadcast(t.reshape(t.reduce("sum", t.map("exp", row), (1,)), (1, 1)), (1, n), (0, 1))
        t.store(y, t.map("div", row, total), [t.program_id(0), t.index(0)])

    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    program = build("rows", [Arg("x", (m, n), dt.f32), Arg("y", (m, n), dt.f32, out=True)], (m,), body, ("m", "n"))
    want = x / np.exp(x).sum(1, keepdims=True) if sizes[1] else x
    got = run(Case(program, {"x": x}, dims=dict(zip("mn", sizes, strict=True))), "cpu")["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_tiles_larger_than_the_stack_and_of_unknown_size() -> None:
    n = symbol("n")

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        v = t.map("exp", t.load(x, t.ints(0), (n,)))
        total = t.broadcast(t.reduce("sum", v, (0,)), (n,), ())
        t.store(y, t.map("div", v, total), t.ints(0))

    program = build("whole", [Arg("x", (n,), dt.f32), Arg("y", (n,), dt.f32, out=True)], (1,), body, ("n",))
    executable = loaded(program)
    for size in (100_000, 3, 250_001):
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        y = np.empty_like(x)
        executable.run(pointers(x, y), [], [size])
        np.testing.assert_allclose(y, np.exp(x) / np.exp(x.astype("f8")).sum(), rtol=2e-6)


def test_calls_from_several_threads_do_not_meet() -> None:
    program, x, want = two_step_program()
    executable = loaded(program)
    wrong: list[int] = []

    def work() -> None:
        y = np.empty_like(x)
        for _ in range(200):
            y[:] = 0
            executable.run(pointers(x, y), [], [])
            if not (y == want).all():
                wrong.append(1)

    running = [threading.Thread(target=work) for _ in range(4)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    assert not wrong


# the fast call
def test_the_fast_call_runs_and_refuses() -> None:
    fast = loaded(scale(n=64)).fast().fast
    x, y = np.arange(64, dtype=np.float32), np.ones(64, np.float32)
    assert fast(x, y, 2.0) == 0
    np.testing.assert_array_equal(y, 2 * x + 1)
    kept = y.copy()
    frozen = y.copy()
    frozen.flags.writeable = False
    assert fast(x[:63], y, 2.0) == 1
    assert fast(x, frozen, 2.0) == 2
    assert fast(np.ones(128, np.float32)[::2], y, 2.0) == 1
    assert fast(x.astype("f8")[:32], y, 2.0) == 1
    assert fast([1.0], y, 2.0) == 1
    assert fast(x, y, "two") == 3
    assert fast(x, y) == -1
    np.testing.assert_array_equal(y, kept)


def test_the_exact_call_takes_numpys_arrays_of_these_dtypes_and_shapes() -> None:
    kinds = [(np.dtype(np.float32), (64,))] * 2
    fast, exact = loaded(scale(n=64)).fast((), (), kinds)
    x, y = np.arange(64, dtype=np.float32), np.ones(64, np.float32)
    for call in (fast, exact):
        assert call(x, y, 2.0) == 0
    np.testing.assert_array_equal(y, 4 * x + 1)
    kept, frozen = y.copy(), y.copy()
    frozen.flags.writeable = False
    copied = x.view(copy.copy(x.dtype))  # an equal dtype, but another object
    assert copied.dtype is not x.dtype
    for other in (
        x.view(np.int32),
        x.reshape(64, 1),
        x[:63],
        np.ones(128, np.float32)[::2],
        memoryview(x),
        [1.0],
        copied,
    ):
        assert exact(other, y, 2.0) == 1
    assert exact(x, frozen, 2.0) == 2 and fast(copied, y.copy(), 2.0) == 0 and fast(memoryview(x), y.copy(), 2.0) == 0
    assert fast(x[:63], y, 2.0) == 1 and exact(x, y) == -1
    np.testing.assert_array_equal(y, kept)


@pytest.mark.usefixtures("young")
def test_the_fast_call_outlives_its_executable_and_a_new_pool() -> None:
    fast = loaded(scale(n=100_000)).fast().fast
    gc.collect()
    x, y = np.ones(100_000, np.float32), np.zeros(100_000, np.float32)
    for count in (3, 1, 2):
        threads.set_num_threads(count)
        assert fast(x, y, 1.0) == 0
    assert (y == 3).all()


def test_the_fast_call_is_offered_only_where_it_knows_everything() -> None:
    assert loaded(scale(dtype=dt.bf16)).fast() is None  # a bf16 scalar takes the long way
    assert loaded(scale(), profile=True).fast() is None


def test_scalars_of_the_fast_call() -> None:
    for dtype, value in ((dt.f64, 0.1), (dt.int32, -5), (dt.uint8, 7), (dt.int64, -1), (dt.f32, -1.0)):

        def body(t: LineBuilder, y: Value, a: Value) -> None:
            t.store(y, t.broadcast(a, (5,), ()), t.ints(0))

        program = build("fill", [Arg("y", (5,), dtype, out=True), Arg("a", None, dtype)], (1,), body)
        fast = loaded(program).fast().fast
        y = np.zeros(5, dtype.numpy)
        assert fast(y, value) == 0
        assert (y == value).all()


# tile records
class Columns:
    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []

    def record(self, columns: dict[str, Any]) -> None:
        self.got.append(columns)


def test_tiles_are_recorded_in_nanoseconds() -> None:
    program = scale(n=1 << 20, block=1 << 12)
    executable = loaded(program, profile=True)
    assert executable.meta["phases"]
    x, y, columns = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32), Columns()
    executable.run(pointers(x, y), [1.0], [], record=columns)
    columns.got.clear()
    before = time.perf_counter_ns()
    executable.run(pointers(x, y), [1.0], [], record=columns)
    after = time.perf_counter_ns()
    assert (y == 2).all()
    tiles = np.concatenate([c["tile"] for c in columns.got])
    assert sorted(tiles) == list(range(256))
    for c in columns.got:
        assert (c["duration"] >= 0).all() and len(set(c["resource"])) == 1
        # The clock is perf_counter_ns: another one, or another unit, would be off by more than the call took. The
        # calibration is as good as two readings stand together, which on a busy machine may be time slices apart.
        slack = after - before + 20_000_000_000
        assert c["start"].min() >= before - slack and (c["start"] + c["duration"]).max() <= after + slack
        order = np.argsort(c["start"])
        ends = (c["start"] + c["duration"])[order]
        assert (c["start"][order][1:] >= ends[:-1] - 1).all()  # one worker runs one tile at a time


def test_phases_are_the_stages_of_a_kernel() -> None:
    n = 64

    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        zero, rows = t.index(0), t.iop("imul", t.program_id(0), t.index(32))
        product = t.value("tile.contract", (a, b, rows, zero), TileType((32, n), dt.f32))
        t.store(y, t.map("tanh", product), [rows, zero])

    args = [Arg("a", (n, n), dt.f32), Arg("b", (n, n), dt.f32), Arg("y", (n, n), dt.f32, out=True)]
    executable = loaded(build("product", args, (2,), body), profile=True)
    assert executable.meta["phases"] == ["contract", "store"]
    a = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    y, columns = np.empty_like(a), Columns()
    executable.run(pointers(a, a, y), [], [], record=columns)
    np.testing.assert_allclose(y, np.tanh(a @ a), rtol=1e-4, atol=1e-4)
    found = sorted((int(t), int(p)) for c in columns.got for t, p in zip(c["tile"], c["phase"], strict=True))
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]
    lines = {int(p): int(line) for c in columns.got for p, line in zip(c["phase"], c["line"], strict=True)}
    assert lines[0] < lines[1]
    for c in columns.got:  # one phase follows the other
        for tile in set(c["tile"]):
            own = c["tile"] == tile
            first, second = c["start"][own]
            assert first + c["duration"][own][0] == second


@pytest.mark.parametrize("size", [1 << 12, 1 << 23])
def test_large_outputs_that_nobody_reads_bypass_the_caches(size: int) -> None:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        at = [t.iop("imul", t.program_id(0), t.index(1 << 12))]
        t.store(y, t.map("neg", t.load(x, at, (1 << 12,))), at)

    args = [Arg("x", (size,), dt.f32), Arg("y", (size,), dt.f32, out=True)]
    artifact = generate(build("negate", args, (size >> 12,), body), CPU)
    assert ("nontemporal" in artifact.source) == (4 * size > host().cached_bytes and host().name != "neon")
    x, memory = np.random.default_rng(0).standard_normal(size).astype(np.float32), np.zeros(size + 16, np.float32)
    for shift in range(0, 16, 5):  # aligned, or not
        y = memory[shift : shift + size]
        CPU.load(artifact).run(pointers(x, y), [], [])
        np.testing.assert_array_equal(y, -x)
    assert "nontemporal" not in generate(scale(n=1 << 22, block=1 << 12), CPU).source  # it reads what it writes


def test_code_without_records_does_not_change() -> None:
    assert "readcyclecounter" not in generate(scale(), CPU).source


# refusals and checks
def test_what_cannot_be_compiled_says_which_op() -> None:
    def body(t: LineBuilder, y: Value) -> None:
        t.store(y, t.map("sub", t.load(y, t.ints(0), (4,)), t.load(y, t.ints(0), (4,))), t.ints(0))

    with pytest.raises(TargetError, match=r"TS602[\s\S]*tile.sub on \[4\] bool"):
        generate(build("bools", [Arg("y", (4,), dt.bool_, out=True)], (1,), body), CPU)


def test_asserts_hold_in_debug_mode_only() -> None:
    x = np.ones(40, np.float32)
    x[7] = -1
    loaded(assert_program()).run(pointers(x), [], [])
    with pytest.raises(DebugCheckError, match="x must be positive"):
        loaded(assert_program(), debug=True).run(pointers(x), [], [])
    x[7] = 1
    loaded(assert_program(), debug=True).run(pointers(x), [], [])


def test_tiles_are_printed_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def body(t: LineBuilder, x: Value) -> None:
        t.op("tile.print", [t.load(x, [t.iop("imul", t.program_id(0), t.index(2))], (2,))], (), {"label": "x"})

    x = np.arange(4, dtype=np.float32)
    loaded(build("show", [Arg("x", (4,), dt.f32)], (2,), body)).run(pointers(x), [], [])
    assert capsys.readouterr().out == "x in program (0,):\n[0. 1.]\nx in program (1,):\n[2. 3.]\n"


def test_no_programs_no_work() -> None:
    y = np.full(4, 7, np.float32)

    def body(t: LineBuilder, y: Value) -> None:
        t.store(y, t.full((4,), 0.0, dt.f32), t.ints(0))

    loaded(build("none", [Arg("y", (4,), dt.f32, out=True)], (0,), body)).run(pointers(y), [], [])
    assert (y == 7).all()


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_bytes_that_a_mask_selects_are_accessed_in_one_place(level):
    """Without mask registers that is a branch for each lane, and each access would have its own."""

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        lanes = t.value("tile.iota", (), TileType((8,), dt.int64), {"axis": 0})
        mask = t.map("lt", lanes, t.full((8,), 5, dt.int64))
        for i in range(16):
            row = t.load(x, t.ints(5 * i), (8,), mask)
            t.store(y, t.map("add", row, row), t.ints(5 * i), mask)

    program = build("twice", [Arg("x", (80,), dt.uint8), Arg("y", (80,), dt.uint8, out=True)], (1,), body)
    text = generate(program, CpuTarget(level)).source
    assert text.count("@llvm.masked.load") == text.count("@llvm.masked.store") == 2, "declared and called"
    assert text.count("@masked_load") > 16
