"""What tile records tell about one launch: load balance, tail, waves, occupancy over time, phases, histogram.

Times are ns. A lane is one residency slot of one resource: the machine runs as many tiles at once as it has lanes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.language.lazy import np
from tessera.runtime.events import UNASSIGNED, LaunchEvent, TileBatch

# Tile times whose 95th percentile is within this factor of the median count as equal.
_UNIFORM = 1.25
# A tile this many times the median is long enough to make a tail by itself.
_LONG = 2.0


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly a launch used its lanes. `makespan` runs from the first tile's start to the last one's end."""

    tiles: int
    resources: int
    slots: int
    makespan: int
    load: int
    """sum of all tile times"""
    median: float
    longest: int
    tail: int
    """from the moment the first lane has nothing left to do until the end"""
    tail_idle: float
    """part of the lanes' time that is lost in the tail, 0..1"""
    starved: float = 0.0
    """part of the lanes' time in which a lane ran nothing although it could have taken tiles, 0..1: it had no
    processor. 0 where lanes have fixed shares"""

    @property
    def lanes(self) -> int:
        return self.resources * self.slots

    @property
    def idle(self) -> float:
        """Part of the lanes' time in which no tile ran, 0..1."""
        return 1.0 - self.load / (self.lanes * self.makespan) if self.makespan else 0.0

    @property
    def waves(self) -> float:
        """Tiles per lane: the last wave is full when this is a whole number."""
        return self.tiles / self.lanes

    @property
    def wave_loss(self) -> float:
        """Part of the lanes that the last wave leaves empty, over all waves, if all tiles took the same time."""
        return 1.0 - self.waves / math.ceil(self.waves) if self.tiles else 0.0

    @property
    def saving(self) -> tuple[int, int]:
        """Time that better balance saves, as (low, high) in ns.

        High: every lane gets the mean load. Low: tiles are cut in half and handed out as lanes become free, which
        finishes within mean load + (1 - 1/lanes) x longest tile (Graham 1969). A lane without a processor stays one.
        """
        mean = self.load / self.lanes + self.starved * self.makespan
        greedy = mean + (1 - 1 / self.lanes) * self.longest / 2
        return max(0, round(self.makespan - greedy)), max(0, round(self.makespan - mean))


@dataclass(frozen=True, slots=True)
class PhaseStats:
    """Durations of one phase over the tiles of a recording or a launch, in ns."""

    phase: str
    count: int
    total: int
    mean: float
    median: float
    p95: float
    longest: int
    lines: tuple[int, ...]
    """of its records; 0 is not known"""


def balance(launch: LaunchEvent, tiles: TileBatch) -> Balance | None:
    """Load balance of one launch from its tile records; None without records, where some had no room, or where tiles
    are about as short as the steps of the clock: see `too_short`."""
    if len(tiles) == 0:
        return None
    extents, _ = tile_extents(tiles.records)
    if launch.attributes.get("dropped") and len(extents) < launch.tiles:
        return None
    if too_short(launch, tiles):
        return None
    start, end = extents["start"], extents["start"] + extents["duration"]
    first, last = int(start.min()), int(end.max())
    resources = max(int(launch.attributes.get("resources", 0)), len(np.unique(extents["resource"])))
    slots = max(int(launch.attributes.get("slots", 0)), int(extents["slot"].max()) + 1)
    _, lane = numbered([extents["resource"], extents["slot"]])
    finished = np.zeros(lane.max() + 1, np.int64)
    np.maximum.at(finished, lane, end)
    unused = resources * slots - len(finished)  # lanes that never got a tile are finished from the beginning
    makespan = last - first
    lost = int((last - finished).sum()) + unused * makespan
    return Balance(
        tiles=len(extents),
        resources=resources,
        slots=slots,
        makespan=makespan,
        load=int(extents["duration"].sum()),
        median=float(np.median(extents["duration"])),
        longest=int(extents["duration"].max()),
        tail=makespan if unused else last - int(finished.min()),
        tail_idle=lost / (resources * slots * makespan) if makespan else 0.0,
        starved=_starved(launch, extents, resources * slots) / makespan if makespan else 0.0,
    )


STEPS = 4
"""of the clock that the median tile lasts at least, where anything is said of how tiles differ"""


def too_short(launch: LaunchEvent, tiles: TileBatch) -> bool:
    """Whether a GPU's clock is too coarse for the launch's tiles: their times differ by its steps."""
    step = int(launch.attributes.get("clock_ns", 0))
    if step <= 1 or not len(tiles):
        return False
    return float(np.median(tile_extents(tiles.records)[0]["duration"])) < STEPS * step


def _starved(launch: LaunchEvent, extents: np.ndarray, lanes: int) -> float:
    """ns, the mean of the lanes, that they ran nothing before the last tiles were taken."""
    parts = int(launch.attributes.get("taken", 0))
    if not parts:
        return 0.0
    each = max(1, -(-launch.tiles // parts))
    _, part = numbered([extents["tile"] // each])
    begun = np.full(int(part.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begun, part, extents["start"])
    first, last = int(extents["start"].min()), int(begun.max())
    ran = np.clip(extents["start"] + extents["duration"], None, last) - np.clip(extents["start"], None, last)
    return max(0.0, last - first - float(ran.sum()) / lanes)


def imbalance_cause(found: Balance, tiles: TileBatch) -> str:
    """What the idle lanes come from: "underfilled", "starved", "wave quantisation", "tail" or "imbalance"."""
    extents, _ = tile_extents(tiles.records)
    if found.tiles < found.lanes:
        return "underfilled"
    if found.starved >= found.idle / 2 > 0:
        return "starved"
    uniform = float(np.quantile(extents["duration"], 0.95)) <= _UNIFORM * found.median
    if uniform and found.wave_loss >= found.idle / 2:
        return "wave quantisation"
    explains = 2 * found.longest >= found.tail  # else it is no single tile that the others wait for
    if found.longest >= _LONG * found.median and explains and found.tail_idle >= found.idle / 2:
        return "tail"
    return "imbalance"


def occupancy(extents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tiles in flight over time as a step function: (times, counts); counts[i] holds from times[i] to times[i + 1]."""
    start, end = np.sort(extents["start"]), np.sort(extents["start"] + extents["duration"])
    times = np.sort(np.concatenate([start, end]), kind="stable")
    times = times[np.diff(times, prepend=times[:1] - 1) != 0]
    return times, start.searchsorted(times, "right") - end.searchsorted(times, "right")


def phase_stats(tiles: TileBatch) -> list[PhaseStats]:
    """One entry per phase that occurs, longest total first."""
    found = []
    for index, name in enumerate(tiles.phases):
        duration = tiles.records["duration"][tiles.records["phase"] == index]
        if len(duration):
            median, p95 = np.quantile(duration, [0.5, 0.95])
            found.append(
                PhaseStats(
                    name,
                    len(duration),
                    int(duration.sum()),
                    float(duration.mean()),
                    float(median),
                    float(p95),
                    int(duration.max()),
                    tuple(np.unique(tiles.records["line"][tiles.records["phase"] == index]).tolist()),
                )
            )
    return sorted(found, key=lambda entry: -entry.total)


def about_phases(launch: LaunchEvent) -> str:
    """What the phases of its tiles count, where its target says so."""
    return str(launch.attributes.get("phases", ""))


def histogram(records: np.ndarray, bins: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Tile durations, all phases of a tile together: (counts, edges in ns)."""
    extents, _ = tile_extents(records)
    return np.histogram(extents["duration"], bins=bins)


def busy_map(records: np.ndarray, rows: np.ndarray, row_count: int, start: int, end: int, bins: int) -> np.ndarray:
    """Tiles in flight, averaged over each of `bins` time slices: an array (row_count, bins).

    `rows[i]` is the row that record i belongs to. Exact: a record counts in a slice by the part it covers.
    """
    width = max(end - start, 1) / bins
    left = np.clip((records["start"] - start) / width, 0, bins)
    right = np.clip((records["start"] + records["duration"] - start) / width, 0, bins)
    covered = np.zeros((row_count, bins + 2))
    # The integral of a box [left, right) is a ramp: differences of ramps at slice borders give the covered parts.
    for edge, sign in ((left, 1.0), (right, -1.0)):
        cell = np.minimum(edge.astype(np.int64), bins)
        inside = edge - cell
        np.add.at(covered, (rows, cell), sign * (1 - inside))
        np.add.at(covered, (rows, cell + 1), sign * inside)
    return np.cumsum(covered, axis=1)[:, :bins]


# Giving rows to intervals: residency slots for co-resident tiles, and lanes in which slices nest.


def partition_intervals(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Assigns each interval the lowest row that is free at its start, so that rows never overlap.

    Uses as many rows as intervals overlap at most, which is optimal (Kleinberg and Tardos, Algorithm Design, 4.1).
    An interval may begin where another ends. Returns one row index per interval.
    """
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
    if len(records) == 0:
        return records.copy(), np.zeros(0, np.int64)
    keys = ("slot", "resource", "tile", "launch", "device", "rank")
    first, membership = numbered([records[key] for key in reversed(keys)])
    if len(first) == len(records):  # every tile has one phase
        return records[first], membership
    ordered = records[np.lexsort((records["start"], membership))]
    heads = np.concatenate([[0], np.cumsum(np.bincount(membership))[:-1]])
    extents = ordered[heads]
    ends = np.maximum.reduceat(ordered["start"] + ordered["duration"], heads)
    extents["duration"] = ends - extents["start"]
    return extents, membership


def numbered(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of columns of whole numbers, equal ones as one: (index of the first of each, number of each row).

    They are counted in the order of their values.
    """
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:  # as the digits of one number: far quicker to sort than rows
        low = int(column.min()) if len(column) else 0
        extent = int(column.max()) - low + 1 if len(column) else 1
        if size * extent > 1 << 62:
            key, column, low = *(np.unique(c, return_inverse=True)[1] for c in (key, column)), 0
            size, extent = (int(c.max()) + 1 for c in (key, column))
        key, size = key * extent + (column.astype(np.int64) - low), size * extent
    if size <= 4 * len(key):
        occurs = np.zeros(size, bool)
        occurs[key] = True
        row = (np.cumsum(occurs) - 1)[key]
    else:
        row = np.unique(key, return_inverse=True)[1]
    first = np.empty(int(row.max(initial=-1)) + 1, np.int64)
    first[row[::-1]] = np.arange(len(row))[::-1]  # of several the first, which is stored last
    return first, row


def assign_slots(records: np.ndarray) -> np.ndarray:
    """Returns `records` with every `UNASSIGNED` slot filled in; slots that the target recorded are kept.

    Tiles without a slot are laid out per (rank, device, resource), above the recorded ones, so that tiles which were
    resident together stand on different slots.
    """
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
    lanes = np.zeros(len(start), np.int64)
    order = np.lexsort((np.arange(len(start)), -end, start))
    if _nest(start[order], end[order]):
        return lanes
    stacks: list[list[int]] = []  # per lane: ends of the open intervals, outermost first
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


def _nest(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether intervals, in order of start and the longer first, nest: each ends before the one ends that is open."""
    if (end[:-1] <= start[1:]).all():
        return True
    brief = np.concatenate([[0], np.cumsum(end == start)[:-1]])  # those without length among the earlier ones
    depth = np.arange(len(start)) - brief - np.sort(end[end > start]).searchsorted(start, "right")
    inside = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max()) + 1):
        outside, inside = inside, np.flatnonzero(depth == level)
        if (end[inside] > end[outside[outside.searchsorted(inside) - 1]]).any():
            return False
    return True
