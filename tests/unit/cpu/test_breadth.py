"""The programs of the breadth suite compute what PyTorch computes in f64."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import tessera as ts
from tests.conftest import require

for peer in ("torch", "jax", "numba"):
    require(peer)
import torch  # noqa: E402

from benchmarks import cpu, halves, harness, loops  # noqa: E402
from benchmarks.breadth.__main__ import summary  # noqa: E402
from benchmarks.breadth.suite import MAKERS  # noqa: E402


@pytest.mark.parametrize("name", MAKERS)
def test_programs_are_right_at_small_sizes(name: str) -> None:
    row = MAKERS[name](8)
    want, got = row.exact(), row.flat(ts.function(row.ours)(*row.arguments))
    np.testing.assert_allclose(got, want, rtol=0, atol=row.most(want))


@pytest.mark.parametrize("rows", [halves, loops], ids=["halves", "loops"])
def test_rows_of_the_table_are_right_at_small_sizes(rows: ModuleType) -> None:
    with torch.no_grad():
        for make in rows.workloads(64):
            work = make()
            np.testing.assert_allclose(np.asarray(work.result(), "f8"), work.want, rtol=0, atol=work.tolerance)


def test_a_goal_is_said_beside_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "a", "ms": 1, "spread_ms": 0, "rate": 1, "unit": "GB/s", "best_peer": "torch", "peer_ms": 1.5}
    for ratio, goal in ((1.496, 1.5), (1.4, 1.5), (1.4, None)):
        cpu.show({**row, "ratio": ratio, "goal": goal})
    ends = [line.partition("ratio ")[2] for line in capsys.readouterr().out.splitlines()]
    assert ends == ["1.50 of 1.5", "1.40 of 1.5, missed", "1.40"]


def test_what_peers_compute_is_checked() -> None:
    row = MAKERS["cumsum 1024 x 4096"](64)
    with pytest.raises(SystemExit, match="sums: numpy is off by"):
        type(row)(row.ours, row.arguments, torch=row.torch, arrays=lambda xp, x: x).work("sums")


def test_rows_behind_and_samples_that_waited_are_said() -> None:
    rows = [
        {"name": "a", "ratio": 2.0, "best_peer": "torch", "clean": "9/9"},
        {"name": "b", "ratio": 0.5, "best_peer": "numba", "clean": "3/9"},
    ]
    found = summary(rows)
    assert found["geometric_mean"] == 1.0 and found["behind"] == ["b 0.50 (numba)"] and not found["quiet"]
    assert "Rough: 6 of 18 samples waited" in found["said"]


def test_a_sample_starts_when_threads_of_the_one_before_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contestant whose thread keeps a processor for 40 ms after each call, by a clock of the test's own."""
    now, busy_until, begun = 0.0, 0.0, list[bool]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def call(after: float) -> None:
        nonlocal now, busy_until
        begun.append(now < busy_until)
        now += 0.02
        busy_until = now + after

    clock = SimpleNamespace(
        sleep=sleep, perf_counter=lambda: now, process_time=lambda: now if now < busy_until else busy_until
    )
    monkeypatch.setattr(harness, "time", clock)
    harness.compare({"quiet": lambda: call(0.0), "spins": lambda: call(0.04)}, budget=0.5)
    # six calls say how long each takes; then a sample is a call that is not timed and one that is
    assert len(begun) > 16 and any(begun[:6]) and not any(begun[6::2])
