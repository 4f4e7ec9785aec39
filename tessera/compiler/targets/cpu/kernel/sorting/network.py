"""Lines sorted side by side, one in each lane of vectors: a bitonic network (Batcher 1968) whose comparators all put
the lesser word first, so that what is missing at the end of a line may be taken for the largest.

A line of `n` words is `n` vectors one behind the other. Several levels of comparators run on as many vectors as
registers hold, between one load and one store of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.kernel.sorting.words import Word, Words
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import Index, Val


class LaneNetwork:
    """Sorts vectors of words in memory, which is filled behind them with the largest value up to the next power of
    two. Memory holds each part of words by itself; addresses count vectors."""

    def __init__(self, words: Words, lanes: int, registers: int) -> None:
        self.fn, self.words, self.lanes = words.fn, words, lanes
        self.levels = (registers // len(words.kinds)).bit_length() - 2
        self.block = 1 << self.levels
        """vectors that registers hold at a time"""

    def base(self, v: Sequence[Word]) -> list[Word]:
        """A block of vectors sorted in registers, by odd-even merges."""
        v, n = list(v), len(v)
        p = 1
        while p < n:
            k = p
            while k >= 1:
                for j in range(k % p, n - k, 2 * k):
                    for i in range(min(k, n - j - k)):
                        if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                            v[i + j], v[i + j + k] = self.words.ordered(v[i + j], v[i + j + k])
                k //= 2
            p *= 2
        return v

    def merge(self, memory: Sequence[Val], n: Index, most: int) -> None:
        """Sorted blocks among `n` vectors at `memory` become runs of `most` vectors, or one of all."""
        fn = self.fn
        end = fn.smin(n, most)

        def double(state: list[Val]) -> list[Val]:
            self._flip(memory, n, state[0])
            self._below(memory, n, fn.div(state[0], self.block))
            return [fn.index(fn.mul(state[0], 2))]

        fn.while_loop([fn.here(fn.index(self.block))], lambda state: fn.icmp("slt", state[0], end), double)

    def _below(self, memory: Sequence[Val], n: Index, stride: Index) -> None:
        """The levels of comparators from `stride`, a power of two or 0, down."""
        fn, half = self.fn, self.block // 2

        def some(state: list[Val]) -> list[Val]:
            self._strides(memory, n, state[0], self.levels)
            return [fn.index(fn.div(state[0], self.block))]

        (rest,) = fn.while_loop([fn.here(fn.index(stride))], lambda state: fn.icmp("sge", state[0], half), some)
        for levels in range(1, self.levels):
            with fn.when(fn.icmp("eq", rest, 1 << (levels - 1))):
                self._strides(memory, n, 1 << (levels - 1), levels)

    def keep(self, memory: Sequence[Val], n: Index, width: int) -> None:
        """The least `width` vectors, sorted, of sorted runs of `width` vectors; there are `n` vectors in all, `width`
        times a power of two. The lesser half of two runs is the minimum of one run and the other one reversed."""
        fn, count = self.fn, self.block
        step = width // count

        def halve(state: list[Val]) -> list[Val]:
            half = fn.index(fn.div(state[0], 2))
            with fn.loop(0, half, width) as run, fn.loop(0, step) as loop:
                source = fn.mul(run.index, 2)
                low = [fn.add(fn.add(source, loop.index), j * step) for j in range(count)]
                top = fn.add(source, 2 * width - 1)
                high = [fn.sub(fn.sub(top, loop.index), j * step) for j in range(count)]
                pairs = zip(self.load(memory, low), self.load(memory, high), strict=True)
                least = [self.words.least(a, b) for a, b in pairs]
                target = [fn.add(fn.add(run.index, loop.index), j * step) for j in range(count)]
                self.store(memory, target, self.halve(least))
            self._below(memory, half, step // 2)
            return [half]

        fn.while_loop([fn.here(fn.index(n))], lambda state: fn.icmp("sgt", state[0], width), halve)

    def _flip(self, memory: Sequence[Val], n: Index, width: Index) -> None:
        """The first levels of merging neighbouring runs: the first of one against the last of the other, then strides
        within either."""
        fn, half = self.fn, self.block // 2
        step, two = fn.div(width, half), fn.mul(width, 2)
        with fn.loop(0, fn.sub(n, width), two) as pair, fn.loop(0, step) as loop:
            low = [fn.add(fn.add(pair.index, loop.index), fn.mul(step, j)) for j in range(half)]
            top = fn.add(pair.index, fn.sub(two, 1))
            high = [fn.sub(fn.sub(top, loop.index), fn.mul(step, j)) for j in range(half)]
            a, b = self.load(memory, low), self.load(memory, high)
            for j in range(half):
                a[j], b[j] = self.words.ordered(a[j], b[j])
            self.store(memory, low, self.halve(a))
            self.store(memory, high[::-1], self.halve(b[::-1]))

    def _strides(self, memory: Sequence[Val], n: Index, stride: Index, levels: int) -> None:
        """Comparators of elements `stride` apart, half as far, and so on."""
        fn, count = self.fn, 1 << levels
        two = fn.mul(stride, 2)
        step = fn.div(two, count)
        with fn.loop(0, n, two) as part, fn.loop(0, step) as loop:
            at = [fn.add(fn.add(part.index, loop.index), fn.mul(step, j)) for j in range(count)]
            self.store(memory, at, self.halve(self.load(memory, at)))

    def halve(self, v: list[Word]) -> list[Word]:
        """Vectors whose lanes are bitonic sequences, sorted."""
        stride = len(v) // 2
        while stride:
            for i in range(len(v)):
                if not i & stride:
                    v[i], v[i + stride] = self.words.ordered(v[i], v[i + stride])
            stride //= 2
        return v

    def load(self, memory: Sequence[Val], at: Sequence[Index]) -> list[Word]:
        return [self.words.load(memory, self.fn.mul(i, self.lanes), self.lanes) for i in at]

    def store(self, memory: Sequence[Val], at: Sequence[Index], v: Sequence[Word]) -> None:
        for i, x in zip(at, v, strict=True):
            self.words.store(x, memory, self.fn.mul(i, self.lanes))


def turned(fn: LLVMFunction, rows: Sequence[Word]) -> list[Word]:
    """As many vectors of words as lanes, transposed."""
    parts = [transpose(fn, list(part)) for part in zip(*rows, strict=True)]
    return [list(word) for word in zip(*parts, strict=True)]
