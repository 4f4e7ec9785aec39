"""Asynchronous copies as loads and stores, for targets that have none: they complete when they are issued. The barrier
that would complete them has nothing left to do."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import SharedType
from tessera.compiler.tile.builder import TileBuilder


def copies_ahead(kernel: Op) -> bool:
    return any(op.name == "tile.copy_async" for op in kernel.walk())


def copies_as_loads(kernel: Op) -> None:
    for op in [op for op in kernel.walk() if op.name == "tile.copy_async"]:
        assert op.block is not None
        b = TileBuilder(op.block, op.block.ops.index(op), op.span)
        shared = op.operands[0].type
        assert isinstance(shared, SharedType)
        tile = b.load(op.operands[1], list(op.operands[2:]), shared.shape)
        b.op("tile.store_shared", (op.operands[0], tile))
        op.erase()
