"""Sorted runs, merged two by two.

The W least words of two runs, if W are left of each, are the lesser of word i of the one and word W - 1 - i of the
other, for each i; how many come from either run says where the next ones begin. In registers they are a bitonic
sequence. (Papaphilippou et al., FLiMS: a fast lightweight 2-way merge sorter, 2021.) Behind every run lie W words that
nothing comes behind, so that there are always W to read; a merge writes them behind its result by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tessera.compiler.targets.cpu.kernel.sorting.network import LaneNetwork
from tessera.compiler.targets.cpu.kernel.sorting.words import Word
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import I64, Index, Val, ty
from tessera.language.dims import Dim


class ScratchOwner(Protocol):
    """What gives `raw` bytes to a function that is being written."""

    fn: LLVMFunction

    def raw(self, size: Dim) -> Val: ...


class Pieces:
    """Memory for at most `count` runs that take the `room` of so many words: `memory` holds them, a table says where
    they begin and how long they are, and merges move them to and fro between it and as much again."""

    def __init__(self, k: ScratchOwner, network: LaneNetwork, count: Dim, room: Dim) -> None:
        self.fn, self.words, self.lanes, self.network = k.fn, network.words, network.lanes, network
        self.vectors = self._vectors(network)
        self.wide = self.vectors * self.lanes
        self.memory, self.other = ([k.raw(room * (t.bits // 8)) for t in self.words.kinds] for _ in range(2))
        self.starts, self.sizes = k.raw(count * 8), k.raw(count * 8)

    @staticmethod
    def _vectors(network: LaneNetwork) -> int:
        """Vectors that a step of a merge writes."""
        return max(2, network.block // 4)

    @classmethod
    def room(cls, network: LaneNetwork, size: Index) -> Index:
        """Words that a run takes, with what is behind it: up to two steps of a merge more than it has."""
        wide, fn = cls._vectors(network) * network.lanes, network.fn
        return fn.mul(fn.add(fn.div(fn.add(size, wide - 1), wide), 1), wide)

    def put(self, number: Index, start: Index, size: Index) -> None:
        """A run that lies in memory is the piece with this number."""
        fn = self.fn
        fn.store(fn.index(start), fn.gep(self.starts, number, I64.text))
        fn.store(fn.index(size), fn.gep(self.sizes, number, I64.text))
        for i in range(self.vectors):
            at = fn.add(fn.add(start, size), i * self.lanes)
            self.words.store(self.words.last(self.lanes), self.memory, at)

    def merge(self, count: Index, first: Index) -> list[Val]:
        """Merges `count` pieces; gives the memory at whose start the words are. Only the `first` are wanted."""
        fn, parts = self.fn, len(self.words.kinds)
        start = [fn.here(v) for v in (fn.index(count), *self.memory, *self.other)]

        def level(state: list[Val]) -> list[Val]:
            many, source, target = state[0], state[1 : 1 + parts], state[1 + parts :]
            half = fn.index(fn.div(fn.add(many, 1), 2))
            with fn.loop(0, half) as loop:
                self._pair(loop.index, many, source, target, first)
            return [half, *target, *source]

        return fn.while_loop(start, lambda state: fn.icmp("sgt", state[0], 1), level)[1 : 1 + parts]

    def _pair(self, number: Val, many: Val, source: Sequence[Val], target: Sequence[Val], first: Index) -> None:
        """Pieces 2i and 2i + 1 become piece i. The last one of an odd number meets an empty one."""
        fn = self.fn
        one = fn.mul(number, 2)
        has_two = fn.icmp("slt", fn.add(one, 1), many)
        two = fn.select(has_two, fn.index(fn.add(one, 1)), fn.index(one))
        (a, m), (b, n) = (
            [fn.load(fn.gep(table, i, I64.text), I64) for table in (self.starts, self.sizes)] for i in (one, two)
        )
        end = fn.index(fn.add(a, m))
        b, n = fn.select(has_two, b, end), fn.select(has_two, n, fn.index(0))
        size = fn.index(fn.smin(fn.add(m, n), first))
        self._two(source, target, a, end, b, fn.div(fn.add(size, 2 * self.wide - 1), self.wide))
        fn.store(a, fn.gep(self.starts, number, I64.text))
        fn.store(size, fn.gep(self.sizes, number, I64.text))

    def _two(self, source: Sequence[Val], target: Sequence[Val], a: Val, end: Val, b: Val, steps: Index) -> None:
        """Merges the runs from `a` to `end` and from `b` on. Of equal words those of the first run come first, so that
        the second one is left only at its end."""
        fn, words, lanes, count = self.fn, self.words, self.lanes, self.vectors
        mask = ty("i", lanes)
        with fn.loop(0, steps, 1, [fn.here(a), fn.here(b)]) as loop:
            i, j = loop.carried
            least: list[Word] = []
            taken = fn.index(0)
            for v in range(count):
                one = words.load(source, fn.add(i, v * lanes), lanes)
                two = words.load(source, fn.add(j, (count - 1 - v) * lanes), lanes)
                two = [fn.shuffle(x, None, range(lanes - 1, -1, -1)) for x in two]
                before = words.before(two, one)
                bits = fn.intrinsic("ctpop", mask, fn.op(f"bitcast {before} to {mask}", mask, [before]))
                taken = fn.index(fn.add(taken, fn.convert("zext", bits, I64)))
                least.append(words.least(one, two))
            for v, word in enumerate(self._sorted(least)):
                words.store(word, target, fn.add(fn.add(a, fn.mul(loop.index, self.wide)), v * lanes))
            loop.next = [fn.index(fn.smin(fn.sub(fn.add(i, self.wide), taken), end)), fn.index(fn.add(j, taken))]

    def _sorted(self, v: list[Word]) -> list[Word]:
        """A bitonic sequence of words, sorted. Two vectors that are interleaved bring the elements that are to be
        compared next to the same lane; after as many times as an element's number has bits, all are back in place."""
        v = self.network.halve(v)
        for level in range(self.lanes.bit_length()):
            for i in range(0, len(v), 2):
                a, b = self._interleaved(v[i], v[i + 1])
                v[i], v[i + 1] = self.words.ordered(a, b) if level < self.lanes.bit_length() - 1 else (a, b)
        return v

    def _interleaved(self, a: Word, b: Word) -> tuple[Word, Word]:
        lanes, half = self.lanes, self.lanes // 2
        low, high = (
            [
                self.fn.shuffle(x, y, [start + i // 2 + i % 2 * lanes for i in range(lanes)])
                for x, y in zip(a, b, strict=True)
            ]
            for start in (0, half)
        )
        return low, high
