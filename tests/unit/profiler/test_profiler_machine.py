"""Ceilings: measured once, kept, checked when read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tessera.profiler.machine import Machine, load_machine, machine_for, save_machine
from tessera.profiler.measure import cpu as measure_cpu
from tessera.profiler.quantity import Quantity, format_bytes, format_percent, format_time, format_value
from tests.profiler.synthetic import MACHINE


def test_this_machine_is_measured_and_its_ceilings_are_plausible() -> None:
    found = machine_for("cpu:0")
    assert {(ceiling.kind, ceiling.name) for ceiling in found.ceilings} == {
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
    monkeypatch.setattr(measure_cpu, "measure", lambda device, index: MACHINE)
    machine_for.cache_clear()
    assert machine_for("cpu:0") == MACHINE
    (path,) = tmp_path.glob("*.json")

    def refuse(device: str, index: int) -> Machine:
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
        "0 ns", "12 ns", "1.00 us", "12.1 us", "1.00 ms", "45.2 ms", "3.05 s",
    ]  # fmt: skip
    assert [format_bytes(size) for size in (0, 999, 1000, 7.2e9)] == ["0 B", "999 B", "1.00 kB", "7.20 GB"]
    assert format_value(18.4, "ops/byte") == "18.4 ops/byte"
    assert [format_percent(part) for part in (0.673, 1.0, 0.0)] == ["67.3%", "100%", "0.0%"]
