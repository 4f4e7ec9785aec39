"""Where the data of launches come from: what a program touched lately lies in a cache, all else in memory."""

from __future__ import annotations

from collections.abc import Sequence
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

LINE = 64
"""bytes of a line of a cache"""
SHORT_ROW = 1024
"""bytes of a row of a table from which on the processor sees that it is read in order, and reads ahead"""
WHOLE = 1024
"""bytes of a row from which on its stores bypass the caches: the generator writes shorter ones so only where they
happen to be aligned"""


class Places:
    """Where the data of launches come from."""

    def __init__(self, program: Program, launches: Sequence[Launch], figures: Figures, threads: int) -> None:
        self.figures, self.threads = figures, threads
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
            level = LEVELS[1] if (id(launch), buffer) in self.near else self._level(self.total - last)
            total += what.read / self.figures.rate(f"read {level}", threads)
            if what.lines:  # some again, and the next call takes others: the table lies where all of it has room
                table = max(self._level(self.sizes[buffer]), LEVELS[1], key=LEVELS.index)
                total += what.lines / self.figures.rate(f"line {table}", threads)
            for again, distance in what.again:
                nearer = self._level(distance)
                total += again / self.figures.rate(f"read {nearer}", threads) if nearer != LEVELS[0] else 0.0
            streams = what.whole and what.written > cached_bytes(self.figures.caches) and buffer not in self.read
            total += what.written * (
                1 / self.figures.rate("stream memory", threads) if streams else self._write(level, threads)
            )
        return total

    def _write(self, level: str, threads: int) -> float:
        """Seconds for a byte: what a copy takes beyond reading."""
        copied, read = (self.figures.rate(f"{what} {level}", threads) for what in ("copy", "read"))
        return max(2 / copied - 1 / read, 0.5 / copied)

    def _level(self, distance: float) -> str:
        return next((level for level, limit in zip(LEVELS, self.limits, strict=False) if distance <= limit), LEVELS[-1])

    def _touch(self, launch: Launch) -> None:
        for buffer, what in self.moved[id(launch)].items():
            self.total += max(what.read + min(what.lines * LINE, self.sizes[buffer]), what.written)
            self.last[buffer] = self.total
            if what.read or what.lines:
                self.read.add(buffer)

    def _moved(self, launch: Launch) -> dict[int, Moved]:
        kernel = launch.code
        writes = cast("tuple[int, ...]", kernel.attrs.get("writes", ()))
        windows: dict[int, list[tuple[int, float]]] = {}
        found: dict[int, Moved] = {}
        for i, (arg, given) in enumerate(zip(kernel.region.block.args, launch.args, strict=True)):
            if not isinstance(arg.type, ViewType) or not isinstance(given, BufferArg):
                continue
            what, size = found.setdefault(given.buffer, Moved()), self.sizes[given.buffer]
            if i in writes:
                what.written = min(what.written + touched(arg.type), size)
                what.whole = what.whole and rows_of(arg.type) >= WHOLE
            readers = [user for user in users_of(arg) if user.name not in ("tile.store", "tile.scatter")]
            if readers and all(op.name == "tile.gather" for op in readers):
                taken, row = _taken(kernel, readers)
                what.lines += taken / row * (row / LINE + 1 if row < SHORT_ROW else 0)
                what.read += taken if row >= SHORT_ROW else 0
            elif readers:
                read = touched(arg.type)
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
class Moved:
    """What a launch does with a buffer: bytes that it reads in order, lines that it reads in no order, bytes that it
    writes, whether its rows are long; and bytes that it reads again, with how many it reads between."""

    read: float = 0.0
    lines: float = 0.0
    written: float = 0.0
    whole: bool = True
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
    size, row = 1.0, rows_of(view)
    for n, s in zip(cast("tuple[int, ...]", view.shape), strides_of(view), strict=True):
        size *= n if s != 0 else 1
    size *= view.dtype.itemsize
    steps = [s * view.dtype.itemsize for s in strides_of(view) if s * view.dtype.itemsize >= max(row, 1) and s]
    apart = min(steps, default=0)
    if size == row or size == 0 or apart == row:
        return size
    return size / row * min(row + LINE - view.dtype.itemsize if row % LINE or apart % LINE else row, max(apart, row))


def _taken(kernel: Op, readers: Sequence[Op]) -> tuple[float, float]:
    """Bytes that gathers take, and those of each row of the table that lie one behind the other."""
    work = Work(kernel)
    taken = number(work.total(lambda op, work: work.elements(op.result) if op in readers else 0))
    op = readers[0]
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
