"""One line sorted by itself: columns of a block of words side by side, one in each lane, then merges of the runs that
this gives, two by two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from tessera.compiler.targets.cpu.kernel.function import KernelFunction
from tessera.compiler.targets.cpu.kernel.sorting.merging import Pieces
from tessera.compiler.targets.cpu.kernel.sorting.network import LaneNetwork, turned
from tessera.compiler.targets.cpu.kernel.sorting.selection import Candidates
from tessera.compiler.targets.cpu.kernel.sorting.words import Word, Words
from tessera.compiler.targets.cpu.llvm.values import I1, I64, Index, Val, const
from tessera.compiler.tile.loops.sizes import HEIGHT, sample_of
from tessera.language.dims import Dim, ceildiv

Reader: TypeAlias = "Callable[[Index, Val], tuple[Word, Val | None]]"
"""words from a place on, whose numbers are a vector, and the elements that they are of"""


class OneLine:
    """Room for the `n` words of a line, of which the `first` are wanted. Lines and results may be read and written
    a few vectors beyond their ends (`slack` elements)."""

    def __init__(self, k: KernelFunction, network: LaneNetwork, n: Dim, first: Dim) -> None:
        self.fn, self.words, self.lanes, self.network = k.fn, network.words, network.lanes, network
        self.height = HEIGHT
        if isinstance(n, int):
            self.height = min(HEIGHT, max(network.block, _power_of_two(-(-n // self.lanes))))
        self.n, self.first = k.ev.dim(n), k.ev.dim(first)
        self.columns = [k.raw(self.height * self.lanes * (t.bits // 8)) for t in self.words.kinds]
        count = ceildiv(n, self.height * self.lanes) * self.lanes
        self.pitch = cast(int, Pieces.room(network, self.height))
        self.pieces = Pieces(k, network, count, count * self.pitch)
        sample = sample_of(n, first)
        self.few = None if sample is None else Candidates(k, network, n, sample)

    @staticmethod
    def slack(network: LaneNetwork) -> int:
        return network.block * network.lanes

    def sort(self, source: Val, target: Val) -> list[Val]:
        """Sorts the elements at `source` and writes them, or their positions, to `target`. Where words do not determine
        every element, gives whether there is an element of that kind."""
        fn, words, lanes, n = self.fn, self.words, self.lanes, self.n

        def read(at: Index, numbers: Val) -> tuple[Word, Val]:
            v = fn.load(fn.gep(source, at, words.storage.text), words.storage.wide(lanes))
            return words.of(v, numbers), v

        if self.few is None:
            found, special = self._ordered(read, n, self.first)
        else:
            sorted_sample, _ = self._ordered(self.few.sampled(read, n), self.few.sample, self.few.sample)
            n, special = self.few.collect(sorted_sample, source, n, self.first)
            found, _ = self._ordered(self.few.read, n, self.first)
        with fn.loop(0, self.first, lanes) as loop:
            word = words.load(found, loop.index, lanes)
            fn.store(words.found(word), fn.gep(target, loop.index, words.result.text))
        return special

    def _ordered(self, read: Reader, n: Index, first: Index) -> tuple[list[Val], list[Val]]:
        """The memory of the `first` of `n` words in order, and whether an element is special, as `sort` gives it."""
        fn, block = self.fn, self.height * self.lanes
        special = self._runs(read, n)
        return self.pieces.merge(fn.mul(fn.div(fn.add(n, block - 1), block), self.lanes), first), special

    def _runs(self, read: Reader, n: Index) -> list[Val]:
        """Sorted columns of all blocks."""
        fn, lanes, step = self.fn, self.lanes, self.height * self.lanes
        flags = [fn.here(const(False, I1.wide(lanes)))] if self.words.restored else []
        with fn.loop(0, n, step, flags) as block:
            left = fn.sub(n, block.index)
            rows = fn.smin(fn.div(fn.add(left, lanes - 1), lanes), self.height)
            block.next = self._enter(read, n, block.index, rows, block.carried)
            self.network.merge(self.columns, rows, self.height)
            self._leave(fn.div(block.index, self.height), rows)
        return [fn.any_lane(v) for v in block.results]

    def _enter(self, read: Reader, n: Index, first: Index, rows: Index, flags: Sequence[Val]) -> list[Val]:
        """The words of a block in sorted groups of rows, and the largest one behind them."""
        fn, words, lanes, count = self.fn, self.words, self.lanes, self.network.block
        with fn.loop(0, rows, count, flags) as loop:
            special = list(loop.carried)
            group: list[Word] = []
            for i in range(count):
                at = fn.index(fn.add(first, fn.mul(fn.add(loop.index, i), lanes)))
                numbers = fn.binary("add", fn.splat(at, lanes), fn.lane_numbers(I64.wide(lanes)))
                real = fn.compare("icmp slt", numbers, fn.splat(fn.index(n), lanes))
                word, v = read(at, numbers)
                group.append(words.select(real, word, words.last(lanes)))
                if v is not None:
                    special = [fn.binary("or", s, fn.binary("and", words.special(v), real)) for s in special]
            at = [fn.add(loop.index, i) for i in range(count)]
            self.network.store(self.columns, at, self.network.base(group))
            loop.next = special
        behind = fn.mul(fn.div(fn.add(rows, count - 1), count), count)
        with fn.loop(behind, fn.smin(fn.mul(behind, 2), self.height)) as rest:
            self.network.store(self.columns, [rest.index], [words.last(lanes)])
        return loop.results

    def _leave(self, first: Index, rows: Index) -> None:
        """Columns become runs, from the piece with the number `first` on."""
        fn, lanes = self.fn, self.lanes
        starts = [fn.mul(fn.add(first, c), self.pitch) for c in range(lanes)]
        with fn.loop(0, rows, lanes) as loop:
            column = self.network.load(self.columns, [fn.add(loop.index, i) for i in range(lanes)])
            for start, word in zip(starts, turned(fn, column), strict=True):
                self.words.store(word, self.pieces.memory, fn.add(start, loop.index))
        with fn.loop(first, fn.add(first, lanes)) as loop:
            self.pieces.put(loop.index, fn.mul(loop.index, self.pitch), rows)


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def restore(words: Words, n: Index, source: Val, target: Val, spare: Val) -> None:
    """Puts the line's own zeros and NaN, in their order, where words left any. `spare` is room for one element."""
    fn, t = words.fn, words.storage
    (zero,) = words.of(const(0.0, t), const(0, I64))

    def element(i: Val) -> tuple[Val, Val, Val]:
        v = fn.load(fn.gep(source, i, t.text), t)
        return v, fn.compare("fcmp oeq", v, const(0.0, t)), fn.compare("fcmp uno", v, v)

    none = fn.here(const(0, I64))
    with fn.loop(0, n, 1, [none, none]) as loop:
        v, _, unordered = element(loop.index)
        before = fn.compare("icmp slt", words.of(v, loop.index)[0], zero)
        loop.next = [
            fn.index(fn.add(c, fn.convert("zext", b, I64)))
            for c, b in zip(loop.carried, (before, unordered), strict=True)
        ]
    before, unordered = loop.results
    start = fn.here(const(0, I64)) if words.descending else fn.index(fn.sub(n, unordered))
    with fn.loop(0, n, 1, [before, start]) as loop:
        v, is_zero, is_nan = element(loop.index)
        zeros, nans = (fn.gep(target, c, t.text) for c in loop.carried)
        fn.store(v, fn.select(is_zero, zeros, fn.select(is_nan, nans, spare)))
        loop.next = [
            fn.index(fn.add(c, fn.convert("zext", b, I64)))
            for c, b in zip(loop.carried, (is_zero, is_nan), strict=True)
        ]
