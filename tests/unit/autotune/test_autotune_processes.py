"""Autotuning in several processes: what one has timed the others read, and nothing stored is ever lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tessera.runtime.autotune.store import store_at
from tests.processes import run_python

pytestmark = pytest.mark.usefixtures("own_cache")
ROOT = Path(__file__).parents[3]

PROGRAM = """
import numpy as np, sys, tessera as ts
from tessera.runtime.autotune import candidates as candidate

@ts.kernel.autotune(space=dict(BLOCK=[16, 64, 1024]))
def scaled(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    return x[ts.tile.linear_id()] * 3.0

if "frozen" in sys.argv:
    def refuse(self, repeat): raise AssertionError("timed again")
    candidate.Candidate.time = refuse
if "many" in sys.argv:
    for size in range(1, 10**6):
        scaled(np.ones(size, np.float32))
        print(size, flush=True)
scaled(np.ones(5000, np.float32))
print(scaled.tuning.config, scaled.tuning.measured)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(program: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(program), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def test_another_process_reads_and_times_nothing(program):
    first = finished(start(program))
    assert first.endswith(" 3")
    second = finished(start(program, "frozen"))
    assert second == first[:-1] + "0"


def test_processes_at_once_agree(program):
    outcomes = [finished(p) for p in [start(program) for _ in range(3)]]
    assert len({o.rpartition(" ")[0] for o in outcomes}) == 1
    assert sorted(o.rpartition(" ")[2] for o in outcomes) == ["0", "0", "3"]


def test_a_killed_process_loses_nothing_that_was_stored(program, own_cache):
    known = 0
    for delay in (0.0, 0.03, 0.07):
        process = start(program, "many")
        for _ in range(2):
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        store = store_at(str(own_cache / "tuning.sqlite"))
        store.close()
        stats = store.stats()
        assert stats["problem"] is None and stats["signatures"] >= max(known, 2)
        known = stats["signatures"]
    assert not list(own_cache.glob("*.damaged*"))
    assert finished(start(program)).endswith(("3", "0"))


def test_commands(tmp_path):
    (tmp_path / "kernels.py").write_text(PROGRAM.partition('if "frozen"')[0])

    def tessera(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return run_python(["-m", "tessera", *words], cwd=tmp_path, text=text)

    first = tessera("tune", "kernels.py:scaled", "--dims", "n=777", "--json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout[first.stdout.index("{") :])
    assert found["measured"] == 3 and set(found["config"]) == {"BLOCK"} and len(found["trials"]) == 3
    shown = tessera("tune", "kernels.py:scaled", "--dims", "n=777")
    assert "nothing timed now" in shown.stdout, shown.stderr
    assert "TS502" in tessera("tune", "kernels.py:scaled").stderr
    stats = json.loads(tessera("cache", "--json").stdout)
    assert stats["tuning"]["trials"] >= 3
    assert "kept" in tessera("cache", "clear", "--tuning", text="n\n").stdout
    assert json.loads(tessera("cache", "--json").stdout)["tuning"]["trials"] >= 3
    assert "removed" in tessera("cache", "clear", "--tuning", "--yes").stdout
    assert json.loads(tessera("cache", "--json").stdout)["tuning"]["trials"] == 0
