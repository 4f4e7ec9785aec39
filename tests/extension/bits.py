from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.primitive import Element, Operand, TilePrimitive


class BitCount(TilePrimitive):
    """How many bits of each element are 1."""

    shapes = "`[...] -> [...]`"
    dtypes = "32-bit integers -> the dtype"
    cost = "One instruction for each element on a CPU, one a bit on a GPU."

    def result(self, x: TileType) -> TileType:
        if not (x.dtype.is_integer and x.dtype.bits == 32):
            raise ValueError(f"takes integers of 32 bits, not {x.dtype}")
        return x

    def reference(self, x: Any) -> Any:
        return np.unpackbits(x[..., None].view(np.uint8), axis=-1).sum(-1)

    def cpu(self, c: Any, at: Any, x: Operand) -> Element:
        bits = x(*at)
        return Element(c.fn.intrinsic("ctpop", bits.value.ty, bits.value), bits.dtype)

    def cuda(self, c: Any, at: Any, x: Operand) -> Element:
        count = "[] (unsigned v) { int n = 0; for (; v; v &= v - 1) ++n; return n; }"
        return Element(f"{count}({x(*at).value})", x.dtype)


bit_count = BitCount.function()


@ts.kernel
def bits(x: ts.Tensor["N", ts.int32], y: ts.Tensor["N", ts.int32]):
    for i in ts.tile.range(0, N, 16):
        y[i : i + 16] = bit_count(x[i : i + 16])


def check(target: str) -> None:
    x = np.arange(-20, 20, dtype=np.int32)
    y = np.zeros_like(x)
    with ts.knobs.target.override(target):
        bits(x, y)
    np.testing.assert_array_equal(y, [int(v).bit_count() for v in x.view(np.uint32)])


if __name__ == "__main__":
    check("cpu")
    check("reference")
