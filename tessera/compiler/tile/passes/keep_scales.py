"""Products of small floats with scales of blocks, for targets whose instructions multiply by them.

The language says what such a product is: of operands times their scales, in bf16 (`ts.tile.mma` marks it). Here it
becomes a product of the elements as they are, with the scales as two further operands. Where no instruction takes it,
it stays as it was, and its attribute `unscaled` says why.
"""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.machines import BLOCK_SCALED, MMA_COLUMNS, MMA_ROWS, scaled_depth
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Dim


@immutable
class ScaledOperand:
    """`elements` times `scale`, where `exists` says so; elsewhere 0."""

    elements: Value
    scale: Value | None
    exists: Value | None


def keep_scales(kernel: Op) -> None:
    products = [op for op in kernel.walk() if op.name == "tile.mma" and op.attrs.get("scaled")]
    for op in products:
        found = _operands(op)
        if isinstance(found, str):
            op.attrs["unscaled"] = found
        else:
            _take(op, *found)
    if products:
        remove_dead(kernel)


def _operands(op: Op) -> tuple[ScaledOperand, ScaledOperand] | str:
    """Both operands of a product, or why no instruction takes them."""
    if _tile(op.result).dtype != dtypes.f32:
        return f"it sums in {_tile(op.result).dtype}, and the instructions in f32"
    if _tile(op.result).rank != 2:
        return "a batch whose size is not known"
    a, b = (_taken_apart(v, axis) for v, axis in zip(op.operands[:2], (1, 0), strict=True))
    if a is None or b is None:
        return "other work stands between the scales and the product"
    scales = {_tile(x.scale).dtype for x in (a, b) if x.scale is not None}
    if len(scales) > 1:
        return "the operands have scales of two dtypes, and the instructions of one"
    (scale,) = scales
    (m, n), k = _tile(op.result).shape, _tile(a.elements).shape[1]
    if not isinstance(m, int) or m % MMA_ROWS or not isinstance(n, int) or n % MMA_COLUMNS:
        return f"the instructions take multiples of {MMA_ROWS} rows and {MMA_COLUMNS} columns, and it has {m} x {n}"
    left, right = _tile(a.elements).dtype, _tile(b.elements).dtype
    if not isinstance(k, int) or not scaled_depth(left, right, scale, k):
        if scaled_depth(left, right, scale, 64):
            depth = 64 if scale == dtypes.fp8_e4m3 else 32
            return f"the instructions take multiples of {depth} of K with scales in {scale}, and it has {k}"
        return f"no instruction takes {left} and {right} with scales in {scale}"
    if any(x.exists is not None and x.scale is not None and not _is_loaded(x.scale) for x in (a, b)):
        return "its scales are computed, and beyond an edge they may be anything"
    return a, b


def _taken_apart(v: Value, axis: int) -> ScaledOperand | None:
    """An operand in bf16 as the language writes it: the elements, or these times their repeated scales, rounded."""
    exists, op = None, v.op
    if op is not None and op.name == "tile.where" and _is_zero(op.operands[2]):
        exists, op = op.operands[0], op.operands[1].op
    if op is None or op.name != "tile.cast":
        return ScaledOperand(v, None, None) if exists is None else None  # bf16 itself, which no instruction takes
    product = op.operands[0]
    if _tile(product).dtype != dtypes.f32:
        return ScaledOperand(product, None, exists)
    if product.op is None or product.op.name != "tile.mul":
        return None
    wide, spread = (x.op for x in product.op.operands)
    if wide is None or spread is None or (wide.name, spread.name) != ("tile.cast", "tile.repeat"):
        return None
    scale = spread.operands[0].op
    if spread.attrs["axis"] != axis or scale is None or scale.name != "tile.cast":
        return None
    block = BLOCK_SCALED.get(_tile(scale.operands[0]).dtype)
    return ScaledOperand(wide.operands[0], scale.operands[0], exists) if spread.attrs["repeats"] == block else None


def _take(op: Op, a: ScaledOperand, b: ScaledOperand) -> None:
    assert op.block is not None
    builder = TileBuilder(op.block, op.block.index(op), op.span)
    scale = next(_tile(x.scale).dtype for x in (a, b) if x.scale is not None)
    blocks = cast("int", _tile(a.elements).shape[1]) // BLOCK_SCALED[scale]

    def elements(x: ScaledOperand) -> Value:
        t = _tile(x.elements)
        if x.exists is None:
            return x.elements
        return builder.value("tile.where", (x.exists, x.elements, builder.full(t.shape, 0, t.dtype)), t)

    def scales(x: ScaledOperand, shape: tuple[Dim, ...]) -> Value:
        return x.scale if x.scale is not None else builder.full(shape, 1, scale)

    m, n = _tile(op.result).shape
    op.set_operands([elements(a), elements(b), op.operands[2], scales(a, (m, blocks)), scales(b, (blocks, n))])


def _is_loaded(scale: Value) -> bool:
    """Whether scales beyond an edge are the least ones: no NaN meets the zeros there."""
    op = scale.op
    if op is not None and op.name == "tile.transpose":
        op = op.operands[0].op
    return op is not None and op.name == "tile.load" and not op.attrs.get("masked") and op.attrs.get("fill", 0) == 0


def _is_zero(v: Value) -> bool:
    op = v.op
    if op is not None and op.name == "tile.broadcast":
        op = op.operands[0].op
    return op is not None and op.name == "tile.constant" and op.attrs["value"] == 0


def _tile(v: Value | None) -> TileType:
    assert v is not None and isinstance(v.type, TileType)
    return v.type
