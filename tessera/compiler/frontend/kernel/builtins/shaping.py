"""Changing the shape or dtype of a tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.builtins.creation import known_dtype, known_shape, written_shape
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Shared, Transposed
from tessera.compiler.frontend.names.values import is_sequence
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import shape_text
from tessera.compiler.tile.builtin import TileBuiltin

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Cast(TileBuiltin):
    """The elements converted to `dtype`, rounded to nearest even."""

    shapes = "`[...] -> [...]`"
    dtypes = "any -> `dtype`; complex numbers to complex ones only"
    cost = "One conversion for each element; none if the dtype does not change."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["n", ts.int32]):
    for i in ts.tile.range(0, n, 4):
        y[i : i + 4] = ts.tile.cast(x[i : i + 4], ts.int32)

>>> y = np.zeros(3, np.int32)
>>> example(np.array([1.5, 2.75, -3.5], np.float32), y)
>>> y
[ 1  2 -3]
"""

    def build(self, k: KernelState, x: Any, dtype: Any) -> Value:
        value, to = k.operand(x), known_dtype(dtype)
        return k.tiles.cast(value, to) if isinstance(value, Value) else k.tiles.scalar(value, to)


class Transpose(TileBuiltin):
    """The axes in reverse order, or in the order given."""

    also = ("permute", "trans")
    shapes = "`[M, N] -> [N, M]`; with `axes` any order"
    dtypes = "any -> the same"
    cost = "Nothing on a CPU. On a GPU the elements move through shared memory, unless a product reads or a store "
    cost += "writes a shared tile the other way round."
    example = """
@ts.kernel
def example(x: Tensor["M", "N", ts.f32]) -> Tensor["N", "M", ts.f32]:
    return ts.tile.transpose(x[tile_m : tile_m + 2, tile_n : tile_n + 4])

>>> example(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
[[1. 4.]
 [2. 5.]
 [3. 6.]]
"""

    def build(self, k: KernelState, x: Any, *axes: Any) -> Any:
        if isinstance(x, Shared) and not axes and len(x.type.shape) == 2:
            return Transposed(x)
        order = axes[0] if len(axes) == 1 and is_sequence(axes[0]) else axes
        return k.tiles.transpose(k.tile(x), tuple(order) or None)


class Reshape(TileBuiltin):
    """The same elements in C order under another shape. Its axes belong to none of a tensor, and take the identity of
    the axes that they meet."""

    also = ("view",)
    shapes = "any shape of as many elements, known at compile time"
    dtypes = "any -> the same"
    cost = "Nothing if only axes of size 1 come or go; else the elements move through shared or scratch memory."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["M", "N", ts.f32]):
    y[0:2, 0:3] = ts.tile.reshape(x[0:6], (2, 3))

>>> y = np.zeros((2, 3), np.float32)
>>> example(np.array([1, 2, 3, 4, 5, 6], np.float32), y)
>>> y
[[1. 2. 3.]
 [4. 5. 6.]]
"""

    def build(self, k: KernelState, x: Any, *shape: Any) -> Value:
        value = k.tile(x)
        sizes = shape[0] if len(shape) == 1 and is_sequence(shape[0]) else shape
        new = known_shape(k, sizes)
        if k.ev.facts.normal(k.count(new)) != k.ev.facts.normal(k.count(tile_type(value).shape)):
            raise KernelFault("TS402", f"{shape_text(tile_type(value).shape)} cannot become {shape_text(new)}")
        return k.tiles.reshape(value, new, written_shape(sizes))


class ExpandDims(TileBuiltin):
    """A new axis of size 1 at `axis`, as in `x[:, None]`."""

    also = ("unsqueeze",)
    shapes = "`[M, N] -> [1, M, N]`, `[M, 1, N]` or `[M, N, 1]`"
    dtypes = "any -> the same"
    cost = "Nothing: no element moves."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["M", "N", ts.f32]):
    column = ts.tile.expand_dims(x[0:2], 1)
    y[0:2, 0:3] = column * ts.tile.ones((2, 3))

>>> y = np.zeros((2, 3), np.float32)
>>> example(np.array([1, 2], np.float32), y)
>>> y
[[1. 1. 1.]
 [2. 2. 2.]]
"""

    def build(self, k: KernelState, x: Any, axis: Any) -> Value:
        value = k.tile(x)
        rank = tile_type(value).rank + 1
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise KernelFault("TS204", f"axis {axis!r} is out of range")
        return k.tiles.insert_axes(value, [axis % rank])
