"""What functions took when they were last profiled: the measured counterpart of the cost model.

The profiler writes one small JSON file for each source file into the cache folder; editors read it as data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tessera import knobs
from tessera.files import read_record, write_record

_SCHEMA = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """All launches of a function during one profile: their time in ns, and when it was (seconds since the epoch).

    `text` is the digest of the source file at that time, `sizes` what its dims were: None where launches differ in one.
    """

    ns: int
    launches: int
    target: str
    when: float
    text: str
    sizes: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])


def common(sizes: Iterable[Mapping[str, int]]) -> dict[str, int | None]:
    """The sizes of several launches as one: None for a dim in which they differ."""
    found: dict[str, int | None] = {}
    for each in sizes:
        found = {name: size if found.get(name, size) == size else None for name, size in {**found, **each}.items()}
    return found


def sizes_text(sizes: Mapping[str, int | None]) -> str:
    """`B=8, S=D=1024, several N`; empty where there are none."""
    alike: dict[int | None, list[str]] = {}
    for name, size in sizes.items():
        alike.setdefault(size, []).append(name)
    several = alike.pop(None, [])
    said = ["=".join([*names, str(size)]) for size, names in alike.items()]
    return ", ".join([*said, *(f"several {name}" for name in several)])


def digest(text: str) -> str:
    """Of a source file: whether it is still the one that was measured."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def record(file: str, functions: Mapping[str, Measured]) -> None:
    """Replaces what is known of these functions. A folder that cannot be written costs the record, nothing else."""
    write_record(_path(file), _what(file), {name: asdict(m) for name, m in (last(file) | dict(functions)).items()})


def last(file: str) -> dict[str, Measured]:
    """Function -> what it took; empty where nothing has been measured, or the record cannot be read."""
    try:
        found: dict[str, Any] = read_record(_path(file), _what(file)) or {}
        return {name: Measured(**m) for name, m in found.items()}
    except (ImportError, ValueError, TypeError, AttributeError):
        return {}


def _what(file: str) -> str:
    return f"profile of {file}, schema {_SCHEMA}"


def _path(file: str) -> Path:
    return knobs.cache_dir() / "profiles" / f"{hashlib.sha256(file.encode()).hexdigest()[:16]}.json"
