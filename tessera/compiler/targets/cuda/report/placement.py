"""Where each tile of a kernel is stored, for people: the layout in shared memory, and the threads and registers."""

from __future__ import annotations

import re

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_tile, shape_of
from tessera.compiler.targets.cuda.layouts.layout import Layout
from tessera.compiler.targets.cuda.report.notes import shared_layouts
from tessera.compiler.targets.cuda.report.shared_memory import part
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products, WarpgroupOperand

MOST = 16
"""tiles of a kernel that are reported, those that take most"""


def tiles(e: KernelEmitter) -> list[dict[str, object]]:
    """Plain data per tile: its `name`, the user's `line`, what it is, where it is, how, and what it `takes` there."""
    return [*_shared(e), *_registers(e)]


def _shared(e: KernelEmitter) -> list[dict[str, object]]:
    how = {name.removeprefix("shared "): text for name, text in shared_layouts(e).items()}
    out: list[dict[str, object]] = []
    for key, size in sorted(e.reserved.items(), key=lambda entry: -entry[1])[:MOST]:
        plan = e.warpgroups.get(key[0]) if isinstance(key, tuple) else None
        p, takes = part(key, size), f"{size} B per block"
        if isinstance(plan, Products) and isinstance(key, tuple):
            if key[1] < 2:  # mbarriers follow behind them
                out.append(_stages(p.name, p.span.line, (plan.a, plan.b)[key[1]], plan.depth, size))
            continue
        shape = " x ".join(map(str, p.shape))
        told = next((how[n] for n in (p.name, f"{p.name}_staged") if n in how), "")
        if not shape:  # a stage of a product's operand, whose part of k the target chooses
            shape = told.partition(",")[0].replace("x", " x ")
        what = f"{shape} {p.dtype}".strip()
        how_it_lies = told.partition(", ")[2]  # without its size again
        out.append(_row(p.name, p.span.line, what, "shared memory", how_it_lies, takes))
    return out


def _stages(name: str, line: int, operand: WarpgroupOperand, depth: int, size: int) -> dict[str, object]:
    """Stages of a product's operand, filled by tensor copies."""
    rows, cols = (operand.rows, depth) if operand.k_major else (depth, operand.rows)
    how = f"128-byte swizzle, {size // operand.stage_bytes} stages filled by tensor copies; no bank conflicts"
    return _row(name, line, f"{rows} x {cols} {operand.map.dtype.name}", "shared memory", how, f"{size} B per block")


def _registers(e: KernelEmitter) -> list[dict[str, object]]:
    """Named tiles, once for each name, shape and dtype: a name may be given to several tiles in turn."""
    found: dict[tuple[str, str], tuple[int, dict[str, object]]] = {}
    for op in e.kernel.walk():
        for v in (*op.results, *(a for region in op.regions for a in region.block.args)):
            layout = e.grouping.of(v).layout if is_tile(v) and v.hint and v in e.env and v not in e.splat else None
            if layout is None:
                continue
            what = f"{' x '.join(map(str, shape_of(v)))} {dtype_of(v).name}"
            n = -(-layout.registers * dtype_of(v).itemsize // 4)
            takes = f"{n} registers per thread"
            row = _row(v.hint, _line(v, op), what, "registers", describe(e, layout), takes)
            found.setdefault((v.hint, what), (n, row))
    return [row for _, row in sorted(found.values(), key=lambda entry: -entry[0])[:MOST]]


def _row(name: str, line: int, what: str, where: str, how: str, takes: str) -> dict[str, object]:
    return {"name": name, "line": line, "what": what, "where": where, "how": how, "takes": takes}


def _line(v: Value, op: Op) -> int:
    return (v.op or op).span.line


def describe(e: KernelEmitter, layout: Layout) -> str:
    """Who holds which elements."""
    if made := re.fullmatch(r"ts::(Rows|Cols)Of<(\w+)>", layout.spelling):
        matrix = next((g.layout for g in e.grouping.groups if g.name == made[2]), None)
        along = "row" if made[1] == "Rows" else "column"
        return f"one element to each {along} of: {describe(e, matrix)}" if matrix is not None else along
    if made := re.fullmatch(r"ts::(?:Fragment|Quarters)<\d+, \d+, (\d+), (\d+)>", layout.spelling):
        return f"tensor-core fragment over {made[1]} x {made[2]} warps"
    row, col = layout.row, layout.col
    threads = f"{row.t0 * row.t1 * row.t2} x {col.t0 * col.t1 * col.t2} threads"
    return f"{threads}, each with {row.inner} x {col.inner} neighbours" if row.inner * col.inner > 1 else threads
