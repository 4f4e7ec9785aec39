"""Reductions over several axes as reductions over one after the other, for targets whose code does one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.builder import TileBuilder
from tessera.language.dims import Dim, prod


def reduces_several_axes(kernel: Op) -> bool:
    return any(_several(op) for op in kernel.walk())


def reduce_one_axis(kernel: Op) -> None:
    """The last axis first, each in the order of a single axis; argmax and argmin over all of them as one."""
    for op in list(kernel.walk()):
        if _several(op):
            _one_axis_at_a_time(op)


def _axes(op: Op) -> list[int]:
    return sorted(cast("Sequence[int]", op.attrs["axes"]))


def _shape(op: Op) -> tuple[Dim, ...]:
    return cast(TileType, op.operands[0].type).shape


def _several(op: Op) -> bool:
    return op.name == "tile.reduce" and sum(_shape(op)[a] != 1 for a in _axes(op)) > 1


def _one_axis_at_a_time(op: Op) -> None:
    assert op.block is not None
    b = TileBuilder(op.block, op.block.ops.index(op), op.span)
    name, x = str(op.attrs["op"]), op.operands[0]
    result = op.result.type
    assert isinstance(result, TileType)
    axes = _axes(op)
    if name in ("argmax", "argmin"):
        shape = _shape(op)
        rest = [i for i in range(len(shape)) if i not in axes]
        x = b.transpose(x, (*rest, *axes))
        x = b.reshape(x, (*(shape[i] for i in rest), prod(shape[i] for i in axes)))
        out = b.reduce(name, x, (len(rest),))
    else:
        for a in reversed(axes):
            x = b.reduce(name, x, (a,), result.dtype)
        out = x
    op.result.replace_by(out)
    op.erase()
