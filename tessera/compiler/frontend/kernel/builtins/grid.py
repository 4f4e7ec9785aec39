"""The grid, and the position of a program in it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.coordinates import LANES, Said
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import Coordinate, EachIndex, Lanes, LaunchContext, marks
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language.dims import Dim, Expr

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
        span = k.ev.builder.span
        c = k.coordinates.on_grid(LANES, "i", None, size, span, called=_called(k, "linear_id()"))
        return Lanes(c.offset, size, c.axis, launch=c)


def _called(k: KernelState, otherwise: str) -> str:
    """The variable that the call is assigned to, which is what messages call a coordinate."""
    span, source = k.ev.builder.span, k.ev.definition.text
    if span is not None and span.file == source.file:
        for name, value in _assigned(k.ev.definition.tree):
            if value.lineno == span.line and source.span(value) == span:
                return name
    return otherwise


@by_node
def _assigned(tree: ast.AST) -> list[tuple[str, ast.expr]]:
    """The variables that a kernel assigns, with what it assigns to them."""
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
            found += [(name.id, value) for name, value in pairs if isinstance(name, ast.Name)]
    return found


def _program(k: KernelState, axis: Any) -> Coordinate:
    if not isinstance(axis, int) or not 0 <= axis <= 2:
        raise KernelFault("TS403", f"a grid has the axes 0, 1 and 2, not {axis!r}")
    called = _called(k, f"program_id({axis})")
    found = k.coordinates.on_grid(("program", axis), f"pid{axis}", None, 1, k.ev.builder.span, called=called)
    found.number = axis
    return found


class ProgramId(TileBuiltin):
    """This program's number on grid axis `axis` (0, 1 or 2); what the number indexes gives the axis its length."""

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
    """The number of programs along grid axis `axis`."""

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

    def build(self, k: KernelState, axis: int = 0) -> Dim:
        c = _program(k, axis)
        if (said := k.coordinates.lengths.get(c)) is not None:
            return said
        return k.coordinates.later(lambda: k.coordinates.count(c), f"programs{axis}")


class Grid(TileBuiltin):
    """Sets properties of the grid that the compiler cannot derive. Call it once, at the top. It does not change a bit
    of the results.

    `lengths`: the number of programs along axis 0, 1 and 2 of `program_id`. The default is one for each block that they
    index. With fewer, each program takes several steps: `for t in ts.tile.range(p, tiles, ts.tile.num_programs())`.

    `grouped`: the order of programs along the last two axes of the grid: down this many rows, then on to the next
    column. Products then find more of their operands in the second-level cache.

    `persistent`: the GPU launches only as many blocks as it runs at the same time, and each runs several programs in
    turn. Programs cannot observe this. On a CPU, worker threads always share the programs like this.
    """

    shapes = "`lengths` are sizes; `grouped` is a number known at compile time"
    cost = "Nothing; `grouped` two divisions for each program."
    example = """
@ts.kernel
def example(A: Tensor["M", "K", ts.f32], B: Tensor["K", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    ts.tile.grid(grouped=8)
    return A[tile_m : tile_m + 2, :] @ B[:, tile_n : tile_n + 2]

>>> example(np.array([[1, 2], [3, 4]], np.float32), np.eye(2, 3, dtype=np.float32))
[[1. 2. 0.]
 [3. 4. 0.]]
"""

    def build(self, k: KernelState, *lengths: Any, grouped: Any = None, persistent: Any = False) -> None:
        if k.coordinates.said is not None:
            raise KernelFault("TS403", "grid is called twice; give all lengths in one call")
        if k.builder.block is not k.ev.block or k.memory.mask is not None:
            raise KernelFault(
                "TS403",
                "grid holds for all programs; call it outside of conditions and loops",
            )
        count = len(lengths)
        if count > 3:
            raise KernelFault("TS403", f"a grid has the axes 0, 1 and 2; {count} lengths were given")
        grouped = k.known(grouped)
        if grouped is not None and (not isinstance(grouped, int) or isinstance(grouped, bool) or grouped < 1):
            raise KernelFault("TS404", f"grouped is a positive number known at compile time, not {grouped!r}")
        if not isinstance(persistent, bool):
            raise KernelFault("TS105", f"persistent is True or False, not {persistent!r}")
        k.coordinates.said = Said(k.builder.span, grouped, persistent)
        for axis, length in enumerate(lengths):
            whole = isinstance(length, (int, Expr)) and not isinstance(length, bool)
            if not whole or marks(length) or (isinstance(length, int) and length < 1):
                raise KernelFault("TS403", f"the length of axis {axis} of a grid is a size or a positive number")
            k.coordinates.lengths[_program(k, axis)] = length


class Each(TileBuiltin):
    """An index with one program for each element of the axis. Leading dims without an index have it implicitly:
    `x[ts.tile.each(), i : i + 16]` is `x[i : i + 16]` if `i` walks the second axis."""

    shapes = "indexes one axis of a tensor, which the tile then does not have"
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
