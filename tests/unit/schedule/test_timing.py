"""The model of launches on a processor: what each figure is for."""

from __future__ import annotations

from typing import Any

import pytest

import tessera as ts
from tessera.compiler import timing
from tessera.compiler.figures import USUAL, Figures
from tessera.compiler.machines import HOST, MACHINES
from tessera.compiler.schedule.cost import LaunchTime


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
        monkeypatch.setattr(timing, "figures", lambda: figures)
        program = ts.compile(fn, target="cpu", dims=dims).lowered.program
        known = timing.launch_times(program, MACHINES[HOST], threads)
        return [known[id(launch)] for launch in program.launches]

    return found


def test_products_go_by_the_rate_of_their_dtype(times: Any) -> None:
    dims = {"M": 512, "K": 512, "N": 512}
    (usual,), (slow,) = times(product, dims), times(product, dims, with_rates(product_f32=6e9))
    multiplied = 2 * 512**3 / 60e9
    assert multiplied < usual.compute < 1.5 * multiplied
    assert slow.compute - usual.compute == pytest.approx(9 * multiplied / timing.REACHED)
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
    """16 MiB go round in a last-level cache of 16 MiB: x does not stay there, the product of the first kernel does."""
    first, *_, last = times(two_kernels, {"M": 1536}, with_rates(read_memory=1e6, copy_memory=1e6))
    assert first.memory > 1 and last.memory < 0.1


def test_large_launches_are_shared_by_threads(times: Any) -> None:
    (one,), (two,) = times(exponential, {"M": 1 << 20}), times(exponential, {"M": 1 << 20}, threads=2)
    assert two.compute == pytest.approx(one.compute / 2)
    (one,), (two,) = times(exponential, {"M": 1 << 10}), times(exponential, {"M": 1 << 10}, threads=2)
    assert one == two
    assert one.least == max(one.compute, one.memory) + one.launch
    assert one.most == one.compute + one.memory + one.launch


def test_peaks_of_gpus_are_those_of_the_table() -> None:
    assert timing.peaks_for("h100") is MACHINES["sm_90a"].peaks
    assert timing.peaks_for("sm_70") is None
