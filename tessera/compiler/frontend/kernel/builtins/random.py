"""Random numbers. Each element depends on the seed and on its own index alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.ir.core import Value
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language import dtypes

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

UNIT_BITS = 24
"""of a draw that make a float of 32 bits between 0 and 1, as functions draw them"""


def drawn(k: KernelState, seed: Any, at: Any) -> Value:
    """64 bits for each element, as uint64. Raises KernelFault."""
    key, counter = k.tile(seed), k.tile(at)
    for what, v in (("seed", key), ("number of each element", counter)):
        if not tile_type(v).dtype.is_integer:
            raise KernelFault("TS301", f"the {what} is a whole number, not {tile_type(v).dtype}")
    if tile_type(key).rank:
        raise KernelFault("TS402", f"a seed is one number, not a tile {tile_type(key).pretty()}")
    counter = k.tiles.cast(counter, dtypes.uint64)
    t = tile_type(counter)
    spread = k.tiles.builder.broadcast(k.tiles.cast(key, dtypes.uint64), t.shape, ())
    return k.tiles.identities.like(k.tiles.builder.value("tile.philox", (counter, spread), t), counter)


class RandomBits(TileBuiltin):
    """64 random bits for each element.

    `at` is the number of each element and `seed` an integer: element i equals `ts.random_bits(seed, shape)` at
    row-major position i (Philox4x32-10), for any blocks, schedule and target.
    """

    shapes = "`[], [...] -> [...]`"
    dtypes = "whole numbers -> uint64"
    cost = "About 80 integer operations an element."
    example = """
@ts.kernel
def example(y: Tensor["n", ts.uint64]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.random_bits(7, i) >> 60

>>> y = np.zeros(4, np.uint64)
>>> example(y)
>>> np.array_equal(y, ts.random_bits(7, (4,)) >> 60)
True
"""

    def build(self, k: KernelState, seed: Any, at: Any) -> Value:
        return drawn(k, seed, at)


class Uniform(TileBuiltin):
    """Uniform random floats over [0, 1), one for each element.

    `at` is the number of each element and `seed` an integer: element i equals `ts.uniform(seed, shape)` at
    row-major position i, for any blocks, schedule and target. So dropout is one line, and its backward pass gets the
    same numbers: `ts.tile.where(ts.tile.uniform(seed, i) < p, 0, x[i] / (1 - p))`.
    """

    shapes = "`[], [...] -> [...]`"
    dtypes = "whole numbers -> f32"
    cost = "About 80 integer operations an element."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], seed: ts.int64) -> Tensor["n", ts.f32]:
    i = ts.tile.arange(4) + tile_n
    return ts.tile.where(ts.tile.uniform(seed, i) < 0.5, 0, x[tile_n : tile_n + 4] / 0.5)

>>> x = np.ones(8, np.float32)
>>> np.array_equal(example(x, 3), np.where(ts.uniform(3, (8,)) < 0.5, 0, x / 0.5))
True
"""

    def build(self, k: KernelState, seed: Any, at: Any) -> Value:
        bits = k.apply("shift_right", drawn(k, seed, at), 64 - UNIT_BITS)
        return k.apply("mul", k.tiles.cast(bits, dtypes.f32), 2.0**-UNIT_BITS)
