"""Launches in bands: `run` hands stretches of the bands to workers, which run a few units of each launch at a time.

A worker begins each launch later in its stretch, and ends it earlier, than the launch before, so that what it reads was
computed by the same worker. What is left between two stretches is run when these are done, and then what is left at
both ends, if these need each other. A stretch is described by words that all workers read::

    length, stretches, numbers of the launches, their code, their data, how many, units at a time,
    end of the bands, where the last launch ends, whether both ends are left, moves, how many

and the numbers of each launch are: units, programs in each, its start, how late and how early it is, whether it is
last, all of its programs, as the last unit may have fewer, and where a worker's copy of its data is and how long, in
words.

All bands of a stretch use the memory of its first one for temporaries that are local to a band. A worker has copies of
the launches' data, in which it moves the addresses of these back after each band. A move is the place of such an
address in the copies, and the bytes of a unit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import cast

from tessera.compiler.targets.cpu.frame import POOL, RUN, WORKERS, FrameLayout
from tessera.compiler.targets.cpu.kernel.function import PARAMS
from tessera.compiler.targets.cpu.kernel.launch_table import LaunchTable
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.values import I32, I64, PTR, Index, Val
from tessera.compiler.tile.program import Bands, BufferArg, Launch
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim, prod

LENGTH, STRETCHES, NUMBERS, CODE, DATA, COUNT, STEP, END, REACHED, RING, MOVES, MOVED, WORDS = range(13)
EACH = 9
"""numbers of a launch"""
APART = 8
"""a stretch is at least so many times as long as what launches stay behind in it"""
SHARE = 4
"""stretches for each thread: one that other work delays leaves some to the others"""


@mutable
class BandWriter:
    """Writes the bands of a Program. `longest`: launches of the longest ones."""

    module: LLVMModule
    frame: FrameLayout
    table: LaunchTable
    longest: int = 0
    copied: int = 0
    """words of the longest copies of launches' data"""
    written: int = field(default=0)

    def run(self, fn: LLVMFunction, bands: Bands, launches: Sequence[tuple[Launch, str]], watch: Val) -> None:
        """Writes the launches, each with the name of its function, into `run`."""
        frame, n = fn.param(0), self.written
        self.written, self.longest = n + 1, max(self.longest, len(launches))
        rows = [self.table.rows[id(launch)] for launch, _ in launches if self.table.has(launch)]
        calls = iter(self.table.calls(fn, rows))
        data = fn.alloca("ptr", len(launches), 8)
        code: list[str] = []
        for i, (launch, name) in enumerate(launches):
            known = self.table.has(launch)
            fn.store(next(calls) if known else frame, fn.gep(data, i, "ptr"), 8)
            code.append(f"ptr @{self.table.entry(launch) if known else name}")
        copies, moves = self._copies(bands, [launch for launch, _ in launches])
        numbers = [
            number
            for m, (launch, _), copy in zip(bands.launches, launches, copies, strict=True)
            for number in (m.units, m.programs, m.start, m.late, m.early, int(m.last), _programs(launch), *copy)
        ]
        self.module.globals += [
            f"@bands{n}.code = private unnamed_addr constant [{len(code)} x ptr] [{', '.join(code)}]",
            f"@bands{n} = private unnamed_addr constant [{len(numbers)} x i64] "
            f"[{', '.join(f'i64 {x}' for x in numbers)}]",
            f"@bands{n}.moves = private unnamed_addr constant [{len(moves)} x i64] "
            f"[{', '.join(f'i64 {x}' for x in moves)}]",
        ]
        run, pool = (self.frame.load_slot(fn, frame, slot, PTR) for slot in (RUN, POOL))
        stretches = self._stretches(fn, bands, pool)
        length = fn.div(bands.end, stretches)  # rounded down: the last one is no shorter than others, or its ends meet
        reached = max(bands.end, *(m.start + m.units + m.late for m in bands.launches))
        words = fn.alloca("i64", WORDS, 8)
        tables = (Val(f"@bands{n}", PTR), Val(f"@bands{n}.code", PTR), data)
        for i, word in enumerate(
            [
                length,
                stretches,
                *tables,
                len(launches),
                bands.step,
                bands.end,
                reached,
                int(bands.ring),
                Val(f"@bands{n}.moves", PTR),
                len(moves) // 2,
            ]
        ):
            fn.store(fn.index(word), fn.gep(words, i, "i64"), 8)
        for name, count in (("stretch", stretches), ("between", fn.sub(stretches, 1))):
            given = (pool, Val(f"@bands.{name}", PTR), words, fn.index(count), fn.index(1), watch)
            with fn.when(fn.icmp("sgt", count, 0)):
                fn.do(f"call void {run.ref}({', '.join(map(repr, given))})")
        if bands.ring:
            fn.do(f"call void @bands.ends({words!r}, i64 0, i64 1, i64 0)")

    def _copies(self, bands: Bands, launches: Sequence[Launch]) -> tuple[list[tuple[int, int]], list[int]]:
        """Where copies of the launches' data are and how long, and the moves. Without local temporaries there are
        none."""
        if not bands.local:
            return [(0, 0)] * len(launches), []
        sizes, copies, moves, place = dict(bands.local), list[tuple[int, int]](), list[int](), 0
        for launch in launches:
            known = self.table.has(launch)
            given = [a.buffer for a in launch.args if isinstance(a, BufferArg)]
            at = enumerate(given, 1) if known else ((self.frame.buffer_slot(b), b) for b in dict.fromkeys(given))
            moves += [n for slot, b in at if b in sizes for n in (place + slot, sizes[b])]
            copies.append((place, self.table.longest if known else self.frame.size))
            place += copies[-1][1]
        self.copied = max(self.copied, place)
        return copies, moves

    def _stretches(self, fn: LLVMFunction, bands: Bands, pool: Val) -> Val:
        """One for a thread alone; else some for each, unless too little is left of them."""
        behind = max(bands.step, *(m.late + m.early for m in bands.launches))
        most = max(1, bands.end // (APART * behind))
        others = fn.convert("zext", fn.load(fn.gep(pool, WORKERS, "i8"), I32, 4), I64)
        several = fn.smin(fn.mul(fn.add(others, 1), SHARE), most)
        return fn.select(fn.icmp("sgt", others, 0), fn.index(several), fn.index(1))

    def write(self) -> None:
        """The functions that workers call, once all bands are known."""
        if self.written:
            self._write_stretch()
            self._write_between()
            self._write_ends()

    def _write_stretch(self) -> None:
        fn = LLVMFunction(self.module, "bands.stretch", PARAMS)
        done, copies = fn.alloca("i64", self.longest, 8), fn.alloca("i64", max(1, self.copied), 8)
        words = _Words.of(fn)
        with fn.loop(fn.param(1), fn.param(2)) as stretch:
            with words.launches(fn) as launch:
                with fn.loop(0, launch.copied) as word:
                    copy = fn.gep(copies, fn.add(launch.copy, word.index), "i64")
                    fn.store(fn.load(fn.gep(launch.data, word.index, "i64"), I64, 8), copy, 8)
                fn.store(fn.index(words.first(fn, launch, stretch.index)), fn.gep(done, launch.number, "i64"), 8)
            last = fn.icmp("eq", stretch.index, fn.sub(words.stretches, 1))
            begin = fn.mul(stretch.index, words.length)
            end = fn.select(last, words.reached, fn.index(fn.add(begin, words.length)))
            with fn.loop(begin, end, words.step) as band:
                reached = fn.add(band.index, words.step)
                with words.launches(fn) as launch:
                    place = fn.gep(done, launch.number, "i64")
                    so_far = fn.load(place, I64, 8)
                    far = fn.sub(fn.sub(reached, launch.start), launch.late)
                    to = fn.smin(far, words.behind(fn, launch, stretch.index))
                    with fn.when(fn.icmp("sgt", to, so_far)):
                        fn.store(fn.index(to), place, 8)
                        copy = fn.gep(copies, launch.copy, "i64")
                        launch.call(fn, so_far, to, fn.select(fn.icmp("sgt", launch.copied, 0), copy, launch.data))
                with fn.loop(0, words.moved) as move:
                    first = fn.gep(words.moves, fn.mul(move.index, 2), "i64")
                    at, size = (fn.load(fn.gep(first, i, "i64"), I64, 8) for i in range(2))
                    place = fn.gep(copies, at, "i64")
                    moved = fn.sub(fn.load(place, I64, 8), fn.mul(words.step, size))
                    fn.store(fn.index(moved), place, 8)

    def _write_between(self) -> None:
        """What is left between a stretch and the next one, launch by launch: it is little."""
        fn = LLVMFunction(self.module, "bands.between", PARAMS)
        words = _Words.of(fn)
        with fn.loop(fn.param(1), fn.param(2)) as stretch, words.launches(fn) as launch:
            begin = words.behind(fn, launch, stretch.index)
            end = words.first(fn, launch, fn.add(stretch.index, 1))
            with fn.when(fn.icmp("sgt", end, begin)):
                launch.call(fn, begin, end)

    def _write_ends(self) -> None:
        """What is left at both ends of the bands, launch by launch."""
        fn = LLVMFunction(self.module, "bands.ends", PARAMS)
        words = _Words.of(fn)
        with words.launches(fn) as launch:
            last = fn.sub(words.stretches, 1)
            for begin, end in ((0, words.first(fn, launch, 0)), (words.behind(fn, launch, last), launch.units)):
                with fn.when(fn.icmp("sgt", end, begin)):
                    launch.call(fn, begin, end)


@immutable
class _Member:
    """A launch, in a worker's loop over those of the bands."""

    number: Val
    code: Val
    data: Val
    units: Val
    programs: Val
    start: Val
    late: Val
    early: Val
    last: Val
    total: Val
    copy: Val
    copied: Val

    def call(self, fn: LLVMFunction, begin: Index, end: Index, data: Val | None = None) -> None:
        end = fn.smin(fn.mul(end, self.programs), self.total)
        ends = ", ".join(f"i64 {fn.index(n).ref}" for n in (fn.mul(begin, self.programs), end))
        fn.do(f"call void {self.code.ref}({(data or self.data)!r}, {ends}, {fn.param(3)!r})")


@immutable
class _Words:
    """The words that describe stretches, as a worker has read them."""

    length: Val
    stretches: Val
    numbers: Val
    code: Val
    data: Val
    count: Val
    step: Val
    end: Val
    reached: Val
    ring: Val
    moves: Val
    moved: Val

    @staticmethod
    def of(fn: LLVMFunction) -> _Words:
        kinds = {NUMBERS: PTR, CODE: PTR, DATA: PTR, MOVES: PTR}
        return _Words(*(fn.load_pure(fn.gep(fn.param(0), i, "i64"), kinds.get(i, I64), 8) for i in range(WORDS)))

    @contextmanager
    def launches(self, fn: LLVMFunction) -> Generator[_Member]:
        with fn.loop(0, self.count) as loop:
            first = fn.gep(self.numbers, fn.mul(loop.index, EACH), "i64")
            code, data = (fn.load(fn.gep(p, loop.index, "ptr"), PTR, 8) for p in (self.code, self.data))
            yield _Member(loop.index, code, data, *(fn.load(fn.gep(first, i, "i64"), I64, 8) for i in range(EACH)))

    def first(self, fn: LLVMFunction, launch: _Member, stretch: Index) -> Index:
        """The first unit of a launch that belongs to a stretch: those before it belong to earlier ones or to none."""
        begin = fn.add(fn.sub(fn.mul(stretch, self.length), launch.start), launch.early)
        is_cut = fn.icmp("sgt", fn.add(self.ring, stretch), 0)
        inside = fn.select(is_cut, self._inside(fn, launch, begin), fn.index(0))
        return fn.select(fn.icmp("ne", launch.last, 0), launch.units, inside)

    def behind(self, fn: LLVMFunction, launch: _Member, stretch: Index) -> Index:
        """The unit of a launch behind the last one that belongs to a stretch."""
        after = fn.add(stretch, 1)
        final = fn.icmp("eq", after, self.stretches)
        place = fn.select(final, self.end, fn.index(fn.mul(after, self.length)))
        end = fn.sub(fn.sub(place, launch.start), launch.late)
        is_whole = fn.binary("and", final, fn.icmp("eq", self.ring, 0))
        is_whole = fn.binary("or", is_whole, fn.icmp("ne", launch.last, 0))
        return fn.select(is_whole, launch.units, self._inside(fn, launch, end))

    def _inside(self, fn: LLVMFunction, launch: _Member, unit: Index) -> Val:
        return fn.index(fn.smax(fn.smin(unit, launch.units), 0))


def _programs(launch: Launch) -> int:
    total = prod(cast("Sequence[Dim]", launch.kernel.attrs["grid"]))
    assert isinstance(total, int)
    return total
