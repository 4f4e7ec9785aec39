"""python -m benchmarks.ladder [STAGE ...] [--out FOLDER] [--minutes N] [--only PATTERN] [--resume FILE] [--retry]

Stages, in this order: smoke, tests, sanitizer, table; all of them without a name. Results go to FOLDER (else
LADDER_OUT, else benchmarks/results/gpu): results.jsonl line by line as they come, with summary.json and table.txt kept
up beside it. The whole ends within the minutes given (9.3), which leaves something of ten.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.ladder import device_tests, report
from benchmarks.ladder.about import about, clocks
from benchmarks.ladder.runner import ROOT, Budget, Case, Results, climb, python, run

SHARE = {"smoke": 75.0, "tests": 185.0, "sanitizer": 95.0, "table": 200.0}
"""Seconds of each stage where all are run; one that is left early leaves its rest to those behind it."""
SMOKE = (
    "driver", "saxpy", "tf32 ties, by threads", "one tensor copy", "tf32 ties, by a tensor copy",
    "one matrix tile bf16", "one matrix tile f16", "one matrix tile tf32, k inside", "x @ w.T bf16", "x @ w f32",
    "several blocks bf16", "odd N, kernels", "odd N", "saxpy off 16 bytes", "softmax of rows",
)  # fmt: skip
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
CHECKED = (
    "saxpy",
    "one tensor copy",
    "one matrix tile bf16",
    "several blocks bf16",
    "softmax of rows",
    "odd N, kernels",
)
SANITIZER = "compute-sanitizer"


def smoke() -> list[Case]:
    return [Case("smoke", n, python("benchmarks.ladder.smoke", n), 45.0 if "odd N" in n else 25.0) for n in SMOKE]


def sanitizer(tool: str) -> list[Case]:
    """Findings end a process with status 86; what it says is kept."""
    out: list[Case] = []
    for check in TOOLS:
        for name in CHECKED:
            command = [tool, "--tool", check, "--target-processes", "all", "--error-exitcode", "86",
                       "--print-limit", "20", *python("benchmarks.ladder.smoke", name)]  # fmt: skip
            out.append(Case("sanitizer", f"{check}: {name}", command, 60.0))
    return out


def table() -> list[Case]:
    from benchmarks.ladder.table import names

    return [Case("table", n, python("benchmarks.ladder.table", n), 60.0) for n in names()]


def find(program: str) -> str | None:
    """On the path, or where CUDA is installed."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [f"{p}/{sub}" for p in places if p for sub in ("bin", "compute-sanitizer")]
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(folders))


def alive() -> str:
    """Why the GPU does not answer a process that asks it something simple; empty where it does."""
    row = run(Case("", "", python("benchmarks.ladder.smoke", "driver"), 30.0))
    return "" if row["status"] == "ok" else str(row.get("why", row["status"]))


def climb_stage(
    stage: str, results: Results, budget: Budget, options: argparse.Namespace, tell: Callable[[str], None]
) -> None:
    if stage == "tests":
        device_tests.run(results, budget, tell, retry=options.retry, limit=options.timeout or device_tests.LIMIT)
        return
    if stage == "sanitizer":
        tool = find(SANITIZER)
        if tool is None:
            results.add(stage, SANITIZER, {"status": "skipped", "why": f"{SANITIZER} is not installed"})
            tell(f"  skipped: {SANITIZER} is not installed")
            return
        cases = sanitizer(tool)
    else:
        cases = smoke() if stage == "smoke" else table()
    cases = [c for c in cases if re.search(options.only, c.name)]
    if options.timeout:
        cases = [replace(c, timeout=min(c.timeout, options.timeout)) for c in cases]
    climb(cases, results, budget, tell, options.retry, alive)


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 where all that was run went well, 1 where something did not, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ladder", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(report.STAGES))
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("TESSERA_OUT") or ROOT / "benchmarks/results/gpu")
    )
    parser.add_argument("--minutes", type=float, default=9.3, help="after which all of it ends")
    parser.add_argument("--only", default="", help="the cases whose name this regular expression finds")
    parser.add_argument("--timeout", type=float, default=0, help="seconds that a case gets at most")
    parser.add_argument("--resume", type=Path, action="append", default=[], help="results.jsonl of an earlier run")
    parser.add_argument("--retry", action="store_true", help="run again what did not go well before")
    options = parser.parse_args(arguments)
    if unknown := [s for s in options.stages if s not in report.STAGES]:
        parser.error(f"there is no stage {unknown[0]!r}; there are {', '.join(report.STAGES)}")
    results = Results(options.out, options.resume)
    facts = about()
    results.after = lambda: report.write(results, {**facts, "unfinished": True})
    print(f"Results go to {options.out}", flush=True)

    def end(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        with tempfile.TemporaryDirectory(prefix="tessera-ladder-") as cache:
            os.environ.setdefault("TESSERA_CACHE_DIR", cache)
            climb_all(options, results)
    except KeyboardInterrupt:
        print("Ended from outside; what is done is kept.", flush=True)
    finally:
        print("\n" + report.write(results, {**facts, "gpu at the end": clocks()}), end="", flush=True)
    rows = list(results.rows.values())
    if any(row["name"] == "driver" and row["status"] != "ok" for row in results.of("smoke")):
        return 2
    return 1 if any(row["status"] not in ("ok", "skipped") for row in rows) else 0


def climb_all(options: argparse.Namespace, results: Results) -> None:
    whole = Budget(options.minutes * 60)
    stages = [s for s in report.STAGES if s in (options.stages or report.STAGES)]
    ahead = sum(SHARE[s] for s in stages)
    for stage in stages:
        seconds = whole.left * SHARE[stage] / ahead
        ahead -= SHARE[stage]
        print(f"{stage}: at most {seconds:.0f} s", flush=True)
        try:
            climb_stage(stage, results, Budget(seconds), options, lambda line: print(line, flush=True))
        except Exception as e:  # one stage that cannot begin does not keep the others from it
            results.add(stage, "the stage itself", {"status": "failed", "why": f"{type(e).__name__}: {e}"})
            traceback.print_exc()
        driver = results.rows.get(("smoke", "driver"))
        if stage == "smoke" and driver is not None and driver["status"] != "ok":
            print("The driver does not answer: nothing more is tried.", flush=True)
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
