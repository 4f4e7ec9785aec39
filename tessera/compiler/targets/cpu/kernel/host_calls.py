"""How kernels call their host: for `tile.print`, and in debug mode for `tile.assert`. `call/host.py` answers."""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType
from tessera.compiler.targets.cpu.frame import HOST
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.llvm.values import PTR
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.language.dims import prod


@writes("print", "assert")
def write_site(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """Copies the tile into scratch memory and calls the host with the number of the site."""
    if op.name == "tile.assert" and not k.sites.checks:
        return
    cell, *more = [_kept(k, v, plan, writer) for v in op.operands]
    span = op.span
    k.sites.table.append(
        {
            "what": op.name[5:],
            "text": str(op.attrs.get("label" if op.name == "tile.print" else "message") or ""),
            "shape": [str(s) for s in shape_of(op.operands[0])],
            "held": cell.dtype.name,
            "dtype": dtype_of(op.operands[0]).name,
            "extent": str(op.attrs.get("extent", 0)),
            "grid": [str(g) for g in k.kernel.attrs["grid"]],  # type: ignore[union-attr]
            "span": [span.file, span.line, span.col, span.end_line, span.end_col],
        }
    )
    fn = k.fn
    call = k.frame.load_slot(fn, fn.param(0), HOST, PTR)
    shown = repr(more[0].ptr) if more else "ptr null"
    args = f"{fn.param(0)!r}, i64 {len(k.sites.table) - 1}, {cell.ptr!r}, {shown}, {fn.index(k.number)!r}"
    fn.do(f"call void {call.ref}({args})")


def _kept(k: KernelFunction, v: Value, plan: Planner, writer: NestWriter) -> Cell:
    """Where the host finds the tile, in C order."""
    if isinstance(v.type, SharedType):
        return k.ev.cells[v]
    shape, kept = shape_of(v), held(dtype_of(v))
    cell = Cell(k.raw(prod(shape) * kept.itemsize), k.ev.packed_strides(shape), kept)
    writer.write(plan.copy(v, cell))
    return cell
