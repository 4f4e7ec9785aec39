"""`tile.sort`: every line by itself, or as many together as vectors have lanes."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.kernel.sorting.line import OneLine, restore
from tessera.compiler.targets.cpu.kernel.sorting.network import LaneNetwork, turned
from tessera.compiler.targets.cpu.kernel.sorting.words import Word, Words
from tessera.compiler.targets.cpu.llvm.values import I1, I64, Index, Val, const
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.sizes import ALONE, FEW, TOGETHER, sample_of
from tessera.language.dims import Dim, ceildiv, dim_max, dim_min, prod


@writes("sort")
def write_sort(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """Puts the sorted elements, or where they came from, into the result's memory."""
    ev, x, axis = k.ev, op.operands[0], int(op.attrs["axis"])  # type: ignore[call-overload]
    words = Words(k.fn, held(dtype_of(x)), bool(op.attrs.get("descending")), bool(op.attrs.get("positions")))
    lines = TileLines(
        k, words, prod(n for a, n in enumerate(shape_of(x)) if a != axis), shape_of(x)[axis], shape_of(op.result)[axis]
    )
    order = [a for a in range(len(shape_of(x))) if a != axis]
    steps: dict[int, Index] = {axis: 1}
    step = lines.pitch
    for a in reversed(order):
        steps[a] = 0 if shape_of(x)[a] == 1 else step
        step = k.fn.mul(step, ev.dim(shape_of(x)[a]))
    strides = tuple(steps[a] for a in range(len(steps)))
    writer.write(plan.copy(x, Cell(lines.source, strides, held(dtype_of(x)))))
    wanted = ev.cells.pop(op.result, None)
    lines.sort()
    ev.cells[op.result] = Cell(lines.target, strides, held(dtype_of(op.result)))
    if wanted is not None:
        writer.write(plan.copy(op.result, wanted))
        ev.cells[op.result] = wanted


class TileLines:
    """`count` lines of `n` elements, from `source` to `target`, each `pitch` elements behind the one before. No more
    than the `first` of each are wanted."""

    def __init__(self, k: KernelFunction, words: Words, count: Dim, n: Dim, first: Dim) -> None:
        self.k, self.fn, self.words, self.first = k, k.fn, words, first
        self.lanes = k.isa.lanes(words.kinds[0].bits)
        self.network = LaneNetwork(words, self.lanes, k.isa.registers)
        self.count, self.n, self.length = k.ev.dim(count), k.ev.dim(n), n
        self.together = self._worth_it()
        block = self.network.block
        whole = n if self.together is False else ceildiv(n, block) * block
        room = count * whole
        if self.together is not False:
            room = dim_max(room, ceildiv(count, self.lanes) * self.lanes * dim_min(whole, TOGETHER))
        room += OneLine.slack(self.network)
        self.source, self.target = (k.raw(room * (t.bits // 8)) for t in (words.storage, words.result))
        self.pitch = k.ev.dim(whole)

    def _worth_it(self) -> bool | Val:
        """Whether lines are sorted together: where the line is short, or most lanes have one."""
        fn = self.fn
        word = sum(t.bits // 8 for t in self.words.kinds)
        if isinstance(self.n, int) and self.n * word >= ALONE and sample_of(self.n, self.first):
            return False
        if isinstance(self.n, int) and isinstance(self.count, int):
            return self.n <= (TOGETHER if 2 * self.count >= self.lanes else FEW)
        if isinstance(self.n, int) and self.n > TOGETHER:
            return False
        enough = fn.icmp("sge", fn.mul(self.count, 2), self.lanes)
        most = fn.select(enough, const(TOGETHER, I64), const(FEW, I64))
        return fn.icmp("sle", self.n, most)

    def sort(self) -> None:
        if isinstance(self.together, bool):
            (self._together if self.together else self._one_by_one)()
        else:
            self.fn.either(self.together, self._together, self._one_by_one)

    def _row(self, memory: Val, kind: str, row: Index) -> Val:
        return self.fn.gep(memory, self.fn.mul(row, self.pitch), kind)

    def _one_by_one(self) -> None:
        line = OneLine(self.k, self.network, self.length, self.first)
        with self.fn.loop(0, self.count) as row:
            source = self._row(self.source, self.words.storage.text, row.index)
            target = self._row(self.target, self.words.result.text, row.index)
            for special in line.sort(source, target):
                with self.fn.when(special):
                    restore(self.words, self.n, source, target, self._spare())

    def _spare(self) -> Val:
        return self.fn.alloca("i8", 16, 16)

    # -- one line in each lane ---------------------------------------------------------------------------------------
    def _together(self) -> None:
        fn, block = self.fn, self.network.block
        if isinstance(self.n, int):
            most = max(block, 1 << (self.n - 1).bit_length()) if self.n else 0
            size: Dim = most
        else:
            most, size = TOGETHER, dim_min(2 * self.length, 2 * TOGETHER) + block
        held_lines = [self.k.raw(size * (self.lanes * t.bits // 8)) for t in self.words.kinds]
        with fn.loop(0, self.count, self.lanes) as group:
            special = self._enter(held_lines, group.index)
            last = self.words.last(self.lanes)
            end = most if isinstance(self.n, int) else fn.mul(self.n, 2)
            with fn.loop(self.pitch, end) as loop:
                self.network.store(held_lines, [loop.index], [last])
            self._order(held_lines, most)
            self._leave(held_lines, group.index)
            if special is not None:
                with fn.when(special):
                    end = fn.smin(fn.add(group.index, self.lanes), self.count)
                    with fn.loop(group.index, end) as row:
                        source = self._row(self.source, self.words.storage.text, row.index)
                        target = self._row(self.target, self.words.storage.text, row.index)
                        restore(self.words, self.n, source, target, self._spare())

    def _order(self, memory: list[Val], most: int) -> None:
        """Sorts blocks as a whole, or keeps what comes first of them."""
        fn, network = self.fn, self.network
        width = most
        if isinstance(self.first, int) and self.first:
            width = min(most, max(network.block, 1 << (self.first - 1).bit_length()))
        network.merge(memory, self.n, width)
        if width == most:
            return
        if isinstance(self.n, int):
            network.keep(memory, most, width)
            return
        start = [fn.here(fn.index(width))]
        doubled = fn.while_loop(
            start, lambda state: fn.icmp("slt", state[0], self.n), lambda state: [fn.index(fn.mul(state[0], 2))]
        )
        network.keep(memory, doubled[0], width)

    def _enter(self, memory: list[Val], first: Val) -> Val | None:
        """Lines as columns of words, in sorted blocks; gives whether an element is special."""
        fn, words, lanes, block = self.fn, self.words, self.lanes, self.network.block
        storage = words.storage.wide(lanes)
        flags = [fn.here(const(False, I1.wide(lanes)))] if words.restored else []
        rows = [self._row(self.source, words.storage.text, fn.add(first, i)) for i in range(lanes)]
        with fn.loop(0, self.n, block, flags) as loop:
            special = loop.carried[0] if flags else None
            column: list[Word] = []
            for part in range(0, block, lanes):
                at = fn.index(fn.add(loop.index, part))
                numbers = fn.binary("add", fn.splat(at, lanes), fn.lane_numbers(I64.wide(lanes)))
                real = fn.compare("icmp slt", numbers, fn.splat(fn.index(self.n), lanes))
                found: list[Word] = []
                for row in rows:
                    v = fn.load(fn.gep(row, at, words.storage.text), storage)
                    word, odd = words.of(v, numbers), words.special(v) if special is not None else None
                    if not isinstance(self.n, int) or self.n % block:
                        word = words.select(real, word, words.last(lanes))
                        odd = fn.binary("and", odd, real) if odd is not None else None
                    if special is not None and odd is not None:
                        special = fn.binary("or", special, odd)
                    found.append(word)
                column += turned(fn, found)
            places = [fn.add(loop.index, i) for i in range(block)]
            self.network.store(memory, places, self.network.base(column))
            if special is not None:
                loop.next = [special]
        if not flags:
            return None
        return fn.call_pure(f"llvm.vector.reduce.or.v{lanes}i1", I1, loop.results[0])

    def _leave(self, memory: list[Val], first: Val) -> None:
        """Stores columns of words as lines of the result."""
        fn, words, lanes = self.fn, self.words, self.lanes
        rows = [self._row(self.target, words.result.text, fn.add(first, i)) for i in range(lanes)]
        end = self.pitch if self.first is self.length else fn.smin(self.k.ev.dim(self.first), self.pitch)
        with fn.loop(0, end, lanes) as loop:
            column = self.network.load(memory, [fn.add(loop.index, i) for i in range(lanes)])
            for row, v in zip(rows, turned(fn, column), strict=True):
                fn.store(words.found(v), fn.gep(row, loop.index, words.result.text))
