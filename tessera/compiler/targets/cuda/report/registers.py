"""Which tiles a kernel keeps in registers at once, and what to shrink where that is more than a thread has.

Known from the layouts, before any compiler runs: a tile that is used behind a loop, a product or a reduction is whole
in registers while that runs. Addresses and temporaries come on top, so that a kernel above the limit spills whatever
its compiler does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_tile
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products
from tessera.errors import Diagnostic, Note, Span
from tessera.immutable import immutable
from tessera.language.scalars import TABLE

MOST, FILE = 255, 65536
"""32-bit registers of one thread at most, and of all threads of a multiprocessor (every architecture)"""
CONSUMERS = 240
"""what the threads that multiply have where a whole warpgroup hands its registers over (device_sm90.cuh)"""
BESIDE = 8
"""An address, a counter and a value on its way take as many at least."""
LIKELY = 0.6
"""From this share of the limit on there is seldom room for values beside the tiles."""
LOOPS = ("tile.for", "tile.while", "tile.pipeline")
WHOLE = (*LOOPS, "tile.contract", "tile.mma", "tile.reduce", "tile.scan", "tile.fold", "tile.sort")
"""While these run, tiles that are used behind them are held as a whole."""


@immutable
class HeldTile:
    """32-bit registers of each thread that one tile holds."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    registers: int
    span: Span

    def __str__(self) -> str:
        return f"{self.name}: {_size(self.shape)} {self.dtype}, {self.registers} registers of each thread"


@immutable
class Pressure:
    """The tiles that are held at once where there are most of them, the largest first."""

    held: tuple[HeldTile, ...]
    threads: int
    limit: int

    @property
    def registers(self) -> int:
        return sum(h.registers for h in self.held)

    @property
    def fits(self) -> bool:
        """False: the compiler has to spill."""
        return self.takes(self.registers)

    def takes(self, registers: int) -> bool:
        """Whether a thread has room for `registers` registers of tiles beside its other values."""
        return registers + BESIDE <= self.limit

    @property
    def likely(self) -> bool:
        """Whether the compiler is likely to spill."""
        return self.registers >= LIKELY * self.limit


def pressure(e: KernelEmitter) -> Pressure:
    """Of a kernel that has been written."""
    lives = _Lives(e.kernel)
    most: list[tuple[int, Value]] = []
    for op in e.kernel.walk():
        if op.name in WHOLE:
            held = [(n, v) for v in (*op.results, *lives.through(op)) if (n := _weight(e, v))]
            most = max(most, held, key=lambda tiles: sum(n for n, _ in tiles))
    tiles = [HeldTile(_name(v), shape_of_tile(v), dtype_of(v).name, n, starts_at(v)) for n, v in most]
    return Pressure(tuple(sorted(tiles, key=lambda h: -h.registers)), e.threads, _limit(e))


def too_many(e: KernelEmitter, p: Pressure) -> Diagnostic:
    """TS411: the tiles that do not fit, and what makes them."""
    share = f" ({e.block_threads} share {FILE})" if p.limit < min(MOST, CONSUMERS) else ""
    has = f"a thread has {p.limit}{share} for tiles and all else"
    message = f"Tiles hold {p.registers} registers of each of {p.threads} threads here; {has}."
    notes = tuple(Note(str(h), h.span) for h in p.held[:4])
    return Diagnostic("TS411", f"{message}\n{_advice(p)}", p.held[0].span, notes=notes)


def _advice(p: Pressure) -> str:
    ways = changes(p, p.takes)
    return f"Use {', or '.join(ways)}." if ways else "Use smaller tiles, or elements of fewer bits."


def changes(p: Pressure, fits: Callable[[int], bool], warps_too: bool = True) -> list[str]:
    """What an author can change so that the registers of tiles fit: the smallest change of each kind.

    `warps_too`: whether the author chooses the number of warps."""
    ways: list[str] = []
    warps = p.threads // 32
    if warps_too and (more := next((n for n in (2, 4, 8) if n > warps and fits(p.registers * warps // n)), None)):
        ways.append(f"num_warps={more} instead of {warps}")
    largest = p.held[0]
    for by, size in ((by, d) for by in (2, 4, 8) for d in sorted(set(largest.shape), reverse=True) if d // by >= 8):
        if fits(sum(h.registers // (by if size in h.shape else 1) for h in p.held)):
            last = len(largest.shape) - 1 - largest.shape[::-1].index(size)
            smaller = (*largest.shape[:last], size // by, *largest.shape[last + 1 :])
            ways.append(f"{largest.name} of {_size(smaller)} instead of {_size(largest.shape)}")
            break
    return ways


class _Lives:
    """From where to where each tile of a kernel is needed, in the order of its ops."""

    def __init__(self, kernel: Op) -> None:
        self._first: dict[Op, int] = {}
        self._last: dict[Op, int] = {}
        self._tiles: list[tuple[Value, int, list[int]]] = []
        self._number(kernel)
        for op in kernel.walk():
            for v in op.results:
                self._add(v, self._last[op])
            for region in op.regions:
                for v in region.block.args:
                    self._add(v, self._first[op])

    def _number(self, op: Op) -> None:
        self._first[op] = len(self._first)
        for region in op.regions:
            for inner in region.block.ops:
                self._number(inner)
        self._last[op] = len(self._first) - 1

    def _add(self, v: Value, born: int) -> None:
        if is_tile(v):
            self._tiles.append((v, born, [self._needed(v, user) for user, _ in v.uses]))

    def _needed(self, v: Value, user: Op) -> int:
        """Until when a use needs the value: inside a loop that the value comes from outside of, to the loop's end."""
        home = v.owner if isinstance(v.owner, Block) else v.owner.block
        until, at = self._first[user], user
        while at.block is not home and at.parent is not None:
            at = at.parent
            until = self._last[at] if at.name in LOOPS else until
        return until

    def through(self, op: Op) -> list[Value]:
        """The tiles that are there before `op` and needed behind it, or in more than one of its turns."""
        first, last = self._first[op], self._last[op]
        others = list(self._other_branches(op))

        def behind(n: int) -> bool:
            return n >= last and n > first and not any(a <= n <= b for a, b in others)

        return [v for v, born, needed in self._tiles if born < first and any(map(behind, needed))]

    def _other_branches(self, op: Op) -> Iterator[tuple[int, int]]:
        """The branches that are not taken when `op` runs."""
        block = op.block
        while block is not None and block.region is not None and block.region.op is not None:
            parent = block.region.op
            if parent.name == "tile.if":
                for region in parent.regions:
                    if region.block is not block:
                        yield self._first[region.block.ops[0]], self._last[region.block.ops[-1]]
            block = parent.block


def _weight(e: KernelEmitter, v: Value) -> int:
    """Registers that surely hold a tile. A tile of one number, or one computed from positions, needs none."""
    if not is_tile(v) or v not in e.env or v in e.splat:
        return 0
    if v.op is not None:
        name = v.op.name.partition(".")[2]
        if name == "iota":
            return 0
        if name == "broadcast":
            return _weight(e, v.op.operands[0])
        if (name in TABLE or name == "cast") and not any(_weight(e, x) for x in v.op.operands):
            return 0
    layout = e.grouping.of(v).layout
    return 0 if layout is None else -(-layout.registers * dtype_of(v).itemsize // 4)


def _limit(e: KernelEmitter) -> int:
    plans = (plan.producers for plan in e.warpgroups.values() if isinstance(plan, Products))
    if 4 in (*plans, e.products.producers):
        return CONSUMERS
    return min(MOST, FILE // e.block_threads // 8 * 8)


def shape_of_tile(v: Value) -> tuple[int, ...]:
    assert isinstance(v.type, TileType)
    return tuple(d for d in v.type.shape if isinstance(d, int))


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _name(v: Value) -> str:
    return v.hint or next((n for x in _same(v) if (n := x.hint)), "a tile")


def starts_at(v: Value) -> Span:
    """Where a tile starts: a carried one before its loop."""
    start = _same(v)[-1]
    return start.op.span if start.op is not None else owner_of(start).span


def _same(v: Value) -> list[Value]:
    """A tile and what it is before a step of its loop, before the loop, before it is added to."""
    found = [v]
    while True:
        v = found[-1]
        op = v.op
        if op is None:
            loop = owner_of(v)
            before = len(loop.operands) - (len(loop.regions[-1].block.args) - v.index)
            step = loop.operands[before] if loop.name in LOOPS and before >= 0 else None
        elif op.name in LOOPS:
            step = op.operands[len(op.operands) - len(op.results) + v.index]
        else:
            step = op.operands[2] if op.name == "tile.mma" else None
        if step is None or not is_tile(step):
            return found
        found.append(step)


def owner_of(v: Value) -> Op:
    """The op that a block's argument belongs to."""
    assert isinstance(v.owner, Block) and v.owner.region is not None and v.owner.region.op is not None
    return v.owner.region.op
