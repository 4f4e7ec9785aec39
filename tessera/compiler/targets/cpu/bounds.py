"""What is known at compile time about index numbers: intervals, and whether an access can leave its view."""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX
from tessera.language.dims import Dim

Interval = tuple["int | None", "int | None"]
"""the least and the largest value; None: unknown"""
ANY: Interval = (None, None)


class Bounds:
    """Intervals of the index values of one kernel."""

    def __init__(self, kernel: Op) -> None:
        self.grid: tuple[Dim, ...] = kernel.attrs["grid"]  # type: ignore[assignment]
        self._known: dict[Value, Interval] = {}

    def of(self, v: Value) -> Interval:
        if v not in self._known:
            self._known[v] = self._argument(v) if v.op is None else self._result(v.op)
        return self._known[v]

    def _argument(self, v: Value) -> Interval:
        owner = v.owner
        loop = None if isinstance(owner, Op) or owner.region is None else owner.region.op
        if v.type == INDEX and loop is not None and loop.name == "tile.for" and v.index == 0:
            last = self.of(loop.operands[1])[1]
            return self.of(loop.operands[0])[0], None if last is None else last - 1
        return ANY

    def _result(self, op: Op) -> Interval:
        match op.name:
            case "tile.dim":
                d = op.attrs["dim"]
                return (d, d) if isinstance(d, int) else (0, None)
            case "tile.program_id":
                n = self.grid[op.attrs["axis"]]  # type: ignore[index]
                return 0, n - 1 if isinstance(n, int) else None
            case "tile.iadd" | "tile.isub" | "tile.imul" | "tile.idiv" | "tile.imod" | "tile.imin" | "tile.imax":
                return _arithmetic(op.name[6:], self.of(op.operands[0]), self.of(op.operands[1]))
            case _:
                return ANY

    def inside(self, offset: Value, tile: Dim, extent: Dim) -> tuple[bool, bool]:
        """Whether offset >= 0, and whether offset + tile <= extent, for certain."""
        lo, hi = self.of(offset)
        low = lo is not None and lo >= 0
        room = extent - tile
        return low, hi is not None and isinstance(room, int) and hi <= room


def _arithmetic(name: str, a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = a, b
    if name == "add":
        return None if al is None or bl is None else al + bl, None if ah is None or bh is None else ah + bh
    if name == "sub":
        return None if al is None or bh is None else al - bh, None if ah is None or bl is None else ah - bl
    if name == "min":
        known = [x for x in (ah, bh) if x is not None]
        return None if al is None or bl is None else min(al, bl), min(known) if known else None
    if name == "max":
        known = [x for x in (al, bl) if x is not None]
        return max(known) if known else None, None if ah is None or bh is None else max(ah, bh)
    if al is None or bl is None or al < 0 or bl < 0:
        return ANY
    if name == "mul":
        return al * bl, None if ah is None or bh is None else ah * bh
    if name == "div":
        return 0, ah if ah is None or bl == 0 else ah // bl
    return 0, None if bh is None else max(bh - 1, 0)
