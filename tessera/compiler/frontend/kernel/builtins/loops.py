"""Loops."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel import names as kernel_names
from tessera.compiler.frontend.kernel import operators
from tessera.compiler.frontend.kernel.grid import REGISTER, SERIAL
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import TileWindow, marks
from tessera.compiler.frontend.names.values import Counting, is_static, type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def _counting(k: KernelState, path: str, bounds: tuple[Any, ...]) -> Counting:
    if not 1 <= len(bounds) <= 3:
        raise KernelFault("TS105", f"range takes 1 to 3 arguments, {len(bounds)} were given")
    bounds = tuple(k.operand(b) if isinstance(b, TileWindow) else b for b in bounds)
    start, stop, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    for b in (start, stop, step):
        ok = isinstance(b, (int, Expr)) and not isinstance(b, bool)
        if not ok and not (
            isinstance(b, Value) and isinstance(b.type, TileType) and not b.type.rank and b.type.dtype.is_integer
        ):
            raise KernelFault("TS105", f"range counts integers, not {repr(b) if is_static(b) else type_name(b)}")
    return Counting(start, stop, step, path)


class Range(TileBuiltin):
    """`range(stop)`, `range(start, stop)`, `range(start, stop, step)`. Outermost: a grid axis. Nested: serial,
    ascending."""

    shapes = "gives an index for each step"
    dtypes = "bounds are sizes, indices or integers; the step is positive"
    cost = "Outermost one program a step; nested a loop."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    for i in ts.tile.range(0, n, 2):
        y = x[i : i + 2] + 1
    return y

>>> example(np.array([1, 2, 3, 4, 5], np.float32))
[2. 3. 4. 5. 6.]
"""

    def build(self, k: KernelState, *bounds: Any) -> Counting:
        return _counting(k, "tessera.tile.range", bounds)


class RangeK(TileBuiltin):
    """As `range`, but always serial."""

    shapes = "gives an index for each step"
    dtypes = "as for `range`"
    cost = "A loop; loads from memory are fetched `num_stages` steps ahead."
    example = """
@ts.kernel
def example(x: Tensor["M", "K", ts.f32], y: Tensor["M", ts.f32]):
    row = ts.tile.program_id()
    total = ts.tile.zeros(())
    for k in ts.tile.range_k(0, K, 2):
        total += ts.tile.sum(x[row, k : k + 2])
    y[row] = total

>>> y = np.zeros(2, np.float32)
>>> example(np.array([[1, 2, 3], [4, 5, 6]], np.float32), y)
>>> y
[ 6. 15.]
"""

    def build(self, k: KernelState, *bounds: Any) -> Counting:
        return _counting(k, "tessera.tile.range_k", bounds)


class StaticRange(TileBuiltin):
    """A loop that is unrolled; its bounds are known at compile time."""

    shapes = "gives an integer for each step"
    dtypes = "bounds are integers known at compile time"
    cost = "Nothing at run time; its body is compiled once for each step."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    y = x * 0
    for power in ts.tile.static_range(1, 4):
        y = y + x**power
    return y

>>> example(np.array([1, 2, 3], np.float32))
[ 3. 14. 39.]
"""

    def build(self, k: KernelState, *bounds: Any) -> range | Counting:
        known = [k.known(b) for b in bounds]
        sizes = all(isinstance(b, int) or (isinstance(b, Expr) and not marks(b)) for b in known)
        if sizes and 1 <= len(known) <= 3 and any(isinstance(b, Expr) for b in known):  # known at the call
            start, stop, step = {1: (0, *known, 1), 2: (*known, 1), 3: known}[len(known)]
            return Counting(stop + 1, start + 1, 1, "range") if step == -1 else Counting(start, stop, 1, "range")
        if not all(isinstance(b, int) for b in known) or not 1 <= len(known) <= 3:
            raise KernelFault(
                "TS404",
                "static_range is unrolled, so its bounds must be known at compile time;"
                " range_k loops when the kernel runs",
            )
        return builtins.range(*known)


class Cdiv(TileBuiltin):
    """a / b rounded up."""

    shapes = "two sizes give a size; integer tiles and numbers give a tile, as in other arithmetic"
    dtypes = "integers -> their common dtype"
    cost = "Nothing for sizes; a division for each element of tiles."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.int32]) -> Tensor["n", ts.int32]:
    return ts.tile.cdiv(x, 4)

>>> example(np.array([0, 1, 4, 5], np.int32))
[0 1 1 2]
"""

    def build(self, k: KernelState, a: Any, b: Any) -> Any:
        x, y = (k.operand(v) for v in (a, b))
        for v in (x, y):
            number = isinstance(v, (int, Expr)) and not isinstance(v, bool)
            if not number and not (isinstance(v, Value) and tile_type(v).dtype.is_integer):
                given = repr(v) if is_static(v) else type_name(v)
                raise KernelFault("TS105", f"cdiv divides whole numbers, not {given}")
        at = k.ev.definition.tree
        if not isinstance(x, Value) and not isinstance(y, Value):
            return -operators.binary(k, at, "//", -x, y)
        whole = operators.binary(k, at, "//", x, y)  # neither -x nor x + y - 1 need be a number of the dtype
        rest = k.tiles.map("ne", operators.binary(k, at, "%", x, y), 0)
        return operators.binary(k, at, "+", whole, k.tiles.cast(rest, tile_type(whole).dtype))


class Serial(TileBuiltin):
    """The range of an implicit serial coordinate, inserted by `kernel/grid.py`."""

    name = SERIAL
    hidden = True

    def build(self, k: KernelState, name: str) -> Counting:
        return Counting(0, kernel_names.dim_of(k, name), kernel_names.width(k, name), f"tessera.tile.{SERIAL}")


class Register(TileBuiltin):
    """The initial value of an accumulation in registers, in the accumulator's dtype, inserted by `kernel/grid.py`."""

    name = REGISTER
    hidden = True

    def build(self, k: KernelState, x: Any) -> Value:
        return k.tiles.compute(k.tile(x))
