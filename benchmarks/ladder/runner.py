"""Cases in processes of their own, each with a timeout, and results on disk as they come.

A case is a command that prints one line `RESULT {...}`. What it says counts; where it says nothing, how it ended does:
by the clock (`hang`), by a signal (`crash`), or with an exit status (`failed`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = "RESULT "
LAST_WORDS = 4000
"""Characters kept of what a case printed."""
NOT_RUN = "not run"
"""Status of a case that there was no time for: a later run takes it up."""


@dataclass(frozen=True)
class Case:
    """One process. `timeout` in seconds."""

    stage: str
    name: str
    command: Sequence[str]
    timeout: float
    environment: Mapping[str, str] = field(default_factory=dict)


def result(status: str, **figures: Any) -> None:
    """What a case calls at its end."""
    print(MARK + json.dumps({"status": status, **figures}), flush=True)


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Says of a case that raises what kind of failure it was."""
    from tessera.errors import CompileError, DeviceError, MissingDependency, TargetError

    try:
        yield
    except AssertionError as e:
        result("wrong", why=str(e))
    except MissingDependency as e:
        result("failed", why=str(e))
    except (TargetError, CompileError) as e:
        traceback.print_exc()
        result("compile", why=str(e))
    except DeviceError as e:
        traceback.print_exc()
        result("fault", why=str(e))
    except Exception as e:
        traceback.print_exc()
        result("fault" if "CUDA error" in str(e) else "failed", why=f"{type(e).__name__}: {e}")


def code_version() -> str:
    """A hash of the sources that decide what is measured: results of other code are not taken for this one's."""
    digest = hashlib.sha256()
    for folder in ("tessera", "benchmarks/ladder", "tests/device", "tests/emulator"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cuh", ".h") and path.is_file():
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Results:
    """The lines of results.jsonl, written and flushed one by one; `earlier` ones of the same code are kept."""

    def __init__(self, folder: Path, earlier: Sequence[Path] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path, self.code = folder, folder / "results.jsonl", code_version()
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        for path in dict.fromkeys([*earlier, self.path]):
            for row in read_rows(path):
                if row.get("code") == self.code:
                    self.rows[row["stage"], row["name"]] = row
        self.after: Callable[[], object] = lambda: None
        """called behind an added row, at most once a second"""
        self._told = time.monotonic()
        self._file = self.path.open("w", encoding="utf-8")
        for row in self.rows.values():
            self._write(row)

    def finished(self, stage: str, name: str, retry: bool = False) -> bool:
        """Whether the case needs no further run; with `retry` only what went well does not."""
        row = self.rows.get((stage, name))
        if row is None or row["status"] == NOT_RUN:
            return False
        return row["status"] in ("ok", "skipped") or not retry

    def add(self, stage: str, name: str, row: Mapping[str, Any]) -> dict[str, Any]:
        made = {"stage": stage, "name": name, "code": self.code, **row}
        self.rows[stage, name] = made
        self._write(made)
        if time.monotonic() - self._told > 1:
            self.after()
            self._told = time.monotonic()
        return made

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def of(self, stage: str) -> list[dict[str, Any]]:
        return [row for (s, _), row in self.rows.items() if s == stage]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of results; what was cut off by a kill is left out."""
    out: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return out
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and {"stage", "name", "status"} <= set(row):
                out.append(row)
    return out


def run(case: Case) -> dict[str, Any]:
    """Runs it; what it said and how long it took, in seconds. Never raises for what the case does."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **case.environment}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(ROOT)]))
    start = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            list(case.command), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        hung = False
        try:
            process.wait(case.timeout)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            gone = stop(process)
        said.seek(0)
        text = said.read().decode(errors="replace")
    row = _row(text, process.returncode, hung, case.timeout)
    if not gone:
        row["why"] = f"{row.get('why', '')}; its process could not be ended".lstrip("; ")
    row["seconds"] = round(time.monotonic() - start, 2)
    return row


def stop(process: subprocess.Popen[Any]) -> bool:
    """Ends a case with all it started. False where the system does not let go of it within some seconds."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        return False
    return True


def _row(text: str, status: int | None, hung: bool, timeout: float) -> dict[str, Any]:
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    row: dict[str, Any] = {}
    with contextlib.suppress(ValueError, IndexError):
        row = json.loads(lines[-1][len(MARK) :])
    if not row.get("status"):
        if hung:
            row = {"status": "hang", "why": f"nothing came within {timeout:.0f} s"}
        elif status is not None and status < 0:
            row = {"status": "crash", "why": f"ended by {signal.Signals(-status).name}"}
        else:
            row = {"status": "failed", "why": f"ended with status {status} and without a result"}
    elif row["status"] == "ok" and status and not hung:  # what a sanitizer found, or a crash at the end
        ended = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        row |= {"status": "crash" if status < 0 else "failed", "why": f"{ended} behind its result"}
    elif hung:
        row["why"] = f"{row.get('why', '')}; its process did not end by itself".lstrip("; ")
    if row["status"] not in ("ok", "skipped"):
        plain = "\n".join(line for line in text.splitlines() if not line.startswith(MARK))
        row["said"] = plain[-LAST_WORDS:]
    return row


@dataclass
class Budget:
    """Seconds until a moment; `left` never goes below 0."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return max(0.0, self.start + self.seconds - time.monotonic())


def climb(
    cases: Sequence[Case],
    results: Results,
    budget: Budget,
    tell: Callable[[str], None],
    retry: bool = False,
    alive: Callable[[], str] = lambda: "",
) -> None:
    """Runs the cases in order, one after the other. What there is no time for is said; where the GPU has stopped
    answering after a hang or a fault (`alive` gives the reason) nothing more is tried."""
    dead = ""
    for case in cases:
        if results.finished(case.stage, case.name, retry):
            tell(f"  {case.name:44s} done before: {results.rows[case.stage, case.name]['status']}")
            continue
        if dead or budget.left < 2:
            why = dead or "no time was left for it"
            results.add(case.stage, case.name, {"status": NOT_RUN, "why": why})
            tell(f"  {case.name:44s} {NOT_RUN}: {why}")
            continue
        timeout = min(case.timeout, budget.left)
        row = run(Case(case.stage, case.name, case.command, timeout, case.environment))
        if row["status"] == "hang" and timeout < case.timeout:
            row = {**row, "status": NOT_RUN, "why": f"the stage's time ended after {timeout:.0f} s of it"}
        results.add(case.stage, case.name, row)
        tell(f"  {case.name:44s} {row['status']} in {row['seconds']:.1f} s{_because(row)}")
        if row["status"] in ("hang", "fault", "crash") and (problem := alive()):
            dead = f"the GPU no longer answers: {problem}"


def _because(row: Mapping[str, Any]) -> str:
    why = str(row.get("why", "")).strip().splitlines()
    return f": {why[0][:160]}" if why else ""


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
