"""Selecting elements of two tiles by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.ir.core import Value
from tessera.compiler.tile.builtin import TileBuiltin

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Where(TileBuiltin):
    """x where the condition holds, else y."""

    shapes = "operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast"
    dtypes = "the condition is bool, or true where it is not 0; x and y -> their common dtype"
    cost = "One selection for each element."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    return ts.tile.where(x > 0, x, 0.5 * x)

>>> example(np.array([-2, -1, 1, 2], np.float32))
[-1.  -0.5  1.   2. ]
"""

    def build(self, k: KernelState, condition: Any, x: Any, y: Any) -> Value:
        return k.tiles.where(k.operand(condition), k.operand(x), k.operand(y))


class CausalMask(TileBuiltin):
    """`scores` where query q0 + row is not before key k0 + column, else `value`.

    `transposed`: the scores have a row for each key and a column for each query.
    """

    shapes = "`[M, N] -> [M, N]`; `q0` and `k0` are indices"
    dtypes = "any number -> the same, or the common dtype with `value`"
    cost = "Two comparisons and a selection for each element."
    example = """
@ts.kernel
def example(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    for i in ts.tile.range(0, M, 2):
        y = ts.tile.causal_mask(x[i : i + 2, :], i, 0, value=0.0)
    return y

>>> example(np.ones((3, 3), np.float32))
[[1. 0. 0.]
 [1. 1. 0.]
 [1. 1. 1.]]
"""

    def build(
        self,
        k: KernelState,
        scores: Any,
        q0: Any,
        k0: Any,
        value: float = float("-inf"),
        transposed: bool = False,
    ) -> Value:
        x = k.tile(scores)
        t = tile_type(x)
        if t.rank != 2:
            raise KernelFault("TS402", f"causal_mask takes scores of two axes, not {t.pretty()}")
        queries = k.memory.ramp(k.index(q0), t.shape, int(transposed))
        keys = k.memory.ramp(k.index(k0), t.shape, int(not transposed))
        allowed = k.tiles.builder.map("ge", queries, keys)
        k.tiles.identities.like(allowed, x)
        return k.tiles.where(allowed, x, value)
