"""The block sizes that the kernels of a run had, as `.sched` files: what a tuning found, to keep beside the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tessera.compiler.predict import sizes_text
from tessera.errors import TesseraError
from tessera.language.schedule import Schedule
from tessera.language.tuning import is_plain
from tessera.profiler.recording import Recording


def schedules(recording: Recording) -> dict[str, Schedule]:
    """By the name of the file to be: that of the kernel, and the sizes too where one kernel had several schedules. The
    schedule that took most time comes first, and has the name alone.

    Kernels whose blocks are numbers in their text, and functions without a schedule, have none.
    """
    took: dict[str, dict[Schedule, int]] = {}
    sizes: dict[tuple[str, Schedule], Mapping[str, int]] = {}
    for launch in recording.launches:
        config: Mapping[str, Any] = launch.attributes.get("config", {})
        name = str(launch.attributes.get("function", launch.kernel))
        if config and all(map(is_plain, config.values())):
            schedule = Schedule(name).from_config(config)
            each = took.setdefault(name, {})
            each[schedule] = each.get(schedule, 0) + (launch.duration or 0)
            sizes.setdefault((name, schedule), launch.attributes.get("sizes", {}))
    found: dict[str, Schedule] = {}
    for name, each in took.items():
        ranked = sorted(each, key=lambda schedule: -each[schedule])
        for place, schedule in enumerate(ranked):
            of = sizes_text(sizes[name, schedule]).replace(" ", "")
            key = f"{name}-{of}" if place else name
            found[key if key not in found else f"{key}-{place}"] = schedule
    return found


def export_schedules(recording: Recording, folder: Path) -> Path:
    """Writes `NAME.sched` for each of them into `folder`, which is made where it is missing; gives the folder.

    Raises TesseraError TS703 where the run had none.
    """
    found = schedules(recording)
    if not found:
        message = "no kernel of this profile has block sizes that a schedule could set: make them parameters of "
        raise TesseraError(f"{message}@ts.kernel, or apply a ts.Schedule", code="TS703")
    folder.mkdir(parents=True, exist_ok=True)
    for name, schedule in found.items():
        schedule.save(folder / f"{name}.sched")
    return folder
