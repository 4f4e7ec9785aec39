"""What functions took when they were last profiled: the measured counterpart of the cost model.

The profiler writes one small JSON file for each source file into the cache folder; editors read it as data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tessera import knobs

_SCHEMA = 2


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
    path = _path(file)
    known = {name: asdict(m) for name, m in (last(file) | dict(functions)).items()}
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"schema": _SCHEMA, "file": file, "functions": known}), encoding="utf-8")
        temporary.replace(path)


def last(file: str) -> dict[str, Measured]:
    """Function -> what it took; empty where nothing has been measured, or the record cannot be read."""
    try:
        document = json.loads(_path(file).read_text(encoding="utf-8"))
        if document["schema"] != _SCHEMA or document["file"] != file:
            return {}
        return {
            name: Measured(
                int(m["ns"]), int(m["launches"]), str(m["target"]), float(m["when"]), str(m["text"]), dict(m["sizes"])
            )
            for name, m in document["functions"].items()
        }
    except (OSError, ImportError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _path(file: str) -> Path:
    return knobs.cache_dir() / "profiles" / f"{hashlib.sha256(file.encode()).hexdigest()[:16]}.json"
