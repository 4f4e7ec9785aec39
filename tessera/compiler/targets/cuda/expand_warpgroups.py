"""tile.contract on sm_90a: one warp fetches stages of both operands by tensor copies (TMA), the others multiply them
(wgmma). For large accumulators a whole warpgroup fetches, which hands its registers to the others (setmaxnreg)."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cuda import cxx
from tessera.compiler.targets.cuda.emit import KernelEmitter
from tessera.compiler.targets.cuda.emit_tensor import SWIZZLE_GROUP, declare_swizzled
from tessera.compiler.targets.cuda.tensor_maps import SwizzledTile
from tessera.compiler.targets.cuda.warpgroups import Operand, Products


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
            for name, operand, at in ((left, plan.a, op.operands[2]), (right, plan.b, op.operands[3])):
                corner = [e.expr(at), k] if operand.k_major else [k, e.expr(at)]
                place = ", ".join([e.tensor_maps[operand.map], full, *corner, *map(e.expr, operand.outer)])
                w.write(f"{name}[{ring}.slot].fetch({place});")
        w.write("return;")
    w.write(f"{ring}.enter_user();")
    operands = ", ".join([_use(left, plan.a.k_major, ring), _use(right, not plan.b.k_major, ring)])
    w.write(f"auto {acc} = ts::full<{e.layout(op.result)}>({cxx.literal(0, t.dtype)});")
    # The last stage stands by itself: ptxas serialises all products where the wait for it follows the loop.
    w.write("#pragma unroll 1")
    with w.block(f"for (ts::idx {k} = {first}; {k} + {depth} < {size}; {k} += {depth}, {ring}.next())"):
        w.write(f"{ring}.wait();")
        w.write(f"ts::start_products({acc}, {operands});")
        w.write(f"ts::finish_products<1>({acc});")
        w.write(f"if ({k} > 0) {ring}.release_previous();")
    w.write(f"{ring}.wait();")
    w.write(f"ts::start_products({acc}, {operands});")
    w.write(f"ts::finish_products<0>({acc});")
    e.env[op.result] = acc


def _stages(e: KernelEmitter, op: Op, plan: Products) -> int:
    size = plan.a.stage_bytes + plan.b.stage_bytes
    # Three where two blocks then share a multiprocessor: one multiplies while the other stores.
    limit = e.settings.shared_limit
    pair = plan.producers == 1 and 3 * size < limit // 2 - 2 * SWIZZLE_GROUP < 4 * size
    return e.stages(op, size, 3 if pair else 4, kept=2 * SWIZZLE_GROUP)


def _use(stages: str, plain: bool, ring: str) -> str:
    """A slot as the product sees it: [m, k] or [k, n]."""
    return f"{stages}[{ring}.slot]" if plain else f"ts::transposed({stages}[{ring}.slot])"


def _declare(e: KernelEmitter, op: Op, number: int, operand: Operand, depth: int, stages: int) -> str:
    hint = f"{op.operands[number].hint or 'ab'[number]}_stages"
    rows, cols = (operand.rows, depth) if operand.k_major else (depth, operand.rows)
    itemsize = operand.map.dtype.itemsize
    tile = SwizzledTile(rows, cols, rows, cols, itemsize, operand.map.box[0] * itemsize)
    return declare_swizzled(e, (op, number), tile, cxx.type_name(operand.map.dtype), hint, stages)
