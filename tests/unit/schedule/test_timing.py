"""The model of launches on a processor: what each figure is for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import tessera as ts
from tessera.compiler.figures import USUAL, Figures
from tessera.compiler.machines import HOST, MACHINES
from tessera.compiler.schedule.cost import LaunchTime
from tessera.compiler.timing import launches, operations


@ts.function
def product(x: ts.Tensor["M", "K"], w: ts.Tensor["K", "N"]):
    return x @ w


@ts.function
def exponential(x: ts.Tensor["M"]):
    return ts.exp(x)


@ts.function
def two_kernels(x: ts.Tensor["M", "M"]):
    return ts.sum(ts.exp(x @ x), axis=0)


def with_rates(**changes: float) -> Figures:
    """A usual processor with other rates by one thread and by all: product_f32=2e9."""
    rates = {**USUAL.rates, **{k.replace("_", " "): (v, 2 * v) for k, v in changes.items()}}
    return Figures(USUAL.processor, 2, USUAL.caches, USUAL.vector, rates, 1.0)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The times of the launches of a function."""

    def found(fn: Any, dims: dict[str, int], figures: Figures = USUAL, threads: int = 1) -> list[LaunchTime]:
        monkeypatch.setattr(launches, "figures", lambda: figures)
        program = ts.compile(fn, target="cpu", dims=dims).lowered.program
        known = launches.launch_times(program, MACHINES[HOST], threads)
        return [known[id(launch)] for launch in program.launches]

    return found


def test_products_go_by_the_rate_of_their_dtype(times: Any) -> None:
    dims = {"M": 512, "K": 512, "N": 512}
    (usual,), (slow,) = times(product, dims), times(product, dims, with_rates(product_f32=6e9))
    multiplied = 2 * 512**3 / 60e9
    assert multiplied < usual.compute < 1.5 * multiplied
    assert slow.compute - usual.compute == pytest.approx(9 * multiplied / operations.REACHED)
    (other,) = times(product, dims, with_rates(product_f64=6e9))
    assert other == usual


def test_functions_go_by_their_own_rates(times: Any) -> None:
    (usual,), (slow,) = times(exponential, {"M": 1 << 20}), times(exponential, {"M": 1 << 20}, with_rates(exp_f32=1e8))
    assert slow.compute - usual.compute == pytest.approx((1 << 20) * (1 / 1e8 - 1 / 1.5e9))


def test_what_fits_in_a_cache_comes_from_there(times: Any) -> None:
    slow = with_rates(read_memory=1e9, copy_memory=1e9)
    assert times(exponential, {"M": 1 << 16}, slow) == times(exponential, {"M": 1 << 16})
    (large,), (quick,) = times(exponential, {"M": 1 << 24}, slow), times(exponential, {"M": 1 << 24})
    assert large.memory > 5 * quick.memory and large.compute == quick.compute


def test_a_launch_finds_in_a_cache_what_the_one_before_has_stored(times: Any) -> None:
    """20 MB go round in a last-level cache of 16 MiB: x does not stay there, the product of the first kernel does."""
    first, *_, last = times(two_kernels, {"M": 1280}, with_rates(read_memory=1e6, copy_memory=1e6))
    assert first.memory > 1 and last.memory < 0.1


def test_large_launches_are_shared_by_threads(times: Any) -> None:
    (one,), (two,) = times(exponential, {"M": 1 << 20}), times(exponential, {"M": 1 << 20}, threads=2)
    assert two.compute == pytest.approx(one.compute / 2)
    (one,), (two,) = times(exponential, {"M": 1 << 10}), times(exponential, {"M": 1 << 10}, threads=2)
    assert one == two
    assert one.least == max(one.compute, one.memory) + one.launch
    assert one.most == one.compute + one.memory + one.launch


def test_peaks_of_gpus_are_those_of_the_table() -> None:
    assert launches.peaks_for("h100") is MACHINES["sm_90a"].peaks
    assert launches.peaks_for("sm_70") is None


@ts.function
def rows_of(table: ts.Tensor["M", 4], at: ts.Tensor["N", ts.int32]):
    return ts.take(table, at, axis=0)


@ts.function
def ordered(x: ts.Tensor["M", "N"]):
    return ts.sort(x)


@ts.function
def places(x: ts.Tensor["M", "N"]):
    return ts.argsort(x)


@ts.function
def above_and_below(x: ts.Tensor["M", "N"]):
    return x[:-2] + x[2:]


@ts.function
def centred(x: ts.Tensor["M", "N"]):
    return x - ts.mean(x, axis=1, keepdims=True)


@ts.function
def first_column(x: ts.Tensor["M", "N"]):
    return x[:, 0] * 2.0


def test_rows_of_a_large_table_come_from_further_away(times: Any) -> None:
    small, large = (times(rows_of, {"M": m, "N": 1 << 16}) for m in (1 << 12, 1 << 22))
    assert sum(t.memory for t in large) > 3 * sum(t.memory for t in small)
    (slow,) = times(rows_of, {"M": 1 << 22, "N": 1 << 16}, with_rates(line_memory=1e6))
    assert slow.memory == pytest.approx((1 << 16) * (16 / 64 + 1) / 1e6, rel=0.2)


def test_a_sort_takes_more_for_each_element_of_a_longer_line(times: Any) -> None:
    took = [times(ordered, {"M": 1 << 8, "N": 1 << n})[0].compute for n in (6, 8, 10, 12)]
    assert all(after > 4 * before for before, after in pairwise(took))


def test_positions_are_sorted_along(times: Any) -> None:
    dims = {"M": 1 << 8, "N": 1 << 10}
    assert times(places, dims)[0].compute > 1.7 * times(ordered, dims)[0].compute


def test_long_lines_are_merged_by_the_measured_rate(times: Any) -> None:
    dims, count = {"M": 4, "N": 1 << 16}, 4 << 16
    usual, slow = times(ordered, dims), times(ordered, dims, with_rates(merge_i32=1e8))
    levels = 16 - 9  # runs of 512
    found = sum(t.compute for t in slow) - sum(t.compute for t in usual)
    assert found == pytest.approx(count * levels * (1 / 1e8 - 1 / 1e9), rel=0.01)


def test_a_stencil_reads_again_from_the_cache_that_holds_what_lies_between(times: Any) -> None:
    """Two rows of 64 KiB lie between: they come from the second cache a second time, rows of 1 KiB from the first."""
    slow = with_rates(read_L2=1e8)
    (far,), (usual,) = (
        times(above_and_below, {"M": 1 << 9, "N": 1 << 14}, slow),
        times(above_and_below, {"M": 1 << 9, "N": 1 << 14}),
    )
    assert far.memory - usual.memory == pytest.approx(((1 << 9) - 2) * (4 << 14) * (1 / 1e8 - 1 / 50e9))
    dims = {"M": 1 << 15, "N": 1 << 8}
    assert times(above_and_below, dims, slow) == times(above_and_below, dims)


def test_a_row_is_computed_again_where_a_later_loop_needs_it(times: Any) -> None:
    """64 rows of 256 KiB: the sum leaves each in the second cache, where the subtraction finds it."""
    dims = {"M": 64, "N": 1 << 16}
    (usual,), (slow,) = times(centred, dims), times(centred, dims, with_rates(read_L2=1e8))
    assert slow.compute - usual.compute == pytest.approx(64 * (4 << 16) * (1 / 1e8 - 1 / 50e9))


def test_a_column_moves_whole_lines(times: Any) -> None:
    (column,), (row,) = times(first_column, {"M": 1 << 16, "N": 64}), times(exponential, {"M": 1 << 16})
    assert column.memory > 5 * row.memory
    (slow,) = times(first_column, {"M": 1 << 16, "N": 64}, with_rates(gather_L1=1e6))
    assert slow.compute == pytest.approx((1 << 16) / 1e6, rel=0.01)


def test_lanes_stay_empty_where_rows_are_short(times: Any) -> None:
    (short,), (long,) = (times(centred, {"M": m, "N": (1 << 20) // m}) for m in (1 << 19, 1 << 10))
    assert short.compute > 4 * long.compute


def test_a_cache_keeps_part_of_what_nearly_fills_it(times: Any) -> None:
    """A call reads 4 MiB and writes as much: until x is read again, 12 of the 16 MiB of the last cache are touched. It
    keeps all of what fills half of it, and nothing of what fills it."""
    slow = with_rates(read_memory=1e9, copy_memory=1e9)
    whole, part, none = (times(exponential, {"M": n << 18}, slow)[0].memory / n for n in (2, 4, 8))
    assert whole < part < none
    assert part == pytest.approx(whole + (1 << 20) / 2 * (1 / 1e9 - 1 / 25e9))
