"""Giving rows to intervals: residency slots for co-resident tiles, and lanes in which slices nest."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tessera.runtime.events import UNASSIGNED

if TYPE_CHECKING:
    import numpy as np


def partition_intervals(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Assigns each interval the lowest row that is free at its start, so that rows never overlap.

    Uses as many rows as intervals overlap at most, which is optimal (Kleinberg and Tardos, Algorithm Design, 4.1).
    An interval may begin where another ends. Returns one row index per interval.
    """
    import numpy as np

    rows = np.zeros(len(start), np.int64)
    busy: list[tuple[int, int]] = []  # (end, row)
    free: list[int] = []
    opened = 0
    order = np.lexsort((end, start))
    for index, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, opened = opened, opened + 1
        rows[index] = row
        heapq.heappush(busy, (finish, row))
    return rows


def tile_extents(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merges the phases of each tile: (extents, membership).

    `extents` has the records' dtype with one row per tile and place, from the first phase's start to the last one's
    end; `membership[i]` is the row that record i belongs to.
    """
    import numpy as np

    if len(records) == 0:
        return records.copy(), np.zeros(0, np.int64)
    keys = ("slot", "resource", "tile", "launch", "device", "rank")
    order = np.lexsort((records["start"], *(records[key] for key in keys)))
    ordered = records[order]
    first = np.ones(len(records), bool)
    first[1:] = np.logical_or.reduce([ordered[key][1:] != ordered[key][:-1] for key in keys])
    heads = np.flatnonzero(first)
    extents = ordered[heads].copy()
    ends = np.maximum.reduceat(ordered["start"] + ordered["duration"], heads)
    extents["duration"] = ends - extents["start"]
    membership = np.empty(len(records), np.int64)
    membership[order] = np.cumsum(first) - 1
    return extents, membership


def assign_slots(records: np.ndarray) -> np.ndarray:
    """Returns `records` with every `UNASSIGNED` slot filled in; slots that the target recorded are kept.

    Tiles without a slot are laid out per (rank, device, resource), above the recorded ones, so that tiles which were
    resident together stand on different slots.
    """
    import numpy as np

    missing = np.flatnonzero(records["slot"] == UNASSIGNED)
    if len(missing) == 0:
        return records
    result = records.copy()
    extents, membership = tile_extents(records[missing])
    places = np.unique(extents[["rank", "device", "resource"]])
    slots = np.empty(len(extents), np.int64)
    for place in places:
        here = extents[["rank", "device", "resource"]] == place
        known = records[["rank", "device", "resource"]] == place
        base = int(records["slot"][known].max(initial=UNASSIGNED)) + 1
        start = extents["start"][here]
        slots[here] = base + partition_intervals(start, start + extents["duration"][here])
    result["slot"][missing] = slots[membership]
    return result


def nesting_lanes(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Assigns lanes so that within a lane two intervals are either disjoint or one contains the other.

    Each interval takes the lowest lane where it fits. Intervals that already nest all get lane 0. Traces need this:
    slices of one thread are drawn as a stack.
    """
    import numpy as np

    lanes = np.zeros(len(start), np.int64)
    stacks: list[list[int]] = []  # per lane: ends of the open intervals, outermost first
    order = np.lexsort((np.arange(len(start)), -end, start))
    for index, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        for stack in stacks:
            while stack and stack[-1] <= begin:
                stack.pop()
        lane = next((lane for lane, stack in enumerate(stacks) if not stack or finish <= stack[-1]), len(stacks))
        if lane == len(stacks):
            stacks.append([])
        stacks[lane].append(finish)
        lanes[index] = lane
    return lanes
