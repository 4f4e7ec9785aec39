"""How large an index can get, so that blocks which never reach past an end are known."""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.language.dims import Dim


class Bounds:
    """Bounds of the index values of one kernel. Indices are taken to be non-negative only where that is proved."""

    def __init__(self, kernel: Op) -> None:
        self.grid = cast("tuple[Dim, ...]", kernel.attrs["grid"])
        self._known: dict[Value, tuple[int | None, int | None]] = {}

    def inside(self, offset: Value, size: Dim, extent: Dim) -> bool:
        """Whether offset + size <= extent in every program and step."""
        op = offset.op
        if op is not None and op.name == "tile.dim" and op.attrs["dim"] == 0 and size == extent:
            return True
        low, high = self.of(offset)
        return (
            isinstance(size, int)
            and isinstance(extent, int)
            and low is not None
            and low >= 0
            and high is not None
            and high + size <= extent
        )

    def of(self, v: Value) -> tuple[int | None, int | None]:
        """(least, greatest) value; None where unknown."""
        if v not in self._known:
            self._known[v] = (None, None)
            self._known[v] = self._range(v)
        return self._known[v]

    def _range(self, v: Value) -> tuple[int | None, int | None]:
        op = v.op
        if op is None:
            return self._counter(v)
        if op.name == "tile.dim":
            d = cast(Dim, op.attrs["dim"])
            return (d, d) if isinstance(d, int) else (0, None)
        if op.name == "tile.program_id":
            count = self.grid[cast(int, op.attrs["axis"])]
            return 0, count - 1 if isinstance(count, int) else None
        if op.name not in ("tile.iadd", "tile.isub", "tile.imul", "tile.imin", "tile.imax"):
            return None, None
        (a, b), (c, d) = (self.of(x) for x in op.operands)
        match op.name:
            case "tile.iadd":
                return _add(a, c), _add(b, d)
            case "tile.isub":
                return _add(a, _negative(d)), _add(b, _negative(c))
            case "tile.imul":
                if a is not None and c is not None and a >= 0 and c >= 0:
                    return a * c, b * d if b is not None and d is not None else None
                return None, None
            case "tile.imin":
                return (min(a, c) if a is not None and c is not None else None), _least(b, d)
            case _:
                return _greatest(a, c), (max(b, d) if b is not None and d is not None else None)

    def _counter(self, v: Value) -> tuple[int | None, int | None]:
        """A loop's counter: from the lower bound to the last step below the upper one."""
        loop = v.owner.region.op if isinstance(v.owner, Block) and v.owner.region else None
        if loop is None or loop.name not in ("tile.for", "tile.pipeline") or v.index != 0:
            return None, None
        (low, top), (_, high), (step, most) = (self.of(x) for x in loop.operands[:3])
        if high is None or low is None:
            return low, None
        if low == top and step == most and step is not None and step > 0:
            return low, low + max((high - 1 - low) // step, 0) * step
        return low, high - 1


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _negative(a: int | None) -> int | None:
    return None if a is None else -a


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _greatest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def defined_in(v: Value, block: Block) -> bool:
    """Whether `v` is defined in the block, or inside one of its ops."""
    at: Block | None = v.owner if isinstance(v.owner, Block) else v.owner.block
    while at is not None:
        if at is block:
            return True
        op = at.region.op if at.region else None
        at = op.block if op is not None else None
    return False
