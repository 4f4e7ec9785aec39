"""What this processor does: its figures, as they were last measured, or those of a usual one.

They are read here by all that predicts times. They are measured elsewhere (targets/cpu/measure.py), where somebody asks
for them: reading never measures, so that an editor may do it while its user types.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tessera import knobs
from tessera.files import read_record, write_record
from tessera.immutable import immutable

_SCHEMA = 6
LEVELS = ("L1", "L2", "L3", "memory")
"""where data lie; the first two are those of each core"""


Rates: TypeAlias = tuple[float, float]
"""how often in a second, by one thread and by all together"""


def better(old: Rates | None, new: Rates) -> Rates:
    """The best of two measurements."""
    return new if old is None else (max(old[0], new[0]), max(old[1], new[1]))


@immutable
class Figures:
    """`rates` maps what is done to how often in a second, by one thread and by all: the best that was ever seen.

    "read L2", "copy memory": bytes, for a copy those that are read and those that are written. "line L3": lines of a
    cache, in no order. "gather L1": elements that lie apart. "product f32": operations. "exp f32", "transpose f32",
    "merge i32": elements. "launch": launches; by all threads, launches that all take part in.
    """

    processor: str
    threads: int
    """of the second number of a rate"""
    caches: tuple[int, int, int]
    """bytes of the first- and second-level cache of a core, and of the last one, which all share; 0: there is none"""
    vector: int
    """bytes of a vector register"""
    rates: Mapping[str, Rates]
    when: float = 0.0
    """when they were measured last, in seconds since the epoch; 0: they are those of a usual processor"""

    waited: float = 0.0
    """the least part of a measurement's time that a thread waited for a processor, because of other work"""

    @property
    def disturbed(self) -> bool:
        """Whether figures of all threads may be far too low."""
        return self.waited > 0.05

    @property
    def measured(self) -> bool:
        return self.when > 0

    def rate(self, name: str, threads: int = 1) -> float:
        """How often in a second `threads` threads do it together. Raises KeyError for what is not known."""
        one, together = self.rates[name]
        return one if threads == 1 or self.threads == 1 else min(one * threads, together)

    def with_best_of(self, other: Figures) -> Figures:
        """Each rate at its best: what was reached can be reached."""
        best = {name: better(other.rates.get(name), found) for name, found in self.rates.items()}
        return Figures(self.processor, self.threads, self.caches, self.vector, {**other.rates, **best}, self.when,
                       min(self.waited, other.waited))  # fmt: skip


# A core of 3 GHz with 256-bit vectors. What is not given here goes by the rate of single operations.
USUAL = Figures(
    "a usual processor", 2, (32 << 10, 1 << 20, 16 << 20), 32,
    {
        "read L1": (100e9, 200e9), "read L2": (50e9, 100e9), "read L3": (25e9, 50e9), "read memory": (12e9, 20e9),
        "copy L1": (100e9, 200e9), "copy L2": (50e9, 100e9), "copy L3": (25e9, 50e9), "copy memory": (12e9, 20e9),
        "stream memory": (12e9, 20e9), "chain f32": (0.75e9, 1.5e9),
        "line L2": (4e8, 8e8), "line L3": (1e8, 2e8), "line memory": (4e7, 8e7),
        "gather L1": (1e9, 2e9), "transpose f32": (6e9, 12e9), "merge i32": (1e9, 2e9),
        "product f32": (60e9, 120e9), "product f64": (30e9, 60e9), "step f32": (36e9, 72e9), "exp f32": (1.5e9, 3e9),
        "launch": (3e6, 4e5),
    },
)  # fmt: skip


def figures() -> Figures:
    """Those of this processor, where they were measured, else `USUAL`. TESSERA_FIGURES=usual gives these always."""
    if knobs.figures() == "usual":
        return USUAL
    path = _path()
    try:
        about = os.stat(path)
    except OSError:
        return _unwritten.get(path, USUAL)
    return _kept(path, about.st_mtime_ns, about.st_ino)


_unwritten: dict[Path, Figures] = {}
"""those of this process that could not be written"""


@cache
def _kept(path: Path, *version: int) -> Figures:
    """What the file says; another version of it is read again."""
    return _read(path) or USUAL


def _read(path: Path) -> Figures | None:
    """None for a file that is damaged, or of another processor."""
    try:
        value: dict[str, Any] = read_record(path, _what())
        rates = {str(k): (float(one), float(together)) for k, (one, together) in value["rates"].items()}
        first, second, last = map(int, value["caches"])
        found = Figures(
            str(value["processor"]),
            int(value["threads"]),
            (first, second, last),
            int(value["vector"]),
            rates,
            float(value["when"]),
            float(value["waited"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    whole = set(USUAL.rates) <= set(rates) and all(0 < r < float("inf") for pair in rates.values() for r in pair)
    return found if whole else None


def keep(found: Figures) -> Figures:
    """Keeps figures, with what was better before; gives them together. A folder that cannot be written costs another
    measurement, nothing else."""
    path = _path()
    before = _read(path)
    best = found.with_best_of(before) if before is not None else found
    value = {
        "processor": best.processor, "threads": best.threads, "caches": best.caches, "vector": best.vector,
        "rates": dict(best.rates), "when": best.when, "waited": best.waited,
    }  # fmt: skip
    if not write_record(path, _what(), value):
        _unwritten[path] = best
    return best


def _path() -> Path:
    return knobs.cache_dir() / f"processor-{hashlib.sha256(_what().encode()).hexdigest()[:16]}.json"


@cache
def _what() -> str:
    """The processor, what it can do, and how much of it may be used."""
    model, features = _cpu_info()
    return f"figures of {model}, {cores()} threads, features {features}, schema {_SCHEMA}"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Its name, as the system tells it."""
    return _cpu_info()[0]


@cache
def _cpu_info() -> tuple[str, str]:
    """The name of the processor, and a digest of its features."""
    known: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            known.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    features = known.get("flags") or known.get("Features", "")
    model = known.get("model name") or platform.processor() or platform.machine()
    return model, hashlib.sha256(features.encode()).hexdigest()[:8]


@cache
def _cache_bytes(level: int) -> int:
    """Bytes of the first core's data cache of this level, as Linux reports it; 0: not known."""
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if int((folder / "level").read_text()) == level and (folder / "type").read_text().strip() != "Instruction":
                size = (folder / "size").read_text().strip()
                return int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return 0


def cached_bytes(caches: tuple[int, int, int]) -> int:
    """What larger results are not kept in: four second-level caches, or half of the last one where that is more."""
    return max(4 * caches[1], caches[2] // 2)


def caches() -> tuple[int, int, int]:
    """Bytes of the first two caches of a core, and of the last one; usual sizes where the system does not tell."""
    first, second, last = map(_cache_bytes, (1, 2, 3))
    return first or USUAL.caches[0], second or USUAL.caches[1], last
