"""Profiles of several processes as one trace."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tessera.profiler.export.merge import merge_traces
from tessera.profiler.export.verify import verify_trace
from tessera.profiler.session import Profiler
from tessera.profiler.storage import ProfileError
from tests.unit.cli.test_cli import tessera

PROGRAM = """
import sys
import numpy as np
import tessera as ts

@ts.function
def doubled(x: ts.Tensor["n", ts.f32]):
    return x * 2

x = np.ones(100_000, np.float32)
doubled(x)
with ts.profiler(host=False) as prof:
    doubled(x)
    doubled(x)
prof.save(sys.argv[1])
print(prof.recording.start, prof.recording.end)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, int, int]]:
    """Three processes, one after the other, with when each recorded."""
    folder, out = tmp_path_factory.mktemp("merged"), []
    (folder / "program.py").write_text(PROGRAM)
    for rank in range(3):
        file = folder / f"rank{rank}.npz"
        words = [sys.executable, folder / "program.py", file]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        out.append((file, *map(int, done.stdout.split())))
    return out


def regions(path: Path) -> dict[str, dict[str, Any]]:
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    return {names[e["pid"]]: e for e in events if e["name"] == "profiled region"}


def test_three_processes_of_one_machine_stand_on_one_clock(saved: list[tuple[Path, int, int]], tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    words = ("trace", "merge", *(str(file) for file, _, _ in saved), "-o", str(path))
    result = tessera(*words, cwd=tmp_path)
    assert result.returncode == 0 and "3 processes" in result.stdout, result.stderr
    assert re.search(r"rank1: .* in kernels \(.*, 2 launches, peak memory", result.stdout)
    assert "x * 2" in result.stdout and "longest in rank" in result.stdout
    assert not verify_trace(path).findings
    found = regions(path)
    assert list(found) == ["rank0", "rank1", "rank2"], "a group of rows for each process"
    if sys.platform == "linux":
        assert "on one clock" in result.stdout
        first = saved[0][1]
        for (_, start, end), region in zip(saved, found.values(), strict=True):
            assert round(region["ts"] * 1000) - round(found["rank0"]["ts"] * 1000) == start - first
            assert round(region["dur"] * 1000) == end - start
    events = json.loads(path.read_text())["traceEvents"]
    flows = [e["id"] for e in events if e["ph"] == "s"]
    assert len(flows) == len(set(flows)) == 6, "launches of different processes are different ones"


def test_processes_of_other_machines_are_aligned_by_the_time_of_day(
    saved: list[tuple[Path, int, int]], tmp_path: Path
) -> None:
    day, files = 86_400 * 10**9, list[Path]()
    for i, (file, start, _) in enumerate(saved):
        prof = Profiler.load(file)
        prof.recording.clock = (f"boot {i}", day + i * 10**9 - start)  # each began a second after the one before
        files.append(prof.save(tmp_path / f"machine{i}.npz"))
    merged = merge_traces(files, tmp_path / "days.json")
    assert merged.clock == "aligned by the time of day"
    times = [region["ts"] for region in regions(merged.path).values()]
    assert [round(t - times[0]) for t in times] == [0, 10**6, 2 * 10**6]


def test_what_is_kept_is_bounded_and_what_is_not_is_counted(saved: list[tuple[Path, int, int]], tmp_path: Path) -> None:
    files = [file for file, _, _ in saved]
    counts = [len(Profiler.load(file).tiles()) for file in files]
    merged = merge_traces(files, tmp_path / "few.json", tiles=1)
    assert merged.left_out == sum(counts) - 3 > 0
    events = json.loads(merged.path.read_text())["traceEvents"]
    assert len([e for e in events if e.get("cat") in ("tile", "phase")]) == 3
    assert not verify_trace(merged.path).findings


def test_bad_input(saved: list[tuple[Path, int, int]], tmp_path: Path) -> None:
    prof = Profiler.load(saved[0][0])
    prof.recording.clock = None
    old = prof.save(tmp_path / "old.npz")
    with pytest.raises(ProfileError, match="record it anew"):
        merge_traces([old], tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
    assert tessera("trace", "merge", str(old), cwd=tmp_path).returncode == 2
    assert "there is no file" in tessera("trace", "merge", "gone.npz", "-o", "x.json", cwd=tmp_path).stderr


def test_the_clock_is_that_of_this_moment() -> None:
    with Profiler(host=False) as prof:
        pass
    assert prof.recording.clock is not None
    assert abs(prof.recording.end + prof.recording.clock[1] - time.time_ns()) < 3600 * 10**9
