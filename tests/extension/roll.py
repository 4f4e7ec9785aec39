from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.primitive import At, Element, ElementWriter, Operand, TilePrimitive


class Roll(TilePrimitive):
    """The elements moved `by` places along the last axis; those that leave at the end come in at the front."""

    shapes = "`[..., N] -> [..., N]`"
    dtypes = "any -> the dtype, f32 for narrower floats"
    cost = "Every element goes through scratch memory, or through shared memory on a GPU."

    def result(self, x: TileType, by: int = 1) -> TileType:  # signature, shape and dtype rule
        if not x.shape:
            raise ValueError("a number has no axis")
        return x

    def reference(self, x: Any, by: int) -> Any:  # NumPy: the meaning
        return np.roll(x, by, axis=-1)

    def element(self, c: ElementWriter, at: list[At], x: Operand, by: int) -> Element:  # code for every target
        *rest, i = at
        return x(*rest, (i - by) % x.shape[-1])


roll = Roll.function()


@ts.kernel
def neighbours(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    for i in ts.tile.range(0, M, 4):
        rows = x[i : i + 4, :]
        sums = rows + roll(rows) + roll(rows, by=-1)
    return sums


def check(target: str) -> None:
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    with ts.knobs.target.override(target):
        found = neighbours(x)
    np.testing.assert_array_equal(found, x + np.roll(x, 1, -1) + np.roll(x, -1, -1))


if __name__ == "__main__":
    check("cpu")
    check("reference")
