"""Indices that are computed in 8 or 16 bits, where they wrap around before they become indices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tessera.compiler.frontend.fixes import expression_at
from tessera.compiler.frontend.kernel.names import namespace
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.tiles import tile_type
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, TileType
from tessera.errors import Diagnostic, Edit, Fix, Span

_INDICES = {
    "tile.to_index": slice(0, 1), "tile.gather": slice(1, None), "tile.scatter": slice(2, None),
    "tile.take": slice(1, 2), "tile.gather_along": slice(1, 2), "tile.scatter_along": slice(1, 2),
    "tile.scatter_add": slice(1, 2),
}  # fmt: skip
"""the operands of ops that are indices"""
_WRAPS = {"tile.add": "+", "tile.sub": "-", "tile.mul": "*"}
_THROUGH = frozenset({"tile.cast", "tile.broadcast", "tile.reshape", "tile.transpose", *_WRAPS})


def narrow_indices(k: KernelState, kernel: Op) -> Iterator[Diagnostic]:
    """A warning for each sum, difference or product of narrow integers that an index is computed from."""
    said: set[Span] = set()
    for op in kernel.walk():
        for v in op.operands[_INDICES[op.name]] if op.name in _INDICES else ():
            for found in _narrow(v):
                if found.span not in said:
                    said.add(found.span)
                    yield _warning(k, found)


def _narrow(index: Value) -> Iterator[Op]:
    seen: set[Value] = set()
    stack = [index]
    while stack:
        v = stack.pop()
        if v in seen or v.op is None or v.op.name not in _THROUGH or v.type == INDEX:
            continue
        seen.add(v)
        dtype = tile_type(v).dtype
        if v.op.name in _WRAPS and dtype.is_integer and dtype.bits < 32:
            yield v.op
        else:
            stack += [o for o in v.op.operands if isinstance(o.type, TileType) and not o.type.dtype.is_float]


def _warning(k: KernelState, op: Op) -> Diagnostic:
    dtype, symbol = tile_type(op.result).dtype, _WRAPS[op.name]
    ends = f"{-dtype.maximum - 1 if dtype.kind == 'int' else 0:.0f} and {dtype.maximum:.0f}"
    message = f"this {symbol} of {dtype} wraps around at {ends}, and its result is an index; convert an operand first"
    return Diagnostic("TS420", message, op.span, "warning", fixes=_wide(k, op.span))


def _wide(k: KernelState, span: Span) -> tuple[Fix, ...]:
    """`ts.tile.cast(a, ts.int64) + b` for `a + b`."""
    node = expression_at(k.ev.definition, span)
    if not isinstance(node, ast.BinOp):
        return ()
    tile = namespace(k.ev)
    dtype = f"{tile.removesuffix('.tile')}.int64" if tile.endswith(".tile") else "'int64'"
    left = k.ev.definition.text.span(node.left)
    text = f"{tile}.cast({k.ev.definition.text.segment(left)}, {dtype})"
    return (Fix("Compute the index in int64", (Edit(left, text),)),)
