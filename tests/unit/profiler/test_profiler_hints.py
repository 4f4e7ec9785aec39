"""Roofline and hints on a machine of 10 GB/s and 100 GFLOP/s, where one byte takes 0.1 ns and one operation 0.01 ns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tessera.profiler.bottlenecks import find_bottlenecks
from tessera.profiler.hints import Hint, hints
from tessera.profiler.kernel_stats import kernel_stats
from tessera.profiler.machine import DeviceCeilings
from tessera.profiler.recording import Recording
from tessera.profiler.roofline import Roofline
from tessera.runtime.events import CompileEvent, ProfilingEvent
from tests.profiler.synthetic import launch, recorded, tiles


def only(recording: Recording, kind: str) -> Hint:
    (found,) = (hint for hint in hints(recording) if hint.kind == kind)
    return found


def kinds(recording: Recording) -> set[str]:
    return {hint.kind for hint in hints(recording)}


def test_a_kernel_s_figures() -> None:
    first = launch(1, duration=100_000, flops=1_000_000, bytes=800_000)
    second = launch(2, duration=300_000, flops=1_000_000, bytes=800_000)
    other = launch(3, "gemm", duration=100_000, flops=9_000_000, bytes=10_000)
    long, short = kernel_stats(recorded(first, second, other))
    assert (long.kernel, len(long.launches), long.duration, long.share) == ("saxpy", 2, 400_000, 0.8)
    assert long.intensity.value == 1.25
    assert long.bandwidth.value == pytest.approx(4e9)
    assert long.rate.value == pytest.approx(5e9)
    assert long.bandwidth_fraction.value == pytest.approx(0.4)
    assert long.ideal.value == pytest.approx(160_000)
    assert long.bound == "latency"
    assert (short.bound, short.roof_fraction) == ("compute", pytest.approx(0.9))


def test_figures_say_where_they_come_from() -> None:
    (found,) = kernel_stats(recorded(launch(flops=1, bytes=1)))
    assert found.source == "measured"
    assert found.intensity.source == "static"
    assert found.bandwidth.source == "modelled"
    (modelled,) = kernel_stats(recorded(launch(flops=1, bytes=1, source="modelled"), launch(2, flops=1, bytes=1)))
    assert modelled.source == "modelled"


def test_what_is_not_known_is_none_with_the_reason() -> None:
    (found,) = kernel_stats(recorded(launch(flops=None, bytes=100, unavailable={"flops": "the loop count is dynamic"})))
    assert found.intensity.value is None
    assert found.intensity.reason == "the loop count is dynamic"
    assert found.bound == "unknown"
    assert found.bandwidth.value is not None
    (elsewhere,) = kernel_stats(recorded(launch(flops=1, bytes=1, device="tpu:0")))
    assert elsewhere.bandwidth_fraction.value is None
    assert elsewhere.bandwidth_fraction.reason == "no ceilings are known for tpu"


def test_launches_that_never_ran_are_left_out() -> None:
    assert kernel_stats(recorded(launch(duration=None, source="static"))) == []


def test_an_unmeasured_dtype_has_no_compute_roof() -> None:
    (found,) = kernel_stats(recorded(launch(flops=1, bytes=1, attributes={"dtype": "fp8"})))
    assert found.compute_fraction.value is None
    assert "fp8 compute" in found.compute_fraction.reason


def test_the_roofline_says_why_a_kernel_has_no_point() -> None:
    roofline = Roofline(recorded(launch(flops=100, bytes=100), launch(2, "copy", flops=0, bytes=100)))
    assert [point.kernel for point in roofline.points] == ["saxpy"]
    assert roofline.missing == {"copy": "it does no arithmetic"}


def equal_tiles(count: int, lanes: int, launches: int = 3, end: int = 0, **attributes: Any) -> Recording:
    """Launches of `count` tiles of 50 us each, one after the other."""
    waves = -(-count // lanes)
    events: list[Any] = []
    for number in range(1, launches + 1):
        start = (number - 1) * waves * 50_000
        rows = [(i, i % lanes, start + i // lanes * 50_000, 50_000) for i in range(count)]
        more = {"run": number, "resources": lanes, **attributes}
        events += [launch(number, start=start, duration=waves * 50_000, attributes=more), tiles(*rows, launch=number)]
    return recorded(*events, end=end or 2 * launches * waves * 50_000)


def test_wave_quantisation() -> None:
    hint = only(equal_tiles(9, 4), "wave quantisation")
    assert "9 equal tiles on 4 lanes make 2.25 waves" in hint.cause
    # each launch: 112,500 when perfect; 112,500 + 3/4 * 25,000 when cut in halves
    assert hint.saving == (3 * 18_750, 3 * 37_500)
    assert hint.local == (pytest.approx(0.125), pytest.approx(0.25))
    assert hint.whole_run == (pytest.approx(0.0625), pytest.approx(0.125))
    assert "multiple of 4" in hint.change


def test_a_full_last_wave_gives_no_hint() -> None:
    assert kinds(equal_tiles(8, 4)) == set()


def test_the_author_of_a_function_is_not_told_to_choose_tiles() -> None:
    assert kinds(equal_tiles(9, 4, label="matmul+gelu")) == set()
    assert "larger batch" in only(equal_tiles(2, 8, label="matmul+gelu"), "underfilled").change
    assert "smaller tiles" in only(equal_tiles(2, 8, label="saxpy"), "underfilled").change


def two_launches_apart(times: list[int]) -> Recording:
    """A launch per time, on two lanes: one takes the whole time, the other the half of it."""
    events: list[Any] = []
    start = 0
    for number, time in enumerate(times, 1):
        rows = [(0, 0, start, time), (1, 1, start, time // 2)]
        events += [launch(number, start=start, duration=time), tiles(*rows, launch=number)]
        start += time
    return recorded(*events, end=start)


def test_a_hint_inside_the_noise_is_not_shown() -> None:
    assert kinds(two_launches_apart([100_000] * 5)) == {"imbalance"}
    # the same imbalance, 25 % of the time, where launches differ by more than that
    assert kinds(two_launches_apart([50_000, 70_000, 100_000, 130_000, 150_000])) == set()
    assert kinds(two_launches_apart([100_000])) == set()  # once on a CPU shows nothing


def test_a_hint_holds_in_three_launches_of_four() -> None:
    recording = two_launches_apart([100_000] * 8)
    even = [(t, t, 10**7 + n * 100_000, 100_000) for n in range(8) for t in (0, 1)]
    for n in range(8):
        recording.add(launch(9 + n, start=10**7 + n * 100_000, duration=100_000))
        recording.add(tiles(*even[2 * n : 2 * n + 2], launch=9 + n))
    assert "imbalance" not in kinds(recording)


def test_spread_of_a_kernel() -> None:
    (found,) = kernel_stats(two_launches_apart([90, 100, 100, 100, 5000]))
    assert (found.typical, found.spread) == (100, 0)
    (found,) = kernel_stats(two_launches_apart([80, 90, 100, 110, 120]))
    assert found.spread == pytest.approx(0.14826)
    assert kernel_stats(two_launches_apart([100, 120]))[0].spread is None


def test_low_occupancy_is_a_hint_only_below_the_roof() -> None:
    attributes = {"occupancy": 0.25, "occupancy_limiter": "registers"}
    slow = recorded(launch(flops=1, bytes=200_000, attributes=attributes), end=100_000)
    hint = only(slow, "low occupancy")
    assert hint.saving == (0, 50_000)  # twice the warps: half the time at best; the roof is at 20,000
    assert "registers" in hint.change
    assert hint.source == "modelled"
    near = recorded(launch(flops=1, bytes=900_000, attributes=attributes), end=100_000)
    assert kinds(near) == set()


def chain(*, read_later: bool = False, gap: int = 0) -> Recording:
    """Two memory-bound kernels joined by 400 kB, at the roof: 80 us each."""
    first = launch(1, "scale", 0, 80_000, flops=1000, bytes=800_000, attributes={"writes": [(7, 400_000)]})
    second = launch(2, "shift", 80_000 + gap, 80_000, flops=1000, bytes=800_000, attributes={"reads": [(7, 400_000)]})
    third = launch(3, "later", 220_000, 1, attributes={"reads": [(7, 400_000)] if read_later else []})
    return recorded(third, first, second, end=240_000)


def test_memory_bound_neighbours() -> None:
    hint = only(chain(), "memory-bound neighbours")
    # At least the read, from cache at 100 GB/s; at most write and read, at 10 GB/s.
    assert hint.saving == (pytest.approx(4_000), pytest.approx(80_000))
    assert hint.measured.startswith("800 kB moved")
    assert "call scale and shift in one @ts.function" in hint.change
    assert hint.local_time == 160_000


def test_an_intermediate_that_is_read_again_must_be_written_anyway() -> None:
    assert only(chain(read_later=True), "memory-bound neighbours").saving[1] == pytest.approx(40_000)


def test_fusing_saves_the_gap_too() -> None:
    assert only(chain(gap=5_000), "memory-bound neighbours").saving[1] == pytest.approx(85_000)


def test_fusing_does_not_save_what_the_program_does_in_between() -> None:
    """Compiling is not a pause, and one pause of four that is much longer than the others is something else."""
    found: list[Any] = []
    at = 0
    for n, gap in enumerate((5_000, 5_000, 400_000, 5_000)):
        end = at + 80_000
        joined = {"writes": [(n, 400_000)]}, {"reads": [(n, 400_000)]}
        found.append(launch(2 * n, "scale", at, 80_000, flops=1000, bytes=800_000, attributes=joined[0]))
        found.append(launch(2 * n + 1, "shift", end + gap, 80_000, flops=1000, bytes=800_000, attributes=joined[1]))
        at = end + gap + 80_000
    hint = only(recorded(*found, end=at), "memory-bound neighbours")
    assert hint.saving[1] == pytest.approx(4 * 80_000 + 3 * 5_000)
    assert hint.local_time == 8 * 80_000 + 3 * 5_000
    compiled = CompileEvent("shift", "cpu", 80_000, 4_000)
    assert only(recorded(*found[:2], compiled, end=200_000), "memory-bound neighbours").saving[1] == pytest.approx(
        81_000
    )


def test_fusion_never_promises_more_than_the_fused_kernel_s_roof_leaves() -> None:
    first = launch(1, "gemm", 0, 100_000, flops=9_900_000, bytes=500_000, attributes={"writes": [(7, 400_000)]})
    second = launch(2, "relu", 100_000, 41_000, flops=100_000, bytes=400_000, attributes={"reads": [(7, 400_000)]})
    # 10 MFLOP take 100,000 ns however they are fused.
    assert only(recorded(first, second), "memory-bound neighbours").saving[1] == pytest.approx(41_000)


def test_a_buffer_that_was_written_anew_is_another_value() -> None:
    first = launch(1, "a", 0, 80_000, flops=1, bytes=800_000, attributes={"writes": [(7, 400_000)]})
    between = launch(2, "b", 80_000, 80_000, flops=1, bytes=800_000, attributes={"writes": [(8, 10)]})
    last = launch(3, "c", 160_000, 80_000, flops=1, bytes=800_000, attributes={"reads": [(7, 400_000)]})
    assert kinds(recorded(first, between, last, end=240_000)) == set()


def calls(count: int, *functions: str, pause: int = 8_000) -> Recording:
    """Calls of the functions in turn, of 2 us each."""
    each = 2_000 + pause
    events = [
        launch(i, start=i * each, duration=2_000, attributes={"run": i, "function": functions[i % len(functions)]})
        for i in range(count)
    ]
    return recorded(*events, end=count * each)


def test_many_short_calls_are_launch_bound() -> None:
    hint = only(calls(10, "scale", "shift"), "launch overhead")
    assert hint.saving == (0, 46_000)  # 72 us of pauses and 20 of kernels, of which one call of two is left
    assert "10 calls" in hint.measured
    assert hint.change.startswith("call scale, shift in one @ts.function")
    assert hint.kernel == ""


def test_what_is_called_once_is_no_part_of_a_round() -> None:
    """Making parameters, before 50 rounds of two functions: one call of two is left, not one of five."""
    names = ("uniform", "zeros", "full", *("scale", "shift") * 50)
    events = [launch(i, start=i * 10_000, duration=2_000, attributes={"run": i, "function": name})
              for i, name in enumerate(names)]  # fmt: skip
    hint = only(recorded(*events, end=len(names) * 10_000), "launch overhead")
    assert hint.change.startswith("call scale, shift in one @ts.function")
    assert hint.saving == (0, (102 * 8_000 + 103 * 2_000) / 2)


def test_what_is_in_one_function_is_not_to_be_put_into_one() -> None:
    alone = only(calls(10, "attend"), "launch overhead")
    assert alone.change == "give each call more work (a larger batch)" and alone.saving == (72_000, 72_000)
    one_call = [launch(i, start=i * 10_000, duration=2_000, attributes={"run": 1}) for i in range(10)]
    assert "launch overhead" not in kinds(recorded(*one_call, end=100_000))
    recording = chain()
    for event in recording.launches[1:]:
        event.attributes["run"] = 4  # type: ignore[index]
    assert "memory-bound neighbours" not in kinds(recording)


def test_what_recording_takes_is_no_pause() -> None:
    recording = calls(10, "scale")
    assert "launch overhead" in kinds(recording)
    for event in list(recording.launches):
        recording.add(ProfilingEvent(event.start + 2_000, 7_900))
    assert "launch overhead" not in kinds(recording)


def test_one_long_pause_is_not_launch_overhead() -> None:
    recording = calls(4, "scale", pause=100)
    recording.add(launch(9, start=900_000, duration=2_000, attributes={"run": 9, "call_file": "/m.py", "call_line": 8}))
    recording.end = 1_000_000
    assert kinds(recording) == {"outside kernels"}
    hint = only(recording, "outside kernels")
    assert "between the calls of scale and saxpy at m.py:8" in hint.cause
    assert hint.measured == "99.0% of the run lay outside kernels"


def test_what_recording_takes_is_not_the_program_s() -> None:
    recording = recorded(launch(1, duration=100_000), end=1_000_000)
    assert kinds(recording) == {"outside kernels"}
    recording.add(ProfilingEvent(100_000, 890_000))
    assert kinds(recording) == set()
    assert [(b.what, b.duration) for b in find_bottlenecks(recording)] == [
        ("profiling", 890_000), ("saxpy", 100_000), ("outside kernels", 10_000),
    ]  # fmt: skip


def test_long_launches_are_not() -> None:
    assert kinds(recorded(*[launch(i, start=i * 10_000, duration=9_500) for i in range(10)], end=100_000)) == set()


def test_compiling_in_the_region() -> None:
    miss = CompileEvent("f", "cpu", 0, 300_000)
    hit = CompileEvent("g", "cpu", 300_000, 100, cache="hit")
    hint = only(recorded(miss, hit), "compilation")
    assert hint.saving == (0, 300_000)
    assert hint.measured == "300 µs compiling f"


def test_what_only_profiling_compiles_is_no_advice() -> None:
    ours = CompileEvent("f", "cpu", 0, 300_000, attributes={"instrumented": True})
    assert "compilation" not in kinds(recorded(ours))
    assert [(b.what, b.duration, b.hints) for b in find_bottlenecks(recorded(ours))][1] == ("profiling", 300_000, ())


def test_pauses_in_which_something_was_compiled_are_not_launch_overhead() -> None:
    ran = [launch(i, start=i * 100_000, duration=10_000) for i in range(6)]
    assert "launch overhead" in kinds(recorded(*ran))
    between = [CompileEvent("f", "cpu", i * 100_000 + 20_000, 50_000, cache="disk") for i in range(5)]
    assert "launch overhead" not in kinds(recorded(*ran, *between))


def test_hints_that_are_worth_nothing_are_not_said() -> None:
    assert kinds(equal_tiles(9, 4, end=10**9)) == {"outside kernels"}


def test_hints_come_largest_first_and_read_well() -> None:
    with_compile = equal_tiles(9, 4)
    with_compile.add(CompileEvent("f", "cpu", 450_000, 300_000))
    first, second = hints(with_compile)
    assert (first.kind, second.kind) == ("compilation", "wave quantisation")
    text = str(second)
    for part in ("measured:", "ideal:", "cause:", "change:", "saves 56.2 µs to 112 µs", "12.5% to 25.0% of it"):
        assert part in text


def test_bottlenecks_account_for_the_whole_region_once() -> None:
    recording = recorded(
        CompileEvent("f", "cpu", 0, 300_000), launch(1, start=300_000, duration=500_000, flops=1, bytes=4_900_000)
    )
    found = find_bottlenecks(recording)
    assert [(entry.what, entry.duration) for entry in found] == [
        ("saxpy", 500_000),
        ("compilation", 300_000),
        ("outside kernels", 200_000),
    ]
    assert found[0].bound == "memory bandwidth"
    assert [hint.kind for hint in found[1].hints] == ["compilation"]


def test_a_machine_without_ceilings_gives_no_invented_hints() -> None:
    recording = chain()
    recording.machines["cpu:0"] = DeviceCeilings("cpu:0", "", 0, 0, reason="no measurement allowed")
    assert kinds(recording) == set()
    assert kernel_stats(recording)[0].ideal.reason == "no measurement allowed"


def test_a_saving_is_no_more_than_the_time_that_it_is_taken_from() -> None:
    first = launch(1, "scale", 0, 80_000, flops=1000, bytes=800_000, attributes={"writes": [(7, 400_000)]})
    second = launch(2, "shift", 980_000, 80_000, flops=1000, bytes=800_000, attributes={"reads": [(7, 400_000)]})
    recording = recorded(first, second, end=1_100_000)
    hint = only(recording, "memory-bound neighbours")  # a long pause, which joining the calls takes away
    assert hint.saving[1] == pytest.approx(980_000) and hint.local[1] <= 1
    recording.add(ProfilingEvent(80_000, 890_000))  # most of which went into recording
    assert only(recording, "memory-bound neighbours").saving[1] == pytest.approx(90_000)


def test_a_tile_that_is_long_by_no_more_than_its_fellows_waited_makes_no_tail() -> None:
    """One lane does nearly everything: a tile of 5 us is not what the other waits 400 us for."""
    rows = [(0, 0, 0, 5_000), *((t, 0, 4_000 + t * 1_000, 1_000) for t in range(1, 400)), (400, 1, 0, 1_000)]
    events: list[Any] = []
    for n in range(3):
        start = n * 500_000
        moved = [(t, lane, start + begin, took) for t, lane, begin, took in rows]
        events += [launch(n + 1, start=start, duration=405_000), tiles(*moved, launch=n + 1)]
    assert kinds(recorded(*events, end=1_500_000)) == {"imbalance"}


def one_lane_comes_late(launches: int, **attributes: Any) -> Recording:
    """64 equal tiles, of which one lane does all but the last four: the other began when these were left."""
    events: list[Any] = []
    for n in range(launches):
        start = n * 1_000_000
        rows = [(t, 0, start + t * 10_000, 10_000) for t in range(60)]
        rows += [(t, 1, start + t * 10_000 - 40_000, 10_000) for t in range(60, 64)]
        more = {"resources": 2, **attributes}
        one = launch(n + 1, start=start, duration=600_000, grid=(64,), attributes=more)
        events += [one, tiles(*rows, launch=n + 1)]
    return recorded(*events, end=launches * 1_000_000)


def test_a_lane_without_a_processor_is_no_imbalance() -> None:
    """Lanes that take the next tile when they are free are idle in the midst of a launch for one reason alone."""
    assert "imbalance" not in kinds(one_lane_comes_late(4, taken=64))
    assert "imbalance" in kinds(one_lane_comes_late(4))  # a fixed share


def test_a_tail_is_one_of_the_same_tile() -> None:
    def long_one(which: Callable[[int], int]) -> Recording:
        events: list[Any] = []
        for n in range(4):
            start = n * 1_000_000
            rows, ends = list[tuple[int, int, int, int]](), [start, start]
            for t in range(16):
                lane, took = t % 2, 200_000 if t == which(n) else 10_000
                rows.append((t, lane, ends[lane], took))
                ends[lane] += took
            one = launch(n + 1, start=start, duration=max(ends) - start, grid=(16,), attributes={"resources": 2})
            events += [one, tiles(*rows, launch=n + 1)]
        return recorded(*events, end=4_000_000)

    assert "tail" in kinds(long_one(lambda n: 15))
    assert "tail" not in kinds(long_one(lambda n: 15 - n))  # another each time: it waited, and it is not long


def test_between_calls_that_the_profiler_makes_itself_lies_nothing_of_the_program_s() -> None:
    recording = calls(3, "scale", pause=100)
    recording.end = 1_000_000
    assert "outside kernels" in kinds(recording)
    recording.repetitions = 3  # each is one call of one function
    assert "outside kernels" not in kinds(recording)
    recording.repetitions = 1  # one repetition makes all three: Python runs between them
    assert "outside kernels" in kinds(recording)
