"""The ladder for a first GPU, rehearsed over a driver that works, fails, hangs, faults and dies on command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ladder import device_tests, report
from benchmarks.ladder.clock import compare
from benchmarks.ladder.runner import ROOT, Budget, Case, Results, climb, read_rows, run
from tests.conftest import require

require("g++")
require("cuda.bindings")
DOUBLES = ROOT / "tests" / "doubles"


def environment(fault: str = "", hidden: Path | None = None) -> dict[str, str]:
    folders = [str(hidden)] * (hidden is not None) + [str(DOUBLES), str(ROOT)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(folders), "GPU_DOUBLE_FAULT": fault,
            "TESSERA_CACHE_SIZE": "0", "TESSERA_CACHE_DIR": os.environ["TESSERA_CACHE_DIR"]}  # fmt: skip


def ladder(out: Path, *arguments: str, fault: str = "", hidden: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.ladder", *arguments, "--out", str(out)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(fault, hidden), capture_output=True, text=True, check=False, timeout=280
    )


def statuses(out: Path) -> dict[str, str]:
    return {row["name"]: row["status"] for row in read_rows(out / "results.jsonl")}


def test_what_works_is_ok_and_is_not_run_again(tmp_path: Path) -> None:
    done = ladder(tmp_path, "smoke", "--only", "tensor copy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(tmp_path) == {"one tensor copy": "ok", "tf32 ties, by a tensor copy": "ok"}
    again = ladder(tmp_path, "smoke", "--only", "one tensor", fault="cuLaunchKernel=719")
    assert again.returncode == 0 and "done before: ok" in again.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["counts"]["smoke"] == {"ok": 2} and not summary["troubles"]
    assert {"date", "commit", "code", "nvrtc", "gpu", "packages"} <= set(summary["about"])
    elsewhere = tmp_path / "elsewhere"
    kept = ladder(elsewhere, "smoke", "--only", "one tensor", "--resume", str(tmp_path / "results.jsonl"))
    assert "done before: ok" in kept.stdout and "one tensor copy" in statuses(elsewhere)


@pytest.mark.parametrize(
    ("fault", "status", "why"),
    [
        ("cuLaunchKernel=719@saxpy_0_mul_add", "fault", "CUDA_ERROR_LAUNCH_FAILED"),
        ("cuLaunchKernel=1@saxpy_0_mul_add", "fault", "CUDA_ERROR_INVALID_VALUE"),
        ("cuLaunchKernel=die@saxpy_0_mul_add", "crash", "SIGSEGV"),
        ("compile=error@saxpy_0_mul_add", "compile", "nonsense"),
    ],
    ids=["fault", "failure", "death", "compile error"],
)
def test_one_case_that_goes_wrong_loses_no_other(fault: str, status: str, why: str, tmp_path: Path) -> None:
    done = ladder(tmp_path, "smoke", "--only", "^saxpy$|threads", fault=fault)
    rows = {row["name"]: row for row in read_rows(tmp_path / "results.jsonl")}
    assert rows["saxpy"]["status"] == status, done.stdout
    assert why in rows["saxpy"]["why"] + rows["saxpy"].get("said", "")
    assert rows["tf32 ties, by threads"]["status"] == "ok"
    assert done.returncode == 1
    assert f"{status}" in (tmp_path / "table.txt").read_text()
    troubles = json.loads((tmp_path / "summary.json").read_text())["troubles"]
    assert troubles[0]["name"] == "saxpy"


def test_one_case_that_hangs_loses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.ladder import __main__ as main

    for name, value in environment("cuLaunchKernel=hang@saxpy_0_mul_add").items():
        monkeypatch.setenv(name, value)
    wanted = {"saxpy": 5.0, "tf32 ties, by threads": 200.0}
    cases = [replace(case, timeout=wanted[case.name]) for case in main.smoke() if case.name in wanted]
    results = Results(tmp_path)
    climb(cases, results, Budget(280), lambda _: None, False, main.alive)
    assert statuses(tmp_path) == {"saxpy": "hang", "tf32 ties, by threads": "ok"}
    assert "nothing came within" in results.rows["smoke", "saxpy"]["why"]


def test_without_a_driver_that_answers_nothing_more_is_tried(tmp_path: Path) -> None:
    done = ladder(tmp_path, "--only", "driver", fault="cuInit=1")
    assert done.returncode == 2 and "nothing more is tried" in done.stdout
    assert statuses(tmp_path) == {"driver": "fault"}


def test_what_is_ended_from_outside_leaves_its_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.ladder", "smoke", "--out", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment("cuLaunchKernel=hang@saxpy_0_mul_add"))
    limit = time.monotonic() + 200
    while "driver" not in statuses(tmp_path) and time.monotonic() < limit:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(200) == 0
    assert statuses(tmp_path) == {"driver": "ok"}
    assert "1 ok" in (tmp_path / "table.txt").read_text()


def summed(folder: Path) -> bool:
    """Whether the summary has a first result."""
    try:
        return bool(json.loads((folder / "summary.json").read_text())["counts"]["smoke"]["ok"])
    except (OSError, ValueError, KeyError):  # not yet, or not all of it
        return False


def test_what_is_killed_leaves_a_summary_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.ladder", "smoke", "--out", str(tmp_path)]
    hang = environment("cuLaunchKernel=hang@rounded")
    process = subprocess.Popen(command, cwd=ROOT, env=hang, start_new_session=True)
    limit = time.monotonic() + 200
    while not summed(tmp_path) and time.monotonic() < limit:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(200)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["about"]["unfinished"] and summary["counts"]["smoke"]["ok"] >= 1
    assert "smoke" in (tmp_path / "table.txt").read_text()


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    first = Results(tmp_path)
    first.add("smoke", "a", {"status": "ok"})
    first.add("smoke", "b", {"status": "not run"})
    with first.path.open("a") as f:
        f.write('{"stage": "smoke", "name": "c", "sta')
    again = Results(tmp_path)
    assert again.finished("smoke", "a") and not again.finished("smoke", "b") and not again.finished("smoke", "c")
    assert [row["name"] for row in read_rows(again.path)] == ["a", "b"]


def test_results_of_other_code_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"stage": "smoke", "name": "a", "status": "ok", "code": "other"}\n')
    assert not Results(tmp_path).finished("smoke", "a")


def test_time_that_runs_out_is_said_and_taken_up_later(tmp_path: Path) -> None:
    results, said = Results(tmp_path), []
    slow = Case("smoke", "slow", [sys.executable, "-c", "import time; time.sleep(30)"], 20)
    climb([slow, slow], results, Budget(3), said.append)
    assert results.rows["smoke", "slow"]["status"] == "not run" and not results.finished("smoke", "slow")
    assert len(said) == 2


def test_what_hangs_after_its_result_keeps_it_and_takes_its_children_along(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen(['sleep', '60'])\n"
        'print(\'RESULT {"status": "ok", "child": %d}\' % p.pid, flush=True)\n'
        "time.sleep(60)"
    )
    row = run(Case("smoke", "a", [sys.executable, "-c", text], 2))
    assert row["status"] == "ok" and "did not end by itself" in row["why"]
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(row["child"], 0)
            time.sleep(0.1)


TESTS = """
import os, time
def test_well(): pass
def test_wrong(): assert 1 == 2
def test_fault(): raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")
def test_behind_a_fault(): pass
def test_hang(): time.sleep(60)
def test_death(): os.abort()
def test_last(): pass
"""


def test_device_tests_go_on_behind_faults_hangs_and_crashes(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    results, said = Results(tmp_path / "out"), []
    device_tests.run(results, Budget(250), said.append, targets=[str(tmp_path / "test_some.py")], limit=12, jobs=1)
    found = {row["name"].rpartition("::")[2]: row["status"] for row in results.of("tests")}
    assert found == {"test_well": "ok", "test_wrong": "failed", "test_fault": "fault", "test_behind_a_fault": "ok",
                     "test_hang": "hang", "test_death": "crash", "test_last": "ok"}  # fmt: skip
    assert said[-1] == "  3 of 7 went well"


@pytest.mark.parametrize("missing", ["platformdirs", "rich", "typer", "llvmlite", "cupy"])
def test_smoke_needs_no_more_than_numpy_and_the_driver(missing: str, tmp_path: Path) -> None:
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError('no {missing}', name='{missing}')\n")
    done = ladder(tmp_path / "out", "smoke", "--only", "threads", hidden=tmp_path)
    assert statuses(tmp_path / "out") == {"tf32 ties, by threads": "ok"}, done.stdout + done.stderr


def test_the_table_says_what_is_missing(tmp_path: Path) -> None:
    ladder(tmp_path, "table", "--only", "saxpy")
    (row,) = read_rows(tmp_path / "results.jsonl")
    assert row["status"] == "skipped" and "PyTorch" in row["why"]


class FakeTorch:
    """PyTorch's clock with work that says how long it takes, in microseconds."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, []
        self.uint8 = None
        self.cuda: Any = self
        self.CUDAGraph = lambda: FakeGraph(self)

    def work(self, name: str, us: float) -> Any:
        def run() -> None:
            self.order.append(name)
            self.now += us

        return run

    def empty(self, *_: Any, **__: Any) -> Any:
        return type("Buffer", (), {"zero_": lambda _: None})()

    def Event(self, **_: Any) -> Any:
        torch = self

        class Event:
            at = 0.0

            def record(self) -> None:
                self.at = torch.now

            def synchronize(self) -> None: ...

            def elapsed_time(self, other: Any) -> float:
                return (other.at - self.at) / 1e3

        return Event()

    def synchronize(self) -> None: ...

    def Stream(self) -> Any:
        return type("Stream", (), {"wait_stream": lambda *_: None})()

    current_stream = Stream

    def stream(self, _: Any) -> Any:
        import contextlib

        return contextlib.nullcontext()

    def graph(self, graph: Any, stream: Any) -> Any:
        return graph


class FakeGraph:
    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch

    def __enter__(self) -> None:
        self.start = self.torch.now

    def __exit__(self, *_: Any) -> None:
        self.length, self.torch.now = self.torch.now - self.start, self.start

    def replay(self) -> None:
        self.torch.now += self.length


def test_times_are_taken_in_turns_and_short_work_as_a_graph() -> None:
    torch: Any = FakeTorch()

    def broken() -> None:
        raise RuntimeError("no kernel for this GPU")

    times: Any = compare(torch, {"ours": torch.work("a", 80.0), "peer": torch.work("b", 120.0),
                                 "short": torch.work("c", 7.0), "broken": broken}, rounds=8)  # fmt: skip
    assert times["ours"].us == 80 and times["peer"].us == 120 and times["short"].us == pytest.approx(7)
    assert times["ours"].timed == "events, cold" and times["short"].timed == "graph, warm"
    assert times["broken"] == "RuntimeError: no kernel for this GPU"
    assert torch.order[-8:] == list("abbaabba") or torch.order[-4:] in (list("abba"), list("baab"), list("abab"))


def test_the_table_compares_with_peers(tmp_path: Path) -> None:
    results = Results(tmp_path)
    figures = {"status": "ok", "us": 50.0, "spread": 1.0, "rate": 700.0, "unit": "TFLOP/s", "timed": "events, cold"}
    results.add("table", "product", {**figures, "peers": {"cuBLAS": 45.0, "Triton": "not installed"}})
    text = report.write(results, {"commit": "abc"})
    assert "cuBLAS 45.0 us, 0.90x; Triton: not installed" in text and "700.0 TFLOP/s" in text


def test_every_case_of_the_ladder_exists() -> None:
    from benchmarks.ladder import __main__ as main
    from benchmarks.ladder import smoke

    assert set(main.SMOKE) == set(smoke.CASES) and set(main.CHECKED) <= set(main.SMOKE)
    assert set(main.SHARE) == set(report.STAGES) and sum(main.SHARE.values()) <= 9.3 * 60
    named = [case.name for stage in (main.smoke(), main.sanitizer("x"), main.table()) for case in stage]
    assert len(set(named)) == len(named)


def test_a_wrong_result_is_told_and_not_timed() -> None:
    from benchmarks.ladder import table

    torch: Any = FakeTorch()

    def wrong() -> None:
        raise AssertionError("largest difference 3")

    bench = table.Bench(torch.work("ours", 80.0), {"peer": torch.work("peer", 40.0)}, wrong, 8e6, table.GB)
    with pytest.raises(AssertionError, match="largest difference"):
        table.measure(torch, bench)
    assert not torch.order
    bench.check = lambda: None
    found = table.measure(torch, bench)
    assert (found["us"], found["peers"]["peer"], found["rate"]) == (80.0, 40.0, 100.0)


def test_tools_are_looked_for_where_cuda_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.ladder import __main__ as main

    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert main.find("a-tool-of-nobodys") is None
    tool = tmp_path / "bin" / "a-tool-of-nobodys"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    assert main.find("a-tool-of-nobodys") == str(tool)


def test_findings_of_the_sanitizer_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that runs the program and then finds fault with it."""
    from benchmarks.ladder import __main__ as main

    tool = tmp_path / "compute-sanitizer"
    tool.write_text("#!/bin/sh\necho '========= Invalid __global__ write of size 4 bytes'\n"
                    "echo 'RESULT {\"status\": \"ok\"}'\nexit 86\n")  # fmt: skip
    tool.chmod(0o755)
    results = Results(tmp_path / "out")
    climb(main.sanitizer(str(tool))[:1], results, Budget(30), lambda _: None)
    (row,) = results.of("sanitizer")
    assert row["status"] == "failed" and "status 86" in row["why"] and "Invalid __global__ write" in row["said"]
