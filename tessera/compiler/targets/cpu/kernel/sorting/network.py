"""Lines sorted side by side, one in each lane of vectors: a bitonic network (Batcher 1968) whose comparators all put
the lesser word first, so that what is missing at the end of a line may be taken for the largest.

A line of `n` words is `n` vectors one behind the other. Several levels of comparators run on as many vectors as
registers hold, between one load and one store of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import Index, Ty, Val


class LaneNetwork:
    """Sorts vectors of type `t` in memory, which is filled behind them with the largest value up to the next power of
    two."""

    def __init__(self, fn: LLVMFunction, t: Ty, registers: int) -> None:
        self.fn, self.t = fn, t
        self.levels = 4 if registers >= 32 else 3
        self.block = 1 << self.levels
        """vectors that registers hold at a time"""

    def base(self, v: Sequence[Val]) -> list[Val]:
        """A block of vectors sorted in registers, by odd-even merges."""
        v, n = list(v), len(v)
        p = 1
        while p < n:
            k = p
            while k >= 1:
                for j in range(k % p, n - k, 2 * k):
                    for i in range(min(k, n - j - k)):
                        if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                            v[i + j], v[i + j + k] = self._order(v[i + j], v[i + j + k])
                k //= 2
            p *= 2
        return v

    def merge(self, memory: Val, n: Index, most: int) -> None:
        """Sorted blocks at `memory` become one sorted run of `n` <= `most` vectors."""
        fn, width = self.fn, self.block
        while width < most:
            with fn.when(fn.icmp("sgt", n, width)):
                self._flip(memory, n, width)
                self._below(memory, n, width >> self.levels)
            width *= 2

    def _below(self, memory: Val, n: Index, stride: int) -> None:
        """The levels of comparators from `stride` down."""
        while stride:
            levels = min(self.levels, stride.bit_length())
            self._strides(memory, n, stride, levels)
            stride >>= levels

    def keep(self, memory: Val, n: Index, width: int) -> None:
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
                pairs = zip(self._load(memory, low), self._load(memory, high), strict=True)
                least = [fn.intrinsic("smin", self.t, a, b) for a, b in pairs]
                target = [fn.add(fn.add(run.index, loop.index), j * step) for j in range(count)]
                self._store(memory, target, self._halve(least))
            self._below(memory, half, step // 2)
            return [half]

        fn.while_loop([fn.here(fn.index(n))], lambda state: fn.icmp("sgt", state[0], width), halve)

    def _flip(self, memory: Val, n: Index, width: int) -> None:
        """The first levels of merging neighbouring runs: the first of one against the last of the other, then strides
        within either."""
        fn, half = self.fn, self.block // 2
        step = width // half
        with fn.loop(0, fn.sub(n, width), 2 * width) as pair, fn.loop(0, step) as loop:
            low = [fn.add(fn.add(pair.index, loop.index), j * step) for j in range(half)]
            top = fn.add(pair.index, 2 * width - 1)
            high = [fn.sub(fn.sub(top, loop.index), j * step) for j in range(half)]
            a, b = self._load(memory, low), self._load(memory, high)
            for j in range(half):
                a[j], b[j] = self._order(a[j], b[j])
            self._store(memory, low, self._halve(a))
            self._store(memory, high[::-1], self._halve(b[::-1]))

    def _strides(self, memory: Val, n: Index, stride: int, levels: int) -> None:
        """Comparators of elements `stride` apart, half as far, and so on."""
        fn, count = self.fn, 1 << levels
        step = 2 * stride // count
        with fn.loop(0, n, 2 * stride) as part, fn.loop(0, step) as loop:
            at = [fn.add(fn.add(part.index, loop.index), j * step) for j in range(count)]
            self._store(memory, at, self._halve(self._load(memory, at)))

    def _halve(self, v: list[Val]) -> list[Val]:
        stride = len(v) // 2
        while stride:
            for i in range(len(v)):
                if not i & stride:
                    v[i], v[i + stride] = self._order(v[i], v[i + stride])
            stride //= 2
        return v

    def _order(self, a: Val, b: Val) -> tuple[Val, Val]:
        fn = self.fn
        return fn.intrinsic("smin", self.t, a, b), fn.intrinsic("smax", self.t, a, b)

    def _load(self, memory: Val, at: Sequence[Index]) -> list[Val]:
        return [self.fn.load(self.fn.gep(memory, i, self.t.text), self.t) for i in at]

    def _store(self, memory: Val, at: Sequence[Index], v: Sequence[Val]) -> None:
        for i, x in zip(at, v, strict=True):
            self.fn.store(x, self.fn.gep(memory, i, self.t.text))
