"""Long dot products, one after the other: there are so few results that lanes would stay empty, so each takes a chain.

Chains are CHAIN elements apart in both operands: squares of them are transposed in registers, as in small_matmul.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.kernel.chains import added
from tessera.compiler.targets.cpu.kernel.small_matmul import Shape, Writer, written
from tessera.compiler.targets.cpu.llvm.emit import LLVMModule
from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.compiler.targets.cpu.loops.prefetch import LINE
from tessera.language.order import CHAIN, GROUP, SPAN


def dots_function(module: LLVMModule, shape: Shape) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use."""
    return written(module, shape, "dots", _Dots, _Dots.write)


class _Dots(Writer):
    def write(self) -> None:
        fn, shape = self.fn, self.shape
        sam, _, _, sbn, ldc = self.strides
        one, k = shape.vector.scalar, fn.param(10)
        found = fn.alloca(memory_element(shape.dtype), GROUP + shape.lanes)
        with fn.loop(0, fn.param(8)) as i, fn.loop(0, fn.param(9)) as j:
            a, b = self.at(fn.param(0), (i.index, sam)), self.at(fn.param(3), (j.index, sbn))
            with fn.loop(0, k, SPAN, [const(-0.0, one)]) as at:
                count = self._chains(a, b, at.index, fn.smin(fn.add(at.index, SPAN), k), found)
                with fn.loop(0, count, 1, [const(-0.0, one)]) as own:
                    own.next = [added(fn, own.carried[0], fn.load(self.at(found, (own.index, 1)), one))]
                at.next = [added(fn, at.carried[0], own.results[0])]
            result = fn.select(fn.icmp("sgt", k, 0), at.results[0], const(0, one))
            fn.store(result, self.at(fn.param(6), (i.index, ldc), (j.index, 1)), shape.dtype.itemsize)

    def _chains(self, a: Val, b: Val, lo: Index, hi: Index, found: Val) -> Index:
        """Puts the sums of the chains of range(lo, hi), which is a group, into `found`, and says how many they are."""
        fn, lanes = self.fn, self.shape.lanes
        one, together = self.shape.vector.scalar, 2 * lanes if 2 * lanes <= GROUP else lanes
        whole = fn.div(fn.sub(hi, lo), CHAIN)
        wide = fn.mul(fn.div(whole, together), together)
        with fn.loop(0, wide, together) as at:
            vectors = [range(i, i + lanes) for i in range(0, together, lanes)]
            self._side_by_side(a, b, lo, at.index, vectors, found)
        with fn.loop(wide, whole, lanes) as at:  # where fewer are left than lanes, the last of them fills the lanes
            last = fn.sub(fn.sub(whole, at.index), 1)
            self._side_by_side(a, b, lo, at.index, [[fn.smin(i, last) for i in range(lanes)]], found)
        rest = fn.add(lo, fn.mul(whole, CHAIN))
        with fn.loop(rest, hi, 1, [const(0, one)]) as along:
            x, y = (fn.load(self.at(p, (along.index, 1)), one) for p in (a, b))
            along.next = [self.fma(x, y, along.carried[0])]
        fn.store(along.results[0], self.at(found, (whole, 1)), self.shape.dtype.itemsize)
        return fn.select(fn.icmp("slt", rest, hi), fn.index(fn.add(whole, 1)), fn.index(whole))

    def _side_by_side(
        self, a: Val, b: Val, lo: Index, first: Index, taken: Sequence[Sequence[Index]], found: Val
    ) -> None:
        """Vectors of the chains that are `taken`, counted from `first` on."""
        fn, lanes, vector = self.fn, self.shape.lanes, self.shape.vector
        start, width = fn.add(lo, fn.mul(first, CHAIN)), len(taken) * lanes
        with fn.loop(0, CHAIN, lanes, [const(0, vector)] * len(taken)) as along:
            for x in (a, b):  # the same number of lines of the next group, one after the other
                ahead = self.at(x, (fn.add(start, SPAN), 1), (along.index, width))
                for at in range(0, width * lanes * self.shape.dtype.itemsize, LINE):
                    self.fn.prefetch(fn.gep(ahead, at, "i8"))
            sums: list[Val] = []
            for own, v in zip(taken, along.carried, strict=True):
                corners = [self.at(x, (fn.add(start, along.index), 1)) for x in (a, b)]
                left, right = (self.square([self.at(p, (i, CHAIN)) for i in own], lanes) for p in corners)
                for x, y in zip(left, right, strict=True):
                    v = self.fma(x, y, v)
                sums.append(v)
            along.next = sums
        for i, v in enumerate(along.results):
            fn.store(v, self.at(found, (fn.add(first, i * lanes), 1)), self.shape.dtype.itemsize)
