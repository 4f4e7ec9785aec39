"""`x + mma(a, b, 0)` becomes `mma(a, b, x)`: one chain of products per element, whatever the length of its pieces.

`acc += mma(a, b)` over a serial loop then sums in ascending k with one rounding per product, so that the width of
slices, up to a chain's (language/order.py), does not change a bit of the result, and tensor cores accumulate in place.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value


def fuse_accumulators(kernel: Op) -> None:
    for op in list(kernel.walk()):
        if op.name != "tile.add":
            continue
        for i in (1, 0):
            product, other = op.operands[i].op, op.operands[1 - i]
            if product is not None and _fits(product, op, other):
                product.set_operand(2, other)
                _move_before(product, op)
                op.result.replace_by(product.result)
                op.erase()
                break


def _fits(product: Op, op: Op, other: Value) -> bool:
    return (
        product.name == "tile.mma"
        and product.block is op.block
        and len(product.result.uses) == 1
        and other is not product.result
        and other.type == product.result.type
        and _is_zero(product.operands[2])
        and not _synchronised_between(product, op)
    )


def _is_zero(v: Value) -> bool:
    op = v.op
    if op is not None and op.name == "tile.broadcast":
        return _is_zero(op.operands[0])
    return op is not None and op.name == "tile.constant" and op.attrs["value"] == 0


def _synchronised_between(product: Op, op: Op) -> bool:
    """Whether moving the product down to `op` would carry its reads of shared tiles over a write or a barrier."""
    assert op.block is not None
    ops = op.block.ops
    between = ops[ops.index(product) + 1 : ops.index(op)]
    return any(o.name in ("tile.barrier", "tile.copy_async", "tile.store_shared") or o.regions for o in between)


def _move_before(product: Op, op: Op) -> None:
    block = op.block
    assert block is not None
    block.ops.remove(product)
    block.ops.insert(block.ops.index(op), product)
