"""One line sorted by itself: a bottom-up merge sort, stable because the left run wins ties, and for longer lines a
radix sort by the digits of words, the least one first (Knuth, The Art of Computer Programming 3, 5.2.5)."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.targets.cpu.kernel.function import KernelFunction
from tessera.compiler.targets.cpu.kernel.sorting.words import Words
from tessera.compiler.targets.cpu.llvm.values import I1, I32, I64, Index, Val, const
from tessera.language.dims import Dim

RADIX_FROM = 32
"""words of a line from which on counting digits is quicker than merging"""
DIGIT = 8
"""bits of a digit: its 256 places to write to fit in the first-level cache"""


class OneLine:
    """Room for the `n` words of one line, twice: every pass moves them from one half into the other. Positions move
    along where words do not hold them."""

    def __init__(self, k: KernelFunction, words: Words, n: Dim) -> None:
        self.fn, self.words = k.fn, words
        self.n = k.ev.dim(n)
        self.kinds = [words.type, I64] if words.paired else [words.type]
        self.halves = [[k.raw(n * (t.bits // 8)) for t in self.kinds] for _ in range(2)]
        self.digits = words.digits(DIGIT)
        counted = not isinstance(self.n, int) or self.n >= RADIX_FROM
        self.table = k.raw(sum(4 << bits for _, bits, _ in self.digits)) if counted else None

    def sort(self, source: Val, target: Val) -> list[Val]:
        """Sorts the elements at `source` and writes them, or their positions, to `target`. Where words do not determine
        every element, gives whether there is an element of that kind."""
        n = self.n
        if isinstance(n, int):
            return (self._by_digits if n >= RADIX_FROM else self._merged)(source, target)
        many = self.fn.icmp("sge", n, RADIX_FROM)
        return self.fn.choose(many, lambda: self._by_digits(source, target), lambda: self._merged(source, target))

    def _read(self, source: Val, count: Callable[[Val], None]) -> list[Val]:
        """Reads all elements into the first half as words and calls `count` with them; gives what `sort` gives."""
        fn, words = self.fn, self.words
        flags = [fn.here(const(False, I1))] if words.restored else []
        with fn.loop(0, self.n, 1, flags) as loop:
            v = fn.load(fn.gep(source, loop.index, words.storage.text), words.storage)
            word = words.of(v, loop.index)
            for x, half, t in zip((word, loop.index), self.halves[0], self.kinds, strict=False):
                fn.store(x, fn.gep(half, loop.index, t.text))
            count(word)
            loop.next = [fn.binary("or", flag, words.special(v)) for flag in loop.carried]
        return loop.results

    def _write(self, found: list[Val], target: Val) -> None:
        fn, t = self.fn, self.words.result
        with fn.loop(0, self.n) as loop:
            v = fn.load(fn.gep(found[-1], loop.index, self.kinds[-1].text), self.kinds[-1])
            fn.store(v if self.words.paired else self.words.found(v), fn.gep(target, loop.index, t.text))

    def _by_digits(self, source: Val, target: Val) -> list[Val]:
        """Counts all digits of all words, then moves the words once for each digit in which they differ."""
        fn = self.fn
        assert self.table is not None
        tables: list[Val] = []
        at = 0
        for _, bits, _ in self.digits:
            tables.append(fn.gep(self.table, at, I32.text))
            at += 1 << bits
        with fn.loop(0, at, 8) as loop:
            fn.store(const(0, I32.wide(8)), fn.gep(self.table, loop.index, I32.text))

        def count(word: Val) -> None:
            for table, digit in zip(tables, self.digits, strict=True):
                slot = self._slot(table, word, digit)
                fn.store(fn.binary("add", fn.load(slot, I32), const(1, I32)), slot)

        special = self._read(source, count)
        first = fn.load(self.halves[0][0], self.kinds[0])
        a, b = ([fn.here(v) for v in half] for half in self.halves)
        for table, digit in zip(tables, self.digits, strict=True):
            times = fn.load(self._slot(table, first, digit), I32)
            same = fn.icmp("eq", fn.convert("zext", times, I64), self.n)
            self._add_up(table, digit)
            with fn.loop(0, fn.select(same, const(0, I64), fn.index(self.n))) as loop:
                moved = [fn.load(fn.gep(p, loop.index, t.text), t) for p, t in zip(a, self.kinds, strict=True)]
                slot = self._slot(table, moved[0], digit)
                place = fn.load(slot, I32)
                fn.store(fn.binary("add", place, const(1, I32)), slot)
                for v, p, t in zip(moved, b, self.kinds, strict=True):
                    fn.store(v, fn.gep(p, fn.convert("zext", place, I64), t.text))
            pairs = list(zip(a, b, strict=True))
            a = [fn.here(fn.select(same, x, y)) for x, y in pairs]
            b = [fn.here(fn.select(same, y, x)) for x, y in pairs]
        self._write(a, target)
        return special

    def _add_up(self, table: Val, digit: tuple[int, int, int]) -> None:
        """How many words have a digit becomes how many have a lesser one."""
        fn = self.fn
        with fn.loop(0, 1 << digit[1], 1, [fn.here(const(0, I32))]) as loop:
            slot = fn.gep(table, loop.index, I32.text)
            many = fn.load(slot, I32)
            fn.store(loop.carried[0], slot)
            loop.next = [fn.binary("add", loop.carried[0], many)]

    def _slot(self, table: Val, word: Val, digit: tuple[int, int, int]) -> Val:
        """Where the table counts that digit of `word`."""
        fn, t = self.fn, word.ty
        shift, bits, turned = digit
        found = fn.binary("and", fn.binary("lshr", word, const(shift, t)), const((1 << bits) - 1, t))
        if turned:
            found = fn.binary("xor", found, const(turned, t))
        return fn.gep(table, fn.convert("zext", found, I64), I32.text)

    def _merged(self, source: Val, target: Val) -> list[Val]:
        """Merges runs of 1, 2, 4 ... words."""
        fn, size = self.fn, len(self.kinds)
        special = self._read(source, lambda _: None)
        start = [fn.here(v) for v in (fn.index(1), *self.halves[0], *self.halves[1])]

        def one_pass(state: list[Val]) -> list[Val]:
            width, a, b = state[0], state[1 : 1 + size], state[1 + size :]
            two = fn.index(fn.mul(width, 2))
            with fn.loop(0, self.n, two) as run:
                middle = fn.index(fn.smin(fn.add(run.index, width), self.n))
                end = fn.index(fn.smin(fn.add(run.index, two), self.n))
                self._merge(a, b, run.index, middle, end)
            return [two, *b, *a]

        state = fn.while_loop(start, lambda state: fn.icmp("slt", state[0], self.n), one_pass)
        self._write(state[1 : 1 + size], target)
        return special

    def _merge(self, source: list[Val], target: list[Val], first: Val, middle: Val, end: Val) -> None:
        fn = self.fn
        last = fn.sub(self.n, 1)
        with fn.loop(first, end, 1, [fn.here(first), fn.here(middle)]) as out:
            i, j = out.carried
            at = [fn.smin(c, last) for c in (i, j)]
            pairs = [[fn.load(fn.gep(p, c, t.text), t) for c in at] for p, t in zip(source, self.kinds, strict=True)]
            left, right = fn.icmp("slt", i, middle), fn.icmp("slt", j, end)
            wins = fn.binary("and", right, fn.compare("icmp slt", pairs[0][1], pairs[0][0]))
            taken = fn.select(left, wins, right)  # the right one, where the left run is used up or it comes before
            for (a, b), p, t in zip(pairs, target, self.kinds, strict=True):
                fn.store(fn.select(taken, b, a), fn.gep(p, out.index, t.text))
            step = fn.convert("zext", taken, I64)
            out.next = [fn.index(fn.sub(fn.add(i, 1), step)), fn.index(fn.add(j, step))]


def restore(words: Words, n: Index, source: Val, target: Val, spare: Val) -> None:
    """Puts the line's own zeros and NaN, in their order, where words left any. `spare` is room for one element."""
    fn, t = words.fn, words.storage
    zero = words.of(const(0.0, t), const(0, I64))

    def element(i: Val) -> tuple[Val, Val, Val]:
        v = fn.load(fn.gep(source, i, t.text), t)
        return v, fn.compare("fcmp oeq", v, const(0.0, t)), fn.compare("fcmp uno", v, v)

    none = fn.here(const(0, I64))
    with fn.loop(0, n, 1, [none, none]) as loop:
        v, _, unordered = element(loop.index)
        before = fn.compare("icmp slt", words.of(v, loop.index), zero)
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
