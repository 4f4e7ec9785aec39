"""`ts.Schedule`: what it holds, its files, how it applies to kernels, and tuning from one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.errors import CompileError, LaunchError
from tessera.language.schedule import ScheduleError
from tessera.runtime.autotune import candidates, search
from tessera.runtime.autotune.trials import TuningError
from tests.seeds.kernels import flash_attention, gemm, matmul_kernel

names = st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True)
values = st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=4), st.lists(st.integers(0, 9), max_size=2))
schedules = st.builds(
    lambda block, parameters, **fields: ts.Schedule(block=block, **fields, **parameters),
    name=st.text(max_size=8),
    block=st.lists(st.integers(1, 512), max_size=3),
    warps=st.none() | st.integers(1, 32),
    stages=st.none() | st.integers(1, 5),
    vector_width=st.none() | st.sampled_from([1, 2, 4, 8]),
    swizzle=st.none() | st.sampled_from(["xor", "none"]),
    parameters=st.dictionaries(names, values, max_size=3),
)


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))


def test_the_specifications_example(tmp_path):
    schedule = ts.Schedule(name="attention_h100", block=(128, 128), warps=8, stages=3, vector_width=8, swizzle="xor")
    schedule.save(tmp_path / "attention_h100.sched")
    loaded = ts.Schedule.load(tmp_path / "attention_h100.sched")
    assert loaded == schedule and hash(loaded) == hash(schedule)
    fast = schedule.with_stages(4)
    small = schedule.with_block(64, 64)
    assert (fast.stages, small.block, schedule.stages, schedule.block) == (4, (64, 64), 3, (128, 128))
    assert fast.name == small.name == "attention_h100"
    text = (tmp_path / "attention_h100.sched").read_text()
    assert json.loads(text) == {
        "format": "tessera-schedule", "version": 1, "name": "attention_h100", "block": [128, 128], "warps": 8,
        "stages": 3, "vector_width": 8, "swizzle": "xor",
    }  # fmt: skip
    assert text.count("\n") > 8  # for people, a line each
    assert eval(repr(schedule), {"Schedule": ts.Schedule}) == schedule


@given(schedules)
def test_saving_and_loading_is_the_same(tmp_path_factory, schedule):
    path = schedule.save(tmp_path_factory.mktemp("s") / "x.sched")
    assert ts.Schedule.load(path) == schedule
    assert [p.name for p in path.parent.iterdir()] == ["x.sched"]


@given(schedules, schedules)
def test_replacing_by_itself_changes_nothing(a, b):
    assert a.replace() == a
    assert a.replace(stages=b.stages).stages == b.stages
    assert (a == b) == (a.to_json() == b.to_json())


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ('{"format": "tessera-schedule", "version": 1,\n "warps": }', "it is not JSON", 2),
        ("[1]", "no JSON object", 1),
        ('{"version": 1}', '"format" is not "tessera-schedule"', 1),
        ('{"format": "other",\n "version": 1}', "so it is not a schedule", 1),
        ('{"format": "tessera-schedule",\n "version": 9}', "update this one", 2),
        ('{"format": "tessera-schedule",\n "version": "x"}', 'reads "version": 1', 2),
        ('{"format": "tessera-schedule", "version": 1,\n\n "wraps": 8}', '"wraps" is not a field', 3),
        ('{"format": "tessera-schedule", "version": 1,\n "warps": "many"}', '"warps" is a number', 2),
        ('{"format": "tessera-schedule", "version": 1,\n "warps": true}', '"warps" is a number', 2),
        ('{"format": "tessera-schedule", "version": 1,\n "block": 64}', '"block" is a list', 2),
        ('{"format": "tessera-schedule", "version": 1,\n "block": [64, 0]}', '"block" has one to three sizes', 2),
        ('{"format": "tessera-schedule", "version": 1,\n "name": 3}', '"name" is text', 2),
        ('{"format": "tessera-schedule", "version": 1,\n "parameters": [1]}', '"parameters" is an object', 2),
        ('{"format": "tessera-schedule", "version": 1,\n "parameters": {\n"A": {"x": 1}}}', '"A" is a number', 3),
        ('{"format": "tessera-schedule", "version": 1,\n "parameters": {\n"warps": 1}}', '"warps" cannot be', 3),
        ("[" * 100_000, "", 0),
    ],
)
def test_a_wrong_file_names_file_line_and_field(tmp_path, text, said, line):
    path = tmp_path / "wrong.sched"
    path.write_text(text)
    with pytest.raises(ScheduleError) as e:
        ts.Schedule.load(path)
    (d,) = e.value.diagnostics
    assert d.code == "TS610" and str(path) in str(e.value) and said in d.message
    assert d.span.line == line


def test_a_file_that_is_no_text_or_absent(tmp_path):
    (tmp_path / "binary.sched").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScheduleError, match=r"TS610[\s\S]*not text"):
        ts.Schedule.load(tmp_path / "binary.sched")
    with pytest.raises(FileNotFoundError):
        ts.Schedule.load(tmp_path / "absent.sched")


@pytest.mark.parametrize(
    "wrong", [{"block": (0,)}, {"block": (1, 2, 3, 4)}, {"warps": 0}, {"stages": 2.5}, {"swizzle": 3}, {"A": object()}]
)
def test_values_that_make_no_sense(wrong: dict[str, Any]):
    with pytest.raises(CompileError, match="TS105"):
        ts.Schedule(**wrong)


def test_a_kernels_own_spelling_is_used():
    schedule = ts.Schedule(block=(32, 16, 8), warps=2, stages=1)
    assert schedule.config_for(flash_attention) == {"BLOCK_M": 32, "BLOCK_N": 16, "num_warps": 2, "num_stages": 1}
    own = schedule.config_for(matmul_kernel)
    assert own == {"BM": 32, "BN": 16, "BK": 8, "num_warps": 2, "num_stages": 1}
    assert ts.Schedule().from_config(own) == schedule
    assert ts.Schedule(name="a", block=64, X=3).config_for(flash_attention) == {"BLOCK_M": 64, "X": 3}
    with pytest.raises(CompileError, match=r"TS105[\s\S]*gemm reads none of BLOCK_M, BM, BLOCK_N, BN"):
        ts.Schedule(block=(64, 64)).config_for(gemm)


def test_a_schedule_applies_to_kernels_and_functions():
    schedule = ts.Schedule(block=(16, 32), stages=3)
    kernel = flash_attention.with_schedule(schedule)
    assert kernel.config == {"BLOCK_M": 16, "BLOCK_N": 32, "num_warps": 4, "num_stages": 3}
    assert "autotune" not in kernel.options

    @ts.function
    def product(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32]):
        return a @ b

    a, b = np.random.default_rng(0).standard_normal((2, 40, 40)).astype(np.float32)
    scheduled = product.with_schedule(ts.Schedule(block=(16, 32)))
    assert scheduled(a, b).tobytes() == product(a, b).tobytes()
    assert "block=[16, 32]" in scheduled.ir("schedule")


class Costs(candidates.Candidate):
    """Seconds by block and size: small blocks suit small arrays."""

    def __init__(self, fn: Any, bound: Any, *rest: Any) -> None:
        super().__init__(fn, bound, *rest)
        self.cost = abs(np.log2(fn.config["BLOCK"] / bound.sizes["n"])) * bound.sizes["n"] * 1e-4 + 1e-3

    def time(self, repeat: int) -> float:
        return float(self.cost)


@ts.kernel
def halved(x: ts.Tensor["n", ts.f32], factor: ts.f32) -> ts.Tensor["n", ts.f32]:
    return x[ts.tile.linear_id()] * 0.5 * factor


def test_tuning_from_a_base(monkeypatch):
    monkeypatch.setattr(search, "Candidate", Costs)
    base = ts.Schedule(name="base", block=64)
    one = base.autotune(kernel=halved, dataset=[{"n": 32}], metric="time")
    assert one == ts.Schedule(name="base", block=32)
    x = np.ones(512, np.float32)
    calls = [{"n": 32}, (x, 1.0), {"x": x, "factor": 2.0}]
    assert base.autotune(halved, calls, "time").block == (128,)  # the large ones take the most time
    assert base.autotune(halved, [{"n": 32}, {"n": 32}, {"n": 256}], "throughput").block == (32,)
    assert base.autotune(halved, calls, lambda trial: -trial.config["BLOCK"]).block == (128,)


def test_a_kernels_own_space_is_searched(monkeypatch):
    monkeypatch.setattr(search, "Candidate", Costs)
    kernel = ts.autotune.space(configs=[{"BLOCK": 8}, {"BLOCK": 1024}])(halved)
    found = ts.Schedule(name="base", block=64).autotune(kernel, [{"n": 1000}])
    assert found == ts.Schedule(name="base", block=1024)
    assert kernel.config == {"BLOCK": 8}


def test_what_cannot_be_tuned_from(monkeypatch):
    monkeypatch.setattr(search, "Candidate", Costs)
    base = ts.Schedule(block=64)
    with pytest.raises(LaunchError, match=r"TS501[\s\S]*empty"):
        base.autotune(halved, [])
    with pytest.raises(CompileError, match=r"TS105[\s\S]*metric"):
        base.autotune(halved, [{"n": 4}], "speed")
    with pytest.raises(LaunchError, match=r"TS502[\s\S]*size of n"):
        base.autotune(halved, [{"m": 4}])

    @ts.kernel
    def open_shape(x: ts.Tensor[..., ts.f32], y: ts.Tensor[..., ts.f32]):
        y[ts.tile.linear_id()] = x[ts.tile.linear_id()]

    with pytest.raises(LaunchError, match=r"TS502[\s\S]*size of [.]{3} is needed"):
        base.autotune(open_shape, [{"n": 4}])
    with pytest.raises(TuningError, match="TS609"):
        ts.Schedule(BLOCK=-4).autotune(ts.autotune.space(configs=[{"BLOCK": -1}])(halved), [{"n": 4}])


def test_counts_may_be_floats_without_a_fraction():
    import math

    made = ts.Schedule(block=(math.sqrt(4096), 32), warps=2.0**2, stages=math.log2(8))
    assert made == ts.Schedule(block=(64, 32), warps=4, stages=3)
    assert type(made.stages) is int
    for wrong in (2.5, math.nan, math.inf):
        with pytest.raises(CompileError, match="TS105"):
            ts.Schedule(stages=wrong)
