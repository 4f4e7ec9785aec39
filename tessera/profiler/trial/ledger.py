"""What hints predicted and what came of it, kept on disk: a rule that is often wrong falls silent.

One line of JSON an outcome, in the cache folder. A line is written in one piece behind the last one, so that a process
that dies leaves at most one line that does not read, and that line is left out. The file keeps the newest `KEPT`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tessera import knobs
from tessera.files import read_plain

KEPT, LARGEST = 1000, 1 << 20
"""outcomes in the file, and bytes from which on it is written anew with the newest of them"""
WINDOW, ENOUGH, COVERAGE = 30, 10, 0.8
"""a rule is judged by its newest `WINDOW` outcomes, from `ENOUGH` on; below `COVERAGE` it is silent"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One hint that was tried. Savings are parts of the time that the hint speaks of."""

    rule: str
    version: int
    """of the rules: those that were changed are judged anew"""
    program: str
    target: str
    predicted: tuple[float, float]
    measured: tuple[float, float, float]
    """low, median, high"""
    when: float
    """seconds since 1970"""

    @property
    def covered(self) -> bool:
        """Whether the measured interval and the predicted range have a saving in common."""
        return self.measured[0] <= self.predicted[1] and self.predicted[0] <= self.measured[2]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a rule has done lately."""

    rule: str
    tried: int
    covered: int
    gained: int
    """of them that were surely faster"""

    @property
    def silent(self) -> bool:
        return self.tried >= ENOUGH and self.covered < COVERAGE * self.tried


def path() -> Path:
    return knobs.cache_dir() / "hints.jsonl"


def record(entry: Entry) -> bool:
    """Adds an outcome; False where the disk takes none."""
    line = json.dumps(asdict(entry)).encode() + b"\n"
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            os.write(descriptor, line if _ends_a_line(descriptor, size) else b"\n" + line)
        finally:
            os.close(descriptor)
        if size + len(line) > LARGEST:
            _shorten(file)
    except OSError:
        return False
    return True


def _ends_a_line(descriptor: int, size: int) -> bool:
    if not size:
        return True
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) == b"\n"


def _shorten(file: Path) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries()[-KEPT:]), encoding="utf-8")
    os.replace(part, file)


def entries() -> list[Entry]:
    """All outcomes that can be read, the oldest first."""
    try:
        data = read_plain(path(), 4 * LARGEST) or b""
    except OSError:
        return []
    found: list[Entry] = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            found.append(_entry(json.loads(line)))
    return found


def _entry(value: dict[str, Any]) -> Entry:
    given = {field.name: value[field.name] for field in fields(Entry)}
    low, high = map(float, given["predicted"])
    measured = tuple(map(float, given["measured"]))
    if len(measured) != 3 or not all(isinstance(given[name], str) for name in ("rule", "program", "target")):
        raise ValueError("not an outcome of a hint")
    given |= {"predicted": (low, high), "measured": measured}
    return Entry(**given | {"version": int(given["version"]), "when": float(given["when"])})


def standings(version: int, known: Iterable[Entry] | None = None) -> list[Standing]:
    """How each rule that was tried has done, by its newest outcomes under the present version of the rules."""
    by_rule: dict[str, list[Entry]] = {}
    for entry in entries() if known is None else known:
        if entry.version == version:
            by_rule.setdefault(entry.rule, []).append(entry)
    newest = {rule: found[-WINDOW:] for rule, found in by_rule.items()}
    return [
        Standing(rule, len(found), sum(e.covered for e in found), sum(e.measured[0] > 0 for e in found))
        for rule, found in sorted(newest.items())
    ]
