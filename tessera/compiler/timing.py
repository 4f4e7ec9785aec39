"""How long a program should take on a processor: a model of its launches, by the figures of that processor.

A launch computes and moves data; the two overlap more or less, so that its time is a range. What it computes is the sum
over the ops of its kernel, each by the rate of its kind. What it moves comes from where the program touched it last: a
cache that holds all that was touched since, or memory. A program is taken to run again and again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from tessera import knobs
from tessera.compiler.figures import LEVELS, Figures, cached_bytes, figures
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.machines import HOST, MACHINES, Machine, Peaks, predicted_machine
from tessera.compiler.schedule.cost import LaunchTime, time_by_peaks
from tessera.compiler.tile.program import BufferArg, Launch, Program
from tessera.compiler.tile.work import ALONE_NS, CHUNKS, Amount, Work, users_of
from tessera.language import dtypes
from tessera.language.dims import prod
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

BLOCK = 14
"""rows that a product computes together"""
REACHED = 0.9
"""of the rate of multiply-adds in registers: what products reach beside their loads and ragged edges"""
LONGEST_NETWORK = 16384
"""elements of a line that is sorted beside others"""
COLUMN, MERGED = 512, 20
"""of a longer one: elements of a column that is sorted so, and operations for an element in each merge of two runs"""
ROUNDING = 2
"""operations"""
_STEPS = {"philox": 50}
"""of what is no function of `scalars.TABLE`; Philox: ten rounds of two products, an addition and two exclusive ors"""
_DIVIDES = frozenset({"tile.div", "tile.sqrt", "tile.reciprocal", "tile.rsqrt"})
_FREE = frozenset({"broadcast", "reshape", "transpose", "iota", "to_scalar", "dim", "program_id", "to_index", "return"})


def peaks_for(target: str) -> Peaks | None:
    """The peaks of a target's machine: for the processor at hand, by its figures. None: there is no model of it."""
    machine = MACHINES.get(predicted_machine(target))
    if machine is None or machine.name != HOST:
        return machine.peaks if machine is not None else None
    known, threads = figures(), knobs.num_threads()
    steps, moved = known.rate("step f32", threads), known.rate("copy memory", threads)
    return Peaks(steps / 1e9, moved / 1e9, 1e6 / known.rate("launch", threads))


def launch_times(program: Program, machine: Machine, threads: int | None = None) -> dict[int, LaunchTime]:
    """The time of each launch whose sizes are known, by its `id`; on the processor at hand on that many threads, or
    those that TESSERA_NUM_THREADS says."""
    if machine.name != HOST:
        assert machine.peaks is not None
        found = {id(s): time_by_peaks(s.flops, s.bytes, machine.peaks) for s in program.launches}
        return {key: time for key, time in found.items() if time is not None}
    return _on_processor(program, figures(), threads or knobs.num_threads())


def _on_processor(program: Program, known: Figures, threads: int) -> dict[int, LaunchTime]:
    launches = [s for s in program.launches if _is_known(s)]
    places, compute = _Places(program, launches, known, threads), _Compute(known)
    found: dict[int, LaunchTime] = {}
    for launch in launches:
        share = _threads_of(launch, threads)
        busiest = compute.seconds(launch.code) * _waiting(launch, share) / share
        found[id(launch)] = LaunchTime(busiest, places.seconds(launch, share), 1 / known.rate("launch", share))
    return found


def _is_known(launch: Launch) -> bool:
    shapes = [a.type.shape for a in launch.code.region.block.args if isinstance(a.type, ViewType)]
    sizes = (launch.flops, launch.bytes, _programs(launch), *(d for shape in shapes for d in shape))
    return all(isinstance(d, int) for d in sizes)


def _programs(launch: Launch) -> object:
    return prod(cast("tuple[int, ...]", launch.code.attrs["grid"]))


def _threads_of(launch: Launch, threads: int) -> int:
    programs, work = cast(int, _programs(launch)), cast(int, launch.flops) + cast(int, launch.bytes)
    return 1 if work // 8 < ALONE_NS else min(threads, programs)


def _waiting(launch: Launch, threads: int) -> float:
    """How much longer the busiest thread works than all do on average: pieces are whole programs."""
    programs = cast(int, _programs(launch))
    pieces = -(-programs // -(-programs // CHUNKS)) if programs else 1
    return -(-pieces // threads) * threads / pieces if programs else 1.0


class _Compute:
    """The arithmetic of a kernel, on one thread. Divisions and roots have a unit of their own."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.step = 1 / figures.rate("step f32")
        """seconds of a single operation on an element of four bytes"""

    def seconds(self, kernel: Op) -> float:
        work = Work(kernel)
        first = next((op for op in kernel.walk() if op.name == "tile.reduce"), None)
        most = work.total(lambda op, work: 0 if op.name in _DIVIDES else self.op(op, work, op is first))
        divided = work.total(lambda op, work: self.op(op, work, False) if op.name in _DIVIDES else 0)
        return max(_number(most), _number(divided))

    def op(self, op: Op, work: Work, first: bool) -> float:
        """`first`: of the sums of a kernel, that which reads what they are of from memory."""
        name = op.name.partition(".")[2]
        if name in ("contract", "mma"):
            return self.product(op, work)
        if name in _FREE or not op.results or not all(isinstance(v.type, TileType) for v in op.results):
            return 0.0
        source = op.operands[0] if name in ("reduce", "scan", "sort", "cast") else op.results[0]
        elements, kind = _number(work.elements(source)), cast(TileType, source.type).dtype
        if name == "scan":
            return elements / self.figures.rate("chain f32")
        if name == "sort":
            return elements * self.sorting(_number(work.shape(source)[-1]), kind)
        if name == "merge":
            view = cast(ViewType, op.operands[-1].type)
            runs = max(_number(view.shape[1]) / cast(int, op.attrs["run"]), 2)
            return elements * MERGED * math.log2(runs) * self.step * kind.itemsize / 4
        if name == "load":
            return elements * (kind.itemsize / self.figures.rate("read L1") + self.rounding(kind))
        again = self.reading(op, work) if name == "reduce" and not first else 0.0
        return elements * self.element(name, kind) + again

    def reading(self, op: Op, work: Work) -> float:
        """What a further sum takes to read its operand again: of a row, from the cache that holds the row, else from
        the one that holds all rows."""
        tile, shape = cast(TileType, op.operands[0].type), work.shape(op.operands[0])
        axes = cast("tuple[int, ...]", op.attrs["axes"])
        all_bytes = _number(work.elements(op.operands[0])) * tile.dtype.itemsize
        kept = all_bytes if axes != (len(shape) - 1,) else _number(shape[-1]) * tile.dtype.itemsize
        level = next((n for n, size in zip(LEVELS, self.figures.caches, strict=False) if kept <= size), LEVELS[-1])
        return all_bytes / self.figures.rate(f"read {level}")

    def element(self, name: str, dtype: DType) -> float:
        """Seconds for one element of an op."""
        wide = max(dtype.itemsize, 4) / 4
        if dtype.is_float and f"{name} f32" in self.figures.rates:
            return wide / self.figures.rate(f"{name} f32") + self.rounding(dtype)
        known = TABLE.get(name)
        steps = _STEPS.get(name) or (known.flops if known is not None else 1)
        return steps * wide * self.step + self.rounding(dtype)

    def rounding(self, dtype: DType) -> float:
        """What it takes to widen an element of a narrow type, or to round it."""
        return ROUNDING * self.step if dtype.itemsize < 4 and dtype.kind != "bool" else 0.0

    def sorting(self, length: float, dtype: DType) -> float:
        """Seconds for one element of a line of this length: by a network of lines side by side, where each step takes
        three operations for two elements, and behind it by merges."""
        length = max(length, 2)
        depth = math.log2(length if length <= LONGEST_NETWORK else COLUMN)
        operations = 0.75 * depth * (depth + 1) + MERGED * (math.log2(length) - depth)
        return operations * self.step * dtype.itemsize / 4

    def product(self, op: Op, work: Work) -> float:
        """Multiply-adds of blocks of rows, and the packing of both operands where it is a large one."""
        rows, columns, length = map(_number, work.product(op))
        dtype = cast("TileType | ViewType", op.operands[0].type).dtype
        if op.name == "tile.mma":
            return (
                2 * rows * columns * length / self.figures.rate("product f64" if dtype == dtypes.f64 else "product f32")
            )
        lanes = self.figures.vector // max(dtype.itemsize, 4)
        filled = -(-columns // lanes) * lanes if columns > 1 else 1.0  # lanes hold columns, or steps of a single one
        packed = (rows + columns) * length * dtype.itemsize if rows > BLOCK and columns > 1 else 0.0
        packing = 2 * packed / self.figures.rate("copy L3")
        return 2 * rows * filled * length / (REACHED * self.product_rate(dtype)) + packing

    def product_rate(self, dtype: DType) -> float:
        """Operations in a second, by one thread."""
        name = "int8" if dtype == dtypes.uint8 else dtype.name
        name = f"product {name}"
        return self.figures.rate(name if name in self.figures.rates else "product f32") / (4 if dtype.is_complex else 1)


def _number(amount: Amount) -> float:
    return float(cast(float, amount))


class _Places:
    """Where the data of launches come from."""

    def __init__(self, program: Program, launches: Sequence[Launch], figures: Figures, threads: int) -> None:
        self.figures, self.threads = figures, threads
        self.sizes = {b.id: cast(int, prod(b.shape)) * b.dtype.itemsize for b in program.buffers}
        first, second, last = figures.caches
        self.limits = (first * threads, second * threads, last)
        self.total = 0
        self.read: set[int] = set()
        self.last: dict[int, int] = {}
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
        for (buffer, (read, written)), last in zip(moved.items(), before, strict=True):
            level = LEVELS[1] if (id(launch), buffer) in self.near else self._level(self.total - last)
            total += read / self.figures.rate(f"read {level}", threads)
            streams = written > cached_bytes(self.figures.caches) and buffer not in self.read
            total += written * (
                1 / self.figures.rate("stream memory", threads) if streams else self._write(level, threads)
            )
        return total

    def _write(self, level: str, threads: int) -> float:
        """Seconds for a byte: what a copy takes beyond reading."""
        copied, read = (self.figures.rate(f"{what} {level}", threads) for what in ("copy", "read"))
        return max(2 / copied - 1 / read, 0.5 / copied)

    def _level(self, distance: int) -> str:
        return next((level for level, limit in zip(LEVELS, self.limits, strict=False) if distance <= limit), LEVELS[-1])

    def _touch(self, launch: Launch) -> None:
        for buffer, (read, written) in self.moved[id(launch)].items():
            self.total += max(read, written)
            self.last[buffer] = self.total
            if read:
                self.read.add(buffer)

    def _moved(self, launch: Launch) -> dict[int, tuple[int, int]]:
        """Of each buffer, the bytes read of it and written to it: those of it at most, however often."""
        kernel = launch.code
        writes = cast("tuple[int, ...]", kernel.attrs.get("writes", ()))
        found: dict[int, tuple[int, int]] = {}
        for i, (arg, given) in enumerate(zip(kernel.region.block.args, launch.args, strict=True)):
            if isinstance(arg.type, ViewType) and isinstance(given, BufferArg):
                size, (read, written) = self.sizes[given.buffer], found.get(given.buffer, (0, 0))
                read = min(read + _read_bytes(kernel, arg), size)
                found[given.buffer] = read, min(written + _bytes(arg) * (i in writes), size)
        return found


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


def _bytes(view: Value) -> int:
    assert isinstance(view.type, ViewType)
    return cast(int, prod(view.type.shape)) * view.type.dtype.itemsize


def _read_bytes(kernel: Op, view: Value) -> int:
    """All of what is read at places that are known; where only data tell the places, as much as is taken."""
    readers = [user for user in users_of(view) if user.name not in ("tile.store", "tile.scatter")]
    if any(op.name != "tile.gather" for op in readers):
        return _bytes(view)
    size = cast(ViewType, view.type).dtype.itemsize
    taken = Work(kernel).total(lambda op, work: work.elements(op.result) if op in readers else 0) if readers else 0
    return int(_number(taken)) * size
