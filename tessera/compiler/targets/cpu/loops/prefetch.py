"""Requests to memory for what a loop reads later, written beside its loads."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.llvm.values import Index, Val
from tessera.compiler.targets.cpu.loops.elements import Coords, ElementEmitter
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.tile.loops.axes import AxisId
from tessera.immutable import immutable

LINE = 64
"""bytes of a line of a cache"""
WRITTEN_OUT = 8
"""lines of a row up to which they are asked for without a loop"""


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
        if not isinstance(unit, int) or unit < 1:
            return
        size = lanes * unit * d.itemsize
        if size < LINE and step * unit * d.itemsize % LINE:
            return  # the vector before it has asked for this line
        fetch(ev, fn.gep(at, fn.mul(self.count, strides[self.axis]), memory_element(d)), size, self.level)


@immutable
class GatheredPrefetch:
    """Asks, at each vector of a gather, for the one that lies `count` further along the loop over axis `outer`."""

    gather: Op
    coords: Coords
    outer: int
    count: int
    level: int

    def write(self, ev: ElementEmitter, step: int) -> None:
        """For the vector `step` elements behind the first one of this turn of the loop. The last turns of the outer
        loop ask for its last one: the numbers behind it may not exist."""
        fn, now, memo = ev.fn, ev.env[self.outer], ev.memo
        last = fn.sub(ev.within[self.outer], 1)
        ev.env[self.outer], ev.memo = Coord(fn.smin(fn.add(now.index, self.count), last)), {}
        p, unit, lanes, _ = ev.places(self.gather, self.gather.operands[1:], self.coords, None)
        ev.env[self.outer], ev.memo = now, memo
        size = lanes * dtype_of(self.gather.result).itemsize
        if unit == 1 and (size >= LINE or step * size // lanes % LINE == 0):
            fetch(ev, p, size, self.level)


@immutable
class GatheredRow:
    """Asks for the whole row that a gather reads elsewhere on the outer axes."""

    gather: Op
    coords: Coords
    outer: AxisId
    level: int

    def write(self, ev: ElementEmitter, row: dict[int, Coord], axis: int, lo: Index, hi: Index, lanes: int) -> None:
        """The elements [lo, hi) of `axis` of the row at these coordinates."""
        fn, env, memo = ev.fn, ev.env, ev.memo
        ev.env, ev.memo = {**env, **row, axis: Coord(lo, 0, lanes)}, {}
        p, unit, _, _ = ev.places(self.gather, self.gather.operands[1:], self.coords, None)
        ev.env, ev.memo = env, memo
        size = fn.mul(fn.sub(hi, lo), dtype_of(self.gather.result).itemsize)
        if unit == 1 and isinstance(size, int) and size <= WRITTEN_OUT * LINE:
            fetch(ev, p, size, self.level)
        elif unit == 1:
            with fn.loop(0, size, LINE) as line:
                fn.prefetch(fn.gep(p, line.index, "i8"), self.level)


def fetch(ev: ElementEmitter, p: Val, size: int, level: int) -> None:
    for line in range(0, size, LINE):
        ev.fn.prefetch(ev.fn.gep(p, line, "i8"), level)
