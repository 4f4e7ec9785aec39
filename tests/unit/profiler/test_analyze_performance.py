"""`ts.analyze_performance(f, x)`: the report of a call."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.profiler import Profiler
from tessera.profiler.performance import SHOWN, PerformanceAnalysis
from tests.profiler.synthetic import launch, recorded


@ts.function
def layer(x: Tensor["N", "D"], w: Tensor["D", "E"]):
    return ts.softmax(x) @ w


def test_a_call_is_compiled_recorded_and_reported() -> None:
    x, calls = np.ones((32, 32), np.float32), []

    def model(x: np.ndarray, *, w: np.ndarray) -> None:
        calls.append(layer(x, w))

    analysis = ts.analyze_performance(model, x, w=x)
    assert len(calls) == 4  # compiled by the first
    assert not analysis.profile.recording.compiles
    report = analysis.report()
    assert report.startswith("Performance Analysis of model:\n\n  Bottlenecks:\n    1. ")
    assert "layer:17 ts.softmax(x)" in report
    assert "Optimization Opportunities:" in report


def test_hints_stand_with_their_bottleneck_and_among_the_opportunities() -> None:
    attributes = {"occupancy": 0.25, "occupancy_limiter": "registers"}
    prof = Profiler()
    prof.recording = recorded(
        launch(flops=1, bytes=200_000, attributes=attributes),
        *(launch(n, f"k{n}", start=100_000 + n, duration=1) for n in range(2, 9)),
        end=100_100,
    )
    report = PerformanceAnalysis("<model>", prof).report()
    assert "1. saxpy: 99.9% of the run, 100 µs, neither roof: latency, balance or launch cost" in report
    assert "       - Cause: limited by registers; too few warps" in report
    assert "    - saxpy: lower the use of registers: smaller tiles or fewer pipeline stages: saves 0.0% to" in report
    assert f"and {len(prof.find_bottlenecks()) - SHOWN} more" in report
    assert "<model>" not in PerformanceAnalysis("<model>", prof)._repr_html_()


def test_what_a_call_raises_passes() -> None:
    def fails(x: int) -> None:
        raise KeyError(x)

    with pytest.raises(KeyError):
        ts.analyze_performance(fails, 3)
