"""A few rows of A times a B whose columns are contiguous: a matrix times a vector is the simplest case.

Lanes are columns, so squares of B are transposed in registers. As many columns as there are lanes are read side by
side, which processors do not foresee: of a large B, memory is asked in time for the columns that come next. The order
is that of language/order.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tessera.compiler.targets.cpu.kernel.chains import Chains, added
from tessera.compiler.targets.cpu.kernel.small_matmul import AHEAD, PAGE, Shape, Writer, are_apart, written
from tessera.compiler.targets.cpu.llvm.emit import LLVMModule
from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.language.order import CHAIN, levels


def turned_function(module: LLVMModule, shape: Shape) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use."""
    return written(module, shape, "turned", TurnedProduct, TurnedProduct.turned)


class TurnedProduct(Writer):
    def turned(self) -> None:
        """Lanes are columns. Where fewer are left, the last of them fills the lanes: its results are filler of C."""
        shape, fn = self.shape, self.fn
        lanes, n = shape.lanes, fn.param(9) if shape.n_is_bound else shape.n
        # Few lanes wait for their sums, unless so many columns crowd a first-level cache.
        crowded = are_apart(shape.strides[3], PAGE // 2, shape.dtype)
        waits = levels(shape.k) == 1 or (shape.isa.registers < 32 and not crowded)
        side_by_side = 2 if shape.m == 1 and waits else 1
        wide, whole = (fn.mul(fn.div(n, x), x) for x in (side_by_side * lanes, lanes))
        with fn.loop(0, wide, side_by_side * lanes) as q:
            self._turned_columns(q.index, [range(i * lanes, (i + 1) * lanes) for i in range(side_by_side)])
        with fn.loop(wide, whole, lanes) as q:
            self._turned_columns(q.index, [range(lanes)])
        last = fn.sub(fn.sub(n, whole), 1)
        with fn.when(fn.icmp("sge", last, 0)):
            self._turned_columns(whole, [[fn.smin(i, last) for i in range(lanes)]])

    def _turned_columns(self, column: Index, taken: Sequence[Sequence[Index]]) -> None:
        """Vectors of the columns that are `taken`, counted from `column` on, for all rows of A."""
        fn, m = self.fn, self.shape.m
        c, ldc = self.at(fn.param(6), (column, 1)), self.strides[4]
        places = [self.at(c, (i, ldc), (j * self.shape.lanes, 1)) for j in range(len(taken)) for i in range(m)]
        together = 2 if m == 1 and not self.shape.large and len(taken) == 1 else 1
        self.finish(places, self.sums(self.start(places), self._turned_chains(column, taken), together))

    def turned_group(self, column: Index, left: Index, lo: Index, hi: Index) -> Val:
        """The products of range(lo, hi), which is a group, for a vector of `left` or more columns and one row of A."""
        fn = self.fn
        chains = self._turned_chains(column, [[fn.smin(i, fn.sub(left, 1)) for i in range(self.shape.lanes)]])
        total = const(-0.0, self.shape.vector)
        with fn.loop(lo, hi, CHAIN, [total]) as at:
            count = fn.smin(CHAIN, fn.sub(hi, at.index))
            at.next = [added(fn, at.carried[0], chains([at.index], count, [const(0, self.shape.vector)])[0])]
        return at.results[0]

    def _turned_chains(self, column: Index, taken: Sequence[Sequence[Index]]) -> Chains:
        fn, shape = self.fn, self.shape
        sbn, lanes, m = self.strides[3], shape.lanes, shape.m
        b = self.at(fn.param(3), (column, sbn))
        steps = [[fn.mul(i, sbn) for i in own] for own in taken]
        k = fn.smax(1, fn.param(10) if shape.k is None else shape.k)
        ahead = fn.smax(lanes, fn.div(AHEAD // shape.dtype.itemsize, k))

        def add(values: list[Val], lines: Sequence[Val], ks: list[Index]) -> list[Val]:
            """`lines` of B, for each chain and vector of columns, times all rows of A."""
            chosen = [(line, ks[j // len(taken)], i) for j, line in enumerate(lines) for i in range(m)]
            return [self.fma(self._left(i, k), line, v) for (line, k, i), v in zip(chosen, values, strict=True)]

        def chains(starts: list[Index], count: Index, values: list[Val]) -> list[Val]:
            def step(at: Index, left: Index, so_far: list[Val]) -> list[Val]:
                corners = [self.at(b, (fn.add(k, at), 1)) for k in starts]
                if shape.large and left == lanes:
                    for p, own in product(corners, steps):
                        for s in own:
                            self.fn.prefetch(self.at(p, (s, 1), (ahead, sbn)), 2)
                squares = [self.square([self.at(p, (s, 1)) for s in own], left) for p in corners for own in steps]
                for i, lines in enumerate(zip(*squares, strict=True)):
                    place = fn.add(at, self.inside(i, left))
                    so_far = self.kept(i, left, add(so_far, lines, [fn.add(k, place) for k in starts]), so_far)
                return so_far

            return self.by_squares(count, values, step)

        return chains
