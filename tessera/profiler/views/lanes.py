"""The tiles of a recording on the lanes that they ran on, ready to be drawn."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.language.lazy import np
from tessera.profiler.balance import numbered
from tessera.profiler.kernel_stats import without_copy
from tessera.profiler.recording import Recording
from tessera.profiler.style import RESOURCE_NAMES
from tessera.runtime.events import LaunchEvent

MOST_BARS = 2000
"""that Plotly draws at once"""


@dataclass(frozen=True, slots=True)
class Bars:
    """Tile records made ready to be drawn: one entry per record; times in ns from the first record's start."""

    start: np.ndarray
    duration: np.ndarray
    row: np.ndarray
    """index into `rows`"""
    group: np.ndarray
    """index into `groups`"""
    tile: np.ndarray
    line: np.ndarray
    launch: np.ndarray
    """index into `launches`"""
    rows: list[str]
    groups: list[str]
    """what colours stand for: the kernels, equal ones as one; the phases where a single kernel ran. The longest in
    all first"""
    launches: list[str]
    """kernel and how its times were obtained"""
    events: list[LaunchEvent | None]
    """the launches themselves, as far as they are known"""

    @property
    def span(self) -> int:
        return int((self.start + self.duration).max(initial=1))

    def within(self, window: tuple[int, int]) -> np.ndarray:
        """Indices of the bars to draw in `window`: those that reach into it, the longest if they are too many."""
        found = np.flatnonzero((self.start < window[1]) & (self.start + self.duration > window[0]))
        if len(found) > MOST_BARS:
            found = np.sort(found[np.argsort(self.duration[found], kind="stable")[-MOST_BARS:]])
        return found


def bars_of(recording: Recording, whole: bool = False) -> Bars:
    """The tile records of a recording as bars, rows in order of rank, device, resource and slot.

    `whole`: all phases of a tile as one bar.
    """
    tiles = recording.tiles
    records = recording.extents[0] if whole else tiles.records
    by_id = {launch.launch: launch for launch in recording.launches}
    ids, launch = np.unique(records["launch"], return_inverse=True)
    launches = [by_id.get(number) for number in ids.tolist()]
    rows, row = _rows(records, launch, launches)
    kernels = [without_copy(event.title) if event else "unknown kernel" for event in launches]
    phases = len(set(kernels)) == 1 and not whole  # of a single kernel, colours can tell the phases apart
    names = [[phase if phases and phase != "tile" else kernel for phase in tiles.phases] for kernel in kernels]
    used = np.unique(launch * len(tiles.phases) + records["phase"])
    used = [divmod(pair, len(tiles.phases)) for pair in used.tolist()]
    groups = list(dict.fromkeys(names[of][phase] for of, phase in used))
    table = np.zeros((len(launches), len(tiles.phases)), np.int64)
    for of, phase in used:
        table[of, phase] = groups.index(names[of][phase])
    group = table[launch, records["phase"]]
    ranked = np.argsort(-np.bincount(group, records["duration"], len(groups)), kind="stable")  # the longest first
    return Bars(
        start=records["start"] - records["start"].min(initial=records["start"][0] if len(records) else 0),
        duration=records["duration"],
        row=row,
        group=np.argsort(ranked)[group],
        tile=records["tile"],
        line=records["line"],
        launch=launch,
        rows=rows,
        groups=[groups[i] for i in ranked.tolist()],
        launches=[f"{event.title} ({event.source})" if event else "unknown launch" for event in launches],
        events=launches,
    )


def _rows(records: np.ndarray, launch: np.ndarray, launches: list[LaunchEvent | None]) -> tuple[list[str], np.ndarray]:
    """Row names, and the row of each record."""
    devices = sorted({_device(event) for event in launches})
    device = np.array([devices.index(_device(event)) for event in launches], np.int64)[launch]
    columns = [records["rank"], device, records["device"], records["resource"], records["slot"]]
    first, row = numbered(columns)
    places = np.stack([column[first] for column in columns])
    names = []
    for rank, name, index, resource, slot in places.T.tolist():
        kind = RESOURCE_NAMES.get(devices[name].partition(":")[0], "resource")
        parts = [f"rank {rank}"] if places[0].max() else []
        parts += [devices[name]] if len(devices) > 1 else []
        parts += [f"device {index}"] if places[2].max() else []
        parts += [f"{kind} {resource}"]
        parts += [f"slot {slot}"] if places[4].max() else []
        names.append(" · ".join(parts))
    return names, row


def _device(launch: LaunchEvent | None) -> str:
    return launch.device if launch else "unknown device"
