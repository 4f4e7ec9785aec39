"""Autotuning: which configuration is chosen, from what, and what it never does to data and results."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.errors import CompileError, DeviceError, LaunchError
from tessera.profiler import Profiler
from tessera.runtime import events
from tessera.runtime.autotune import candidates, search, trials
from tessera.runtime.autotune.search import terminal
from tessera.runtime.autotune.trials import Trial, Tuning, TuningError, choose
from tests.seeds.kernels import flash_attention

pytestmark = pytest.mark.usefixtures("own_cache")
OFFSET = 1.0


class Clock(candidates.Candidate):
    """Times as the test says, by the value of BLOCK; what was measured is noted."""

    seconds: ClassVar[dict[Any, float]] = {}
    measured: ClassVar[list[Any]] = []

    def __init__(self, fn: Any, *rest: Any) -> None:
        super().__init__(fn, *rest)
        self.block = fn.config.get("BLOCK", fn.config.get("block"))

    def time(self, repeat: int) -> float:
        self.measured.append(self.block)
        found = self.seconds[self.block]
        if isinstance(found, BaseException):
            raise found
        return found


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(search, "Candidate", Clock)
    monkeypatch.setattr(Clock, "seconds", {32: 3e-3, 64: 2e-3, 128: 1e-3, 256: 4e-3})
    monkeypatch.setattr(Clock, "measured", [])
    return Clock


def doubled(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    return x[ts.tile.linear_id()] * 2.0


def updated(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], count: ts.Tensor["n", ts.int32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = 0.5 * y[i] + x[i]
        count[i] = count[i] + 1


def summed(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", ts.f32]):
    """The block is part of the arithmetic: the running product is rounded once per block."""
    total = ts.tile.zeros((8,), ts.f32)
    for k in ts.tile.range(0, K, ts.tile.context().BLOCK):
        total = total * 0.7 + ts.tile.row_sum(x[tile_m : tile_m + 8, k : k + ts.tile.context().BLOCK])
    y[tile_m : tile_m + 8] = total


def tuned(python: Any, blocks: Any = (32, 64, 128), **options: Any) -> Any:
    return ts.kernel.autotune(space={"BLOCK": list(blocks)}, **options)(python)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def statuses(kernel: Any) -> dict[int, str]:
    return {t.config["BLOCK"]: t.status for t in kernel.tuning.trials}


def test_the_quickest_is_chosen_at_the_first_call_and_kept(clock):
    kernel, x = tuned(doubled), numbers(300)
    np.testing.assert_array_equal(kernel(x), 2 * x)
    assert kernel.tuning.config == {"BLOCK": 128}
    assert kernel.tuning.measured == 3
    measured = len(clock.measured)
    kernel(x)
    assert kernel.best_config(x) == {"BLOCK": 128}
    again = tuned(doubled)  # as after re-running the cell
    again(x)
    assert again.tuning.config == {"BLOCK": 128} and again.tuning.measured == 0
    assert len(clock.measured) == measured
    kernel(numbers(301))  # another shape is another question
    assert len(clock.measured) > measured


def test_real_times_decide():
    """One element per program costs so much more that no noise hides it: on one thread, for a launch on several waits
    for each of them, and other processes have the processor at times."""
    kernel, x = tuned(doubled, (1, 4096)), numbers(40_000)
    threads = ts.get_num_threads()
    ts.set_num_threads(1)
    try:
        kernel(x)
    finally:
        ts.set_num_threads(threads)
    assert kernel.tuning.config == {"BLOCK": 4096}
    slow, quick = kernel.tuning.trials
    assert quick.status == "timed" and quick.samples
    assert slow.status == "stopped" and slow.seconds > quick.seconds and "times slower" in slow.detail


def test_one_more_configuration_is_timed_alone(clock):
    x = numbers(64)
    tuned(doubled, (32, 64))(x)
    clock.measured.clear()
    kernel = tuned(doubled, (32, 64, 128))
    kernel(x)
    assert set(clock.measured) == {128}
    assert kernel.tuning.config == {"BLOCK": 128} and kernel.tuning.measured == 1
    clock.measured.clear()
    fewer = tuned(doubled, (64, 32))
    fewer(x)
    assert fewer.tuning.config == {"BLOCK": 64} and not clock.measured


def test_only_what_a_target_reads_tells_configurations_apart(clock):
    kernel = ts.kernel.autotune(space={"BLOCK": [32, 64], "num_warps": [2, 4, 8], "num_stages": [2, 3]})(doubled)
    kernel(numbers(64))
    assert kernel.tuning.measured == 2
    assert sum(t.status == "same" for t in kernel.tuning.trials) == 10
    assert "10 more differ only in what nothing reads on cpu" in str(kernel.tuning)


def test_the_callers_arrays_are_changed_once(clock):
    x, y = numbers(100), numbers(100) + 1
    count, want = np.zeros(100, np.int32), 0.5 * y + x
    kernel = tuned(updated)
    kernel(x, y, count)
    np.testing.assert_array_equal(y, want)
    assert (count == 1).all()
    kernel.tune(x, y, count)
    kernel.best_config(x, y, count)
    np.testing.assert_array_equal(y, want)
    assert (count == 1).all()


def test_each_measurement_sees_the_same_data():
    """Repeated launches would turn y to denormals, which are slow, or count beyond any bound."""
    x, y, count = np.zeros(50, np.float32), numbers(50), np.zeros(50, np.int32)
    bound = tuned(updated)
    seen: list[int] = []

    class Looking(candidates.Candidate):
        def time(self, repeat: int) -> float:
            out = super().time(repeat)
            seen.append(int(self._values[2][0]) - repeat)
            return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "Candidate", Looking)
        bound(x, y, count)
    assert seen and set(seen) == {0}


@pytest.mark.parametrize("library", ["torch", "tensor", "bf16"])
def test_arrays_of_other_libraries(clock, library):
    if library == "torch":
        torch = pytest.importorskip("torch")
        x, y, count = torch.ones(40), torch.zeros(40), torch.zeros(40, dtype=torch.int32)
        kernel = tuned(updated)
    elif library == "tensor":
        x, y, count = ts.tensor.rand((40,)), ts.tensor.rand((40,)), ts.tensor(np.zeros(40, np.int32))
        kernel = tuned(updated)
    else:

        def narrow(x: ts.Tensor["n", ts.bf16]) -> ts.Tensor["n", ts.bf16]:
            return x[ts.tile.linear_id()]

        out = tuned(narrow)(numbers(40).astype(ml_dtypes.bfloat16))
        assert out.dtype == ml_dtypes.bfloat16
        return
    kernel(x, y, count)
    assert (np.asarray(count) == 1).all()
    assert kernel.tuning.config == {"BLOCK": 128}


def test_other_bits_are_never_chosen(clock):
    x, y, want = numbers(16, 512), np.zeros(16, np.float32), np.zeros(16, np.float32)
    kernel = tuned(summed)
    kernel(x, y)
    ts.kernel(BLOCK=32)(summed)(x, want)
    assert y.tobytes() == want.tobytes()
    assert statuses(kernel) == {32: "timed", 64: "bits", 128: "bits"}
    assert kernel.tuning.config == {"BLOCK": 32}
    assert set(clock.measured) == {32}  # what cannot be chosen need not be timed


def test_other_bits_are_found_where_the_calls_own_data_hide_them(clock):
    kernel = tuned(summed)
    kernel(np.zeros((16, 512), np.float32), np.zeros(16, np.float32))
    assert statuses(kernel) == {32: "timed", 64: "bits", 128: "bits"}


def test_positions_are_never_made_of_random_numbers():
    """A float that becomes an index is the caller's: random ones would lead out of the arrays."""
    from tessera.runtime.autotune.candidates import takes_any_data
    from tessera.runtime.call.dispatch import launcher_of

    def counted(x: ts.Tensor["n", ts.f32], out: ts.Tensor["m", ts.f32]):
        i = ts.tile.linear_id()
        out[ts.tile.cast(x[i], ts.int32)] = 1.0

    def until(x: ts.Tensor["n", ts.f32], out: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        v = x[i]
        while ts.tile.max(v) > 1e-3:
            v = v * 0.5
        out[i] = v

    def chosen(x: ts.Tensor["n", ts.f32], at: ts.Tensor["n", ts.int32], out: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        out[i] = x[at[i]]

    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    at = np.arange(16, dtype=np.int32)
    for python, args, want in ((counted, (x, out), False), (until, (x, out), False), (chosen, (x, at, out), True)):
        kernel = tuned(python, (8, 16))
        values = launcher_of(kernel).parameters.positions(args, {})
        assert takes_any_data(kernel, launcher_of(kernel).bind(values)) == want, python.__name__
        kernel(*args)
        assert kernel.tuning.best is not None
    np.testing.assert_array_equal(out, x)


def test_fast_numerics_allow_other_bits_and_label_them(clock):
    kernel = ts.numerics(fast=True)(tuned(summed))
    kernel(numbers(16, 512), np.zeros(16, np.float32))
    assert kernel.tuning.config == {"BLOCK": 128}
    assert "other bits" in kernel.tuning.best.detail


def test_another_first_configuration_is_another_reference(clock):
    """Timings stay; what they are compared with is looked at again."""
    x, y = numbers(16, 512), np.zeros(16, np.float32)
    tuned(summed, (32, 64))(x, y)
    clock.measured.clear()
    kernel = tuned(summed, (64, 32))
    kernel(x, y)
    assert set(clock.measured) == {64}
    assert statuses(kernel) == {64: "timed", 32: "bits"}
    clock.measured.clear()
    tuned(summed, (32, 64))(x, y)
    assert not clock.measured


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("block", [(8, 16), (16, 64), (64, 8)])
def test_every_configuration_that_is_timed_gives_the_same_bits(target, block):
    q, k, v = (numbers(2, 64, 16).astype(ml_dtypes.bfloat16) for _ in range(3))
    configs = [{"BLOCK_M": m, "BLOCK_N": n} for m in block for n in (16, 32)]
    kernel = ts.autotune.space(configs=configs)(ts.kernel(flash_attention.__wrapped__))
    with knobs.target.override(target):
        kernel(q, k, v)
        outcomes = {kernel.with_config(**t.config)(q, k, v).tobytes() for t in kernel.tuning.trials if t.usable}
        first = kernel.with_config()(q, k, v)
    assert outcomes == {first.tobytes()}
    assert {t.config["BLOCK_N"] for t in kernel.tuning.trials if t.usable} == {16}


def test_ties_go_to_the_earlier_one(clock):
    clock.seconds.update({32: 1.015e-3, 64: 1e-3, 128: 1.01e-3})
    kernel = tuned(doubled)
    kernel(numbers(64))
    assert kernel.tuning.config == {"BLOCK": 32}
    trials = [Trial({"BLOCK": b}, "timed", (s,)) for b, s in ((1, 1.0), (2, 1.0), (3, 0.97))]
    assert choose(trials, "time").config == {"BLOCK": 3}
    assert choose(trials[:2], "throughput").config == {"BLOCK": 1}
    assert choose([Trial({"BLOCK": 1})], "time") is None


def test_a_metric_of_ones_own(clock):
    kernel = tuned(doubled, metric=lambda trial: trial.config["BLOCK"] % 100)
    kernel(numbers(64))
    assert kernel.tuning.config == {"BLOCK": 128}
    nothing = tuned(doubled, metric=lambda trial: math.nan)
    with pytest.raises(TuningError, match="is not a number"):
        nothing(numbers(64))


def test_what_fails_is_recorded_and_the_rest_goes_on(clock):
    kernel = tuned(doubled, (32, -1, 64))
    x = numbers(64)
    np.testing.assert_array_equal(kernel(x), 2 * x)
    assert kernel.tuning.config == {"BLOCK": 64}
    failed = kernel.tuning.trials[1]
    assert failed.status == "failed" and failed.detail.startswith("TS404") and "-1" in failed.detail
    clock.measured.clear()
    again = tuned(doubled, (32, -1, 64))
    again(x)
    assert again.tuning.trials[1].detail == failed.detail and not clock.measured


def test_the_first_that_works_says_what_the_results_are(clock):
    kernel = tuned(summed, (-5, 64, 32))
    kernel(numbers(16, 512), np.zeros(16, np.float32))
    assert statuses(kernel) == {-5: "failed", 64: "timed", 32: "bits"}


def test_all_failing_is_one_error_that_lists_them():
    kernel = tuned(doubled, (0, -1))
    with pytest.raises(TuningError) as e:
        kernel(numbers(8))
    assert e.value.code == "TS609"
    assert "none of the 2 configurations of doubled" in str(e.value)
    assert "BLOCK=0: TS404" in str(e.value) and "BLOCK=-1: TS404" in str(e.value)
    assert {d.code for d in e.value.diagnostics} == {"TS609", "TS404"}


def test_a_program_that_is_wrong_is_told_with_its_own_finding():
    def wrong(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
        i = ts.tile.linear_id()
        return x[i] * missing

    with pytest.raises(TuningError, match="TS103") as e:
        tuned(wrong)(numbers(8))
    assert any(d.code == "TS103" and d.span.line for d in e.value.diagnostics)


def test_what_exceeds_the_caches_is_not_compiled(clock, monkeypatch):
    def staged(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", "K", ts.f32]):
        tile = ts.tile.alloc_shared((ts.tile.context().BLOCK, 4096), ts.f32)
        ts.tile.cp_async(tile, x[tile_m : tile_m + ts.tile.context().BLOCK])
        ts.tile.barrier()
        y[tile_m : tile_m + ts.tile.context().BLOCK] = tile * 2.0

    monkeypatch.setitem(clock.seconds, 8, 1e-3)
    kernel = tuned(staged, (8, 8192))
    x, y = numbers(16, 4096), np.zeros((16, 4096), np.float32)
    kernel(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    pruned = kernel.tuning.trials[1]
    assert pruned.status == "pruned" and "the caches hold" in pruned.detail


def test_too_much_shared_memory_is_pruned_with_its_code(clock):
    """On a GPU's target the code generator itself refuses; no device is needed to find that out."""

    def staged(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", "K", ts.f32]):
        tile = ts.tile.alloc_shared((ts.tile.context().BLOCK, 64), ts.f32)
        ts.tile.cp_async(tile, x[tile_m : tile_m + ts.tile.context().BLOCK])
        ts.tile.barrier()
        y[tile_m : tile_m + ts.tile.context().BLOCK] = tile * 2.0

    kernel = ts.autotune.space(configs=[{"BLOCK": 32}, {"BLOCK": 2048}, {"BLOCK": 32, "num_warps": 5}])(
        ts.kernel(staged)
    )
    x, y = numbers(64, 64), np.zeros((64, 64), np.float32)
    with knobs.target.override("emulator:sm_80"):
        kernel(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    _, shared, warps = kernel.tuning.trials
    assert shared.status == "pruned" and shared.detail.startswith("TS405")
    assert warps.status == "pruned" and "num_warps is 5" in warps.detail


def test_tiles_beyond_the_registers_are_not_compiled():
    def summed(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
        rows = ts.tile.context().BLOCK
        total = ts.tile.zeros((rows, 64))
        for k in ts.tile.range_k(0, N, 64):
            total = ts.tile.maximum(total, x[tile_m : tile_m + rows, k : k + 64])
        y[tile_m : tile_m + rows, 0:64] = total

    kernel = ts.autotune.space(configs=[{"BLOCK": 16, "num_warps": 1}, {"BLOCK": 256, "num_warps": 1}])(
        ts.kernel(summed)
    )
    x, y = numbers(256, 128), np.zeros((256, 128), np.float32)
    with knobs.target.override("emulator:sm_80"):
        kernel(x, y)
    np.testing.assert_array_equal(y[:, :64], np.maximum(np.maximum(x[:, :64], x[:, 64:]), 0))
    assert kernel.tuning.trials[1].status == "pruned"
    assert "TS411: Tiles hold 512 registers of each of 32 threads" in kernel.tuning.trials[1].detail


def test_what_cannot_be_launched():
    from tessera.runtime.autotune.candidates import unlaunchable

    assert unlaunchable({"k": {"blocks_per_sm": 2}}) is None
    assert "registers" in unlaunchable({"k": {"blocks_per_sm": 0, "occupancy_limiter": "registers"}})


def test_a_machine_that_fails_is_no_configurations_fault(monkeypatch):
    def broken(*args: Any) -> None:
        raise DeviceError("it is gone")

    monkeypatch.setattr(search, "Candidate", broken)
    kernel = tuned(doubled)
    with pytest.raises(DeviceError, match="it is gone"):
        kernel(numbers(8))
    monkeypatch.undo()
    assert kernel.tune(numbers(8)).best is not None


def test_interrupting_keeps_what_has_been_timed(clock):
    rounds = {"left": 14}

    class Interrupted(Clock):
        def time(self, repeat: int) -> float:
            rounds["left"] -= 1
            if not rounds["left"]:
                raise KeyboardInterrupt
            return super().time(repeat)

    kernel, x = tuned(doubled), numbers(64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "Candidate", Interrupted)
        patch.setattr(search, "GONE", ())
        with pytest.raises(KeyboardInterrupt):
            kernel(x)
    clock.measured.clear()
    report = kernel.tuning_report(x)
    assert report.measured == 0 and [len(t.samples) for t in report.trials] == [3, 3, 4]  # backwards every other round
    kernel(x)
    assert kernel.tuning.config == {"BLOCK": 128} and not clock.measured


def test_an_interrupted_compilation_leaves_the_rest_to_the_next_call(clock):
    class Interrupted(Clock):
        def __init__(self, fn: Any, *rest: Any) -> None:
            if fn.config["BLOCK"] == 64:
                raise KeyboardInterrupt
            super().__init__(fn, *rest)

    kernel, x = tuned(doubled, (-1, 32, 64)), numbers(64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "Candidate", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            kernel(x)
    kernel(x)
    assert statuses(kernel) == {-1: "failed", 32: "timed", 64: "timed"} or statuses(kernel)[32] == "stopped"


def test_a_limit_on_the_time_of_one_configuration(clock):
    clock.seconds.update({32: 0.5, 64: 0.004, 128: 0.3})
    kernel = tuned(doubled, timeout_ms=20)
    kernel(numbers(64))
    assert kernel.tuning.config == {"BLOCK": 64}
    slow, quick, _ = kernel.tuning.trials
    assert slow.status == "stopped" and "500 ms, timeout_ms is 20" in slow.detail and len(slow.samples) == 1
    assert 0.004 * len(quick.samples) <= 20e-3
    clock.seconds.update({64: 0.25})
    hopeless = tuned(doubled, timeout_ms=20)
    hopeless(numbers(65))  # nothing is within the limit: the best of what there is
    assert hopeless.tuning.config == {"BLOCK": 64}


def test_settings_say_whether_anything_is_timed(clock):
    kernel, x = tuned(doubled), numbers(64)
    with ts.autotune.off():
        kernel(x)
    assert kernel.tuning is None and not clock.measured
    with knobs.autotune.override("cached"):
        kernel(x)
        assert kernel.tuning.config == {"BLOCK": 32} and kernel.tuning.best is None and not clock.measured
    kernel(x)
    assert kernel.tuning.config == {"BLOCK": 128}
    clock.measured.clear()
    with knobs.autotune.override("cached"):
        fresh = tuned(doubled)
        assert fresh.best_config(x) == {"BLOCK": 128}
    with ts.autotune.off():
        assert kernel.best_config(x) == {"BLOCK": 32}
    assert not clock.measured


def test_a_changed_setting_reaches_calls_that_were_prepared(clock):
    kernel, x = tuned(doubled), numbers(64)
    ran: list[Any] = []
    kernel(x)
    original = kernel.launcher.variant
    kernel.launcher.variant = lambda config: ran.append(config) or original(config)
    kernel(x)
    assert ran == []
    with ts.autotune.off():
        kernel(x)
    assert ran == [{"BLOCK": 32}]


def test_nothing_is_timed_while_values_are_checked(clock):
    with knobs.debug.override("1"):
        kernel = tuned(doubled)
        kernel(numbers(64))
    assert not clock.measured


def test_keys_follow_what_a_kernel_reads_but_not_where_it_stands(clock, tmp_path):
    text = "import tessera as ts\n{above}\nOFFSET = {offset}\n\n" \
           "def half(x):\n    '''{doc}'''\n    return x {by} 2\n\n" \
           "@ts.kernel.autotune(space=dict(BLOCK=[32, 64]))\n" \
           "def moved(x: ts.Tensor['n', ts.f32]) -> ts.Tensor['n', ts.f32]:\n    '''{doc}'''\n" \
           "    return half(x[ts.tile.linear_id()]) {op} OFFSET\n"  # fmt: skip
    outcomes: list[int] = []
    variants = [
        {}, {"above": "# a comment\n\n"}, {"doc": "Other words."}, {"offset": 2.0}, {"op": "*"}, {"by": "*"}, {}
    ]  # fmt: skip
    for number, changes in enumerate(variants):
        path = tmp_path / f"module{number}.py"
        path.write_text(text.format(**({"above": "", "offset": 1.0, "doc": "Words.", "op": "+", "by": "/"} | changes)))
        scope: dict[str, Any] = {"__name__": "moved"}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        scope["moved"](numbers(50))
        outcomes.append(scope["moved"].tuning.measured)
    assert outcomes == [2, 0, 0, 2, 2, 2, 0]


def test_the_number_of_threads_is_part_of_the_key(clock):
    kernel, x = tuned(doubled), numbers(64)
    first = kernel.tune(x)
    threads = ts.get_num_threads()
    try:
        ts.set_num_threads(threads + 1)
        assert kernel.tune(x).measured == 3
    finally:
        ts.set_num_threads(threads)
    assert kernel.tune(x).measured == 0
    assert f"{threads} thread" in first.device


def test_a_profile_shows_the_program_and_not_its_tuning(clock):
    kernel, x = tuned(doubled), numbers(64)
    with Profiler(tiles=False) as prof:
        kernel(x)
    assert len(prof.launches()) == 1
    assert not events.active()


def test_pausing_respects_who_leaves_meanwhile():
    heard: list[Any] = []
    token = events.subscribe(heard.append)
    other = events.subscribe(heard.append)
    with events.paused():
        assert not events.active()
        events.unsubscribe(other)
        late = events.subscribe(heard.append, tiles=False)
    assert events.active() and events.tiles_wanted()
    events.publish(events.MemoryEvent(0, "cpu:0", 1, 1, "x"))
    assert len(heard) == 2
    events.unsubscribe(token)
    events.unsubscribe(late)
    assert not events.active()


def test_tuning_is_no_recompilation(clock):
    def halved(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
        return x[ts.tile.linear_id()] * 0.5

    kernel, x = tuned(halved), numbers(64)
    kernel(x)
    assert "has been compiled once" in str(ts.why_recompiled(kernel))
    kernel.with_config(BLOCK=32)(x)
    kernel.with_config(BLOCK=64)(x)
    assert "config: {'BLOCK': 32} -> {'BLOCK': 64}" in str(ts.why_recompiled(kernel))


def test_threads_tune_once(clock):
    kernel, x = tuned(doubled), numbers(64)
    out: list[Any] = []
    threads = [threading.Thread(target=lambda: out.append(kernel(x))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(out) == 4 and all((o == 2 * x).all() for o in out)
    assert kernel.tuning.measured == 3


def test_what_cannot_be_tuned_says_so():
    with pytest.raises(CompileError, match=r"TS105[\s\S]*no configurations to tune"):
        ts.kernel(doubled).tune(numbers(8))
    with pytest.raises(LaunchError, match=r"TS501[\s\S]*has not been tuned"):
        tuned(doubled).tuning_report()
    with pytest.raises(LaunchError, match="TS501"):
        tuned(doubled).tune("no array")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ts.kernel.autotune(space={}), "maps parameters to lists"),
        (lambda: ts.kernel.autotune(space={"BLOCK": []}), "list of values for BLOCK"),
        (lambda: ts.kernel.autotune(space={"BLOCK": [object()]}), "number, text"),
        (lambda: ts.kernel.autotune(space={"a b": [1]}), "are names"),
        (lambda: ts.kernel.autotune(space={c: [1, 2, 3, 4] for c in "abcdefg"}), "16,384 configurations"),
        (lambda: ts.kernel.autotune(), "one of the two"),
        (lambda: ts.autotune.space(configs=[]), "at least one"),
        (lambda: ts.autotune.space(configs=[3]), "mapping of parameters"),
        (lambda: ts.kernel.autotune(space={"BLOCK": [1]}, metric="speed"), "metric"),
        (lambda: ts.kernel.autotune(space={"BLOCK": [1]}, timeout_ms=0), "timeout_ms"),
    ],
)
def test_spaces_that_make_no_sense_are_refused_where_they_are_written(make, said):
    with pytest.raises(CompileError, match=rf"TS105[\s\S]*{said}"):
        make()


def test_the_report(clock):
    kernel = tuned(doubled, (32, 64, -1))
    kernel(numbers(64))
    text = str(kernel.tuning_report())
    assert "doubled on cpu: BLOCK=64" in text and "2 ms" in text and "TS404" in text and "best" in text
    assert "for x [64] f32" in text and ("no GPU" in text) == (len(ts.devices()) == 1)
    assert "busy" not in text
    page = kernel.tuning._repr_html_()
    assert page.startswith('<div class="tessera-tuning">') and "BLOCK=64" in page and "TS404" in page
    assert "BLOCK=64" in repr(kernel.tuning)


def test_the_report_tells_of_a_busy_machine():
    trials = (Trial({"BLOCK": 8, "warps": 4}, "timed", (1.0, 2.0, 1.0, 2.0, 3.0)), Trial({"BLOCK": 9, "warps": 4}))
    tuning = Tuning("k", "cpu", "a processor", (), "time", trials, "file")
    assert "machine that is busy" in str(tuning)
    assert str(tuning).count("warps=4") == 1  # in the headline


def test_progress_is_silent_without_a_terminal(capsys):
    with terminal("Tuning") as step:
        step("BLOCK=64", 0.5)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(monkeypatch, capsys):
    from tessera.runtime.autotune import search

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(search, "PATIENCE", 0.0)
    with terminal("Tuning doubled") as step:
        step("BLOCK=64", 0.5)
    assert "Tuning doubled" in capsys.readouterr().err


# the seeds' programs


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_the_quick_starts_attention_as_written(target):
    q, k, v = (numbers(2, 128, 16).astype(ml_dtypes.bfloat16) for _ in range(3))
    kernel = type(flash_attention)(flash_attention.__wrapped__, flash_attention.options)
    with knobs.target.override(target):
        out = kernel(q, k, v)
        assert out.tobytes() == kernel.with_config()(q, k, v).tobytes()
    assert len(kernel.tuning.trials) == 16
    assert kernel.tuning.target == target and kernel.tuning.best is not None


def test_the_guides_tuned_product_runs_as_written(clock):
    from tessera import autotune, op, tensor

    clock.seconds.update({64: 2e-3, 128: 1e-3})

    @autotune.space(configs=[{"block": 64}, {"block": 128}])
    def tuned_matmul(A, B):
        return op.matmul(A, B)

    A, B = tensor.rand((160, 96)), tensor.rand((96, 130))
    Y1 = tuned_matmul(A, B)
    Y2 = tuned_matmul(A, B)
    assert (Y1 == Y2).all(), "Autotuner inconsistency detected"
    assert (op.matmul(A, B) == Y1).all()
    assert tuned_matmul.tuning.config == {"block": 128} and tuned_matmul.tuning.measured == 2


def test_the_specifications_space(clock, tmp_path):
    """216 configurations, of which a processor can tell nine apart by their blocks; `cache` names the file."""
    space = {"BM": [64, 128, 256], "BN": [64, 128, 256], "BK": [32, 64], "warps": [4, 8], "stages": [2, 3, 4],
             "vector": [4, 8]}  # fmt: skip

    @ts.kernel.autotune(space=space, metric="throughput", timeout_ms=200, cache=str(tmp_path / "autotune.db"))
    def copied(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
        ctx = ts.tile.context()
        y[tile_m : tile_m + ctx.BM, tile_n : tile_n + ctx.BN] = x[tile_m : tile_m + ctx.BM, tile_n : tile_n + ctx.BN]

    clock.seconds[None] = 1e-3
    x, y = numbers(70, 70), np.zeros((70, 70), np.float32)
    copied(x, y)
    np.testing.assert_array_equal(x, y)
    assert len(copied.tuning.trials) == 216 and copied.tuning.measured <= 9
    assert (tmp_path / "autotune.db").exists() and not (tmp_path / "tuning.sqlite").exists()


# functions


@pytest.mark.parametrize("block", [8, (16, 64), [300, 7], (5, 6, 7)])
def test_blocks_of_functions_change_no_bits(block):
    @ts.function
    def layer(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
        return ts.softmax(ts.gelu(x @ w) + 1.0, axis=1).sum(axis=0)

    x, w = numbers(70, 90), numbers(90, 110)
    assert layer.with_config(block=block)(x, w).tobytes() == layer(x, w).tobytes()


@pytest.mark.parametrize("config", [{"warps": 4}, {"block": "big"}, {"block": 0}, {"block": (1, 2, 3, 4)}])
def test_what_a_function_cannot_schedule_is_refused(config):
    @ts.function
    def same(x: ts.Tensor["n", ts.f32]):
        return x + 1

    with pytest.raises(CompileError, match=r"(TS105|TS404)[\s\S]*block"):
        same.with_config(**config)(numbers(4))


def test_an_editor_knows_a_tuned_function():
    from tessera.compiler.frontend.incremental import FileAnalysis

    text = "import tessera as ts\nfrom tessera import autotune, op\n\n" \
           "@autotune.space(configs=[{'block': 64}])\ndef product(A: ts.Tensor['M', 'K'], B: ts.Tensor['K', 'N']):\n" \
           "    return op.matmul(A, B)\n\n@autotune.space(configs=[])\ndef wrong(A: ts.Tensor['M']):\n" \
           "    return A\n"  # fmt: skip
    file = FileAnalysis("tuned.py")
    file.update(text)
    assert [a.name for a in file.analyses] == ["product", "wrong"]
    assert file.analyses[0].op is not None and file.analyses[0].op.attrs["block"] == (64, 64)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS105", 8)]


def test_the_report_says_why_a_configuration_lost(clock):
    """Times against the best, how programs divide among threads, and the reason of a failure."""
    threads = ts.get_num_threads()
    clock.seconds.update({4096: 1.6e-3, 64: 1.01e-3, 128: 1e-3})
    kernel = tuned(doubled, (128, 64, 4096, -1))
    ts.set_num_threads(2)
    try:
        kernel(numbers(4096))
    finally:
        ts.set_num_threads(threads)
    whys = {t.config["BLOCK"]: texts[-1] for t, texts in trials.rows(kernel.tuning)}
    assert kernel.tuning.config == {"BLOCK": 128} and whys[128].startswith("32 programs")
    assert whys[64].startswith("within 2% of the best, which comes first in the space; 64 programs")
    late = "1 program on 2 threads, idle for 50% of their time"
    assert late in whys[4096] and ("takes 1.60 times as long" in whys[4096] or "1.6 times slower" in whys[4096])
    assert "TS" in whys[-1]
    html = kernel.tuning._repr_html_()
    assert html.count("<svg") == 3 and html.count("✕") == 1
