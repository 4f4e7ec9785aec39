"""A matrix with contiguous rows of one group of chains, or of fewer, times a vector, row by row: lanes are chains.

Rows that lie a multiple of a page apart are in the same sets of the cache, which has no room for as many as are read
side by side; so few are. Where a row has fewer chains than there are lanes, a vector takes those of several rows. The
vector is brought into the order of the lanes once for all rows. Elements behind the group are handled as in turned.py.
The bits are those of every other path.
"""

from __future__ import annotations

from itertools import product

from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.kernel.chains import added, chains_in_lanes
from tessera.compiler.targets.cpu.kernel.small_matmul import AHEAD, Shape, written
from tessera.compiler.targets.cpu.kernel.vectors.turned import TurnedProduct
from tessera.compiler.targets.cpu.llvm.emit import LLVMModule
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.compiler.targets.cpu.loops.prefetch import LINE
from tessera.language.order import CHAIN, SPAN


def lines_function(module: LLVMModule, shape: Shape) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use.

    It takes C^T = A @ B with one row of A, the vector, and the matrix's rows as columns of B.
    """
    return written(module, shape, "lines", _Lines, _Lines.write)


class _Lines(TurnedProduct):
    @property
    def chains(self) -> int:
        assert self.shape.k is not None
        found = chains_in_lanes(self.shape.k, self.shape.lanes)
        assert found is not None
        return found

    @property
    def vectors(self) -> int:
        """Vectors that hold the sums of a row's chains."""
        return max(1, self.chains // self.shape.lanes)

    @property
    def rows(self) -> int:
        """Rows whose chains share a vector."""
        return max(1, self.shape.lanes // self.chains)

    def write(self) -> None:
        fn, lanes = self.fn, self.shape.lanes
        n, k = fn.param(9) if self.shape.n_is_bound else self.shape.n, self.shape.k
        assert k is not None
        element = memory_element(self.shape.dtype)
        turned = fn.alloca(element, self.vectors * lanes * CHAIN)
        found = fn.alloca(element, lanes * self.chains + lanes)
        self._turn(turned)
        with fn.loop(0, n, lanes) as at:
            total = self._group(at.index, fn.sub(n, at.index), turned, found)
            if k > SPAN:
                total = added(fn, total, self.turned_group(at.index, fn.sub(n, at.index), SPAN, k))
            self._put(total, fn.param(6), at.index)

    def _turn(self, turned: Val) -> None:
        """Stores the vector's first chains to `turned`, as vectors that hold one element of each chain."""
        fn, lanes = self.fn, self.shape.lanes
        with fn.loop(0, self.vectors) as v:
            chains = [fn.mod(fn.add(fn.mul(v.index, lanes), i), self.chains) for i in range(lanes)]
            starts = [self.at(fn.param(0), (fn.mul(chain, CHAIN), self.strides[1])) for chain in chains]
            to = self.at(turned, (v.index, CHAIN * lanes))
            if self.strides[1] == 1:
                with fn.loop(0, CHAIN, lanes) as at:
                    for i, line in enumerate(self.square([self.at(p, (at.index, 1)) for p in starts], lanes)):
                        self._put(line, to, fn.mul(fn.add(at.index, i), lanes))
                return
            with fn.loop(0, CHAIN) as at:
                for i, p in enumerate(starts):
                    x = fn.load(self.at(p, (at.index, self.strides[1])), self.shape.vector.scalar)
                    fn.store(x, self.at(to, (at.index, lanes), (i, 1)))

    def _group(self, column: Index, left: Index, turned: Val, found: Val) -> Val:
        """The sums of a group for as many rows as there are lanes; where fewer are left, the last one is repeated."""
        fn, lanes, chains = self.fn, self.shape.lanes, self.chains
        # Few lanes wait longer for their sums than for memory.
        alone = self.shape.large and self.shape.isa.registers >= 32
        together = self.rows if alone else max(1, 2 // self.vectors) * self.rows
        with fn.loop(0, lanes, together) as at:
            rows = [fn.smin(fn.add(at.index, i), fn.sub(left, 1)) for i in range(together)]
            starts = [self.at(fn.param(3), (fn.add(column, r), self.strides[3])) for r in rows]
            for i, v in enumerate(self._chains(starts, turned)):
                self._put(v, found, fn.add(fn.mul(at.index, chains), i * lanes))
        total = const(-0.0, self.shape.vector)
        for v in range(self.vectors):
            squares = transpose(fn, [self._get(found, r * chains + v * lanes) for r in range(lanes)])
            for chain in squares[:chains]:
                total = added(fn, total, chain)
        return total

    def _chains(self, starts: list[Val], turned: Val) -> list[Val]:
        """The sums of the chains of the rows that start there, one row behind the other."""
        fn, lanes, own = self.fn, self.shape.lanes, min(self.chains, self.shape.lanes)
        pieces = [(starts[i : i + self.rows], v) for i in range(0, len(starts), self.rows) for v in range(self.vectors)]
        asked = [(1, len(starts))]
        if self.shape.isa.registers >= 32 or self.vectors > 1:
            asked.append((2, AHEAD // (self.chains * CHAIN * self.shape.dtype.itemsize)))
        with fn.loop(0, CHAIN, lanes, [const(0, self.shape.vector)] * len(pieces)) as at:
            sums: list[Val] = []
            for (rows, v), total in zip(pieces, at.carried, strict=True):
                lines = [self.at(p, (at.index, 1), ((v * lanes + i) * CHAIN, 1)) for p in rows for i in range(own)]
                for p, (level, later) in product(rows if self.shape.large else [], asked):
                    ahead = self.at(p, (later, self.strides[3]), (at.index, own), (v * lanes * CHAIN, 1))
                    for byte in range(0, own * lanes * self.shape.dtype.itemsize, LINE):
                        fn.prefetch(fn.gep(ahead, byte, "i8"), level)
                for i, line in enumerate(self.square(lines, lanes)):
                    place = fn.mul(fn.add(fn.add(at.index, i), v * CHAIN), lanes)
                    total = self.fma(self._get(turned, place), line, total)
                sums.append(total)
            at.next = sums
        return at.results
