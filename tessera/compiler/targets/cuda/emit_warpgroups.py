"""Writers of products on warpgroups (wgmma); sm_90a alone."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda import cxx
from tessera.compiler.targets.cuda.emit import KernelEmitter, handles
from tessera.compiler.targets.cuda.emit_memory import copy_text, stages_of
from tessera.compiler.targets.cuda.emit_tensor import declare_swizzled, fetch_text
from tessera.compiler.targets.cuda.groups import dtype_of, is_scalar, shape_of
from tessera.compiler.targets.cuda.products import filled_by_tensor
from tessera.compiler.tile.pipelines import rings


@handles("func")
def _prologue(e: KernelEmitter, kernel: Op) -> None:
    """What stands before the body: the mbarriers that tensor copies report to, and the producer."""
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
        _producer(e)


def _producer(e: KernelEmitter) -> None:
    """The warps of which one thread fills every ring. What it needs it computes itself, under names of its own."""
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
    """Operands that lie elsewhere are put into shared memory first. The product has ended behind its statement."""
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
        if op.parent is None or op.parent.name != "tile.pipeline":  # each step of it starts with a barrier anyway
            e.source.write("ts::sync();")
        for text in fills:
            e.source.write(text)
        copied = any("fetch" in text or "copy_async" in text for text in fills)
        e.source.write(e.barrier() if copied else "ts::sync();")
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
