"""What a person waits for in an editor: the real language server, and others beside it on the same files.

After each edit (a number typed, a line put in, a bracket left open) the hints of the visible sixty lines are asked
for; the time is from the edit to the answer. Servers take turns, so that a slow moment hits all. Others that are not
installed are named; `--install-peers` puts them into a virtual environment of their own.

python -m benchmarks editor -- [--rounds 40] [--lines 50 1000 10000] [--install-peers] [--save]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.frontend import p95, program
from benchmarks.lsp_client import Client, ServerError
from benchmarks.record import ROOT, circumstances, save

PEERS = {
    "pyrefly": ("pyrefly", "lsp"),
    "ty": ("ty", "server"),
    "basedpyright": ("basedpyright-langserver", "--stdio"),
}
VISIBLE = 60
REST = 0.2
GOALS = {50: (20, 50), 1_000: (20, 50), 10_000: (None, 150)}
"""milliseconds from an edit to hints, by lines: the median and the 95th percentile"""
MARK = "hidden * 0.01"


class Subject:
    """A server with one text open."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, text: str) -> None:
        self.name, self.lines = name, text.split("\n")
        self.uri = (folder / "model.py").as_uri()
        self.times: list[float] = []
        self.completions: list[float] = []
        started = time.perf_counter()
        self.client = Client(
            command, folder, {"VIRTUAL_ENV": str(ROOT / ".venv"), "PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}"}
        )
        self.client.open(self.uri, text)
        rows = [i for i, line in enumerate(self.lines) if MARK in line]
        self.row = rows[len(rows) // 2]
        first = self._hints()
        self.first_hints = (time.perf_counter() - started) * 1e3
        self.found = len(first)

    def _hints(self) -> list[object]:
        return self.client.hints(self.uri, max(self.row - VISIBLE // 2, 0), self.row + VISIBLE // 2)

    def edit(self, start: tuple[int, int], end: tuple[int, int], text: str, count: bool = True) -> None:
        started = time.perf_counter()
        self.client.change(self.uri, start, end, text)
        self._hints()
        if count:
            self.times.append((time.perf_counter() - started) * 1e3)

    def round(self, n: int) -> None:
        """Three edits, and two that take them back."""
        col = self.lines[self.row].index(MARK) + len("hidden * ")
        self.edit((self.row, col), (self.row, col + 4), f"0.{n % 90 + 10}")
        self.edit((self.row, 0), (self.row, 0), "\n")
        self.edit((self.row, 0), (self.row + 1, 0), "")
        self.edit((self.row, col), (self.row, col), "(")
        self.edit((self.row, col), (self.row, col + 1), "")
        line = len(self.lines[self.row]) - len(self.lines[self.row].lstrip())
        self.client.change(self.uri, (self.row, 0), (self.row, 0), " " * line + "ts.\n")
        started = time.perf_counter()
        self.client.completion(self.uri, (self.row, line + 3))
        self.completions.append((time.perf_counter() - started) * 1e3)
        self.edit((self.row, 0), (self.row + 1, 0), "", count=False)


def commands(folder: Path | None) -> Iterator[tuple[str, list[str] | None]]:
    """How each server is started; None where it is not installed."""
    yield "tessera", [sys.executable, "-P", "-m", "tessera_lsp"]
    path = os.pathsep.join(
        [str(folder / "bin") if folder else "", str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    for name, (program_name, *arguments) in PEERS.items():
        found = shutil.which(program_name, path=path)
        yield name, [found, *arguments] if found else None


def install(folder: Path) -> None:
    """The other servers, as their projects publish them."""
    venv.create(folder, with_pip=True)
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *PEERS], check=True)


def start_milliseconds() -> float:
    """Importing the server and making one, in a process of its own."""
    code = (
        "import gc, time; started = time.perf_counter(); gc.disable(); from tessera_lsp import lazy_types\n"
        "lazy_types.load(); from tessera_lsp.features import create_server\n"
        "create_server(''); print((time.perf_counter() - started) * 1e3)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}"}
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment) for _ in range(7)
    ]
    return statistics.median(float(r.stdout) for r in runs)


def workspace_megabytes(command: Sequence[str], folder: Path, files: int = 100) -> float:
    """With so many files of a hundred lines open and analysed."""
    client = Client(command, folder, {"PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}"})
    try:
        for i in range(files):
            client.open((folder / f"file_{i}.py").as_uri(), program(100))
        for i in range(files):
            client.hints((folder / f"file_{i}.py").as_uri(), 0, VISIBLE)
        time.sleep(4)  # it collects what is left over when nobody types
        return client.resident_megabytes()
    finally:
        client.close()


def measure(lines: int, rounds: int, found: dict[str, list[str]], folder: Path) -> list[Subject]:
    text = program(lines)
    (folder / "model.py").write_text(text, encoding="utf-8")
    subjects: list[Subject] = []
    for name, command in found.items():
        try:
            subjects.append(Subject(name, command, folder, text))
        except (ServerError, OSError) as e:
            print(f"{name}: {e}", file=sys.stderr)
    try:
        time.sleep(2)
        for subject in subjects:  # once, so that all have everything loaded
            subject.round(0)
            subject.times.clear()
            subject.completions.clear()
        for n in range(rounds):
            for subject in subjects if n % 2 == 0 else reversed(subjects):
                time.sleep(REST)  # what the one before still does behind its answers is no cost of this one
                subject.round(n)
    finally:
        for subject in subjects:
            subject.client.close()
    return subjects


def row(lines: int, s: Subject, ours: Subject) -> dict[str, object]:
    quartiles = statistics.quantiles(s.times, n=4)
    return {
        "server": s.name, "lines": lines, "edits": len(s.times), "hints": s.found,
        "p50_ms": round(statistics.median(s.times), 1), "p95_ms": round(p95(s.times), 1),
        "spread_ms": round(quartiles[2] - quartiles[0], 1), "first_hints_ms": round(s.first_hints),
        "completion_p95_ms": round(p95(s.completions), 1),
        "times_ours": round(statistics.median(s.times) / statistics.median(ours.times), 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="+", default=[50, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=40, help="five edits each")
    parser.add_argument("--install-peers", action="store_true", help="fetch the other servers for this run")
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results/editor.json")
    options = parser.parse_args()
    print(" ".join(f"{k}={v}" for k, v in circumstances().items()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.install_peers:
            install(folder / "peers")
        found: dict[str, list[str]] = {}
        for server, command in commands(folder / "peers" if options.install_peers else None):
            if command is None:
                print(f"{server}: not installed, so not measured (--install-peers fetches it)")
            else:
                found[server] = command
        rows: list[dict[str, object]] = []
        for lines in options.lines:
            (work := folder / f"lines_{lines}").mkdir()
            subjects = measure(lines, options.rounds, found, work)
            for s in subjects:
                rows.append(row(lines, s, subjects[0]))
                print(" ".join(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
            median, most = GOALS.get(lines, (None, None))
            if most is not None:
                print(f"goal at {lines} lines: p50 <= {median or '-'} ms, p95 <= {most} ms; first hints <= 1000 ms")
        (work := folder / "workspace").mkdir()
        figures = {
            "workspace_100_files_mb": round(workspace_megabytes(found["tessera"], work)),
            "server_import_ms": round(start_milliseconds()),
        }
        print(f"{figures} (goals: 150 MB, 300 ms; completion p95 50 ms)")
        if options.save:
            print(f"kept in {save('editor', {'servers': rows, **figures})}")


if __name__ == "__main__":
    main()
