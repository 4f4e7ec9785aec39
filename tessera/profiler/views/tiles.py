"""Tiles over time: where each tile ran, which were slow, and how long tiles took.

A browser gets the tiles in columns and draws those of the window that is looked at. Of many tiles that share a pixel it
shows the slowest, from maxima over ever longer runs of tiles: one slow tile of a million is in sight at every zoom.
A tile is slow by how much longer it took than the median of its kernel.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tessera.language.lazy import np
from tessera.profiler.balance import about_phases
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.profiler.style import PALETTE, shorten, time_unit
from tessera.profiler.views import parts
from tessera.profiler.views.lanes import Bars, bars_of
from tessera.profiler.views.markup import text
from tessera.profiler.views.svg import WIDE, PictureFrame, label, line, picture, time_axis
from tessera.runtime.events import LaunchEvent

IN_CELL, IN_PAGE = 5_000, 250_000
"""blocks that a saved notebook and a page of its own may hold"""
_KEPT = 256
"""of the slowest tiles, which stay single whatever shares a block"""
_ROW, _MOST_ROWS, _MOST_BARS = 20, 24, 160
"""of the picture"""
_LISTED = 8
_HEADS = ("kernel", "took", "of its median", "from", "on", "line", "read")
_BINS = 48
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 2")


@dataclass(frozen=True, slots=True)
class RecordedTiles:
    """All tiles of a recording, phases together, by row and start."""

    bars: Bars
    order: np.ndarray
    medians: np.ndarray
    """ns, for each group of `bars`"""
    excess: np.ndarray
    """by how much a tile took longer than the median of its group; as `bars`"""
    phases: dict[int, str]
    """parts of the slowest tiles, where tiles have phases"""
    missing: str
    """what is said of tiles that are not there"""

    @property
    def slowest(self) -> np.ndarray:
        """Indices of the few slowest, the slowest first."""
        few = min(_KEPT, len(self.excess))
        found = np.argpartition(-self.excess, few - 1)[:few]
        return found[np.lexsort((found, -self.excess[found]))]


def tiles_of(recording: Recording) -> RecordedTiles | None:
    """None where no tile was recorded."""
    if not len(recording.tiles):
        return None
    bars = bars_of(recording, whole=True)
    medians = np.array([np.median(bars.duration[bars.group == g]) for g in range(len(bars.groups))])
    order, excess = np.lexsort((bars.start, bars.row)), bars.duration - medians[bars.group]
    found = RecordedTiles(bars, order, medians, excess, {}, missing_tiles(recording))
    if len(recording.tiles.phases) > 1:
        found.phases.update(_phases(recording, found.slowest))
    return found


def _phases(recording: Recording, slowest: np.ndarray) -> dict[int, str]:
    records, names = recording.tiles.records, recording.tiles.phases
    _, membership = recording.extents
    mine = np.flatnonzero(np.isin(membership, slowest))
    launch, notes = recording.extents[0]["launch"], {e.launch: about_phases(e) for e in recording.launches}
    found: dict[int, list[tuple[int, str]]] = {}
    for i in mine.tolist():
        found.setdefault(int(membership[i]), []).append((int(records["duration"][i]), names[records["phase"][i]]))
    return {
        tile: ", ".join(f"{name} {format_percent(took / max(1, sum(t for t, _ in own)))}" for took, name in own)
        + (f"; {about}" if len(own) > 1 and (about := notes.get(launch[tile])) else "")
        for tile, own in found.items()
    }


def missing_tiles(recording: Recording) -> str:
    """What is said of records that are not there; "" where all are."""
    runs = {e.attributes.get("run", e.launch): int(e.attributes.get("dropped", 0)) for e in recording.launches}
    said = [f"{n:,} more records had no room" for n in [sum(runs.values())] if n]
    if recording.left_out:
        said.append(f"tiles of one call in {recording.one_in}, {recording.left_out:,} records of the others left out")
    if recording.impossible:
        said.append(f"{recording.impossible:,} records with impossible times left out: a clock wrapped")
    if recording.unseen_replays:
        said.append(recording.unseen_replays)
    return "; ".join(said)


# Blocks: what a browser is given.


@dataclass(frozen=True, slots=True)
class TileBlocks:
    """Tiles of one row that follow each other, joined where there are too many: one entry a block, by row and start."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    busy: np.ndarray
    """ns in which one of its tiles ran"""
    count: np.ndarray
    slowest: np.ndarray
    """index of its slowest tile"""
    size: int
    """tiles of a block at most"""


def blocks_of(tiles: RecordedTiles, most: int) -> TileBlocks:
    """About `most` blocks; a block holds tiles of one launch, as far as there is room for that."""
    order, bars = tiles.order, tiles.bars
    row, launch = bars.row[order], bars.launch[order]
    new = np.ones(len(order), bool)
    new[1:] = row[1:] != row[:-1]
    launches = new.copy()
    launches[1:] |= launch[1:] != launch[:-1]
    size = 1
    if len(order) > most:
        if launches.sum() <= most // 2:
            new = launches
        size = math.ceil(len(order) / max(most // 4, most - int(new.sum()) - 2 * _KEPT))
        heads = np.flatnonzero(new)
        since = np.arange(len(order)) - np.repeat(heads, np.diff([*heads, len(order)]))
        new |= since % size == 0
        single = np.isin(order, tiles.slowest)
        new |= single
        new[1:] |= single[:-1]
    else:
        new[:] = True
    heads = np.flatnonzero(new)
    start, excess = bars.start[order], tiles.excess[order]
    most_excess = np.repeat(np.maximum.reduceat(excess, heads), np.diff([*heads, len(order)]))
    at = np.flatnonzero(excess == most_excess)  # the first of each block
    block = np.searchsorted(heads, at, side="right") - 1
    first = at[np.unique(block, return_index=True)[1]]
    return TileBlocks(
        row=row[heads],
        start=start[heads],
        end=np.maximum.reduceat(start + bars.duration[order], heads),
        busy=np.add.reduceat(bars.duration[order], heads),
        count=np.diff([*heads, len(order)]),
        slowest=order[first],
        size=size,
    )


def _packed(columns: Sequence[np.ndarray]) -> str:
    """Whole numbers below 2**31 as differences, byte by byte, compressed: what tiles.js unpacks."""
    table = np.stack([np.diff(column, prepend=0) for column in columns]).astype("<i4")
    planes = np.ascontiguousarray(table.reshape(-1, 1).view(np.uint8).reshape(len(columns), -1, 4).transpose(0, 2, 1))
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def _grain(most: int) -> int:
    """ns that a number of 31 bits counts; 1 up to two seconds."""
    return max(1, -(-most // (2**31 - 1)))


def data(tiles: RecordedTiles, most: int) -> dict[str, Any]:
    """What tiles.js draws from."""
    bars, blocks = tiles.bars, blocks_of(tiles, most)
    kinds: dict[str, int] = {}
    kind_of_launch = np.array([kinds.setdefault(json.dumps(_kind(e)), len(kinds)) for e in bars.events])
    group_of_kind = np.zeros(len(kinds), np.int64)
    group_of_kind[kind_of_launch[bars.launch]] = bars.group
    tick, grain = _grain(bars.span), _grain(int(blocks.busy.max()))
    slow = blocks.slowest
    columns = [
        blocks.start // tick,
        (blocks.end - blocks.start) // tick,
        blocks.busy // grain,
        (bars.start[slow] - blocks.start) // tick,
        bars.duration[slow] // grain,
        bars.tile[slow],
        bars.line[slow],
        kind_of_launch[bars.launch[slow]],
    ]
    edges, counts = _histogram(tiles)
    where = {int(tile): i for i, tile in enumerate(slow.tolist())}
    return {
        "packed": _packed([np.asarray(c) for c in columns]),
        "blocks": len(slow),
        "first": np.searchsorted(blocks.row, np.arange(len(bars.rows) + 1)).tolist(),
        "tick": tick,
        "grain": grain,
        "size": blocks.size,
        "total": len(bars.start),
        "missing": tiles.missing,
        "span": bars.span,
        "rows": bars.rows,
        "kernels": [
            {"name": name, "median": float(median), "colour": PALETTE[i % len(PALETTE)]}
            for i, (name, median) in enumerate(zip(bars.groups, tiles.medians, strict=True))
        ],
        "kinds": [
            [title, grid, int(group_of_kind[i]), read] for i, (title, grid, read) in enumerate(map(json.loads, kinds))
        ],
        "unknown": parts.UNKNOWN,
        "edges": [round(float(e), 1) for e in edges],
        "counts": counts.tolist(),
        "phases": {where[tile]: said for tile, said in tiles.phases.items() if tile in where},
    }


def _kind(event: LaunchEvent | None) -> tuple[str, Sequence[int], list[Any]]:
    """What tiles of equal launches share: title, grid, and what their programs read."""
    return (event.title, event.grid, parts.trees(event)) if event else ("unknown launch", (), [])


# The view: a picture, the slowest tiles and a histogram; tiles.js makes the picture one that can be zoomed.


def view(recording: Recording, most: int = IN_CELL) -> str:
    """Markup of tiles over time. It needs views.css, and script.js to be more than a picture."""
    tiles = tiles_of(recording)
    if tiles is None:
        return '<p class="ts-why">No tile records: this run was recorded without tiles, or launched no kernel.</p>'
    content = text(json.dumps(data(tiles, most), separators=(",", ":")))
    return (
        f'<section class="ts-over-time" data-tiles="{content}"><div class="ts-drawn">{_gantt(tiles)}</div>'
        f'<div class="ts-slow">{_slow_table(tiles)}</div>{_histogram_picture(tiles)}</section>'
    )


def coordinates(index: int, grid: Sequence[int]) -> tuple[int, ...]:
    """Of a tile in the grid, whose last axis is the fastest."""
    found: list[int] = []
    for extent in reversed(grid):
        index, at = divmod(index, max(1, extent))
        found.append(at)
    return tuple(reversed(found)) or (index,)


def _name(tiles: RecordedTiles, i: int) -> str:
    """`tile (3, 5)`."""
    event = tiles.bars.events[tiles.bars.launch[i]]
    place = coordinates(int(tiles.bars.tile[i]), event.grid if event else ())
    return f"tile {place if len(place) > 1 else place[0]}"


def _read(tiles: RecordedTiles, i: int) -> str:
    """`x[256:512, 0:64]`."""
    event = tiles.bars.events[tiles.bars.launch[i]]
    place = coordinates(int(tiles.bars.tile[i]), event.grid if event else ())
    return parts.text_of(parts.trees(event), place) or "-"


def _slow_table(tiles: RecordedTiles) -> str:
    bars = tiles.bars
    rows: list[str] = []
    for i in tiles.slowest[:_LISTED].tolist():
        median, took = float(tiles.medians[bars.group[i]]), int(bars.duration[i])
        times = f"{took / median:.3g} ×" if median else "-"
        where = (format_time(int(bars.start[i])), bars.rows[bars.row[i]], str(bars.line[i] or "-"), _read(tiles, i))
        cells = (bars.groups[bars.group[i]], format_time(took), times, *where)
        said = f' title="{text(tiles.phases[i])}"' if i in tiles.phases else ""
        told = "".join(f'<td data-h="{h}">{text(c)}</td>' for h, c in zip(_HEADS, cells, strict=True))
        rows.append(f"<tr{said}><th>{text(_name(tiles, i))}</th>{told}</tr>")
    heads = "".join(f"<th>{h}</th>" for h in ("slowest", *_HEADS))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


@dataclass(slots=True)
class _Run:
    """Tiles of one kernel that follow each other on one lane, from `start` to `end` (ns)."""

    row: int
    group: int
    start: int
    end: int
    first: int
    count: int = 1


def _gantt(tiles: RecordedTiles) -> str:
    """The tiles of each lane as bars; tiles too short to be told apart share one."""
    bars = tiles.bars
    rows = bars.rows[:_MOST_ROWS]
    top = 38
    base = top + _ROW * len(rows)
    scale = (WIDE.right - WIDE.left) / bars.span
    drawing = [label(WIDE.left - 8, top + _ROW * i + 14, r, "end") for i, r in enumerate(rows)] + _legend(bars)
    drawn = [run for run in _runs(tiles, scale) if run.row < len(rows)]
    drawn = sorted(drawn, key=lambda run: run.start - run.end)[:_MOST_BARS]
    drawing += [_bar(tiles, run, scale, top) for run in drawn] + _mark(tiles, scale, top, len(rows))
    drawing += time_axis(bars.span, base, WIDE)
    total, count, lanes = len(bars.start), sum(run.count for run in drawn), len(bars.rows)
    shown = f"{total:,}" if count == total else f"{count:,} of {total:,}"
    what = f"Tiles over time: {shown} on {lanes} lane{'s' * (lanes != 1)} in {format_time(bars.span)}"
    what += f"; {tiles.missing}" if tiles.missing else ""
    return picture("gantt", what, base + 34, lambda _: drawing, (WIDE,))


def _mark(tiles: RecordedTiles, scale: float, top: int, rows: int) -> list[str]:
    """The slowest tile of all has its name above it, and a mark that needs no colour."""
    i = int(tiles.slowest[0])
    row, bars = int(tiles.bars.row[i]), tiles.bars
    if tiles.excess[i] <= 0 or row >= rows:
        return []
    x = WIDE.left + (int(bars.start[i]) + int(bars.duration[i]) / 2) * scale
    median = float(tiles.medians[bars.group[i]])
    of = f", {bars.duration[i] / median:.3g} × the median" if median else ""
    said = f"{_name(tiles, i)}: {format_time(int(bars.duration[i]))}{of}"
    end = x > WIDE.width / 2
    mark = f'<path d="M{x - 4:.1f} {top - 9}h8l-4 7z" class="ts-mark"/>' + line(
        x, top - 2, x, top + _ROW * row + 2, "mark"
    )
    return [mark, label(x + (-8 if end else 8), top - 3, said, "end" if end else "start")]


def _runs(tiles: RecordedTiles, scale: float) -> list[_Run]:
    """The tiles, those joined that would be less than two pixels wide and stand less than one apart."""
    bars, blocks = tiles.bars, blocks_of(tiles, 20_000)
    group = bars.group[blocks.slowest]
    out: list[_Run] = []
    columns = (blocks.row, group, blocks.start, blocks.end, blocks.slowest, blocks.count)
    for row, kernel, start, end, first, count in zip(*(c.tolist() for c in columns), strict=True):
        last = out[-1] if out else None
        narrow = min(end - start, (last.end - last.start) / last.count if last else 0) * scale < 2
        if last and (last.row, last.group) == (row, kernel) and narrow and (start - last.end) * scale < 1:
            last.end, last.count = max(last.end, end), last.count + count
        else:
            out.append(_Run(row, kernel, start, end, first, count))
    return out


def _bar(tiles: RecordedTiles, run: _Run, scale: float, top: int) -> str:
    bars = tiles.bars
    at = f", line {bars.line[run.first]}" if bars.line[run.first] else ""
    what = _name(tiles, run.first) if run.count == 1 else f"{run.count} tiles"
    name, took = shorten(bars.groups[run.group]), format_time(run.end - run.start)
    x, y, width = WIDE.left + run.start * scale, top + _ROW * run.row + 2, max((run.end - run.start) * scale, 0.5)
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 4}" fill="{PALETTE[run.group % len(PALETTE)]}">'
        f"<title>{text(f'{what}: {name}, {took} from {format_time(run.start)}{at}')}</title></rect>"
    )


def _legend(bars: Bars) -> list[str]:
    """What colours stand for, as far as it fits into one row; tooltips have the rest."""
    drawing, x = [], float(WIDE.left)
    for i, name in enumerate(bars.groups):
        said = shorten(name)
        if i == len(PALETTE) or x + 110 + 6.6 * len(said) > WIDE.width:
            return [*drawing, label(x, 14, f"and {len(bars.groups) - i} more")]
        drawing += [f'<rect x="{x:.0f}" y="5" width="10" height="10" fill="{PALETTE[i]}"/>', label(x + 14, 14, said)]
        x += 30 + 6.6 * len(said)
    return drawing


# How long tiles took.


def _histogram(tiles: RecordedTiles) -> tuple[np.ndarray, np.ndarray]:
    """(edges in ns, counts of each group): equal steps of the logarithm."""
    took = np.maximum(tiles.bars.duration, 1)  # a clock of coarse ticks gives zeros, which no logarithm has
    low, high = float(took.min()), float(took.max())
    edges = np.geomspace(low, max(high, low * 1.01), _BINS + 1)
    edges[-1] = max(edges[-1], high) * 1.0001
    bins = np.clip(np.searchsorted(edges, took, side="right") - 1, 0, _BINS - 1)
    groups = len(tiles.bars.groups)
    return edges, np.bincount(tiles.bars.group * _BINS + bins, minlength=groups * _BINS).reshape(groups, _BINS)


def _histogram_picture(tiles: RecordedTiles) -> str:
    """Counts are logarithmic: one slow tile of a million has a bar that can be seen."""
    title = f"Tile times: {_tail(tiles.bars.duration)}"
    return picture("histogram", title, 152, lambda frame: _histogram_in(frame, tiles))


def _histogram_in(frame: PictureFrame, tiles: RecordedTiles) -> list[str]:
    edges, counts = _histogram(tiles)
    top, base, left, right = 8, 118, frame.left, frame.right
    most = math.log10(1 + float(counts.max()))
    width = (right - left) / _BINS
    drawing: list[str] = []
    for power in range(math.floor(most) + 1):
        y = base - (base - top) * math.log10(1 + 10**power) / most
        drawing += [line(left, y, right, y, "grid"), label(left - 6, y + 4, f"{10**power:,}", "end")]
    ranked = np.argsort(-counts.sum(axis=1), kind="stable")[: len(PALETTE)].tolist()
    for g in ranked:
        name, own = tiles.bars.groups[g], tiles.bars.duration[tiles.bars.group == g]
        path = f"M{left} {base}"
        for i, count in enumerate(counts[g].tolist()):
            path += f"V{base - (base - top) * math.log10(1 + count) / most:.1f}H{left + (i + 1) * width:.1f}"
        said = f"{name}: {len(own):,} tiles, {_tail(own)}"
        colour, dash = PALETTE[g % len(PALETTE)], _DASHES[g % len(_DASHES)]
        look = f'stroke="{colour}" fill="{colour}"' + (f' stroke-dasharray="{dash}"' if dash else "")
        drawing.append(f'<path d="{path}V{base}" class="ts-steps" {look}><title>{text(said)}</title></path>')
    scale, unit = time_unit(float(np.median(tiles.bars.duration)))
    span = math.log(edges[-1] / edges[0])
    for mark in _round_marks(float(edges[0]) / scale, float(edges[-1]) / scale, (right - left) / 75):
        x = left + (right - left) * math.log(mark * scale / edges[0]) / span
        drawing += [
            line(x, base, x, base + 4),
            label(x, base + 16, f"{mark:,.0f}" if mark >= 1 else f"{mark:g}", "middle"),
        ]
    return [*drawing, line(left, base, right, base), label(right, base + 30, f"time of a tile ({unit})", "end")]


def _tail(took: np.ndarray) -> str:
    """`median 5.0 µs, 95 % below 5.3 µs, 99 % below 5.5 µs, longest 60 µs`."""
    median, p95, p99 = (format_time(float(q)) for q in np.quantile(took, [0.5, 0.95, 0.99]))
    return f"median {median}, 95 % below {p95}, 99 % below {p99}, longest {format_time(int(took.max()))}"


def _round_marks(low: float, high: float, most: float) -> list[float]:
    """Round numbers in a range: 1, 2, 5 of each power of ten, or only the powers where those are more than `most`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [(s, s * 10.0**p) for p in powers for s in (1, 2, 5) if low <= s * 10.0**p <= high]
    few = [mark for s, mark in found if s == 1]
    return few if few and len(found) > most else [mark for _, mark in found]
