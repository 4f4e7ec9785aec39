"""Figures that no run can have are not known: a count that is no number, a time before the one that it started at.

They come from counters that say NaN, and from clocks that wrapped. A wrong figure would be worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tessera.language.lazy import np
from tessera.runtime.events import LaunchEvent

DAY = 86_400 * 10**9
"""ns: a record so long before or after its region is of a clock that wrapped"""
_COUNTS = ("flops", "bytes", "duration")


def plausible(event: LaunchEvent) -> LaunchEvent:
    """The launch without figures that cannot be; `unavailable` says what they were."""
    wrong = {name: value for name in _COUNTS if not _is_count(value := getattr(event, name))}
    if not -DAY * 365 * 200 < event.start < DAY * 365 * 200:
        wrong["duration"] = event.duration
    odd = {n: v for n, v in event.attributes.items() if isinstance(v, float) and not math.isfinite(v)}
    if not wrong and not odd:
        return event
    why = {
        name: "its clock wrapped or ran backwards" if name == "duration" else f"what was counted is {value}"
        for name, value in {**wrong, **odd}.items()
    }
    kept: Mapping[str, Any] = {n: v for n, v in event.attributes.items() if n not in odd}
    return replace(event, **dict.fromkeys(wrong), attributes=kept, unavailable={**event.unavailable, **why})


def _is_count(value: Any) -> bool:
    return value is None or (math.isfinite(value) and value >= 0)


def plausible_records(records: np.ndarray, start: int, end: int) -> np.ndarray:
    """The tile records whose times can be, of a region from `start` to `end`."""
    first, last = max(start - DAY, -(2**62)), min(max(end, start) + DAY, 2**62)
    took = records["duration"].astype(np.int64)
    fine = (took >= 0) & (took < DAY) & (records["start"] >= first) & (records["start"] <= last)
    return records if fine.all() else records[fine]
