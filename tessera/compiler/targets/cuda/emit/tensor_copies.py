"""Writers of the shared tiles that products of warpgroups read, and of the tensor copies (TMA) that fill them."""

from __future__ import annotations

from dataclasses import replace

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import SharedType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter
from tessera.compiler.targets.cuda.tensor_cores.maps import LINE, SwizzledTile
from tessera.compiler.targets.cuda.tensor_cores.products import Key, in_pipeline
from tessera.compiler.targets.cuda.write import cxx

SWIZZLE_GROUP = 1024
"""Bytes after which the 128-byte swizzle repeats: tiles start at a multiple of it."""


def declare_swizzled(e: KernelEmitter, key: Key, tile: SwizzledTile, dtype: str, hint: str, stages: int = 0) -> str:
    """A tile at its place in shared memory, or a ring of `stages` of them."""
    e.headers.add("tma")
    e.align_shared(SWIZZLE_GROUP)
    place = e.reserve(key, tile.bytes * max(1, stages))
    name = e.fresh(hint)
    shown = hint.removesuffix("_stages")
    e.placed[name if shown in e.placed else shown] = replace(tile, stages=stages)
    short = tile.widest < LINE
    sizes = [tile.rows, tile.cols, *((tile.padded_rows, tile.padded_cols) if tile.padded or short else ())]
    sizes += [tile.widest] * short
    kind = f"ts::Swizzled<{dtype}, {', '.join(map(str, sizes))}>"
    e.source.write(f"{f'ts::Slots<{kind}, {stages}>' if stages else kind} {name}(shared + {place});")
    return name


def fetch_text(e: KernelEmitter, op: Op, name: str) -> str:
    """Starts the tensor copies of a tile: those of a pipeline report to its stage, others to the next barrier."""
    fetch = e.products.fetches[op]
    at = [" + ".join(map(e.expr, values)) or "0" for values in fetch.at]
    at[:2] = at[1::-1]
    place = ", ".join([e.tensor_maps[fetch.map], "{}", *at])
    if in_pipeline(op):
        return f"{name}.fetch({place.format(e.landing)});"
    return f"if (leader) {name}.fetch({place.format(f'copies.expect({name}.bytes)')});"


def declare_operand(e: KernelEmitter, op: Op, stages: int) -> None:
    """A shared tile that products of warpgroups read; `stages` 0: not a ring."""
    t, tile = op.result.type, e.products.tiles[op.result]
    assert isinstance(t, SharedType)
    hint = op.result.hint or "tile"
    name = declare_swizzled(e, op.result, tile, cxx.type_name(t.dtype), f"{hint}_stages" if stages else hint, stages)
    filled = [u for u in op.result.users if u.name in ("tile.copy_async", "tile.store_shared")]
    if tile.padded and any(u not in e.products.fetches for u in filled):
        e.source.write("ts::sync();")  # products of a step before may be reading
        e.source.write(f"{name}.clear_padding();")
    e.env[op.result] = name
