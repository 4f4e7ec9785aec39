"""What no run can have is said not to be known: counts that are no numbers, clocks that wrapped, gigantic grids."""

from __future__ import annotations

import math
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.profiler import Profiler
from tessera.profiler.export.verify import verify_trace
from tessera.runtime.events import Event
from tests.profiler.synthetic import launch, recorded, tiles

NAN = float("nan")


def profile(*found: Event) -> Profiler:
    prof = Profiler()
    prof.recording = recorded(*found)
    return prof


def everything(prof: Profiler, folder: Path) -> str:
    """All that a person may be shown; traces are sound."""
    shown = [str(prof.summary()), prof.summary()._repr_html_(), *map(str, prof.hints()), str(prof.find_bottlenecks())]
    shown += [str(prof.critical_path()), str(prof.traffic()), str(prof.memory())]
    assert prof.timeline() is not None and prof.roofline() is not None
    prof.to_html(folder / "page.html")
    prof.export_chrome_trace(folder / "trace.json")
    assert verify_trace(folder / "trace.json").findings == ()
    prof.export_perfetto(folder / "trace.pftrace")
    assert verify_trace(folder / "trace.pftrace").findings == ()
    prof.export_tensorboard(folder / "board")
    prof.export_speedscope(folder / "scope.json")
    again = str(Profiler.load(prof.save(folder / "run.tsprof")).summary())
    assert again == shown[0]
    return "\n".join(shown)


@pytest.mark.parametrize(
    "figures",
    [
        {"flops": NAN, "bytes": 64}, {"flops": 64, "bytes": NAN}, {"flops": math.inf, "bytes": math.inf},
        {"flops": -5, "bytes": 64}, {"attributes": {"occupancy": NAN, "resources": 2}},
    ],
    ids=["flops", "bytes", "infinite", "negative", "occupancy"],
)  # fmt: skip
def test_a_count_that_is_none_is_not_known(figures: dict[str, Any], tmp_path: Path) -> None:
    text = everything(profile(launch(1, **figures), tiles((0, 0, 0, 10))), tmp_path)
    assert not re.search(r"\b(nan|inf)\b(?! *\))", re.sub(r"what was counted is \S+", "", text)), text
    if "attributes" not in figures:
        assert "what was counted is " in text and "-5" not in text.replace("what was counted is -5", "")


@pytest.mark.parametrize("duration", [-50, -(2**40)])
def test_a_clock_that_ran_backwards_gives_no_time(duration: int, tmp_path: Path) -> None:
    text = everything(profile(launch(1, duration=duration), launch(2, "other", 200_000)), tmp_path)
    assert "1 launch of saxpy without a time: its clock wrapped or ran backwards" in text
    assert str(duration) not in text and "other" in text


def test_records_of_a_clock_that_wrapped_are_counted_and_left_out(tmp_path: Path) -> None:
    wrapped = tiles((1, 1, 2**62, 20), (2, 0, 100, -5), (3, 1, 100, 2**50))
    prof = profile(launch(1), tiles((0, 0, 100, 20)), wrapped)
    text = everything(prof, tmp_path)
    assert "3 with impossible times are left out: a clock wrapped" in text
    assert len(prof.recording.tiles) == 1 and not re.search(r"\d{6,} s\b", text), text


def test_a_kernel_that_has_not_ended_has_no_time(tmp_path: Path) -> None:
    unfinished = launch(1, duration=None, unavailable={"duration": "it had not ended"})
    text = everything(profile(unfinished, tiles((0, 0, 0, 10))), tmp_path)
    assert "1 launch of saxpy without a time: it had not ended" in text and "no kernel was launched" not in text


@pytest.mark.parametrize("grid", [(2**40, 2**20), (2**62,), (0,)])
def test_gigantic_and_empty_grids(grid: tuple[int, ...], tmp_path: Path) -> None:
    text = everything(profile(launch(1, grid=grid), tiles((min(grid[0], 2**50), 0, 0, 10))), tmp_path)
    assert "saxpy" in text


@ts.function
def repeated(x: ts.Tensor["N", "N", ts.f32], times: ts.int64):
    y = x
    for _ in ts.range(times):
        y = ts.tanh(y @ x)
    return y


def test_an_interrupted_kernel_is_there_without_a_time() -> None:
    x = np.full((256, 256), 1e-3, np.float32)
    with ts.profiler():
        repeated(x, 1)  # compiled with tile records
    timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), ts.profiler() as prof:
        timer.start()
        repeated(x, 1 << 40)
    assert re.search(r"of .* without a time: it was interrupted", str(prof.summary()))
    assert "no kernel was launched" not in str(prof.summary())
    with ts.profiler() as after:
        repeated(x, 1)
    assert all(e.duration is not None for e in after.recording.launches), "nothing is left behind"


def test_what_another_thread_has_not_ended_is_there_without_a_time(tmp_path: Path) -> None:
    x = np.full((256, 256), 1e-3, np.float32)
    with ts.profiler():
        repeated(x, 1)
    thread = threading.Thread(target=repeated, args=(x, 3000))
    with ts.profiler() as prof:
        thread.start()
        time.sleep(0.1)
    assert thread.is_alive()
    text = everything(prof, tmp_path)
    thread.join()
    assert "without a time: it had not ended when the profile did" in text
