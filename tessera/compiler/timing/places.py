"""Where the data of launches come from: what a program touched lately lies in a cache, all else in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

from tessera.compiler.figures import LEVELS, Figures, cached_bytes
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.tile.loops.axes import LAZY, shape_of
from tessera.compiler.tile.loops.stages import READS
from tessera.compiler.tile.program import BufferArg, Launch, Program
from tessera.compiler.tile.work import Work, users_of
from tessera.compiler.timing.loops import strides_of
from tessera.compiler.timing.operations import number
from tessera.language.dims import prod

LINE, PAGE = 64, 4096
"""bytes of a line of a cache, and of a page, beyond which a processor does not foresee reads"""
SHORT_ROW = 1024
"""bytes of a row of a table from which on the processor sees that it is read in order, and reads ahead"""
WHOLE = 1024
"""bytes of a row from which on its stores bypass the caches: the generator writes shorter ones so only where they
happen to be aligned"""


class DataPlaces:
    """Where the data of launches come from."""

    def __init__(
        self, program: Program, launches: Sequence[Launch], works: Mapping[int, Work], figures: Figures, threads: int
    ) -> None:
        self.works, self.figures, self.threads = works, figures, threads
        self.sizes = {b.id: cast(int, prod(b.shape)) * b.dtype.itemsize for b in program.buffers}
        first, second, last = figures.caches
        self.limits = (first * threads, second * threads, last)
        self.total = 0.0
        self.read: set[int] = set()
        self.last: dict[int, float] = {}
        self.near = _handed_over(program)
        self.moved = {id(launch): self._moved(launch) for launch in launches}
        for launch in launches:  # the run before
            self._touch(launch)

    def seconds(self, launch: Launch, threads: int) -> float:
        """Reads and writes of a launch, one after the other."""
        moved = self.moved[id(launch)]
        before = [self.last[buffer] for buffer in moved]
        self._touch(launch)
        total = 0.0
        for (buffer, what), last in zip(moved.items(), before, strict=True):
            near = (id(launch), buffer) in self.near
            levels = {LEVELS[1]: 1.0} if near else self._levels(self.total - last)
            total += what.read * self._each(levels, "read", threads)
            lying = self._levels(self.sizes[buffer]) if what.table else levels  # the next call takes other rows
            total += what.lines * self._each(lying, "line", threads)
            for again, distance in what.again:
                nearer = {level: part for level, part in self._levels(distance).items() if level != LEVELS[0]}
                total += again * self._each(nearer, "read", threads)
            streams = what.whole and what.written > cached_bytes(self.figures.caches) and buffer not in self.read
            if streams:
                total += what.written / self.figures.rate("stream memory", threads)
            else:
                total += what.written * sum(part * self._write(level, threads) for level, part in levels.items())
        return total

    def _each(self, levels: Mapping[str, float], what: str, threads: int) -> float:
        """Seconds for one of what comes from these places by these parts."""
        rates = self.figures.rates
        named = {level: f"{what} {level}" if f"{what} {level}" in rates else f"{what} {LEVELS[1]}" for level in levels}
        return sum(part / self.figures.rate(named[level], threads) for level, part in levels.items())

    def _write(self, level: str, threads: int) -> float:
        """Seconds for a byte: what a copy takes beyond reading."""
        copied, read = (self.figures.rate(f"{what} {level}", threads) for what in ("copy", "read"))
        return max(2 / copied - 1 / read, 0.5 / copied)

    def _levels(self, distance: float) -> dict[str, float]:
        """Where what was touched so many bytes ago lies, by parts: a cache keeps all that fills half of it, and less
        and less of more, since others use it too and places in it are not chosen freely."""
        found: dict[str, float] = {}
        left = 1.0
        for level, size in zip(LEVELS, self.limits, strict=False):
            part = min(max(2 - 2 * distance / size, 0.0), 1.0) if size else 0.0
            if part > 1 - left:
                found[level] = part - (1 - left)
                left = 1 - part
        return found | ({LEVELS[-1]: left} if left else {})

    def _touch(self, launch: Launch) -> None:
        for buffer, what in self.moved[id(launch)].items():
            self.total += max(what.read + min(what.lines * LINE, self.sizes[buffer]), what.written)
            self.last[buffer] = self.total
            if what.read or what.lines:
                self.read.add(buffer)

    def _moved(self, launch: Launch) -> dict[int, BufferTraffic]:
        kernel, work = launch.code, self.works[id(launch.code)]
        writes = cast("tuple[int, ...]", kernel.attrs.get("writes", ()))
        windows: dict[int, list[tuple[int, float]]] = {}
        found: dict[int, BufferTraffic] = {}
        for i, (arg, given) in enumerate(zip(kernel.region.block.args, launch.args, strict=True)):
            if not isinstance(arg.type, ViewType) or not isinstance(given, BufferArg):
                continue
            what, size = found.setdefault(given.buffer, BufferTraffic()), self.sizes[given.buffer]
            if i in writes:
                what.written = min(what.written + touched(arg.type), size)
                what.whole = what.whole and rows_of(arg.type) >= WHOLE
            readers = [user for user in users_of(arg) if user.name not in ("tile.store", "tile.scatter")]
            if readers and all(op.name == "tile.gather" for op in readers):
                taken, row = _taken(work, readers)
                what.table = True
                what.lines += taken / row * (row / LINE + 1 if row < SHORT_ROW else 0)
                what.read += taken if row >= SHORT_ROW else 0
            elif readers:
                read = touched(arg.type)
                if all(op.name == "tile.load" for op in readers):  # a branch may read little of it
                    read *= min(_loaded(work, readers) / max(_elements(arg.type), 1), 1.0)
                if _piece(arg.type, readers) < SHORT_ROW:
                    what.lines += read / LINE
                    continue
                what.read += read
                windows.setdefault(given.buffer, []).append((cast(int, given.offset) * arg.type.dtype.itemsize, read))
        for buffer, places in windows.items():
            what, size = found[buffer], self.sizes[buffer]
            inside = sum(read for _, read in places)
            what.read += min(inside, size) - inside
            places.sort()
            for (place, _), (after, read) in pairwise(places):
                what.again.append((read, (after - place) * len(windows)))
        return found


@dataclass
class BufferTraffic:
    """What a launch does with a buffer: bytes that it reads in order, lines that it reads in no order, bytes that it
    writes, whether its rows are long, whether data tell the places; and bytes that it reads again, with how many it
    reads between."""

    read: float = 0.0
    lines: float = 0.0
    written: float = 0.0
    whole: bool = True
    table: bool = False
    again: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])


def rows_of(view: ViewType) -> float:
    """Bytes that lie one behind the other."""
    row = view.dtype.itemsize
    for n, s in sorted(zip(cast("tuple[int, ...]", view.shape), strides_of(view), strict=True), key=lambda ns: ns[1]):
        if n == 1 or s == 0:
            continue
        if s * view.dtype.itemsize != row:
            break
        row *= n
    return row


def touched(view: ViewType) -> float:
    """Bytes of all lines of the cache that a view has elements in."""
    row = rows_of(view)
    size = float(_elements(view) * view.dtype.itemsize)
    steps = [s * view.dtype.itemsize for s in strides_of(view) if s * view.dtype.itemsize >= max(row, 1) and s]
    apart = min(steps, default=0)
    if size == row or size == 0 or apart == row:
        return size
    return size / row * min(row + LINE - view.dtype.itemsize if row % LINE or apart % LINE else row, max(apart, row))


def _elements(view: ViewType) -> int:
    """Those that have places of their own."""
    steps = zip(cast("tuple[int, ...]", view.shape), strides_of(view), strict=True)
    return cast(int, prod([n for n, s in steps if s != 0]))


def _loaded(work: Work, readers: Sequence[Op]) -> float:
    """Elements that all programs load."""
    return number(work.total(lambda op, work: work.elements(op.result) if op in readers else 0))


def _piece(view: ViewType, readers: Sequence[Op]) -> float:
    """Bytes that a program reads one behind the other, at the least; those between two rows of a page count as read."""
    whole = touched(view)
    found = [whole]
    for op in readers:
        if op.name != "tile.load" or op.operands[0].type != view or not shape_of(op.result):
            continue
        row = view.dtype.itemsize
        sizes = zip(cast("tuple[int, ...]", shape_of(op.result)), strides_of(view), strict=True)
        for n, s in sorted(sizes, key=lambda size: size[1]):
            step = s * view.dtype.itemsize
            if n == 1 or s == 0:
                continue
            if step > row + PAGE:
                break
            row = step * n
        found.append(row if row < whole else whole)
    return max(min(found), LINE) if whole > SHORT_ROW else SHORT_ROW


def _taken(work: Work, readers: Sequence[Op]) -> tuple[float, float]:
    """Bytes that gathers take, and those of each row of the table that lie one behind the other."""
    taken, op = _loaded(work, readers), readers[0]
    view, row = cast(ViewType, op.operands[0].type), 1.0
    if not _from_data(op.operands[-1]) and view.shape and strides_of(view)[-1] == 1:
        row = number(work.shape(op.result)[-1]) if shape_of(op.result) else 1.0
    return taken * view.dtype.itemsize, row * view.dtype.itemsize


def _from_data(v: Value) -> bool:
    """Whether an index is loaded."""
    op = v.op
    return (
        op is None or op.name not in LAZY or op.name in READS or any(_from_data(x) for x in op.operands if shape_of(x))
    )


def _handed_over(program: Program) -> set[tuple[int, int]]:
    """Launches, by their `id`, and buffers that an earlier launch of the same bands has touched shortly before."""
    launches, found = program.launches, set[tuple[int, int]]()
    for bands in program.bands:
        touched: set[int] = set()
        for launch in launches[bands.first : bands.last + 1]:
            own = {a.buffer for a in launch.args if isinstance(a, BufferArg)}
            found |= {(id(launch), buffer) for buffer in own & touched}
            touched |= own
    return found
