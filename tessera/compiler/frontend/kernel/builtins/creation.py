"""New tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault, static_size, tile_type
from tessera.compiler.frontend.kernel.values import Axis, Lanes, marks, shown
from tessera.compiler.frontend.names.values import is_sequence
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language import dtypes
from tessera.language.dims import Expr
from tessera.language.dtypes import DType, f32

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def known_shape(k: KernelState, shape: Any) -> Shape:
    """A shape of a tile, its sizes known. Raises KernelFault."""
    out = tuple(k.tiles.known(static_size(s, "a tile's extent")) for s in written_shape(shape))
    for d in out:
        if marks(d):
            raise KernelFault("TS404", f"a tile's extent must be known at compile time, not {shown(d)}")
    return out


def written_shape(shape: Any) -> Shape:
    """A shape as it is written, with the names of dims whose sizes are known."""
    return tuple(shape) if is_sequence(shape) else (shape,)


def known_dtype(given: Any) -> DType:
    """A dtype by any of its names. Raises KernelFault."""
    found = dtypes.of(given)
    if found is None:
        raise KernelFault("TS301", f"{given!r} is not a dtype")
    return found


class Zeros(TileBuiltin):
    """A tile of zeros; `shape` is known at compile time."""

    shapes = "gives `shape`"
    dtypes = "gives `dtype`"
    cost = "Nothing: a constant."
    example = """
@ts.kernel
def example(y: Tensor["n", ts.f32]):
    y[0:2] = ts.tile.zeros((2,))

>>> y = np.ones(4, np.float32)
>>> example(y)
>>> y
[0. 0. 1. 1.]
"""

    def build(self, k: KernelState, shape: Any, dtype: Any = f32) -> Value:
        return k.tiles.full(known_shape(k, shape), 0, known_dtype(dtype), written_shape(shape))


class Ones(TileBuiltin):
    """A tile of ones; `shape` is known at compile time."""

    shapes = "gives `shape`"
    dtypes = "gives `dtype`"
    cost = "Nothing: a constant."
    example = """
@ts.kernel
def example(y: Tensor["n", ts.f32]):
    y[0:2] = ts.tile.ones((2,))

>>> y = np.zeros(4, np.float32)
>>> example(y)
>>> y
[1. 1. 0. 0.]
"""

    def build(self, k: KernelState, shape: Any, dtype: Any = f32) -> Value:
        return k.tiles.full(known_shape(k, shape), 1, known_dtype(dtype), written_shape(shape))


class Full(TileBuiltin):
    """A tile filled with `value`; `shape` is known at compile time."""

    shapes = "gives `shape`; `value` is a number or a tile of one element"
    dtypes = "gives `dtype`"
    cost = "Nothing: one number stands for all elements."
    example = """
@ts.kernel
def example(y: Tensor["n", ts.f32], value: ts.f32):
    y[0:3] = ts.tile.full((3,), value)

>>> y = np.zeros(4, np.float32)
>>> example(y, 7.0)
>>> y
[7. 7. 7. 0.]
"""

    def build(self, k: KernelState, shape: Any, value: Any, dtype: Any = f32) -> Value:
        return k.tiles.full(known_shape(k, shape), value, known_dtype(dtype), written_shape(shape))


class ZerosLike(TileBuiltin):
    """Zeros of the shape and dtype of `x`."""

    shapes = "`[...] -> [...]`"
    dtypes = "any -> the same"
    cost = "Nothing: a constant."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    return ts.tile.zeros_like(x)

>>> example(np.ones(3, np.float32))
[0. 0. 0.]
"""

    def build(self, k: KernelState, x: Any) -> Value:
        t = k.tile(x)
        out = k.tiles.full(tile_type(t).shape, 0, tile_type(t).dtype)
        return k.tiles.identities.like(out, t)


class Arange(TileBuiltin):
    """The integers start, start + 1, ... below `stop`; with one argument from 0."""

    shapes = "gives `[stop - start]`, known at compile time"
    dtypes = "gives int64"
    cost = "Nothing: computed from the position where it is used."
    example = """
@ts.kernel
def example(y: Tensor["n", ts.f32]):
    y[0:4] = ts.tile.arange(4) * 10

>>> y = np.zeros(4, np.float32)
>>> example(y)
>>> y
[ 0. 10. 20. 30.]
"""

    def build(self, k: KernelState, start: Any, stop: Any = None) -> Lanes:
        lower, upper = (0, start) if stop is None else (start, stop)
        if not (isinstance(lower, (int, Expr)) and isinstance(upper, (int, Expr))):
            raise KernelFault("TS404", "arange needs a start and an end that are known at compile time")
        size = k.known(upper - lower)
        if marks(size) or (isinstance(size, int) and size <= 0):
            raise KernelFault("TS404", f"arange needs a positive length known at compile time, not {shown(size)}")
        return Lanes(lower, size, Axis(size=upper - lower))
