"""A matrix with contiguous rows times a vector, row by row: lanes are the chains of a row.

Whole groups of chains fill the lanes, so a row is read from one end to the other. Rows that are read side by side would
be read at many places in memory, often in one set of the cache. The vector is brought into the order of the lanes once
for all rows. Elements behind the last whole group are handled as in small_matmul.py. The bits are those of every other
path.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.kernel.chains import added
from tessera.compiler.targets.cpu.kernel.small_matmul import Shape, Writer, written
from tessera.compiler.targets.cpu.llvm.emit import LLVMModule
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.language.order import CHAIN, GROUP, SPAN


def lines_function(module: LLVMModule, shape: Shape) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use.

    It takes C^T = A @ B with one row of A, the vector, and the matrix's rows as columns of B.
    """
    return written(module, shape, "lines", _Lines, _Lines.write)


class _Lines(Writer):
    @property
    def vectors(self) -> int:
        """Vectors that hold the sums of a group's chains."""
        return GROUP // self.shape.lanes

    def write(self) -> None:
        fn, lanes = self.fn, self.shape.lanes
        n, k = fn.param(9) if self.shape.n_is_bound else self.shape.n, fn.param(10)
        k = k if self.shape.k is None else self.shape.k
        element = memory_element(self.shape.dtype)
        turned, found = fn.alloca(element, SPAN), fn.alloca(element, lanes * GROUP)
        whole = fn.mul(fn.div(k, SPAN), SPAN)
        with fn.loop(0, n, lanes) as at:
            self._put(const(-0.0, self.shape.vector), fn.param(6), at.index)
        with fn.loop(0, whole, SPAN) as lo:
            self._turn(lo.index, turned)
            with fn.loop(0, n, lanes) as at:
                self._add(at.index, self._group(at.index, fn.sub(n, at.index), lo.index, turned, found))
        with fn.loop(whole, k, SPAN), fn.loop(0, n, lanes) as at:  # the outer one runs once or not at all
            self._add(at.index, self.turned_group(at.index, fn.sub(n, at.index), whole, k))
        with fn.when(fn.icmp("eq", k, 0)), fn.loop(0, n, lanes) as at:
            self._put(const(0, self.shape.vector), fn.param(6), at.index)

    def _add(self, column: Index, v: Val) -> None:
        self._put(added(self.fn, self._get(self.fn.param(6), column), v), self.fn.param(6), column)

    def _turn(self, lo: Index, turned: Val) -> None:
        """Stores the vector's chains from `lo` on to `turned`, as vectors that hold one element of each chain."""
        fn, lanes, one = self.fn, self.shape.lanes, self.shape.vector.scalar
        with fn.loop(0, GROUP) as chain:
            first = fn.add(lo, fn.mul(chain.index, CHAIN))
            to = fn.add(fn.mul(fn.div(chain.index, lanes), CHAIN * lanes), fn.mod(chain.index, lanes))
            with fn.loop(0, CHAIN) as at:
                x = fn.load(self.at(fn.param(0), (fn.add(first, at.index), self.strides[1])), one)
                fn.store(x, self.at(turned, (fn.add(to, fn.mul(at.index, lanes)), 1)))

    def _group(self, column: Index, left: Index, lo: Index, turned: Val, found: Val) -> Val:
        """The sums of a group for as many rows as there are lanes; where fewer are left, the last one is repeated."""
        fn, lanes = self.fn, self.shape.lanes
        together = max(1, 2 // self.vectors)
        with fn.loop(0, lanes, together) as at:
            rows = [fn.smin(fn.add(at.index, i), fn.sub(left, 1)) for i in range(together)]
            starts = [self.at(fn.param(3), (fn.add(column, r), self.strides[3]), (lo, 1)) for r in rows]
            for i, v in enumerate(self._chains(starts, turned)):
                place = fn.add(fn.mul(fn.add(at.index, i // self.vectors), GROUP), i % self.vectors * lanes)
                self._put(v, found, place)
        total = const(-0.0, self.shape.vector)
        for v in range(self.vectors):
            for chain in transpose(fn, [self._get(found, r * GROUP + v * lanes) for r in range(lanes)]):
                total = added(fn, total, chain)
        return total

    def _chains(self, starts: list[Val], turned: Val) -> list[Val]:
        """The sums of a group's chains, for each row that starts there."""
        fn, lanes = self.fn, self.shape.lanes
        pieces = [(p, v) for p in starts for v in range(self.vectors)]
        with fn.loop(0, CHAIN, lanes, [const(0, self.shape.vector)] * len(pieces)) as at:
            sums: list[Val] = []
            for (p, v), total in zip(pieces, at.carried, strict=True):
                rows = [self.at(p, (at.index, 1), ((v * lanes + i) * CHAIN, 1)) for i in range(lanes)]
                if self.shape.large:
                    for row in rows:
                        self.fetch(self.at(row, (len(starts), self.strides[3])))
                for i, line in enumerate(self.square(rows, lanes)):
                    place = fn.mul(fn.add(fn.add(at.index, i), v * CHAIN), lanes)
                    total = self.fma(self._get(turned, place), line, total)
                sums.append(total)
            at.next = sums
        return at.results
