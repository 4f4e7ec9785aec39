"""Bytes by array and the critical path: planted truths, and sums that must hold."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.profiler import Profiler
from tessera.profiler.analyses.critical_path import CriticalPath
from tessera.profiler.analyses.processes import Processes
from tessera.profiler.analyses.traffic import ArrayTraffic, Traffic
from tessera.profiler.quantity import Quantity
from tessera.profiler.recording import Recording
from tessera.profiler.views.parts import text_of, trees
from tessera.runtime.events import CompileEvent, MemoryEvent
from tests.profiler.synthetic import launch, recorded


@pytest.fixture(scope="module")
def profile() -> Profiler:
    """A product whose tiles are 16 by 32, rows that are read once, and a gather."""

    @ts.kernel(BM=16, BN=32)
    def product(a: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
        c = ts.tile.context()
        return a[tile_m : tile_m + c.BM, :] @ w[:, tile_n : tile_n + c.BN]

    @ts.function
    def doubled(x: ts.Tensor["M", "N", ts.f32]):
        return x * 2

    @ts.function
    def picked(x: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["K", ts.int64]):
        return ts.take(x, at, axis=0)

    def step() -> None:
        product(a, w)
        doubled(a)
        picked(a, np.arange(3))

    a, w = np.ones((40, 24), np.float32), np.ones((24, 50), np.float32)
    step()
    with ts.profiler() as prof:
        step()
        step()
    return prof


def test_what_is_read_again_is_named(profile: Profiler, tmp_path: Any) -> None:
    for prof in (profile, Profiler.load(profile.save(tmp_path / "run.tsprof"))):
        found = {(entry.kernel, entry.operand): entry for entry in prof.traffic().arrays}
        a, w = found["product", "a"], found["product", "w"]
        # two launches; the grid is 3 by 2: two columns of tiles read all of a, three rows of tiles all of w
        assert (a.ideal.value, a.modelled.value, a.launches) == (2 * 40 * 24 * 4, 2 * 2 * 40 * 24 * 4, 2)
        assert w.times == pytest.approx(3) and w.ideal.source == "static" and w.modelled.source == "modelled"
        assert w.measured.value is None and w.measured.reason
        assert [e.times for (kernel, _), e in found.items() if "x * 2" in kernel] == [1.0]
        (gathered,) = (e for (kernel, name), e in found.items() if "take" in kernel and name == "x")
        assert gathered.modelled.value is None and "from data" in gathered.modelled.reason
        assert str(prof.traffic()).splitlines()[1].endswith("3.0 times")
    assert "- Reads each element of w 3.0 times: 28.8 kB, modelled\n" in str(profile.summary())


@given(st.tuples(*[st.integers(1, 5)] * 3), st.integers(1, 20), st.integers(1, 9), st.integers(0, 4))
def test_sums_over_programs_are_those_of_each(grid: tuple[int, ...], extent: int, block: int, shift: int) -> None:
    """Against the parts that the table of tiles shows, program by program."""
    p0, p1 = "__program_0", "__program_1"
    axes = (
        (f"{block}*{p0} - {shift}", f"{block}*{p0} + {block}", str(extent)),
        (f"min({p1}, {p0}*{p1})", f"{p1} // 2 + 3", str(extent)),
    )
    one = launch(grid=grid, attributes={"parts": [("x", axes, 4)]})
    (entry,) = Traffic(recorded(one)).arrays
    total, seen = 0, set[tuple[int, int]]()
    for place in np.ndindex(*grid):
        said = text_of(trees(one), place).removeprefix("x[").removesuffix("]").split(", ")
        spans = [tuple(map(int, part.split(":"))) if ":" in part else (int(part), int(part) + 1) for part in said]
        rows, columns = (range(low, min(high, extent)) for low, high in spans)
        total += 4 * len(rows) * len(columns)
        seen |= {(r, c) for r in rows for c in columns}
    assert entry.modelled.value == total
    assert entry.ideal.value is not None and entry.ideal.value >= 4 * len(seen)  # a box encloses them


def test_what_is_too_much_to_sum_says_so() -> None:
    axes = (("__program_0 + __program_1", "__program_0 + __program_1 + 1", "2000000"),)
    (entry,) = Traffic(recorded(launch(grid=(1000, 1000), attributes={"parts": [("x", axes, 4)]}))).arrays
    assert entry.modelled.value is None and "1,000,000 different programs" in entry.modelled.reason
    assert Traffic(Recording()).arrays == [] and "nothing is known" in str(Traffic(Recording()))


def test_the_path_leaves_out_what_runs_beside_it() -> None:
    """Two devices: the long kernel is waited for, the short one beside it is not."""
    found = recorded(
        launch(1, "long", 100, 500), launch(2, "short", 100, 200, device="cpu:1"), launch(3, "last", 600, 300), end=1000
    )
    path = CriticalPath(found)
    assert [(s.kind, s.what, s.start, s.duration) for s in path.steps] == [
        ("host", "Python and starting calls", 0, 100), ("kernel", "long", 100, 500), ("kernel", "last", 600, 300),
        ("host", "Python and starting calls", 900, 100),
    ]  # fmt: skip
    short = next(part for part in path.parts if part.what == "short")
    assert (short.steps, short.duration, short.beside) == (0, 0, 200)
    assert "200 ns more ran beside it" in str(path)


@given(st.lists(st.tuples(st.integers(-50, 900), st.integers(0, 300)), max_size=12))
def test_steps_follow_each_other_and_fill_the_region(spans: list[tuple[int, int]]) -> None:
    found = recorded(*(launch(n, f"k{n}", start, took) for n, (start, took) in enumerate(spans)), start=0, end=800)
    steps = CriticalPath(found).steps
    now = 0
    for step in steps:
        assert step.start == now and step.duration > 0
        now += step.duration
    assert now == 800


def test_a_line_that_sleeps_is_on_the_path() -> None:
    with ts.profiler() as prof:
        done = threading.Event()
        threading.Thread(target=done.set).start()
        done.wait()
        time.sleep(0.05)
    part = prof.critical_path().parts[0]
    assert part.kind == "host" and "time.sleep(0.05)" in part.what and part.share > 0.5


def test_the_process_that_others_wait_for_is_named() -> None:
    """Four ranks, of which one takes longer in one kernel; two kernels at one time count once."""
    found = Processes()
    for rank in range(4):
        slow = 3_000 if rank == 2 else 1_000
        one = recorded(
            CompileEvent("f", "cpu", 0, 500),
            launch(1, "step", 1_000, slow),
            launch(2, "step", 1_000 + slow, 1_000, attributes={"title": "update"}),
            launch(3, "beside", 1_000, 500, device="cpu:1"),
            MemoryEvent(1_000, "cpu:0", 64, 64, "result"), MemoryEvent(1_100, "cpu:1", 8, 8, "result"),
            end=10_000,
        )  # fmt: skip
        found.add(f"rank{rank}", one)
    assert [(row.kernels, row.outside, row.peak) for row in found.rows][2] == (4_000, 5_500, 72)
    assert [row.kernels for row in found.rows] == [2_000, 2_000, 4_000, 2_000]
    first = found.uneven[0]
    assert (first.title, first.slowest, first.lost) == ("step", "rank2", 2_000)
    assert {row.lost for row in found.uneven[1:]} == {0}
    assert "step: 1.00 µs to 3.00 µs, median 1.00 µs; longest in rank2 (+2.00 µs)" in str(found)
    assert "4.00 µs in kernels (40.0%), 5.50 µs outside, 3 launches, peak memory 72 B" in str(found)


def test_what_is_read_once_is_folded_in_long_tables() -> None:
    def entry(n: int, times: float) -> ArrayTraffic:
        amounts = Quantity(100.0, "B"), Quantity(100.0 * times, "B"), Quantity(None, "B", reason="no counter")
        return ArrayTraffic(f"k{n}", "x", 1, *amounts)

    found = Traffic(recorded())
    assert found.table() == ""
    found.arrays = [entry(n, 4.0 if n < 2 else 1.0) for n in range(10)]
    assert "<details" not in found.table() and found.table().count("<tr") == 11
    found.arrays = [entry(n, 4.0 if n < 2 else 1.0) for n in range(40)]
    first, _, folded = found.table().partition("<details")
    assert first.count("<tr") == 3 and "4.0&nbsp;×" in first and "once</td>" not in first
    assert "38 more, 38 of them read once" in folded and folded.count("<tr") == 39
    found.arrays = [entry(n, 4.0) for n in range(40)]
    assert "16 more, 0 of them read once" in found.table()
