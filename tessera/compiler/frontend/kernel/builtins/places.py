"""Where a program is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import Coordinate, EachIndex, Lanes, LaunchContext
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Context(TileBuiltin):
    """The bound dims (`ctx.S`) and the schedule's parameters (`ctx.BLOCK_M`, `ctx.num_warps` ...)."""

    shapes = "gives sizes and numbers that are known at compile time"
    cost = "Nothing."
    example = """
@ts.kernel(BLOCK_M=2)
def example(x: Tensor["M", "N", ts.f32]) -> Tensor["M", ts.f32]:
    ctx = ts.tile.context()
    for i in ts.tile.range(0, ctx.M, ctx.BLOCK_M):
        total = ts.tile.row_sum(x[i : i + ctx.BLOCK_M])
    return total

>>> example(np.ones((4, 3), np.float32))
[3. 3. 3. 3.]
"""

    def build(self, k: KernelState) -> LaunchContext:
        return LaunchContext(k.dims(), k.config)


class LinearId(TileBuiltin):
    """The global element index over the launch, as a vector of `BLOCK` lanes. `if i < n:` is a mask."""

    shapes = "gives `[BLOCK]`"
    dtypes = "gives int64"
    cost = "Nothing: addresses are computed from the first lane's."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] + i

>>> y = np.zeros(4, np.float32)
>>> example(np.ones(4, np.float32), y)
>>> y
[1. 2. 3. 4.]
"""

    def build(self, k: KernelState) -> Lanes:
        size = k.setting("BLOCK")
        c = k.coordinates.on_grid(("linear", None), "i", None, size, k.ev.builder.span)
        return Lanes(c.offset, size, c.axis, launch=c)


def _program(k: KernelState, axis: Any) -> Coordinate:
    if not isinstance(axis, int) or not 0 <= axis <= 2:
        raise KernelFault("TS403", f"a grid has the axes 0, 1 and 2, not {axis!r}")
    found = k.coordinates.on_grid(("program", axis), f"pid{axis}", None, 1, k.ev.builder.span)
    found.number = axis
    return found


class ProgramId(TileBuiltin):
    """This program's number on grid axis `axis` (0, 1 or 2); the axis' length follows from what it indexes."""

    shapes = "gives an index"
    cost = "Nothing."
    example = """
@ts.kernel
def example(x: Tensor["M", "N", ts.f32], y: Tensor["M", ts.f32]):
    row = ts.tile.program_id()
    y[row] = ts.tile.max(x[row, :])

>>> y = np.zeros(2, np.float32)
>>> example(np.array([[1, 5, 2], [7, 0, 3]], np.float32), y)
>>> y
[5. 7.]
"""

    def build(self, k: KernelState, axis: int = 0) -> Expr:
        found = _program(k, axis).offset
        assert isinstance(found, Expr)
        return found


class NumPrograms(TileBuiltin):
    """How many programs run along grid axis `axis`."""

    shapes = "gives an index"
    cost = "Nothing."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    p = ts.tile.program_id()
    y[p] = x[p] / ts.tile.num_programs()

>>> y = np.zeros(4, np.float32)
>>> example(np.array([4, 8, 12, 16], np.float32), y)
>>> y
[1. 2. 3. 4.]
"""

    def build(self, k: KernelState, axis: int = 0) -> Expr:
        c = _program(k, axis)
        return k.coordinates.later(lambda: k.coordinates.count(c), f"programs{axis}")


class Each(TileBuiltin):
    """An index: the one element of an axis that this program has. Leading dims that no index mentions have it by
    themselves: `x[ts.tile.each(), i : i + 16]` is `x[i : i + 16]` where `i` walks the second axis."""

    shapes = "stands for one axis of a tensor, which the tile then lacks"
    cost = "Nothing."
    example = """
@ts.kernel
def example(x: Tensor["B", "S", ts.f32]) -> Tensor["B", "S", ts.f32]:
    for i in ts.tile.range(0, S, 2):
        y = x[ts.tile.each(), i : i + 2] * 2
    return y

>>> example(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
[[ 2.  4.  6.]
 [ 8. 10. 12.]]
"""

    def build(self, k: KernelState) -> EachIndex:
        return EachIndex()
