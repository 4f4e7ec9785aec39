"""Many dot products at once: row i of A times column i of B, which is the diagonal of a product (`tile.contract`).

One dot product is a chain in which every addition waits for the one before. So each lane computes one dot product:
elements along k are transposed in registers, as in small_matmul.py. The order is that of language/order.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.kernel.small_matmul import Shape, Writer, written
from tessera.compiler.targets.cpu.llvm.emit import LLVMModule
from tessera.compiler.targets.cpu.llvm.values import Index, Val


def diagonal_function(module: LLVMModule, shape: Shape) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use.

    `shape.n` is the largest number of elements, `n` of the call the actual one; they are contiguous in C, which has
    room for whole vectors. Rows of A and columns of B are as far apart as `shape.strides` says.
    """
    return written(module, shape, "diagonal", _Diagonal, _Diagonal.write)


class _Diagonal(Writer):
    def write(self) -> None:
        """Where fewer are left than lanes, the last of them fills the lanes: its results are filler of C."""
        fn, lanes, n = self.fn, self.shape.lanes, self.fn.param(9)
        whole = fn.mul(fn.div(n, lanes), lanes)
        with fn.loop(0, whole, lanes) as at:
            self._vector(at.index, range(lanes))
        last = fn.sub(fn.sub(n, whole), 1)
        with fn.when(fn.icmp("sge", last, 0)):
            self._vector(whole, [fn.smin(i, last) for i in range(lanes)])

    def _vector(self, first: Index, taken: Sequence[Index]) -> None:
        """The elements that are `taken`, counted from `first` on, one in each lane."""
        fn = self.fn
        sam, sak, sbk, sbn, _ = self.strides
        a, b = self.at(fn.param(0), (first, sam)), self.at(fn.param(3), (first, sbn))
        left_steps, right_steps = ([fn.mul(i, s) for i in taken] for s in (sam, sbn))

        def chains(starts: list[Index], count: Index, values: list[Val]) -> list[Val]:
            (start,) = starts

            def step(at: Index, left: Index, so_far: list[Val]) -> list[Val]:
                k = fn.add(start, at)
                lefts = self._lines(self.at(a, (k, sak)), left_steps, sak, left)
                rights = self._lines(self.at(b, (k, sbk)), right_steps, sbk, left)
                for i, (x, y) in enumerate(zip(lefts, rights, strict=True)):
                    so_far = self.kept(i, left, [self.fma(x, y, v) for v in so_far], so_far)
                return so_far

            return self.by_squares(count, values, step)

        c = self.at(fn.param(6), (first, 1))
        self.finish([c], self.sums(self.start([c]), chains))

    def _lines(self, corner: Val, steps: Sequence[Index], along: Index, left: Index) -> list[Val]:
        """One vector for each of `lanes` values of k, with an element of each lane's row. `left`: how many are read."""
        lanes = self.shape.lanes
        if along == 1:
            return self.square([self.at(corner, (s, 1)) for s in steps], left)
        places = [self.at(corner, (self.inside(i, left), along)) for i in range(lanes)]
        if list(steps) == list(range(lanes)):
            return [self.fn.load(p, self.shape.vector, self.shape.dtype.itemsize) for p in places]
        return [self._one_each(p, steps) for p in places]

    def _one_each(self, p: Val, steps: Sequence[Index]) -> Val:
        """One element of each lane's row."""
        fn, t = self.fn, self.shape.vector
        v = Val("poison", t)
        for i, step in enumerate(steps):
            x = fn.load(self.at(p, (step, 1)), t.scalar)
            v = fn.op(f"insertelement {t.text} {v.ref}, {x!r}, i64 {i}", t, (v, x))
        return v
