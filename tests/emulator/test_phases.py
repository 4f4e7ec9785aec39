"""Phases of tiles on GPUs: the emulator runs the clocks of the generated text, in calls of the device library."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.emit import phases
from tessera.compiler.targets.cuda.generate import generate as write
from tessera.compiler.targets.cuda.target import settings_for
from tessera.compiler.tile.program import Program
from tessera.errors import MissingDependency
from tessera.profiler import Profiler
from tessera.profiler.balance import phase_stats
from tessera.profiler.export.lint import lint_trace
from tessera.profiler.views.tiles import tiles_of
from tests import kernel_runner
from tests.conftest import require
from tests.emulator import kernels as k
from tests.emulator import pipelined
from tests.emulator.warpgroup_kernels import PRODUCED, attention, lowered, normal, product

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def at(mark: str) -> int:
    """The line with this comment."""
    return next(n for n, line in enumerate(LINES, 1) if line.endswith(f"# {mark}"))


@ts.kernel
def uneven(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["n", "m", ts.f32]):
    ctx = ts.tile.context()
    block = x[tile_n : tile_n + 8, 0:64]  # uneven reads
    total = ts.tile.sum(block, axis=1)  # uneven sums
    for _ in ts.tile.range(0, ctx.STEPS, 1):
        block = ts.tile.exp(block * -1)  # uneven computes
    y[tile_n : tile_n + 8, 0:64] = block + total[:, None]  # uneven writes


@ts.kernel
def fed(
    A: ts.Tensor["M", "K", ts.bf16],
    B: ts.Tensor["K", "N", ts.bf16],
    x: ts.Tensor["M", "W", ts.f32],
    C: ts.Tensor["M", "N", ts.f32],
    y: ts.Tensor["M", "W", ts.f32],
):
    """A product whose stages are copied ahead, beside arithmetic on as many elements as x is wide."""
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(32, 32))
    b = ts.tile.load(B, shape=(32, 32))
    acc = ts.tile.zeros((32, 32), ts.f32)
    more = x[tile_m : tile_m + 32, 0 : ctx.W]
    for step in ts.tile.range_k(0, K, 32):
        left = ts.tile.load_partition(a, step)  # fed copies left
        right = ts.tile.load_partition(b, step)  # fed copies right
        acc += ts.tile.mma(left, right)  # fed multiplies
        more = ts.tile.exp(ts.tile.exp(more * -1) * -1)  # fed computes
    ts.tile.store(C, acc)
    y[tile_m : tile_m + 32, 0 : ctx.W] = more


@ts.kernel
def perhaps(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    ts.tile.grid(2)
    p = ts.tile.program_id()
    block = x[p * 64 : p * 64 + 64]
    if p == 0:
        block = ts.tile.exp(block)  # perhaps computes
        block = block + ts.tile.sum(block)  # perhaps sums
    y[p * 64 : p * 64 + 64] = block


@ts.kernel
def many(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    block = x[tile_n : tile_n + 64]
    block = block + ts.tile.sum(block)
    block = block * ts.tile.max(block)
    block = block - ts.tile.min(block)
    block = block + ts.tile.sum(ts.tile.exp(block))
    y[tile_n : tile_n + 64] = block


Shares = dict[tuple[str, int], float]


def program(kernel: Any, *args: Any, target: str, **config: Any) -> Program:
    return lower(kernel_runner.check(kernel, *args, **config).unit(), base.get(target)).program


def recorded(p: Program, target: str, *arrays: Any, seed: int = 0) -> tuple[dict[str, Any], list[str]]:
    """The records of a run as columns, and the names of phases."""
    chosen = base.get(target)
    executable: Any = chosen.load(generate(p, chosen, profile=True))
    executable.seed = seed
    seen: list[Any] = []
    executable.run([a.ctypes.data for a in arrays], [], [], record=SimpleNamespace(record=seen.append))
    (columns,) = seen
    return columns, executable.artifact.meta["phases"]


def shares(columns: dict[str, Any], names: list[str], tile: int | None = None) -> Shares:
    """What part of the time of all tiles, or of one, phases of each kind and line took."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for number, phase, line, took in zip(*(columns[c] for c in ("tile", "phase", "line", "duration")), strict=True):
        if tile is None or number == tile:
            found[names[phase].partition(" (")[0], int(line)] += int(took)
    return {key: took / sum(found.values()) for key, took in found.items()}


def uneven_shares(steps: int, target: str = "emulator:sm_80") -> Shares:
    x, y = normal(32, 64, dtype=np.float32), np.empty((32, 64), np.float32)
    found = shares(*recorded(program(uneven, x, y, target=target, STEPS=steps), target, x, y))
    want = x
    for _ in range(steps):
        want = np.exp(-want)
    np.testing.assert_allclose(y, want + x.sum(1, keepdims=True), rtol=1e-4, atol=1e-4)
    return found


@pytest.mark.parametrize("target", ["emulator:sm_70", "emulator:sm_80", "emulator:sm_90a"])
def test_a_slow_loop_is_most_of_the_time(target: str) -> None:
    require("g++")
    short, long = uneven_shares(1, target), uneven_shares(60, target)
    slow = "compute", at("uneven computes")
    assert long[slow] > 0.8 > short[slow] + 0.2
    others = {("load", at("uneven reads")), ("reduce", at("uneven sums")), ("store", at("uneven writes"))}
    assert others < short.keys() and others < long.keys()
    ratio = long["reduce", at("uneven sums")] / long["load", at("uneven reads")]  # what the loop does not change
    assert ratio == pytest.approx(short["reduce", at("uneven sums")] / short["load", at("uneven reads")], rel=0.05)


def fed_shares(width: int, target: str, stages: int = 3) -> Shares:
    a, b, x = normal(32, 256), normal(256, 32), normal(32, width, dtype=np.float32)
    c, y = np.empty((32, 32), np.float32), np.empty_like(x)
    p = program(fed, a, b, x, c, y, target=target, num_stages=stages, num_warps=4)
    assert any(op.name == "tile.pipeline" for op in p.launches[0].kernel.walk())
    columns, names = recorded(p, target, a, b, x, c, y)
    assert f"wait for loads (lines {at('fed copies left')}, {at('fed copies right')})" in names
    found = shares(columns, names)
    for _ in range(16):
        x = np.exp(-x)
    np.testing.assert_allclose(y, x, rtol=1e-4)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-3)
    return found


@pytest.mark.parametrize("target", ["emulator:sm_80", "emulator:sm_90a"])
def test_waiting_for_a_stage_belongs_to_the_lines_of_its_loads(target: str) -> None:
    """A copy takes a fixed time: work beside it hides the wait, and a stage more starts it earlier."""
    require("g++")
    left = at("fed copies left")
    wait = phases.WAIT, left
    idle, busy = fed_shares(4, target), fed_shares(256, target)
    assert idle[wait] > 0.6 and busy[wait] < 0.2
    assert busy["compute", at("fed computes")] > 0.6 > idle["compute", at("fed computes")] + 0.5
    assert ("mma", at("fed multiplies")) in idle and ("load", left) in idle
    assert fed_shares(4, target, stages=2)[wait] > idle[wait] > fed_shares(4, target, stages=4)[wait]


def test_a_copy_that_is_waited_for_at_once() -> None:
    require("g++")
    p = pipelined.program("side_by_side", 1)
    arrays = [a.copy() for a in pipelined.CASES["side_by_side"][1]]
    found = shares(*recorded(p, "emulator:sm_80", *arrays))
    waits = [share for (kind, _), share in found.items() if kind == phases.WAIT]
    assert waits and max(waits) > 0.5


@pytest.mark.parametrize("seed", [0, 1, 2, 7])
def test_phases_fill_their_tile_one_behind_the_other(seed: int) -> None:
    require("g++")
    x, y = normal(32, 64, dtype=np.float32), np.empty((32, 64), np.float32)
    p = program(uneven, x, y, target="emulator:sm_80", STEPS=3)
    columns, names = recorded(p, "emulator:sm_80", x, y, seed=seed)
    assert sorted(set(columns["tile"].tolist())) == [0, 1, 2, 3]
    for tile in range(4):
        mine = columns["tile"] == tile
        start, took = columns["start"][mine], columns["duration"][mine]
        assert (took >= 0).all() and (start[1:] == start[:-1] + took[:-1]).all()
    once = shares(columns, names)
    assert once == pytest.approx(shares(*recorded(p, "emulator:sm_80", x, y)), rel=0.02)  # whatever the order


def test_a_branch_that_is_not_taken_has_no_phase() -> None:
    require("g++")
    x, y = normal(128, dtype=np.float32), np.empty(128, np.float32)
    found = recorded(program(perhaps, x, y, target="emulator:sm_80"), "emulator:sm_80", x, y)
    lines = {("compute", at("perhaps computes")), ("reduce", at("perhaps sums"))}
    assert lines <= shares(*found, tile=0).keys() and not lines & shares(*found, tile=1).keys()


def test_of_too_many_phases_those_of_the_commonest_kind_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    require("g++")
    monkeypatch.setattr(phases, "LIMIT", 8)
    x, y = normal(128, dtype=np.float32), np.empty(128, np.float32)
    columns, names = recorded(program(many, x, y, target="emulator:sm_80"), "emulator:sm_80", x, y)
    assert len(names) == 1 + 7 and "reduce" in names and sum(n.startswith("compute (line") for n in names) == 4
    assert len(columns["tile"]) == 2 * 7


@pytest.fixture
def prof(monkeypatch: pytest.MonkeyPatch) -> Profiler:
    """Of a call on four tiles, whose loop takes most of the time."""
    require("g++")
    monkeypatch.setenv("TESSERA_TARGET", "emulator:sm_80")
    x, y = normal(32, 64, dtype=np.float32), np.empty((32, 64), np.float32)
    with ts.profiler() as prof:
        uneven.with_config(STEPS=20)(x, y)
    return prof


def test_a_profile_has_them_with_their_lines(prof: Profiler) -> None:
    records, names = prof.recording.tiles.records, prof.recording.tiles.phases
    found = {(names[r["phase"]], int(r["line"])) for r in records}
    slow, written = (f"compute (line {at(mark)})" for mark in ("uneven computes", "uneven writes"))
    assert {(slow, at("uneven computes")), (written, at("uneven writes")), ("store", at("uneven writes"))} < found
    slowest = phase_stats(prof.recording.tiles)[0]
    assert (slowest.phase, slowest.count) == (slow, 4)
    tiles = prof.recording.extents[0]
    assert len(tiles) == 4 and slowest.total < tiles["duration"].sum() < slowest.total * 1.5
    (event,) = prof.launches()
    ends = records["start"] + records["duration"]
    assert event.start <= records["start"].min() and ends.max() <= event.start + (event.duration or 0)


def test_views_show_them(prof: Profiler, tmp_path: Path) -> None:
    tips = list(tiles_of(prof.recording).phases.values())  # type: ignore[union-attr]
    slow = f"compute (line {at('uneven computes')})"
    assert len(tips) == 4 and all(f"{slow} " in tip and tip.endswith("where a value is first used") for tip in tips)
    said = str(prof.timeline())
    assert re.search(rf"\n    compute \(line {at('uneven computes')}\) \d\d\.\d%, ", said), said
    assert f"store (line {at('uneven writes')}) " in said and said.endswith("first used)")
    path = prof.export_chrome_trace(tmp_path / "trace.json")
    assert lint_trace(path) == []
    slices = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "phase"]
    assert {e["name"] for e in slices} == set(prof.recording.tiles.phases) - {"tile"}
    assert all("first used" in e["args"]["counts"] for e in slices)
    assert {e["args"]["line"] for e in slices if e["name"] == slow} == {at("uneven computes")}


def test_equal_kernels_of_other_lines_have_those_of_their_launches() -> None:
    require("g++")

    @ts.function
    def two(x: ts.Tensor["S", "D", ts.f32], y: ts.Tensor["S", "D", ts.f32]):  # type: ignore[name-defined]
        p = ts.softmax(x)  # the first
        return p, ts.softmax(y)  # the second

    compiled = ts.compile(two, target="emulator:sm_80", dims={"S": 24, "D": 16})
    x = normal(24, 16, dtype=np.float32)
    with ts.profiler() as prof:
        compiled(x, x + 1)
    lines = [set(prof.recording.tiles_of(event.launch).records["line"].tolist()) for event in prof.launches()]
    if len(compiled.artifact.meta["kernels"]) == 1:
        assert lines == [{at("the first")}, {at("the second")}]


@pytest.mark.parametrize("name", pipelined.CASES)
@pytest.mark.parametrize("target", ["emulator:sm_80", "emulator:sm_90a"])
def test_results_and_order_of_threads_do_not_see_the_clock(name: str, target: str) -> None:
    require("g++")
    p, chosen = pipelined.program(name, 3, target), base.get(target)
    plain_code, profiled = (chosen.load(generate(p, chosen, profile=profile)) for profile in (False, True))
    wanted = pipelined.run(name, plain_code, p)  # type: ignore[arg-type]
    for seed in (0, 1, 2, 5):
        assert pipelined.run(name, profiled, p, seed) == wanted  # type: ignore[arg-type]


# the text

KERNELS: dict[str, Callable[[str], Program]] = {
    "softmax": lambda _: k.softmax(rows=6, block=2).program,
    "long softmax": lambda _: k.softmax(rows=6, cols=40_000).program,
    "layernorm": lambda _: k.layernorm().program,
    "matmul": lambda _: k.matmul().program,
    "attention": lambda target: pipelined.program("flash_attention", 3, target),
    "tied": lambda target: pipelined.program("tied", 2, target),
    "side by side": lambda target: pipelined.program("side_by_side", 3, target),
    "produced": lambda target: lowered(
        attention, *(normal(1, 300, 16, seed=i) for i in range(3)), False, target=target, **PRODUCED
    ),
    "product": lambda target: lowered(
        product, normal(128, 64), normal(64, 128), target=target, BM=64, BN=64, BK=32, AHEAD=2
    ),
}


def text(p: Program, arch: int, profile: bool) -> str:
    return write(p, settings_for(arch, profile, False)).source


def plain(source: str) -> list[str]:
    """The lines without what measures, nor empty ones."""
    source = re.sub(r"^(#include <tessera/timer.cuh>| *ts::Timer<.*| *timer\..*)$", "", source, flags=re.MULTILINE)
    return [x for x in source.replace(", ts::Records* records", "").splitlines() if x.strip()]


@pytest.mark.parametrize("target", ["sm_70", "sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_rest_of_the_text_is_that_without_a_profile(name: str, target: str) -> None:
    p, arch = KERNELS[name](target), base.get(target).arch  # type: ignore[attr-defined]
    off, on = text(p, arch, profile=False), text(p, arch, profile=True)
    assert "timer" not in off and "records" not in off
    assert plain(on) == plain(off) == [x for x in off.splitlines() if x.strip()]
    (count,) = re.findall(r"ts::Timer<(\d+)>", on)
    read = {int(n) for n in re.findall(r"timer\.\w+<(\d+)>", on)}
    assert read == set(range(int(count))) and 2 <= int(count) <= phases.LIMIT
    assert on.count("timer.stop<") == 1


def test_where_shared_memory_is_full_a_tile_has_one_phase() -> None:
    """Nothing makes room for the sums: the program would be another one."""
    p, settings = KERNELS["tied"]("sm_80"), settings_for(80, profile=True, debug=False)
    off = write(p, settings_for(80, profile=False, debug=False))
    (kernel,) = (k for _, k in off.written)
    settings.shared_limit = kernel.shared + 127
    on = write(p, settings)
    assert "ts::Timer<0> timer(records, ts::program());" in on.source and "timer.stop();" in on.source
    assert plain(on.source) == plain(off.source)
    settings.shared_limit += 1
    assert re.search(rf"ts::Timer<4> timer\(records, ts::program\(\), {kernel.shared}\);", write(p, settings).source)


@pytest.mark.parametrize(
    ("target", "step"),
    [
        ("sm_80", ["BAR", "clock", "LDGSTS", "LDGDEPBAR", "clock", "LDSM", "HMMA", "clock"]),
        ("sm_90a", ["UTMALDG", "clock", "SYNCS.PHASECHK", "clock", "HGMMA", "WARPGROUP.DEPBAR", "clock"]),
    ],
)
def test_in_machine_code_the_clock_is_read_behind_what_it_measures(target: str, step: list[str]) -> None:
    """In the loop of a pipelined product, whose copies run ahead."""
    require("cuda.bindings")
    chosen = base.get(target)
    artifact = generate(KERNELS["tied"](target), chosen, profile=True)
    try:
        code = chosen.assembly(artifact)  # type: ignore[attr-defined]
    except MissingDependency as missing:
        pytest.skip(str(missing))
    found = re.findall(
        r"SR_CLOCKLO|\b(?:BAR|LDGSTS|LDGDEPBAR|LDSM|HMMA|UTMALDG|SYNCS\.PHASECHK|HGMMA|WARPGROUP\.DEPBAR)\b", code
    )
    kinds = [kind for kind, _ in groupby("clock" if x == "SR_CLOCKLO" else x for x in found)]
    assert any(kinds[i : i + len(step)] == step for i in range(len(kinds))), kinds
