"""The figures of the processor: measured once, kept at their best, read by predictions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler import figures as known
from tessera.compiler.figures import USUAL, Figures, figures, keep
from tessera.compiler.targets.cpu import measure as measuring
from tessera.errors import MissingDependency
from tessera.runtime.compiled import Compiled
from tessera.runtime.processor import measured_again, measured_figures

MEASURED = Figures("a processor", 2, (1 << 15, 1 << 20, 1 << 25), 64, dict(USUAL.rates), 1e9, 0.01)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without figures, in a process that may measure."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TESSERA_FIGURES")
    return tmp_path


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[Figures]:
    """What measuring gives, one after the other."""
    found: list[Figures] = []
    monkeypatch.setattr(measuring, "measure", lambda: found.pop(0))
    return found


def with_rate(name: str, one: float, together: float, when: float = 1e9) -> Figures:
    return replace_figures(rates={**USUAL.rates, name: (one, together)}, when=when)


def replace_figures(**changes: Any) -> Figures:
    fields = ("processor", "threads", "caches", "vector", "rates", "when", "waited")
    return Figures(**{**{f: getattr(MEASURED, f) for f in fields}, **changes})


def test_this_processor_is_measured_within_seconds_and_its_figures_are_plausible(folder: Path) -> None:
    start = time.process_time()
    found = measured_figures()
    assert time.process_time() - start < 5
    assert found.measured and found == figures()
    assert set(USUAL.rates) <= set(found.rates)
    # Wide enough for any machine that runs this; a mistake in units is off by a thousand.
    for name in ("read L1", "read memory", "copy L2", "stream memory"):
        assert 1e8 < found.rate(name) < 5e12
    assert 1e8 < found.rate("product f32") < 1e13
    assert 1e6 < found.rate("exp f32") < found.rate("step f32")
    assert found.rate("read memory") < found.rate("read L1")
    assert 1e4 < found.rate("launch") < 1e9
    assert all(together >= one for name, (one, together) in found.rates.items() if name != "launch")


def test_they_are_kept_and_not_measured_again(folder: Path, measurements: list[Figures]) -> None:
    assert figures() is USUAL
    measurements.append(MEASURED)
    assert measured_figures() == MEASURED
    assert figures() == measured_figures() == MEASURED
    assert not measurements


def test_the_best_of_two_measurements_is_kept(folder: Path, measurements: list[Figures]) -> None:
    measurements += [with_rate("read L1", 1e11, 3e11), with_rate("read L1", 2e11, 2e11, when=2e9)]
    measured_figures()
    found = measured_again()
    assert found.rates["read L1"] == (2e11, 3e11) and found.when == 2e9
    assert figures() == found


def test_a_disturbed_measurement_is_tried_again_later(folder: Path, measurements: list[Figures]) -> None:
    now = time.time()
    measurements += [
        replace_figures(waited=0.5, when=now),
        replace_figures(waited=0.4, when=now - 3600),
        replace_figures(waited=0.02, when=now - 3600),
    ]
    assert measured_figures().disturbed
    assert measured_figures().disturbed  # a moment later the other work would still run
    assert measured_again().waited == 0.4
    assert measured_figures().waited == 0.02
    assert measured_figures().waited == 0.02 and not measurements


def test_a_damaged_or_foreign_file_is_measured_again(folder: Path, measurements: list[Figures]) -> None:
    keep(MEASURED)
    (path,) = folder.glob("processor-*.json")
    whole = path.read_text()
    document = json.loads(whole)
    short = {k: v for k, v in document["value"]["rates"].items() if k != "read L1"}
    for damage in (
        "", "{", "[]", "null", whole[: len(whole) // 2], whole.replace("a processor", "another"),
        json.dumps({**document, "what": "figures of another processor"}),
        json.dumps({**document, "value": {**document["value"], "rates": short}}),
    ):  # fmt: skip
        path.write_text(damage)
        assert figures() is USUAL
        measurements.append(MEASURED)
        assert measured_figures() == MEASURED


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), "fast", None])
def test_a_rate_that_is_none_counts_as_damage(folder: Path, value: object) -> None:
    keep(replace_figures(rates={**USUAL.rates, "read L1": (value, 1.0)}))
    assert figures() is USUAL


def test_a_folder_that_cannot_be_written_costs_one_measurement_a_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, measurements: list[Figures]
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(folder / "file"))
    measurements.append(MEASURED)
    assert measured_figures() == measured_figures() == MEASURED


def test_another_number_of_threads_is_another_processor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(MEASURED)
    monkeypatch.setattr(known, "cores", lambda: 4096)
    known._what.cache_clear()
    try:
        assert figures() is USUAL
    finally:
        known._what.cache_clear()


def test_nothing_is_measured_where_figures_are_to_be_usual(
    folder: Path, monkeypatch: pytest.MonkeyPatch, measurements: list[Figures]
) -> None:
    keep(MEASURED)
    monkeypatch.setenv("TESSERA_FIGURES", "usual")
    assert measured_figures() is figures() is USUAL
    monkeypatch.setenv("TESSERA_FIGURES", "fast")
    with pytest.raises(ts.TesseraError, match="it is measured or usual"):
        figures()


def test_without_llvm_predictions_go_by_a_usual_processor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Figures:
        raise MissingDependency("llvmlite", "all", "The CPU target")

    monkeypatch.setattr(measuring, "measure", refuse)
    assert measured_figures() is USUAL
    with pytest.raises(MissingDependency):
        measured_again()


def test_compiling_and_calling_measure_nothing(folder: Path, measurements: list[Figures]) -> None:
    x = np.ones((64, 64), np.float32)
    assert (np.asarray(scaled(x)) == 2).all()
    assert not list(folder.glob("processor-*"))


@ts.function
def scaled(x):
    return x * 2


@ts.function
def neighbours(x):
    return ts.tanh(x + ts.roll(x, 1, 1)) + ts.concat([x[1:], x[:1]], axis=0)[:, :8].sum()


@pytest.fixture
def predictions(folder: Path) -> Iterator[Any]:
    """(least, most) µs of the last call of a function, under figures."""

    def predicted(found: Figures) -> tuple[float, float]:
        for path in folder.glob("processor-*"):
            path.unlink()
        keep(found)
        compiled = Compiled.of_last_call(scaled)
        assert compiled is not None
        prediction = compiled.predicted()
        assert prediction.us is not None and prediction.most_us is not None
        return prediction.us, prediction.most_us

    yield predicted


def test_predictions_go_by_the_figures(predictions: Any) -> None:
    scaled(np.ones((1 << 14, 1 << 10), np.float32))  # 64 MiB
    slow, quick = (with_rate("read memory", rate, rate) for rate in (1e9, 10e9))
    assert predictions(slow)[0] > 3 * predictions(quick)[0]
    scaled(np.ones(1024, np.float32))  # 4 KiB, which stay in a cache
    assert predictions(slow) == predictions(quick)


def test_figures_change_no_bits_and_no_code(folder: Path) -> None:
    """Schedules go by constants: what is compiled, and so what is kept on disk, is the same on each machine."""
    x = np.random.default_rng(0).standard_normal((61, 250)).astype(np.float32)
    first = np.asarray(neighbours(x))
    before = Compiled.of_last_call(neighbours)
    assert before is not None
    text = before.ir("tile")
    keep(replace_figures(rates={name: (one / 1000, one / 1000) for name, (one, _) in USUAL.rates.items()}))
    again = ts.function(neighbours.__wrapped__)
    assert (np.asarray(again(x)) == first).all()
    after = Compiled.of_last_call(again)
    assert after is not None and after.ir("tile") == text
