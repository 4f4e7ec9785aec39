"""A pytest plugin: every test's outcome on disk at once, and a fresh process after a fault.

`LADDER_TESTS`: the file of outcomes, to which lines are added. `LADDER_SHARD`: "2/8", the share of this process. Tests
that stand in the file have been run before and are left out; one that has begun and not ended stopped its process.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

FRESH = 75
"""Status of a process that ends itself because its GPU context is lost."""
LOST = ("context is lost", "CUDA_ERROR_ILLEGAL", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_MISALIGNED",
        "cudaErrorIllegal", "cudaErrorLaunchFailure", "cudaErrorMisaligned", "illegal memory access",
        "misaligned address", "unspecified launch failure", "CUDA_ERROR_LAUNCH_TIMEOUT")  # fmt: skip
_PATH = Path(os.environ.get("LADDER_TESTS", os.devnull))


def told(path: Path) -> dict[str, dict[str, Any]]:
    """The latest line of each test."""
    out: dict[str, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            out[row["test"]] = row
    return out


def _tell(test: str, status: str, why: str = "", seconds: float = 0.0) -> None:
    row = {"test": test, "status": status, "why": why, "seconds": round(seconds, 2), "at": time.time()}
    with _PATH.open("a", encoding="utf-8") as f:
        f.write(json.dumps(row) + "\n")
        f.flush()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share, shares = map(int, os.environ.get("LADDER_SHARD", "0/1").split("/"))
    before = told(_PATH)
    mine = [i for i in items if zlib.crc32(i.nodeid.encode()) % shares == share and i.nodeid not in before]
    items[:] = mine


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    _tell(nodeid, "begun")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        text = str(report.longrepr)
        lost = any(word in text for word in LOST)
        _tell(report.nodeid, "fault" if lost else "failed", text[-3000:], report.duration)
        if lost:
            os._exit(FRESH)
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _tell(report.nodeid, "skipped", reason)
    elif report.when == "call":
        _tell(report.nodeid, "ok", seconds=report.duration)
