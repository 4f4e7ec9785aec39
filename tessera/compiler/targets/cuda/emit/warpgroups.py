"""Writers of products on warpgroups (wgmma); sm_90a alone."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, handles
from tessera.compiler.targets.cuda.emit.memory import copy_text, stages_of
from tessera.compiler.targets.cuda.emit.phases import WAIT
from tessera.compiler.targets.cuda.emit.tensor_copies import SWIZZLE_GROUP, declare_swizzled, fetch_text
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_scalar, shape_of
from tessera.compiler.targets.cuda.tensor_cores.maps import SwizzledTile
from tessera.compiler.targets.cuda.tensor_cores.products import filled_by_tensor
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products, WarpgroupOperand
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.pipelines import rings


@handles("func")
def _prologue(e: KernelEmitter, kernel: Op) -> None:
    """The code before the body: the mbarriers that tensor copies report to, and the producer."""
    plan, w = e.products, e.source
    pipelines = [op for op in kernel.walk() if op.name == "tile.pipeline" and filled_by_tensor(plan, op)]
    if plan.fetches:
        e.headers.add("tma")
    if plan.loose or (pipelines and not plan.produced):
        w.write("bool leader = ts::is_first();")
    if plan.loose:
        w.write(f"ts::Copies copies(shared + {e.reserve_bytes(8)});")
        w.write("copies.start();")
    for op in pipelines:
        stages = stages_of(e, int(op.attrs["stages"]))  # type: ignore[call-overload]
        name = e.rings[op] = e.fresh("ring")
        sizes = f"{stages}, {e.threads // 32}, {plan.producers}"
        w.write(f"ts::Ring<{sizes}> {name}(shared + {e.reserve_bytes(16 * stages)});")
        w.write(f"{name}.start();")
    if plan.produced:
        with e.marks.silent():
            _producer(e)


def _producer(e: KernelEmitter) -> None:
    """The producer warps. One of their threads fills every ring, and computes what it needs under names of its own."""
    w = e.source
    saved = dict(e.env), set(e.names), dict(e.placed)
    with w.block("if (ts::is_producer())"):
        w.write(f"if (!{next(iter(e.rings.values()))}.enter_producer()) return;")
        for op in dict.fromkeys(x for part in e.products.produced.values() for x in part):
            e.emit_node(op)
        for op in e.products.produced:
            lower, upper, step = (e.expr(v) for v in op.operands[:3])
            fetch, ring = op.regions[0].block, e.rings[op]
            counter = e.env[fetch.args[0]] = e.fresh(fetch.args[0].hint or "i")
            w.at(op.span)
            w.write("#pragma unroll 1")
            with w.block(f"for (ts::idx {counter} = {lower}; {counter} < {upper}; {counter} += {step})"):
                fill_stage(e, op, ring)
        w.write("return;")
    e.env, e.names, e.placed = saved
    w.write(f"{next(iter(e.rings.values()))}.enter_user();")


def fill_stage(e: KernelEmitter, pipeline: Op, ring: str) -> None:
    """One thread waits for the slot, says how many bytes will come, and starts the copies."""
    stages = {tile: e.expr(tile) for tile in rings(pipeline)}
    e.env.update({tile: f"{name}[{ring}.slot]" for tile, name in stages.items()})
    e.landing = e.fresh("full")
    e.source.write(f"auto {e.landing} = {ring}.acquire({' + '.join(f'{name}.bytes' for name in stages.values())});")
    e.emit_block(pipeline.regions[0].block)
    e.source.write(f"{ring}.next();")


@handles("warpgroup_mma")
def _product(e: KernelEmitter, op: Op) -> None:
    """Operands that are elsewhere are put into shared memory first. The product has ended behind its statement."""
    e.headers.add("wgmma")
    parts: list[str] = []
    fills: list[str] = []
    for i in range(2):
        source = e.products.sources[op, i]
        if source.kind == "registers":
            parts.append(e.tile(source.value))
            continue
        if source.kind == "shared":
            name = e.expr(source.value)
        else:
            name = _declare_staged(e, op, i)
            fills += _fill(e, op, i, name)
        parts.append(f"ts::transposed({name})" if source.turned else name)
    if fills:
        loads = [s.load for i in range(2) if (s := e.products.sources[op, i]).load is not None]
        if loads:
            e.marks.enter("load", loads)
        if op.parent is None or op.parent.name != "tile.pipeline":  # each step of it starts with a barrier anyway
            e.source.write("ts::sync();")
        for text in fills:
            e.source.write(text)
        if any("fetch" in text or "copy_async" in text for text in fills):
            e.marks.enter(WAIT, loads)
            e.source.write(e.barrier())
            e.marks.begin(op)
        else:
            e.source.write("ts::sync();")
    acc = e.tile(op.operands[2])
    e.let(op.result, f"ts::mma_warpgroups({', '.join(parts)}, {acc})", op.operands[2].hint or "product")


def _declare_staged(e: KernelEmitter, op: Op, i: int) -> str:
    v = op.operands[i]
    hint = f"{v.hint or 'ab'[i]}_staged"
    return declare_swizzled(e, (op, i), e.products.tiles[op, i], cxx.type_name(dtype_of(v)), hint)


def _fill(e: KernelEmitter, op: Op, i: int, name: str) -> list[str]:
    """The statements that fill an operand's shared tile."""
    source, tile = e.products.sources[op, i], e.products.tiles[op, i]
    load, v = source.load, source.value
    if load is not None and load in e.products.fetches:
        return [fetch_text(e, load, name)]
    clear = [f"{name}.clear_padding();"] if tile.padded else []
    if load is not None:
        return [*clear, copy_text(e, name, shape_of(v), load.operands[0], load.operands[1:])]
    if is_scalar(v):
        store = f"if (ts::hw::thread() == 0) ts::hw::store_shared({name}.at(0, 0), {e.expr(v)});"
    else:
        store = f"ts::store_shared({name}, {e.tile(v)});"
    return [*clear, store, "ts::publish();"]


# tile.contract on sm_90a: one warp fetches stages of both operands by tensor copies (TMA), the others multiply
# them (wgmma). For large accumulators a whole warpgroup fetches, which hands its registers to the others
# (setmaxnreg).


def expand_on_warpgroups(e: KernelEmitter, op: Op, plan: Products) -> None:
    """Writes the pipeline. Raises TargetError TS405 where even two stages exceed shared memory."""
    e.headers.add("wgmma")
    t, view = op.result.type, op.operands[0].type
    assert isinstance(t, TileType) and isinstance(view, ViewType)
    e.marks.enter("load", (op,))
    stages = _stages(e, op, plan)
    left = _declare(e, op, 0, plan.a, plan.depth, stages)
    right = _declare(e, op, 1, plan.b, plan.depth, stages)
    ring, k, acc = e.fresh("ring"), e.fresh("k"), e.declare(e.fresh(op.result.hint or "acc"), op.result)
    size, depth = cxx.size(view.shape[1]), plan.depth
    # There always is a last stage: where k has no values, it is before the beginning of k and holds zeros.
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
    e.marks.end()
    # The last stage is written separately: ptxas serialises all products where the wait for it follows the loop.
    w.write("#pragma unroll 1")
    with w.block(f"for (ts::idx {k} = {first}; {k} + {depth} < {size}; {k} += {depth}, {ring}.next())"):
        e.marks.enter(WAIT, (op,))
        w.write(f"{ring}.wait();")
        e.marks.enter("mma", (op,))
        w.write(f"ts::start_products({acc}, {operands});")
        w.write(f"ts::finish_products<1>({acc});")
        w.write(f"if ({k} > 0) {ring}.release_previous();")
        e.marks.end()
    e.marks.enter(WAIT, (op,))
    w.write(f"{ring}.wait();")
    e.marks.enter("mma", (op,))
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


def _declare(e: KernelEmitter, op: Op, number: int, operand: WarpgroupOperand, depth: int, stages: int) -> str:
    hint = f"{op.operands[number].hint or 'ab'[number]}_stages"
    rows, cols = (operand.rows, depth) if operand.k_major else (depth, operand.rows)
    itemsize = operand.map.dtype.itemsize
    tile = SwizzledTile(rows, cols, rows, cols, itemsize, operand.map.box[0] * itemsize)
    return declare_swizzled(e, (op, number), tile, cxx.type_name(operand.map.dtype), hint, stages)
