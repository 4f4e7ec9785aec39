"""Kernels in the form that code generation expects: reductions over one axis, copies as loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.types import SharedType, TileType
from tessera.compiler.targets.cpu.loops.axes import shape_of
from tessera.compiler.tile.dialect import TileBuilder
from tessera.language.dims import prod


def prepared(kernel: Op) -> Op:
    """A kernel that means the same; `kernel` itself if nothing has to change."""
    if not any(_several(op) or op.name == "tile.copy_async" for op in kernel.walk()):
        return kernel
    kernel = clone(kernel, {})
    for op in list(kernel.walk()):
        if _several(op):
            _one_axis_at_a_time(op)
        elif op.name == "tile.copy_async":
            _load_and_store(op)
    return kernel


def _axes(op: Op) -> list[int]:
    axes: Sequence[int] = op.attrs["axes"]  # type: ignore[assignment]
    return sorted(axes)


def _several(op: Op) -> bool:
    return op.name == "tile.reduce" and sum(shape_of(op.operands[0])[a] != 1 for a in _axes(op)) > 1


def _one_axis_at_a_time(op: Op) -> None:
    """The last axis first, each in the order of a single axis."""
    assert op.block is not None
    b = TileBuilder(op.block, op.block.ops.index(op), op.span)
    name, x = str(op.attrs["op"]), op.operands[0]
    result = op.result.type
    assert isinstance(result, TileType)
    axes = _axes(op)
    if name in ("argmax", "argmin"):
        shape = shape_of(x)
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


def _load_and_store(op: Op) -> None:
    """An asynchronous copy is done when it is asked for; the barrier that completes it has nothing left to do."""
    assert op.block is not None
    b = TileBuilder(op.block, op.block.ops.index(op), op.span)
    shared = op.operands[0].type
    assert isinstance(shared, SharedType)
    tile = b.load(op.operands[1], list(op.operands[2:]), shared.shape)
    b.op("tile.store_shared", (op.operands[0], tile))
    op.erase()
