"""Memory in profiles counts what a process grows by: results, temporaries, scratch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.profiler.session import Profiler

PROGRAM = """
from pathlib import Path
import numpy as np
import tessera as ts
from tessera import Tensor

@ts.function
def f(x: Tensor["N", "N", ts.f32]) -> ts.f32:
    y = ts.softmax(x @ x)
    z = ts.softmax(y @ x)
    return ts.sum(z @ y)

def memory(name):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if name in line)

with ts.profiler(tiles=False):  # compiled before, and the profiler loaded
    f(np.ones((512, 512), np.float32))
x = np.ones((2000, 2000), np.float32)
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here, not from what compiling took
before = memory("VmRSS:")
with ts.profiler(tiles=False) as prof:
    f(x)
print(1024 * (memory("VmHWM:") - before), prof.memory().peak["cpu:0"])
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says what a process holds")
def test_the_peak_is_what_the_process_grows_by(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=True)
    grown, peak = map(int, done.stdout.split())
    assert grown > 3 * 2000 * 2000 * 4
    assert abs(grown - peak) < 0.25 * grown, (grown, peak)


@ts.function
def products(x: Tensor["N", "N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return ts.softmax(x @ x) @ x


def test_temporaries_are_of_the_line_that_calls_and_gone_after_it() -> None:
    x = np.ones((128, 128), np.float32)
    for tiles in (False, True):
        with Profiler(tiles=tiles) as prof:
            products(x)  # here
        temporaries, *_ = [e for e in prof.recording.memory if e.what == "temporaries of products"]
        assert temporaries.delta >= 128 * 128 * 4
        assert temporaries.file == __file__
        source = Path(__file__).read_text("utf-8").splitlines()
        assert source[temporaries.line - 1].endswith("# here")
        held = prof.memory().current["cpu:0"]
        assert held < temporaries.delta
        assert prof.memory().peak["cpu:0"] >= temporaries.total
