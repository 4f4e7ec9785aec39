"""Ceilings: measured once, kept, checked when read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.compiler.figures import USUAL, Figures
from tessera.profiler.kernel_stats import kernel_stats
from tessera.profiler.machine import DeviceCeilings, load_machine, machine_for, measured_again, save_machine
from tessera.profiler.measure import cpu as measure_cpu
from tessera.profiler.quantity import Quantity, format_bytes, format_percent, format_time, format_value
from tessera.profiler.recording import Recording
from tessera.profiler.summary import Summary
from tessera.profiler.views.kernels import kernel_table
from tests.profiler.synthetic import MACHINE, launch, recorded


def test_this_machine_is_measured_and_its_ceilings_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESSERA_FIGURES")
    machine_for.cache_clear()
    found = machine_for("cpu:0")
    machine_for.cache_clear()
    assert {(ceiling.kind, ceiling.name) for ceiling in found.ceilings} >= {
        ("bandwidth", "memory"),
        ("bandwidth", "cache"),
        ("compute", "f32"),
        ("compute", "f64"),
    }
    # Wide enough for any machine that runs this; a mistake in units is off by a thousand.
    assert 1e8 < (found.ceiling("bandwidth", "memory").value or 0) < 5e12
    assert 1e8 < (found.ceiling("compute", "f32").value or 0) < 1e14
    assert all(ceiling.source == "measured" and ceiling.how for ceiling in found.ceilings)


def test_the_measurement_is_kept_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(measure_cpu, "identity", lambda index: ("a device that keeps nothing itself",))
    monkeypatch.setattr(measure_cpu, "measure", lambda device, index, again: MACHINE)
    machine_for.cache_clear()
    assert machine_for("cpu:0") == MACHINE
    (path,) = tmp_path.glob("*.json")

    def refuse(device: str, index: int, again: bool) -> DeviceCeilings:
        raise OSError("measured again")

    monkeypatch.setattr(measure_cpu, "measure", refuse)
    machine_for.cache_clear()
    assert machine_for("cpu:0") == MACHINE
    path.write_text(path.read_text().replace("10000000000.0", "99000000000.0"))
    machine_for.cache_clear()
    assert machine_for("cpu:0").reason == "cpu:0 cannot be measured here: OSError"
    machine_for.cache_clear()


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    path = tmp_path / "ceilings.json"
    save_machine(path, MACHINE)
    assert load_machine(path) == MACHINE
    document = json.loads(path.read_text())
    for damage in (
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({**document, "what": "another machine"}),
        json.dumps({**document, "value": {**document["value"], "threads": 3}}),
        json.dumps({"what": document["what"]}),
        "\udcff",
    ):
        path.write_bytes(damage.encode("utf-8", "surrogateescape"))
        assert load_machine(path) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    save_machine(blocked / "ceilings.json", MACHINE)
    assert load_machine(blocked / "ceilings.json") is None


def test_a_device_that_is_not_there_has_a_reason_and_no_ceilings() -> None:
    assert machine_for("tpu:0").reason == "no ceilings are known for tpu"
    absent = machine_for("cuda:99")
    assert absent.ceilings == ()
    assert "cuda:99 cannot be measured here" in absent.reason
    assert absent.ceiling("bandwidth", "memory").reason == absent.reason


def test_quantities_are_written_for_people() -> None:
    assert str(Quantity(1.2e12, "B/s")) == "1.20 TB/s (measured)"
    assert str(Quantity(None, "ns", reason="no counter")) == "not available (no counter)"
    assert [format_time(ns) for ns in (0, 12, 999.6, 12_100, 999_999, 45.2e6, 3.05e9)] == [
        "0 ns", "12 ns", "1.00 µs", "12.1 µs", "1.00 ms", "45.2 ms", "3.05 s",
    ]  # fmt: skip
    assert [format_bytes(size) for size in (0, 999, 1000, 7.2e9)] == ["0 B", "999 B", "1.00 kB", "7.20 GB"]
    assert format_value(18.4, "ops/byte") == "18.4 ops/byte"
    assert [format_percent(part) for part in (0.673, 1.0, 0.0)] == ["67.3%", "100%", "0.0%"]


def test_ceilings_are_the_figures_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine_for("cpu:0")
    assert found.ceiling("bandwidth", "cache").value == USUAL.rates["read L2"][1]
    assert {c.source for c in found.ceilings} == {"static"}  # TESSERA_FIGURES=usual
    quick = Figures("one", 2, USUAL.caches, 64, {**USUAL.rates, "product bf16": (3e12, 6e12)}, 1e9)
    monkeypatch.setattr(measure_cpu, "measured_figures", lambda: quick)
    found = measure_cpu.measure("cpu:0", 0, False)
    assert found.ceiling("compute", "bf16") == Quantity(6e12, "FLOP/s")


def machine(bandwidth: float, rate: float) -> DeviceCeilings:
    return replace(MACHINE, last_cache_bytes=1 << 20).raised("bandwidth", "memory", bandwidth, "copy").raised(
        "compute", "f32", rate, "product"
    )  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DeviceCeilings]]:
    """What measuring gives, one after the other: a busy moment first."""
    found = [machine(10e9, 100e9), machine(20e9, 150e9)]
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(measure_cpu, "identity", lambda index: ("a device that keeps nothing itself",))
    monkeypatch.setattr(measure_cpu, "measure", lambda device, index, again: found.pop(0))
    machine_for.cache_clear()
    measured_again.cache_clear()
    yield found
    machine_for.cache_clear()
    measured_again.cache_clear()


def one_kernel(flops: int, size: int) -> Recording:
    found = Recording(0, 1_000_000)
    found.add(launch(duration=100_000, flops=flops, bytes=size))
    return found


def test_a_beaten_ceiling_is_measured_again_and_the_better_kept(measured: list[DeviceCeilings]) -> None:
    recording = one_kernel(flops=14_000_000, size=1000)  # 140 GFLOP/s
    (found,) = kernel_stats(recording)
    assert found.compute_peak.value == 150e9
    assert found.compute_fraction.value == pytest.approx(140 / 150)
    machine_for.cache_clear()
    assert machine_for("cpu:0").ceiling("compute", "f32").value == 150e9  # kept
    assert not measured
    (again,) = kernel_stats(one_kernel(flops=14_000_000, size=1000))
    assert again.compute_peak.value == 150e9


def test_no_kernel_stands_above_a_compute_roof(measured: list[DeviceCeilings]) -> None:
    recording = one_kernel(flops=200_000_000, size=1000)  # 2 TFLOP/s
    (found,) = kernel_stats(recording)
    assert found.compute_fraction.value == 1
    assert recording.machines["cpu:0"].ceilings[-1].how == "reached by saxpy"
    assert "cache" not in str(Summary(recording))


def test_of_several_kernels_above_a_roof_the_quickest_raises_it(measured: list[DeviceCeilings]) -> None:
    recording = one_kernel(flops=200_000_000, size=1000)
    recording.add(launch(2, "slower", duration=100_000, flops=50_000_000, bytes=1000))  # 500 GFLOP/s
    assert [k.compute_fraction.value for k in kernel_stats(recording)] == [1, 0.25]


def test_only_data_that_fit_into_a_cache_pass_the_bandwidth_of_memory(measured: list[DeviceCeilings]) -> None:
    (large,) = kernel_stats(one_kernel(flops=1, size=3 << 20))  # 31 GB/s of 3 MiB
    assert large.bandwidth_fraction.value == 1
    recording = one_kernel(flops=1, size=1 << 20)  # 10.5 GB/s of 1 MiB, at a roof of 10
    recording.machines["cpu:0"] = machine(10e9, 100e9)
    (small,) = kernel_stats(recording)
    assert (small.bandwidth_fraction.value or 0) > 1
    assert "the data stayed in cache" in str(Summary(recording))
    assert "the data stayed in cache" in kernel_table(Summary(recording).rows)


def test_a_loaded_profile_keeps_its_machine_and_raises_it(measured: list[DeviceCeilings]) -> None:
    recording = recorded(launch(duration=100_000, flops=14_000_000, bytes=1000))
    (found,) = kernel_stats(recording)
    assert found.compute_fraction.value == 1
    assert len(measured) == 2  # nothing was measured here
