"""Sorting along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.builtins.reductions import whole
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.ir.core import Value
from tessera.compiler.tile.builtin import TileBuiltin

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Sort(TileBuiltin):
    """The elements along `axis` in ascending order, NaN last; with `descending` in descending order, NaN first. Equal
    elements keep their order. For bf16, f16 and smaller floats the result is f32, as in all arithmetic."""

    shapes = "`[..., N, ...] -> [..., N, ...]`"
    dtypes = "real numbers and bools -> the dtype, f32 for narrower floats"
    cost = "N log N comparisons of each line on a CPU (merge sort); on a GPU N log² N in a network, in shared memory: "
    cost += "an element's size and 4 bytes for each element of the tile."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    return ts.tile.sort(x, descending=True)

>>> example(np.array([3, 1, 2, 5], np.float32))
[5. 3. 2. 1.]
"""

    def build(self, k: KernelState, x: Any, axis: int = -1, descending: bool = False) -> Value:
        return _sorted(k, x, axis, descending, positions=False)


class Argsort(TileBuiltin):
    """The positions from which `sort` takes its elements."""

    shapes = Sort.shapes
    dtypes = "real numbers and bools -> int64"
    cost = Sort.cost
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.int64]:
    return ts.tile.argsort(x)

>>> example(np.array([3, 1, 2, 5], np.float32))
[1 2 0 3]
"""

    def build(self, k: KernelState, x: Any, axis: int = -1, descending: bool = False) -> Value:
        return _sorted(k, x, axis, descending, positions=True)


def _sorted(k: KernelState, x: Any, axis: Any, descending: Any, positions: bool) -> Value:
    if not isinstance(descending, bool):
        raise KernelFault("TS105", f"descending is True or False, known at compile time, not {descending!r}")
    return k.tiles.sort(whole(k, x, axis, "sort"), axis, descending, positions)
