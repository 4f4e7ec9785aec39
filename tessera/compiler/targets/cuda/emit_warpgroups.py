"""Writers of products on warpgroups (wgmma); sm_90a alone."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda import cxx
from tessera.compiler.targets.cuda.emit import KernelEmitter, handles
from tessera.compiler.targets.cuda.emit_memory import copy_text, stages_of
from tessera.compiler.targets.cuda.emit_tensor import declare_swizzled, fetch_text
from tessera.compiler.targets.cuda.groups import dtype_of, is_scalar, shape_of


@handles("func")
def _prologue(e: KernelEmitter, kernel: Op) -> None:
    """What stands before the body: the mbarriers that tensor copies report to."""
    pipelines = [op for op in kernel.walk() if op.name == "tile.pipeline" and by_tensor_copies(e, op)]
    if e.products.fetches:
        e.headers.add("tma")
        e.source.write("bool leader = ts::is_first();")
    if e.products.loose:
        e.source.write(f"ts::Copies copies(shared + {e.reserve_bytes(8)});")
        e.source.write("copies.start();")
    for op in pipelines:
        stages = stages_of(e, int(op.attrs["stages"]))  # type: ignore[call-overload]
        name = e.rings[op] = e.fresh("ring")
        e.source.write(f"ts::Ring<{stages}, {e.threads // 32}, 0> {name}(shared + {e.reserve_bytes(16 * stages)});")
        e.source.write(f"{name}.start();")


def by_tensor_copies(e: KernelEmitter, pipeline: Op) -> bool:
    """Whether tensor copies fill all that a pipeline copies ahead."""
    return all(op in e.products.fetches for op in pipeline.regions[0].block.ops if op.name == "tile.copy_async")


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
