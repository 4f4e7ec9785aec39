"""What a device can do at most: the ceilings of the roofline, measured once and kept in the cache folder."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tessera import knobs
from tessera.compiler.targets.base import PLATFORMS
from tessera.files import read_record, write_record
from tessera.profiler.quantity import Quantity
from tessera.runtime.events import Source
from tessera.runtime.locks import Locked

_SCHEMA = 2
# One for each platform. It has `identity(index)`, what a measurement holds for, None where it keeps its measurements
# itself, and `measure(device, index, again)`.
_MEASURERS = {platform: f"tessera.profiler.measure.{platform}" for platform in PLATFORMS}


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One limit. `kind` is "bandwidth" (B/s; `name` is the memory level) or "compute" (FLOP/s; `name` is the dtype).

    `value` is the best that was ever measured.
    """

    kind: str
    name: str
    value: float
    source: Source
    how: str

    @property
    def unit(self) -> str:
        return "B/s" if self.kind == "bandwidth" else "FLOP/s"


@dataclass(frozen=True, slots=True)
class DeviceCeilings:
    """The ceilings of one device. `threads` counts workers or SMs, `cache_bytes` is each one's share of fast cache."""

    device: str
    name: str
    threads: int
    cache_bytes: int
    ceilings: tuple[Ceiling, ...] = ()
    reason: str = ""
    """why there are no ceilings, when there are none"""
    last_cache_bytes: int = 0
    """the last cache, which all share: what fits in it need not come from memory"""

    def ceiling(self, kind: str, name: str) -> Quantity:
        """One ceiling as a quantity; None with a reason where it was not measured."""
        for ceiling in self.ceilings:
            if (ceiling.kind, ceiling.name) == (kind, name):
                return Quantity(ceiling.value, ceiling.unit, ceiling.source)
        unit = "B/s" if kind == "bandwidth" else "FLOP/s"
        return Quantity(None, unit, reason=self.reason or f"no {name} {kind} ceiling was measured on {self.name}")

    def raised(self, kind: str, name: str, value: float, how: str) -> DeviceCeilings:
        """With one ceiling at least at `value`: what was reached can be reached."""
        higher = (
            replace(c, value=value, how=how) if (c.kind, c.name) == (kind, name) and c.value < value else c
            for c in self.ceilings
        )
        return replace(self, ceilings=tuple(higher))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DeviceCeilings:
        """Raises KeyError, TypeError or ValueError when `data` is not what `to_json` gives."""
        ceilings = ({k: v for k, v in ceiling.items() if k != "spread"} for ceiling in data["ceilings"])  # of old files
        machine = cls(**{**data, "ceilings": tuple(Ceiling(**ceiling) for ceiling in ceilings)})
        if not all(ceiling.value > 0 for ceiling in machine.ceilings):
            raise ValueError("a ceiling must be positive")
        return machine


_measuring = Locked()


@cache
def machine_for(device: str) -> DeviceCeilings:
    """The ceilings of `device` ("cpu:0", "cuda:1"), from the cache folder or measured now.

    A device that cannot be measured gives a Machine without ceilings and with a reason; nothing is raised.
    """
    kind, _, index = device.partition(":")
    measurer = _MEASURERS.get(kind)
    if measurer is None:
        return DeviceCeilings(device, kind, 0, 0, reason=f"no ceilings are known for {kind}")
    try:
        with _measuring.lock:  # measurements at the same time would measure each other
            return _kept_or_measured(measurer, device, int(index or 0))
    except Exception as error:  # no CuPy, no driver, no such device, not enough memory: views then draw no roofs
        return DeviceCeilings(device, kind, 0, 0, reason=f"{device} cannot be measured here: {type(error).__name__}")


@cache
def measured_again(device: str) -> DeviceCeilings:
    """The ceilings of `device` measured once more, once a process, the best of both kept: for a kernel that beat them.

    A measurement falls short when something else runs at the time, and what falls short is kept for long.
    """
    known = machine_for(device)
    kind, _, index = device.partition(":")
    if not known.ceilings:
        return known
    try:
        with _measuring.lock:
            return _kept_or_measured(_MEASURERS[kind], device, int(index or 0), known)
    except Exception:  # as for the first measurement
        return known


def _kept_or_measured(measurer: str, device: str, index: int, before: DeviceCeilings | None = None) -> DeviceCeilings:
    module = importlib.import_module(measurer)
    identity: tuple[Any, ...] | None = module.identity(index)
    name = hashlib.sha256(repr((_SCHEMA, *(identity or ()))).encode()).hexdigest()[:16]
    path = knobs.cache_dir() / f"ceilings-{name}.json" if identity is not None else None
    machine = load_machine(path) if before is None and path is not None else None
    if machine is None:
        machine = module.measure(device, index, before is not None)
        for c in before.ceilings if before is not None else ():
            machine = machine.raised(c.kind, c.name, c.value, c.how)
        if path is not None:
            save_machine(path, machine)
    return replace(machine, device=device)  # equal devices share one file


def save_machine(path: Path, machine: DeviceCeilings) -> None:
    """A folder that cannot be written costs a measurement next time, nothing else."""
    write_record(path, _what(path), machine.to_json())


def load_machine(path: Path) -> DeviceCeilings | None:
    """Reads what `save_machine` wrote; None when the file is absent, damaged, of another schema or another machine."""
    try:
        return DeviceCeilings.from_json(read_record(path, _what(path)))
    except (ValueError, KeyError, TypeError):
        return None


def _what(path: Path) -> str:
    """The name tells the machine."""
    return f"{path.name}, schema {_SCHEMA}"
