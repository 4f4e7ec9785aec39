"""The kernel of a contraction group: a block of the product, its elementwise epilogue, and the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.compiler.ir.core import Attr, Op, Value
from tessera.compiler.ir.types import Shape, TensorType, TileType, ViewType
from tessera.compiler.lower.kernel_writer import Argument, KernelWriter, Space
from tessera.compiler.machines import Sizes
from tessera.compiler.schedule.access import collapse, sizes
from tessera.compiler.schedule.blocks import common_block, contract_block, diagonal_block, whole_runs
from tessera.compiler.schedule.matrices import Matrix, contraction, operands_as_matrices
from tessera.compiler.schedule.views import contiguous
from tessera.language.dims import Dim, prod
from tessera.language.dtypes import DType, f32, f64
from tessera.language.order import CHAIN, SPAN

if TYPE_CHECKING:
    from tessera.compiler.lower.program_builder import GroupBody

FEW = 4
"""With at most this many rows or columns, most lanes of a product are empty, and dot products are quicker if there are
..."""
MANY = 16
"""... this many products"""
UNPACKED = 1 << 21
"""multiplications of a product of plain matrices that may be computed without packing"""


def contract_kernel(body: GroupBody, scalars: set[Value], blocks: Sizes, name: str) -> tuple[Op, list[Argument]]:
    """The tile program over [*batch, rows, columns], with as few batch axes as all that is touched allows."""
    product = body.ops[0]
    c = contraction(product)
    matrices = operands_as_matrices(product)
    n = len(c.batch)
    walks = [*[m.strides for m in matrices], *[a.strides for a in body.accesses()]]
    walks += [a.strides for _, a in body.stores()]
    batch = collapse(body.space[:n], [0] * n, [w[:n] for w in walks])
    place = {label: i for i, label in enumerate(c.out)}
    groups = [*batch, *(tuple(place[x] for x in labels) for labels in (c.rows, c.columns))]
    dims = sizes(body.space, groups)
    k = matrices[0].sizes[1]
    side = None if _wide(product).is_complex else _same_for_all(matrices, batch, dims, blocks)
    if side is not None:
        return _one_product(body, scalars, blocks, name, groups, matrices, side)
    diagonal = blocks.diagonals and bool(batch) and _are_dots(product, matrices, dims)
    if diagonal:
        lanes = batch.pop()
        single = [dims[-2] == 1, dims[-1] == 1]
        first, second = (_along(m, lanes, dims[-2:], right) for m, right in zip(matrices, (False, True), strict=True))
        matrices = first, second
        groups = [*batch, *(g for g, one in zip(groups[-2:], single, strict=True) if not one), lanes, ()]
        batch += [(n + i,) for i, one in enumerate(single) if not one]
        dims = sizes(body.space, groups)
        rows, columns = diagonal_block(dims[-2], blocks), 1
    else:
        rows, columns = contract_block(dims[-2], dims[-1], blocks, _dtype(product), prod(dims[:-2]), k)
        if (run := matrices[1].run) > 1 and blocks.any_axes and isinstance(dims[-1], int):
            columns = whole_runs(columns, dims[-1], run, blocks)
    block: tuple[Dim, ...] = (*(1 for _ in batch), rows, columns)
    writer = KernelWriter(
        Space(body.space, groups, dims, block, (False,) * len(dims)), body.axes, scalars, product.span
    )
    left, right = (_matrix(writer, batch, m) for m in matrices)
    attrs: dict[str, Attr] = {"diagonal": True} if diagonal else {}
    if not all(m.plain for m in matrices):
        attrs["lead"] = tuple(m.lead for m in matrices)
    writer.tiles[product.result] = _product(writer, left, right, (rows, columns), product, attrs)
    for op in body.ops[1:]:
        writer.compute(op)
    for v, at in body.stores():
        writer.store(v, at)
    return writer.finish(name), writer.arguments


def _same_for_all(
    matrices: tuple[Matrix, Matrix], batch: list[tuple[int, ...]], dims: Shape, blocks: Sizes
) -> int | None:
    """Which operand a batch of products has in common, if the others' rows or columns fit a block several times: then
    they are packed together, and the common operand once for all of them."""
    if not blocks.any_axes or len(batch) != 1:
        return None
    count, rows, columns = dims
    if not (isinstance(count, int) and isinstance(rows, int) and isinstance(columns, int)):
        return None
    k = matrices[0].sizes[1]
    packed = not all(m.plain for m in matrices) or (isinstance(k, int) and rows * columns * k > UNPACKED)
    if not packed or min(count, rows, columns) < 1 or min(rows, columns) < blocks.sides:
        return None
    for side, own, most in ((0, columns, blocks.contract_columns), (1, rows, blocks.contract_rows)):
        if matrices[side].strides[batch[0][-1]] == 0 and 2 * own <= most:
            return side
    return None


def _one_product(
    body: GroupBody,
    scalars: set[Value],
    blocks: Sizes,
    name: str,
    groups: list[tuple[int, ...]],
    matrices: tuple[Matrix, Matrix],
    side: int,
) -> tuple[Op, list[Argument]]:
    """The kernel of a batch of small products that have their operand `side` in common: the batch and the other
    operand's rows (columns) count as one axis, of which a program takes whole products."""
    product, (batch, down, across) = body.ops[0], groups
    groups = [down, batch, across] if side == 0 else groups
    dims = sizes(body.space, groups)
    count, own, other = dims[1 - side], dims[2 - side], dims[2 * side]
    assert isinstance(count, int) and isinstance(own, int) and isinstance(other, int)
    limits = (blocks.contract_rows, blocks.contract_columns)
    piece, several = common_block(other, count, own, (limits[side], limits[1 - side]), blocks)
    rows, columns = (piece, several * own) if side == 0 else (several * own, piece)
    block = (rows, several, own) if side == 0 else (several, own, columns)
    writer = KernelWriter(Space(body.space, groups, dims, block, (False,) * 3), body.axes, scalars, product.span)
    merged = [_alone(m, batch, i == side, right=i == 1) for i, m in enumerate(matrices)]
    views = [_matrix(writer, [], m) for m in merged]
    attrs: dict[str, Attr] = {} if all(m.plain for m in merged) else {"lead": tuple(m.lead for m in merged)}
    b, first = writer.b, writer.offsets
    start = b.iop("imul", first[1 - side], b.index(own))
    at = [first[0], start] if side == 0 else [start, first[2]]
    acc = b.value("tile.contract", (*views, *at), TileType((rows, columns), _wide(product)), attrs)
    t = product.result.type
    assert isinstance(t, TensorType)
    writer.tiles[product.result] = b.cast(b.reshape(acc, block), t.dtype)
    for op in body.ops[1:]:
        writer.compute(op)
    for v, places in body.stores():
        writer.store(v, places)
    return writer.finish(name), writer.arguments


def _alone(m: Matrix, batch: tuple[int, ...], common: bool, right: bool) -> Matrix:
    """An operand of a batch as one matrix: the common one without the batch, of the other one the batch with its rows,
    on the right with its columns."""
    if common:
        return Matrix(m.layout, 0, m.lead, m.shape[m.batch :], m.strides[m.batch :])
    axes = [*zip(m.shape, m.strides, strict=True)]
    walk, rest = [(prod(m.shape[a] for a in batch), m.strides[batch[-1]])], axes[m.batch :]
    walk = [*rest[: m.lead], *walk, *rest[m.lead :]] if right else [*walk, *rest]
    shape, strides = zip(*walk, strict=True)
    return Matrix(m.layout, 0, m.lead + (not right), shape, strides)


def _dtype(product: Op) -> DType | None:
    """The operands' dtype, where they have the same."""
    left, right = (v.type for v in product.operands[:2])
    assert isinstance(left, TensorType) and isinstance(right, TensorType)
    return left.dtype if left.dtype == right.dtype else None


def _matrix(writer: KernelWriter, batch: list[tuple[int, ...]], m: Matrix) -> Value:
    """An operand as a view without batches: the argument itself, or this program's matrix of the batch."""
    t = m.layout.base.type
    assert isinstance(t, TensorType)
    own, steps = m.shape[m.batch :], m.strides[m.batch :]
    inner = _view(own, steps, t.dtype)
    whole = _view((*sizes(m.shape, batch), *own), (*(m.strides[g[-1]] for g in batch), *steps), t.dtype)
    arg = writer.window(m.layout.base, m.layout.offset, whole, m.layout.base)
    if not batch:
        return arg
    zero = writer.b.index(0)
    attrs: dict[str, Attr] = {"sizes": (*(1 for _ in batch), *own), "drop": tuple(range(len(batch)))}
    return writer.b.value("tile.subview", (arg, *writer.offsets[:-2], *(zero for _ in own)), inner, attrs)


def _view(shape: Shape, strides: Shape, dtype: DType) -> ViewType:
    return ViewType(shape, dtype, None if strides == contiguous(shape) else strides)


def _wide(product: Op) -> DType:
    """The accumulator's dtype."""
    t = product.result.type
    assert isinstance(t, TensorType)
    return t.policy.accum if t.policy and t.policy.accum else t.dtype.compute


def _are_dots(product: Op, matrices: tuple[Matrix, Matrix], dims: Shape) -> bool:
    """Whether each product of the batch is a dot product, or so few that they would leave most lanes empty, with what
    is summed along memory. `dims`: the last of the batch, rows and columns."""
    left, right = matrices
    if _wide(product) != _dtype(product) or _dtype(product) not in (f32, f64) or not (left.plain and right.plain):
        return False
    k = left.sizes[1]
    if isinstance(k, int) and k >= SPAN and k % CHAIN == 0:  # one product's own chains fill the lanes
        return False
    count, *size = dims[-3:]
    if size == [1, 1]:
        return True
    along = left.strides[-1] == 1 == right.strides[-2]
    few = 1 in size and all(isinstance(d, int) and 1 <= d <= FEW for d in size)
    return along and few and (not isinstance(count, int) or count >= MANY)


def _along(m: Matrix, axes: tuple[int, ...], outer: Shape, right: bool) -> Matrix:
    """An operand of dot products as [*batch, rows, columns, n, K], on the right [..., K, n]: n are `axes` of the batch,
    `outer` the sizes of rows and columns."""
    shape, strides = m.shape, m.strides
    size, step = prod(shape[a] for a in axes), strides[axes[-1]]
    ends, steps = (shape[-2], size), (strides[-2], step)
    places = (0, strides[-1])
    if not right:
        ends, steps = (size, shape[-1]), (step, strides[-1])
        places = (strides[-2], 0)
    return Matrix(m.layout, m.batch + 2, 1, (*shape[:-2], *outer, *ends), (*strides[:-2], *places, *steps))


def _product(
    writer: KernelWriter, left: Value, right: Value, block: tuple[int, int], op: Op, attrs: dict[str, Attr]
) -> Value:
    """The block in the accumulator dtype, then rounded to the operator's dtype."""
    b = writer.b
    t = op.result.type
    assert isinstance(t, TensorType)
    row, column = writer.offsets[-2:]
    acc = b.value("tile.contract", (left, right, row, column), TileType(block, _wide(op)), attrs)
    if extra := len(writer.space.dims) - 2:
        acc = b.reshape(acc, (*(1 for _ in range(extra)), *block))
    return b.cast(acc, t.dtype)
