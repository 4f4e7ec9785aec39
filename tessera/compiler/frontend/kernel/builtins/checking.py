"""Debugging: printing tiles and asserting conditions while a kernel runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.names.values import type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language import dtypes
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Print(TileBuiltin):
    """Prints tiles once per program, in the order of programs, with the preceding strings as labels.

    On a GPU a launch keeps at most 64 MiB of output; the rest is counted.
    """

    also = ("debug_print",)
    shapes = "strings, and tiles of any shape"
    dtypes = "any"
    cost = "Every element is written out: for looking, not for kernels that should be fast."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.print("x", x[0:2])
    y[0:2] = x[0:2]

>>> y = np.zeros(2, np.float32)
>>> example(np.array([1, 2], np.float32), y)
>>> y
[1. 2.]
"""

    def build(self, k: KernelState, *values: Any) -> None:
        label = ""
        for v in values:
            if isinstance(v, str):
                label = v
                continue
            value = k.operand(v)
            if not isinstance(value, Value):
                value = k.tiles.scalar(value, dtypes.int64 if isinstance(v, (int, Expr)) else dtypes.f32)
            k.tiles.builder.op("tile.print", (value,), (), {"label": label})


class DebugAssert(TileBuiltin):
    """In debug mode, checks every element of the condition that the surrounding `if`s select."""

    also = ("device_assert", "static_assert")
    shapes = "a tile of any shape, or a value known at compile time (then TS106 at once)"
    dtypes = "bool, or true where it is not 0"
    cost = "Nothing without `TESSERA_DEBUG=1`."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    ts.tile.debug_assert(x >= 0, "roots are of numbers that are not negative")
    return ts.tile.sqrt(x)

>>> example(np.array([4, 9], np.float32))
[2. 3.]
"""

    def build(self, k: KernelState, condition: Any, message: Any = "") -> None:
        known = k.operand(condition)
        if not isinstance(message, str):
            raise KernelFault("TS105", f"the message of an assertion is a text, not {type_name(message)}")
        if not isinstance(known, Value):
            if not known:
                raise KernelFault("TS106", message or "the assertion is false")
            return
        holds = k.tiles.truth(known)
        if k.memory.mask is not None:
            (holds, mask), _ = k.tiles.together([holds, k.memory.mask])
            holds = k.tiles.map("logical_or", holds, k.tiles.map("logical_not", mask))
        k.tiles.builder.op("tile.assert", (holds,), (), {"message": message})
