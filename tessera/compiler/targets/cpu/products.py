"""Matrix products of tiles (`tile.mma`) and of whole operands in global memory (`tile.contract`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.convert import memory_element
from tessera.compiler.targets.cpu.matmul import Matmul, matmul_function
from tessera.compiler.targets.cpu.memory import Cell
from tessera.compiler.targets.cpu.nests import NestWriter
from tessera.compiler.targets.cpu.numbers import dtype_of, memory_of, unsupported
from tessera.compiler.targets.cpu.plan import Planner
from tessera.compiler.targets.cpu.spaces import shape_of
from tessera.compiler.targets.cpu.values import Index, Val
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.targets.cpu.kernel import KernelFunction


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in memory: address of element (0, 0), strides in elements, storage dtype."""

    ptr: Val
    strides: tuple[Index, Index]
    dtype: DType

    @property
    def unit(self) -> str:
        """Which axis has stride 1: "0", "1" or ""."""
        return "1" if self.strides[1] == 1 else "0" if self.strides[0] == 1 else ""


def _source(v: Value) -> tuple[Op, bool] | None:
    """The load that `v` is, and whether it is seen transposed."""
    turned = False
    while v.op is not None and v.op.name == "tile.transpose":
        turned, v = not turned, v.op.operands[0]
    return (v.op, turned) if v.op is not None and v.op.name == "tile.load" else None


def direct_operand(k: KernelFunction, v: Value) -> bool:
    """Whether a product may read `v` straight from global memory: a load that never leaves its view, of memory that
    this kernel does not write."""
    found = _source(v)
    if found is None:
        return False
    load, _ = found
    view = load.operands[0].type
    assert isinstance(view, ViewType)
    if load.attrs.get("masked") or memory_of(load.operands[0]) in k.ev.written:
        return False
    sizes = zip(load.operands[1 : 1 + view.rank], shape_of(load.result), view.shape, strict=True)
    return all(all(k.ev.bounds.inside(o, t, n)) for o, t, n in sizes)


def _operand(k: KernelFunction, v: Value) -> Operand:
    if v not in k.ev.cells and direct_operand(k, v):
        found = _source(v)
        assert found is not None
        load, turned = found
        p, strides, _, view = k.ev.window(load)
        a, b = strides
        return Operand(p, (b, a) if turned else (a, b), dtype_of(view))
    cell = k.ev.cells[v]
    return Operand(cell.ptr, (cell.strides[0], cell.strides[1]), cell.dtype)


def _check(op: Op, lhs: DType, rhs: DType, acc: DType) -> None:
    if acc.is_complex or lhs.is_complex or rhs.is_complex or acc.kind == "bool" or acc.is_low_precision:
        unsupported(op, f"a matrix product of {lhs} and {rhs} accumulated in {acc}")
    if acc.is_integer and (lhs.is_float or rhs.is_float):
        unsupported(op, f"a product of floats accumulated in {acc}")


def _call(
    k: KernelFunction,
    op: Op,
    a: Operand,
    b: Operand,
    acc: DType,
    c: Cell,
    sizes: tuple[Index, Index, Index],
    rows: int,
    accumulate: bool,
) -> None:
    _check(op, a.dtype, b.dtype, acc)
    along = {"0": "m", "1": "k", "": ""}[a.unit], {"0": "k", "1": "n", "": ""}[b.unit]
    kind = Matmul(k.isa, a.dtype, b.dtype, acc, *along, rows=rows, accumulate=accumulate)
    name = matmul_function(k.module, kind)
    work = k.raw(kind.workspace(rows))
    pitch = c.strides[0] if c.strides[0] != 0 else kind.nr
    args = [a.ptr, *a.strides, b.ptr, *b.strides, c.ptr, pitch, *sizes, work]
    k.fn.do(f"call void @{name}({', '.join(repr(k.fn.index(x)) for x in args)})")


def write_mma(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """The accumulator's elements are put into the result's memory, then the products are added there."""
    a, b, acc = op.operands
    if not all(isinstance(d, int) for v in (a, b) for d in shape_of(v)):
        unsupported(op, "a product of tiles of unknown size")
    cell = k.ev.cells.get(op.result)
    if cell is None:
        cell = k.ev.cells[op.result] = k.matrix(op.result)
    writer.write(plan.copy(acc, cell))
    k.ev.memo = {}
    rows, columns = shape_of(op.result)
    depth = shape_of(a)[1]
    sizes = k.ev.dim(rows), k.ev.dim(columns), k.ev.dim(depth)
    _call(k, op, _operand(k, a), _operand(k, b), dtype_of(acc), cell, sizes, int(rows), True)  # type: ignore[arg-type]


def write_contract(k: KernelFunction, op: Op) -> None:
    """The part of the block that lies inside the product; at the edges the rest is zero."""
    ev, fn = k.ev, k.fn
    lhs, rhs = op.operands[:2]
    rows, columns = shape_of(op.result)
    if not isinstance(rows, int) or not isinstance(columns, int):
        unsupported(op, "a contraction block of unknown size")
    cell = k.ev.cells.get(op.result) or k.matrix(op.result)
    k.ev.cells[op.result] = cell
    left, right = (_whole(k, v) for v in (lhs, rhs))
    row, col = ev.index(op.operands[2]), ev.index(op.operands[3])
    m, n = _left(k, lhs, 0, op.operands[2], rows), _left(k, rhs, 1, op.operands[3], columns)
    if not (isinstance(m, int) and isinstance(n, int)):
        ragged = fn.binary("or", fn.icmp("slt", m, rows), fn.icmp("slt", n, columns))
        with fn.when(ragged):
            pitch = cell.strides[0] or 64
            bytes_ = fn.mul(fn.mul(pitch, rows), cell.dtype.itemsize)
            fn.module.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            fn.do(f"call void @llvm.memset.p0.i64(ptr {cell.ptr.ref}, i8 0, {fn.index(bytes_)!r}, i1 false)")
    a = Operand(fn.gep(left.ptr, fn.mul(row, left.strides[0]), memory_element(left.dtype)), left.strides, left.dtype)
    b = Operand(
        fn.gep(right.ptr, fn.mul(col, right.strides[1]), memory_element(right.dtype)), right.strides, right.dtype
    )
    depth = _extent(lhs, 1)
    _call(k, op, a, b, dtype_of(op.result), cell, (m, n, ev.dim(depth)), rows, False)


def _whole(k: KernelFunction, v: Value) -> Operand:
    s = k.ev.view_strides(v)
    return Operand(k.ev.base(v), (s[0], s[1]), dtype_of(v))


def _left(k: KernelFunction, view: Value, axis: int, start: Value, size: int) -> Index:
    """How many of `size` rows (columns) from `start` on lie inside the view."""
    extent = _extent(view, axis)
    if all(k.ev.bounds.inside(start, size, extent)):
        return size
    return k.fn.smax(k.fn.smin(k.fn.sub(k.ev.dim(extent), k.ev.index(start)), size), 0)


def _extent(view: Value, axis: int) -> Dim:
    assert isinstance(view.type, ViewType)
    return view.type.shape[axis]
