"""The kernel of a contraction group: a block of the product, its elementwise epilogue, and the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.compiler.ir.core import Attr, Op, Value
from tessera.compiler.ir.types import Shape, TensorType, TileType, ViewType
from tessera.compiler.lower.access import written
from tessera.compiler.lower.contraction import contraction, operands_as_matrices
from tessera.compiler.lower.kernel_writer import Argument, KernelWriter, Space
from tessera.compiler.lower.layout import Layout, contiguous
from tessera.compiler.schedule.blocks import contract_block
from tessera.language.dims import Dim, prod
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.lower.program_builder import GroupBody


def contract_kernel(body: GroupBody, scalars: set[Value], device: str, name: str) -> tuple[Op, list[Argument]]:
    """The tile program over [batch, rows, columns]; without a batch the space is [rows, columns]."""
    product = body.ops[0]
    c = contraction(product)
    place = {label: i for i, label in enumerate(c.out)}
    groups = [tuple(place[x] for x in labels) for labels in (c.batch, c.rows, c.columns)]
    m, n = (prod(body.space[a] for a in g) for g in groups[1:])
    batch = prod(body.space[a] for a in groups[0])
    rows, columns = contract_block(m, n, device)
    dims: Shape = (batch, m, n)
    block: tuple[Dim, ...] = (1, rows, columns)
    if batch == 1:
        groups, dims, block = groups[1:], dims[1:], block[1:]
    writer = KernelWriter(
        Space(body.space, groups, dims, block, (False,) * len(dims)), body.axes, scalars, product.span
    )
    matrices = operands_as_matrices(product)
    assert matrices is not None, "normalise has copied what is no matrix"
    left, right = (_matrix(writer, *m, batched=batch != 1) for m in matrices)
    writer.tiles[product.result] = _product(writer, left, right, (rows, columns), product)
    for op in body.ops[1:]:
        writer.compute(op)
    for v in body.results:
        writer.store(v, written(v, body.axes[v], body.space))
    return writer.finish(name), writer.arguments


def _matrix(writer: KernelWriter, layout: Layout, shape: Shape, strides: Shape, batched: bool) -> Value:
    """An operand as a rank-2 view: the argument itself, or this program's matrix of the batch."""
    t = layout.base.type
    assert isinstance(t, TensorType)
    if not batched:
        shape, strides = shape[1:], strides[1:]
    view = ViewType(shape, t.dtype, None if strides == contiguous(shape) else strides)
    arg = writer.window(layout.base, layout.offset, view, layout.base.hint)
    if not batched:
        return arg
    zero = writer.b.index(0)
    inner = ViewType(shape[1:], t.dtype, None if strides[1:] == contiguous(shape[1:]) else strides[1:])
    attrs: dict[str, Attr] = {"sizes": (1, *shape[1:]), "drop": (0,)}
    return writer.b.value("tile.subview", (arg, writer.offsets[0], zero, zero), inner, attrs)


def _product(writer: KernelWriter, left: Value, right: Value, block: tuple[int, int], op: Op) -> Value:
    """The block in the accumulator dtype, then rounded to the operator's dtype."""
    b = writer.b
    t = op.result.type
    assert isinstance(t, TensorType)
    wide: DType = t.policy.accum if t.policy and t.policy.accum else t.dtype.compute
    row, column = writer.offsets[-2:]
    acc = b.value("tile.contract", (left, right, row, column), TileType(block, wide))
    if len(writer.space.dims) == 3:
        acc = b.reshape(acc, (1, *block))
    return b.cast(acc, t.dtype)
