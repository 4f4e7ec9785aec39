"""The tests of tests/device in several processes, each test with a time limit, results as they come."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ladder.plugin import FRESH, told
from benchmarks.ladder.runner import ROOT, Budget, Results, stop

STAGE = "tests"
LIMIT = 60.0
"""Seconds that one test may take, and pytest to start."""


@dataclass
class Shard:
    """One process after the other over the same share of the tests, until none is left."""

    number: int
    of: int
    targets: Sequence[str]
    path: Path
    limit: float
    log: Any
    process: subprocess.Popen[Any] | None = None
    started: float = field(default_factory=time.time)
    done: bool = False
    restarts: int = 0

    def start(self) -> None:
        environment = {**os.environ, "LADDER_TESTS": str(self.path), "LADDER_SHARD": f"{self.number}/{self.of}"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(ROOT)]))
        # Options of pyproject.toml name plugins that a plain checkout need not have.
        command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.ladder.plugin", "-p", "no:cacheprovider",
                   "-o", "addopts=", "--import-mode=importlib", "--rootdir", str(ROOT), *self.targets]  # fmt: skip
        self.started = time.time()
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def look(self) -> None:
        """Ends what hangs, starts again what a fault, a crash or a hang has ended."""
        assert self.process is not None
        begun = [row for row in told(self.path).values() if row["status"] == "begun"]
        since = max([self.started, *(row["at"] for row in told(self.path).values())])
        if self.process.poll() is None:
            if time.time() - since < self.limit:
                return
            stop(self.process)
            self._close(begun, "hang", f"no end within {self.limit:.0f} s")
        elif self.process.returncode in (0, 1, 5):
            self.done = True
            return
        elif self.process.returncode != FRESH:
            self._close(begun, "crash", f"pytest ended with status {self.process.returncode}")
        if not begun and self.process.returncode != FRESH:  # it did not reach a test: it never will
            self.done = True
            return
        self.restarts += 1
        self.start()

    def _close(self, begun: Sequence[dict[str, Any]], status: str, why: str) -> None:
        import json

        with self.path.open("a", encoding="utf-8") as f:
            for row in begun:
                f.write(json.dumps({**row, "status": status, "why": why, "at": time.time()}) + "\n")


def run(
    results: Results,
    budget: Budget,
    tell: Callable[[str], None],
    *,
    retry: bool = False,
    targets: Sequence[str] = ("tests/device",),
    limit: float = LIMIT,
    jobs: int = 0,
) -> None:
    """All of them as far as the time goes. What is left over is said as one row."""
    jobs = jobs or max(1, min(8, (os.cpu_count() or 2) // 2))
    with tempfile.TemporaryDirectory() as folder, (results.folder / "tests.log").open("ab") as log:
        shards: list[Shard] = []
        for i in range(jobs):
            path = Path(folder) / f"{i}.jsonl"
            _seed(path, results, retry)
            shards.append(Shard(i, jobs, targets, path, limit, log))
            shards[-1].start()
        seen: dict[str, float] = {}
        while budget.left > 1 and not all(s.done for s in shards):
            time.sleep(0.2)
            for shard in shards:
                if not shard.done:
                    shard.look()
                _take(shard, results, seen, tell)
        left = [s for s in shards if not s.done]
        for shard in left:
            assert shard.process is not None
            stop(shard.process)
        for shard in shards:
            _take(shard, results, seen, tell)
    _end(results, left, tell)


def _seed(path: Path, results: Results, retry: bool) -> None:
    """Tests that a run before this one has finished."""
    import json

    with path.open("w", encoding="utf-8") as f:
        for row in results.of(STAGE):
            if results.finished(STAGE, row["name"], retry):
                f.write(json.dumps({"test": row["name"], "status": row["status"], "at": 0.0}) + "\n")


def _take(shard: Shard, results: Results, seen: dict[str, float], tell: Callable[[str], None]) -> None:
    for test, row in told(shard.path).items():
        if row["status"] == "begun" or row["at"] <= seen.get(test, 0.0):
            continue
        seen[test] = row["at"]
        figures = {"status": row["status"], "why": row.get("why", ""), "seconds": row.get("seconds", 0.0)}
        results.add(STAGE, test, figures)
        if row["status"] not in ("ok", "skipped"):
            tell(f"  {row['status']}: {test}")


def _end(results: Results, left: Sequence[Shard], tell: Callable[[str], None]) -> None:
    name = "the rest of the tests"
    if left:
        results.add(STAGE, name, {"status": "not run", "why": f"{len(left)} shares were not through when time ended"})
    elif not results.of(STAGE):
        results.add(STAGE, name, {"status": "failed", "why": "pytest ran no test: see tests.log"})
    elif (STAGE, name) in results.rows:
        results.add(STAGE, name, {"status": "ok", "why": ""})
    rows = results.of(STAGE)
    tell(f"  {sum(r['status'] == 'ok' for r in rows)} of {len(rows)} went well")
