"""Which products of a kernel run on sm_90a's warpgroup instructions, decided before layouts are.

The answer depends on the target, the dtypes, the operands' memory layout and the place of the product in its kernel;
never on the tile, which is padded to whole instructions: a product's bits do not change with its block size.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cuda.tensor_cores.maps import BOX, LINE, TensorMap, is_zero, widest_line
from tessera.compiler.tile.dialect import INDEX_OPS
from tessera.compiler.tile.offsets import Bounds, strides_of
from tessera.errors import Diagnostic, TargetError
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

TRANSPOSABLE = frozenset((dtypes.f16, dtypes.bf16))
"""Operands that wgmma also reads with k outside (PTX ISA, wgmma.mma_async, imm-trans)."""
PLAIN = frozenset(
    f"tile.{name}" for name in (*INDEX_OPS, "dim", "program_id", "subview", "constant", "to_scalar", "to_index")
)
"""What a producer computes for itself."""


@immutable
class WarpgroupOperand:
    """One side of a product: `rows` positions along m or n, padded; `outer`: coordinates of its matrix in the map."""

    map: TensorMap
    k_major: bool
    rows: int
    outer: tuple[Value, ...]

    @property
    def stage_bytes(self) -> int:
        return self.rows * LINE


@immutable
class Products:
    """A contraction on warpgroups. `warps` use what `producers` more fetch; a stage holds `depth` of k."""

    a: WarpgroupOperand
    b: WarpgroupOperand
    depth: int
    warps: int
    producers: int


def plan_contraction(
    kernel: Op, bounds: Bounds, dtypes_supported: frozenset[DType], warps: int | None
) -> dict[Op, Products | str]:
    """For every contraction of the kernel the plan, or why it has none. `warps`: the author's number."""
    found = [op for op in kernel.walk() if op.name == "tile.contract"]
    return {op: _plan(op, found, kernel, bounds, dtypes_supported, warps) for op in found}


def _plan(
    op: Op, all_of_them: list[Op], kernel: Op, bounds: Bounds, dtypes_supported: frozenset[DType], warps: int | None
) -> Products | str:
    left, right, t = op.operands[0].type, op.operands[1].type, op.result.type
    assert isinstance(left, ViewType) and isinstance(right, ViewType) and isinstance(t, TileType)
    dtype, top = left.dtype, kernel.region.block
    if dtype not in dtypes_supported or right.dtype != dtype or t.dtype != dtypes.f32:
        return "these dtypes have no wgmma instruction"
    m, n = t.shape
    if n == 1 or not isinstance(m, int) or not isinstance(n, int):
        return "a single column"
    if op.block is not top or len(all_of_them) > 1:
        return "not the only product of the kernel"
    if any(x.name not in PLAIN for x in top.ops[: top.ops.index(op)]):
        return "other work stands before the product"
    if m > BOX or n > BOX:
        message = f"A block of {m}x{n} exceeds {BOX}, which a tensor copy takes along one axis.\nUse a smaller tile."
        raise TargetError(Diagnostic("TS405", message, op.span))
    groups = min(-(-m // 64), 2 if warps is None else max(1, min(2, warps // 4)))
    rows = -(-m // (64 * groups)) * 64 * groups
    a = _operand(op.operands[0], rows, 1, kernel, bounds)
    if isinstance(a, str):
        return f"the left operand: {a}"
    b = _operand(op.operands[1], -(-n // 8) * 8, 0, kernel, bounds)
    if isinstance(b, str):
        return f"the right operand: {b}"
    # A whole warpgroup of producers has registers to hand over to large accumulators.
    producers = 4 if groups == 2 and rows * n > 64 * 128 * groups else 1
    return Products(a, b, LINE // dtype.itemsize, 4 * groups, producers)


def _operand(view: Value, rows: int, k_axis: int, kernel: Op, bounds: Bounds) -> WarpgroupOperand | str:
    """An operand whose axis `k_axis` is summed over, or why tensor copies cannot fetch it."""
    argument, axes, outer = view, [0, 1], dict[int, Value]()
    if view.op is not None:
        if view.op.name != "tile.subview" or view.op.operands[0].op is not None:
            return "a window of a window"
        argument = view.op.operands[0]
        drop: tuple[int, ...] = view.op.attrs.get("drop", ())  # type: ignore[assignment]
        outer = {a: v for a, v in enumerate(view.op.operands[1:]) if a in drop}
        axes = [a for a in range(len(view.op.operands) - 1) if a not in drop]
        if not _whole(view, argument, axes):
            return "a window that leaves out rows or columns"
    t = argument.type
    assert isinstance(t, ViewType)
    if argument not in bounds.aligned:
        return "its memory may start between 16-byte boundaries"
    steps, per = strides_of(argument), 16 // t.dtype.itemsize
    outer = {a: v for a, v in outer.items() if t.shape[a] != 1 and steps[a] != 0}
    k, other = axes[k_axis], axes[1 - k_axis]
    inner = k if steps[k] == 1 else other
    if steps[inner] != 1:
        return "its neighbours in memory are neighbours along neither axis"
    if inner == other and t.dtype not in TRANSPOSABLE:
        return f"wgmma reads {t.dtype.name} only where neighbours in memory are neighbours along k"
    order = [inner, k if inner == other else other, *outer]
    if any(t.shape[a] != 1 and (bounds.divisor(steps[a]) % per or steps[a] == 0) for a in order[1:]):
        return "its lines may start between 16-byte boundaries"
    depth = line = LINE // t.dtype.itemsize
    if inner == other:
        line = widest_line(rows, t.dtype.itemsize) // t.dtype.itemsize
        rows = -(-rows // line) * line
    box = (line, rows) if inner == k else (line, depth)
    strides: list[Dim] = [per if t.shape[a] == 1 else steps[a] for a in order[1:]]
    number = kernel.region.block.args.index(argument)
    sizes = tuple(t.shape[a] for a in order)
    tensor = TensorMap(number, t.dtype, sizes, (1, *strides), (*box, *(1,) * len(outer)))
    return WarpgroupOperand(tensor, inner == k, rows, tuple(outer.values()))


def _whole(view: Value, source: Value, axes: list[int]) -> bool:
    """Whether a window takes all of these axes of its source."""
    assert view.op is not None
    sizes: tuple[Dim, ...] = view.op.attrs["sizes"]  # type: ignore[assignment]
    return all(is_zero(view.op.operands[1 + a]) and sizes[a] == source.type.shape[a] for a in axes)  # type: ignore[union-attr]
