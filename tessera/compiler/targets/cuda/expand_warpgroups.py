"""tile.contract on sm_90a: one warp fetches stages of both operands by tensor copies (TMA), the others multiply them
(wgmma). For large accumulators a whole warpgroup fetches, which hands its registers to the others (setmaxnreg)."""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cuda import cxx
from tessera.compiler.targets.cuda.emit import KernelEmitter
from tessera.compiler.targets.cuda.warpgroups import Operand, Products

SWIZZLE_GROUP = 1024
"""Bytes after which the 128-byte swizzle repeats: stages start at a multiple of it."""


def expand_on_warpgroups(e: KernelEmitter, op: Op, plan: Products) -> None:
    """Writes the pipeline. Raises TargetError TS405 where even two stages exceed shared memory."""
    e.headers.add("wgmma")
    t, view = op.result.type, op.operands[0].type
    assert isinstance(t, TileType) and isinstance(view, ViewType)
    stages = _stages(e, op, plan)
    left = _declare(e, op, 0, plan.a, plan.depth, stages)
    right = _declare(e, op, 1, plan.b, plan.depth, stages)
    ring, k, acc = e.fresh("ring"), e.fresh("k"), e.fresh(op.result.hint or "acc")
    size, depth = cxx.size(view.shape[1]), plan.depth
    # There always is a last stage: where k has no values, one that lies before its beginning and holds zeros.
    first = "0" if isinstance(view.shape[1], int) and view.shape[1] else f"{size} > 0 ? 0 : -{depth}"
    w = e.source
    w.write(f"ts::Ring<{stages}, {plan.warps}, {plan.producers}> {ring}(shared + {e.reserve((op, 2), 16 * stages)});")
    w.write(f"{ring}.start();")
    with w.block("if (ts::is_producer())"):
        w.write(f"if (!{ring}.enter_producer()) return;")
        full = e.fresh("full")
        w.write("#pragma unroll 1")
        with w.block(f"for (ts::idx {k} = {first}; {k} < {size}; {k} += {depth}, {ring}.next())"):
            w.write(f"auto {full} = {ring}.acquire({left}.bytes + {right}.bytes);")
            for name, operand, view_map, at in (
                (left, plan.a, e.tensor_maps[0], op.operands[2]),
                (right, plan.b, e.tensor_maps[1], op.operands[3]),
            ):
                place = ", ".join([e.expr(at), k, *map(e.expr, operand.outer)])
                w.write(f"{name}.fetch({ring}.slot, {view_map}, {full}, {place});")
        w.write("return;")
    w.write(f"{ring}.enter_user();")
    w.write(f"auto {acc} = ts::full<{e.layout(op.result)}>({cxx.literal(0, t.dtype)});")
    # The last stage stands by itself: ptxas serialises all products where the wait for it follows the loop.
    w.write("#pragma unroll 1")
    with w.block(f"for (ts::idx {k} = {first}; {k} + {depth} < {size}; {k} += {depth}, {ring}.next())"):
        w.write(f"{ring}.wait();")
        w.write(f"ts::start_products({acc}, {left}, {right}, {ring}.slot);")
        w.write(f"ts::finish_products<1>({acc});")
        w.write(f"if ({k} > 0) {ring}.release_previous();")
    w.write(f"{ring}.wait();")
    w.write(f"ts::start_products({acc}, {left}, {right}, {ring}.slot);")
    w.write(f"ts::finish_products<0>({acc});")
    e.env[op.result] = acc


def _stages(e: KernelEmitter, op: Op, plan: Products) -> int:
    size = plan.a.stage_bytes + plan.b.stage_bytes
    # Three where two blocks then share a multiprocessor: one multiplies while the other stores.
    limit = e.settings.shared_limit
    pair = plan.producers == 1 and 3 * size < limit // 2 - 2 * SWIZZLE_GROUP < 4 * size
    return e.stages(op, size, 3 if pair else 4, kept=2 * SWIZZLE_GROUP)


def _declare(e: KernelEmitter, op: Op, number: int, operand: Operand, depth: int, stages: int) -> str:
    view: Value = op.operands[number]
    name = e.fresh(f"{view.hint or 'ab'[number]}_stages")
    e.align_shared(SWIZZLE_GROUP)
    place = e.reserve((op, number), operand.stage_bytes * stages)
    major = "ts::Major::k" if operand.k_major else "ts::Major::mn"
    dtype = cxx.type_name(operand.map.dtype)
    e.source.write(f"ts::TensorStages<{dtype}, {operand.rows}, {depth}, {stages}, {major}> {name}(shared + {place});")
    return name
