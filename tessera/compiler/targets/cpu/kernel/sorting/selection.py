"""The few words of a line that may be among its first: those up to a bound, which a sorted sample of the line gives.

A sample that says too little is asked again for a bound further on, at last for none. So the words that are found are
sorted alone, mostly a little more than are wanted, and at worst all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.targets.cpu.kernel.function import KernelFunction
from tessera.compiler.targets.cpu.kernel.sorting.network import LaneNetwork
from tessera.compiler.targets.cpu.kernel.sorting.words import Word
from tessera.compiler.targets.cpu.llvm.values import I1, I64, Index, Val, const, ty
from tessera.language.dims import Dim

TOGETHER = 4
"""vectors that are compared with the bound before a branch"""
FURTHER = 4
"""times as far into the sample, if the bound before had too few words below it"""


class Candidates:
    """Room for the words of a line of `n`. `sample`: how many elements are looked at, and which of them in order is the
    first bound."""

    def __init__(self, k: KernelFunction, network: LaneNetwork, n: Dim, sample: tuple[int, int]) -> None:
        self.fn, self.words, self.lanes = k.fn, network.words, network.lanes
        self.sample, self.rank = sample
        self.wide = k.isa.lanes(self.words.key.bits)
        room = n + network.block * network.lanes
        self.memory = [k.raw(room * (t.bits // 8)) for t in self.words.kinds]

    def read(self, at: Index, _: Val) -> tuple[Word, None]:
        """Words that were collected."""
        return self.words.load(self.memory, at, self.lanes), None

    def sampled(
        self, read: Callable[[Index, Val], tuple[Word, Val]], n: Index
    ) -> Callable[[Index, Val], tuple[Word, None]]:
        """Reads vectors of the sample, which lie as far apart as a line of `n` allows."""
        fn, lanes = self.fn, self.lanes
        apart = fn.div(n, self.sample // lanes)

        def vector(at: Index, _: Val) -> tuple[Word, None]:
            place = fn.index(fn.mul(fn.div(fn.smin(at, self.sample - lanes), lanes), apart))
            return read(place, fn.binary("add", fn.splat(place, lanes), fn.lane_numbers(I64.wide(lanes))))[0], None

        return vector

    def collect(self, sample: Sequence[Val], source: Val, n: Index, first: Index) -> tuple[Val, list[Val]]:
        """Stores at least `first` of the words of the `n` elements at `source`, those that come first; gives their
        number and, where words do not determine every element, whether there is an element of that kind."""
        fn, words = self.fn, self.words
        flag = [const(False, I1)] if words.restored else []

        def look(state: list[Val]) -> list[Val]:
            at = fn.smin(state[0], self.sample - 1)
            word = [fn.load(fn.gep(p, at, t.text), t) for p, t in zip(sample, words.kinds, strict=True)]
            bound = fn.select(fn.icmp("slt", state[0], self.sample), self._key(word), const(words.range[1], words.key))
            return [fn.index(fn.mul(state[0], FURTHER)), *self._up_to(bound, source, n)]

        start = [fn.here(v) for v in (fn.index(self.rank), fn.index(0), *flag)]
        _, count, *special = fn.while_loop(start, lambda state: fn.icmp("slt", state[1], first), look)
        return count, special

    def _key(self, word: Word) -> Val:
        """What words are compared with first."""
        fn = self.fn
        if not self.words.packed:
            return word[0]
        return fn.convert("trunc", fn.binary("ashr", word[0], const(32, I64)), self.words.key)

    def _up_to(self, bound: Val, source: Val, n: Index) -> list[Val]:
        """Stores the words up to `bound`; gives their number, and whether there is a special element."""
        fn, words, wide = self.fn, self.words, self.wide
        flag = [fn.here(const(False, I1.wide(wide)))] if words.restored else []
        limit = fn.splat(bound, wide)
        with fn.loop(0, n, TOGETHER * wide, [fn.here(fn.index(0)), *flag]) as loop:
            count, *special = loop.carried
            some: Val | None = None
            for i in range(TOGETHER):
                v = self._elements(source, fn.add(loop.index, i * wide), wide)
                below = fn.compare("icmp sle", words.key_of(v), limit)
                some = below if some is None else fn.binary("or", some, below)
                special = [fn.binary("or", s, words.special(v)) for s in special]
            assert some is not None
            (count,) = fn.choose(
                fn.any_lane(some), lambda: [self._keep(count, bound, source, loop.index, n)], lambda: [count]
            )
            loop.next = [count, *special]
        count, *special = loop.results
        return [count, *map(fn.any_lane, special)]

    def _elements(self, source: Val, at: Index, lanes: int) -> Val:
        fn, t = self.fn, self.words.storage
        return fn.load(fn.gep(source, at, t.text), t.wide(lanes))

    def _keep(self, count: Val, bound: Val, source: Val, first: Index, n: Index) -> Val:
        """Stores the words up to `bound` of a few vectors, behind `count` others."""
        fn, words, lanes = self.fn, self.words, self.lanes
        bits, limit, end = ty("i", lanes), fn.splat(bound, lanes), fn.splat(fn.index(n), lanes)
        for part in range(0, TOGETHER * self.wide, lanes):
            at = fn.index(fn.add(first, part))
            numbers = fn.binary("add", fn.splat(at, lanes), fn.lane_numbers(I64.wide(lanes)))
            v = self._elements(source, at, lanes)
            keep = fn.compare("icmp sle", words.key_of(v), limit)
            keep = fn.binary("and", keep, fn.compare("icmp slt", numbers, end))
            found = words.of(v, numbers)
            words.store(
                [fn.intrinsic("experimental.vector.compress", x.ty, x, keep, const(0, x.ty)) for x in found],
                self.memory,
                count,
            )
            many = fn.intrinsic("ctpop", bits, fn.op(f"bitcast {keep.ty.text} {keep.ref} to {bits.text}", bits, [keep]))
            count = fn.index(fn.add(count, fn.convert("zext", many, I64)))
        return count
