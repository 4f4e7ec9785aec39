"""Requests to memory for what a loop reads later, written beside its loads."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.llvm.values import Index
from tessera.compiler.targets.cpu.loops.elements import Coords, ElementEmitter
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.immutable import immutable

LINE = 64
"""bytes of a line of a cache"""


@immutable
class Prefetch:
    """Asks, at each vector of a load, for the elements that lie `count` further along `axis` of the load's view; they
    go into that level of cache."""

    load: Op
    coords: Coords
    axis: int
    count: Index
    level: int

    def write(self, ev: ElementEmitter, step: int) -> None:
        """For the vector `step` elements behind the first one of this turn of the loop."""
        fn, d = ev.fn, dtype_of(self.load.result)
        p, strides, _, _ = ev.window(self.load)
        at, unit, lanes = ev.mem.address(p, d, [ev.coord(c) for c in self.coords], strides)
        if unit != 1 or (lanes * d.itemsize < LINE and step * d.itemsize % LINE):
            return  # the vector before it has asked for this line
        there = fn.gep(at, fn.mul(self.count, strides[self.axis]), memory_element(d))
        for line in range(0, lanes * d.itemsize, LINE):
            fn.prefetch(fn.gep(there, line, "i8"), self.level)
