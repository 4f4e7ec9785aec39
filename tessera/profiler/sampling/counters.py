"""Counters of the processor and the system over a region: cycles, instructions, cache misses, faults, switches.

The system's own counts need no permission. Those of the processor come from Linux (`perf_event_open`), for the code of
this process on all of its threads; a virtual machine or the setting `kernel.perf_event_paranoid` may withhold them,
and then each figure says why it is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tessera.profiler.quantity import Quantity

HARDWARE = {"cycles": 0, "instructions": 1, "last-level cache misses": 3}
"""of perf_event_attr's type 0, and their numbers there"""
SYSTEM = ("page faults", "waits for something else", "interruptions by other programs")
_CALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES, _READ_TIMES, _INHERIT, _NO_KERNEL = 112, 0x3, 1 << 1, 1 << 5 | 1 << 6


@dataclass(slots=True)
class Counters:
    """What was counted between `start` and `stop`. `figures`: by name; None with the reason where it is not known."""

    figures: dict[str, Quantity] = field(default_factory=dict[str, Quantity])

    def __str__(self) -> str:
        known = [f"{q.value:,.0f} {name}" for name, q in self.figures.items() if q.value is not None and q.unit == ""]
        if (seconds := self.figures.get("processor time")) is not None:
            known.insert(0, f"{seconds} of the processors".replace(" (measured)", ""))
        missing: dict[str, list[str]] = {}
        for name, q in self.figures.items():
            if q.value is None:
                missing.setdefault(q.reason, []).append(name)
        lines = [f"Counters: {', '.join(known) or 'none'}"]
        return "\n".join(lines + [f"  not available: {', '.join(names)} ({why})" for why, names in missing.items()])

    __repr__ = __str__


class OpenCounters:
    """Counts from when it is made until `stop`, on all threads."""

    def __init__(self) -> None:
        self._open: dict[str, list[int]] = {}
        self._missing: dict[str, str] = {}
        for name, number in HARDWARE.items():
            found: list[int] = []
            try:
                for thread in _threads():
                    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                        found.append(_opened(number, thread))
                self._open[name] = found
            except OSError as e:
                self._missing[name] = _why(e)
                for descriptor in found:
                    os.close(descriptor)
        self._before = _system()

    def stop(self) -> Counters:
        """Ends counting."""
        after, found = _system(), dict[str, Quantity]()
        found["processor time"] = Quantity((after["processor time"] - self._before["processor time"]) * 1e9, "ns")
        for name, number in after.items():
            if name != "processor time":
                found[name] = Quantity(number - self._before[name], "")
        for name in HARDWARE:
            if name in self._open:
                found[name] = _read(self._open.pop(name))
            else:
                found[name] = Quantity(None, "", reason=self._missing.get(name, "it was not counted"))
        return Counters(found)


def to_json(counters: Counters) -> dict[str, list[object]]:
    """For a file: value, unit, reason of each."""
    return {name: [q.value, q.unit, q.reason] for name, q in counters.figures.items()}


def from_json(entry: Mapping[str, list[object]]) -> Counters:
    """Raises ValueError or TypeError for what `to_json` did not write."""
    found: dict[str, Quantity] = {}
    for name, (value, unit, reason) in entry.items():
        number = None if value is None else float(value)  # type: ignore[arg-type]
        found[str(name)] = Quantity(number, str(unit), "measured", str(reason))
    return Counters(found)


def _system() -> dict[str, float]:
    found = {"processor time": time.process_time()}
    if sys.platform != "win32":
        import resource  # optional: Unix has it

        used = resource.getrusage(resource.RUSAGE_SELF)
        found |= zip(SYSTEM, (used.ru_minflt + used.ru_majflt, used.ru_nvcsw, used.ru_nivcsw), strict=True)
    return found


def _threads() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return [0]


def _opened(number: int, thread: int) -> int:
    """A counter of one thread and those that it starts, without what the kernel does for it. Raises OSError."""
    call = _CALL.get(platform.machine().lower())
    if not sys.platform.startswith("linux") or call is None:
        raise OSError(0, "only Linux on x86-64 and AArch64 is asked for them")
    flags = _INHERIT | _NO_KERNEL
    about = struct.pack("=IIQQQQQ", 0, _ATTRIBUTE_BYTES, number, 0, 0, _READ_TIMES, flags)
    block = ctypes.create_string_buffer(about.ljust(_ATTRIBUTE_BYTES, b"\0"), _ATTRIBUTE_BYTES)
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.syscall(call, block, thread, -1, -1, 1 << 3)  # closed in a child process
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(descriptor)


def _read(descriptors: list[int]) -> Quantity:
    """The sum of all; each stands for the whole time also where it had to share the processor's counters."""
    total = 0.0
    try:
        for descriptor in descriptors:
            count, enabled, running = struct.unpack("=QQQ", os.read(descriptor, 24))
            total += count * enabled / running if running else 0.0
    except (OSError, struct.error) as e:
        return Quantity(None, "", reason=f"it could not be read: {e}")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return Quantity(total, "")


def _why(error: OSError) -> str:
    """For people: what to do where something can be done."""
    if error.errno in (1, 13):  # EPERM, EACCES
        try:
            level = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
        except OSError:
            level = "unknown"
        return f"not permitted; kernel.perf_event_paranoid is {level}, and has to be 2 or less"
    if error.errno in (2, 19, 95):  # ENOENT, ENODEV, EOPNOTSUPP
        return "this machine, perhaps a virtual one, has no such counter"
    return error.strerror or str(error)
