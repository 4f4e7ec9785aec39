"""Writers of loads, stores, gathers, views, shared tiles, products and debug asserts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType, ViewType
from tessera.compiler.targets.cuda.emit.emitter import HANDLERS, KernelEmitter, handles
from tessera.compiler.targets.cuda.emit.phases import WAIT
from tessera.compiler.targets.cuda.emit.tensor_copies import declare_operand, fetch_text
from tessera.compiler.targets.cuda.layouts.banks import Access, Copied
from tessera.compiler.targets.cuda.layouts.barriers import shared_source
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_scalar, is_tile, shape_of
from tessera.compiler.targets.cuda.layouts.swizzle import Placed, accesses, held, operand, placed
from tessera.compiler.targets.cuda.tensor_cores.products import copied_operand, feeds_from_registers
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.dialect import has_scales
from tessera.compiler.tile.ranges import Interval
from tessera.language.dims import Dim

BEFORE = 8
"""as in include/tessera/memory.cuh: added to an axis along which an access may also start before the view"""


def _offsets(e: KernelEmitter, tile: Value, offsets: Sequence[Value]) -> list[str]:
    """The offsets of the part of a tile that is held now: chunked axes start at their loop's variable."""
    lines = e.lines_by_axis(tile)
    out: list[str] = []
    for a, v in enumerate(offsets):
        text = e.expr(v)
        start = e.origin.get(lines[a]) if a in lines else None
        out.append(text if start is None else start if text == "0" else f"{text} + {start}")
    return out


def access(e: KernelEmitter, view: Value, tile: Value, offsets: Sequence[Value], vector: int) -> str:
    """The proved facts about an access: `ts::Aligned<axes that may overhang>` or `ts::Unaligned<...>`."""
    t = view.type
    assert isinstance(t, ViewType)
    lines = e.lines_by_axis(tile)
    edges: list[int] = []
    ranges = [e.bounds.of(o) for o in offsets]
    for a, (o, d) in enumerate(zip(offsets, shape_of(tile), strict=True)):
        line = lines.get(a)
        reach: Dim | None = d
        if line is not None and line.chunk is not None:
            reach = -(-d // line.chunk) * line.chunk if isinstance(d, int) else None
            ranges[a] = Interval(multiple=math.gcd(ranges[a].multiple, line.chunk))
        edges += _edge(e, a, t.shape[a], e.bounds.of(o), reach)
    kind = "Aligned" if e.bounds.vectors(view, ranges, vector) else "Unaligned"
    return f"ts::{kind}<{', '.join(map(str, edges))}>"


def _edge(e: KernelEmitter, axis: int, extent: Dim, offset: Interval, size: Dim | None) -> list[int]:
    """How an access that may hang over an axis' ends is written: see `Access` in include/tessera/memory.cuh."""
    if not e.bounds.overhangs(extent, offset, size):
        return []
    return [axis if e.bounds.not_negative(offset.low) else axis + BEFORE]


def _whole_axis(view: ViewType, tile: Value, axis: int, offset: str) -> bool:
    return offset == "0" and view.shape[axis] == shape_of(tile)[axis]


def _clipped(e: KernelEmitter, view: Value, tile: Value, offsets: Sequence[Value]) -> str:
    """The view, cut off where a chunked tile ends before the view does."""
    t = view.type
    assert isinstance(t, ViewType)
    chunked = [a for a, line in e.lines_by_axis(tile).items() if line.chunk is not None]
    if all(_whole_axis(t, tile, a, e.expr(offsets[a])) for a in chunked):
        return e.expr(view)
    sizes = cxx.braces(map(cxx.size, shape_of(tile)))
    return f"ts::clip({e.expr(view)}, {cxx.braces(e.expr(v) for v in offsets)}, {sizes})"


def _split(op: Op, first: int) -> tuple[Sequence[Value], Value | None]:
    """Offsets (or indices) and mask of an access whose offsets start at operand `first`."""
    rest = op.operands[first:]
    return (rest[:-1], rest[-1]) if op.attrs.get("masked") else (rest, None)


@handles("load")
def _load(e: KernelEmitter, op: Op) -> None:
    view, t = op.operands[0], op.result
    offsets, mask = _split(op, 1)
    e.headers.add("memory")
    if op in e.products.replaced or (t.users and is_copied(e, t, t.users[0])):
        return
    fill = cxx.literal(op.attrs.get("fill", 0), dtype_of(t))
    default = e.expr(view)
    if is_scalar(t):
        where = f", {e.expr(mask)}" if mask is not None else ""
        e.let(
            t, f"ts::load_scalar({e.expr(view)}, {cxx.braces(map(e.expr, offsets))}, {fill}{where})", f"{default}_value"
        )
        return
    where = f", ts::where_mask({e.expr(mask)})" if mask is not None else ""
    at = cxx.braces(_offsets(e, t, offsets))
    known = access(e, view, t, offsets, e.layout_of(t).vector)
    e.let(t, f"ts::load<{e.layout(t)}, {e.box(t)}, {known}>({e.expr(view)}, {at}, {fill}{where})", f"{default}_tile")


@handles("store")
def _store(e: KernelEmitter, op: Op) -> None:
    view, t = op.operands[0], op.operands[1]
    offsets, mask = _split(op, 2)
    e.headers.add("memory")
    if is_scalar(t):
        where = f", {e.expr(mask)}" if mask is not None else ""
        value = f"({cxx.type_name(dtype_of(t))}){e.expr(t)}" if dtype_of(t).is_integer else e.expr(t)
        e.source.write(f"ts::store_scalar({e.expr(view)}, {value}, {cxx.braces(map(e.expr, offsets))}{where});")
        return
    where = f", ts::where_mask({e.expr(mask)})" if mask is not None else ""
    at = cxx.braces(_offsets(e, t, offsets))
    known = access(e, view, t, offsets, e.layout_of(t).vector)
    e.source.write(f"ts::store<{e.box(t)}, {known}>({_clipped(e, view, t, offsets)}, {e.tile(t)}, {at}{where});")


def _mask(e: KernelEmitter, mask: Value | None) -> str:
    return f"ts::where_mask({e.expr(mask)})" if mask is not None else "ts::Everywhere()"


@handles("gather")
def _gather(e: KernelEmitter, op: Op) -> None:
    view, t = op.operands[0], op.result
    indices, mask = _split(op, 1)
    e.headers.add("memory")
    fill = cxx.literal(op.attrs.get("fill", 0), dtype_of(t))
    if is_scalar(t):
        where = f", {e.expr(mask)}" if mask is not None else ""
        at = cxx.braces(f"(ts::idx){e.expr(v)}" for v in indices)
        e.let(t, f"ts::load_scalar({e.expr(view)}, {at}, {fill}{where})", "gathered")
        return
    arguments = ", ".join([e.expr(view), fill, _mask(e, mask), *map(e.expr, indices)])
    e.let(t, f"ts::gather<{e.layout(t)}>({arguments})", "gathered")


@handles("scatter")
def _scatter(e: KernelEmitter, op: Op) -> None:
    view, t = op.operands[0], op.operands[1]
    indices, mask = _split(op, 2)
    e.headers.add("memory")
    if is_scalar(t):
        where = f", {e.expr(mask)}" if mask is not None else ""
        at = cxx.braces(f"(ts::idx){e.expr(v)}" for v in indices)
        e.source.write(f"ts::store_scalar({e.expr(view)}, {e.expr(t)}, {at}{where});")
        return
    row, col = e.grouping.of(t).lines
    left = [f"{cxx.size(x.extent)} - {e.origin[x]}" if x in e.origin else cxx.size(x.extent) for x in (row, col)]
    arguments = ", ".join([e.expr(view), e.tile(t), *left, _mask(e, mask), *map(e.expr, indices)])
    e.source.write(f"ts::scatter({arguments});")


@handles("subview")
def _subview(e: KernelEmitter, op: Op) -> None:
    if e.only_fetched(op.result):
        return
    view, t = op.operands[0], op.result.type
    assert isinstance(t, ViewType)
    e.headers.add("memory")
    drop: tuple[int, ...] = op.attrs.get("drop", ())  # type: ignore[assignment]
    sizes: tuple[Dim, ...] = op.attrs["sizes"]  # type: ignore[assignment]
    kept = [a for a in range(len(sizes)) if a not in drop]
    at = cxx.braces(map(e.expr, op.operands[1:]))
    shape = cxx.braces(cxx.size(sizes[a]) for a in kept)
    steps = cxx.braces(f"{e.expr(view)}.stride[{a}]" for a in kept)
    e.let(op.result, f"ts::window<{len(kept)}>({e.expr(view)}, {at}, {shape}, {steps})", f"{e.expr(view)}_window")


# shared memory
def declare_shared(
    e: KernelEmitter, key: Value | tuple[Op, int], t: SharedType, hint: str, accesses: Iterable[Access]
) -> str:
    """A shared tile at its place in the block's shared memory, laid out for these accesses."""
    tile = placed(t, accesses)
    size = tile.layout.rows * tile.layout.cols * t.dtype.itemsize
    return _declare(e, key, t, tile, size, e.fresh(hint), hint)


def declare_stages(
    e: KernelEmitter, key: Value | tuple[Op, int], t: SharedType, hint: str, stages: int, accesses: Iterable[Access]
) -> str:
    """As `declare_shared`, several of the kind: indexing it gives one."""
    tile = placed(t, accesses, stages)
    size = -(-tile.layout.rows * tile.layout.cols * t.dtype.itemsize // 128) * 128
    return _declare(e, key, t, tile, size * stages, e.fresh(f"{hint}_stages"), hint)


def _declare(
    e: KernelEmitter, key: Value | tuple[Op, int], t: SharedType, tile: Placed, size: int, name: str, hint: str
) -> str:
    e.headers.add("shared")
    place = e.reserve(key, size)
    e.source.write(f"{tile.spelling(t.dtype)} {name}(shared + {place});")
    e.placed[name if hint in e.placed else hint] = tile
    return name


def stages_of(e: KernelEmitter, wanted: int) -> int:
    """The stages that a ring gets: fewer than wanted where shared memory is short, two at most without cp.async."""
    return min(wanted, e.most_stages, wanted if e.settings.arch >= 80 else 2)


@handles("alloc_shared")
def _alloc_shared(e: KernelEmitter, op: Op) -> None:
    """A ring's stages get a name where a step begins."""
    v, t, hint = op.result, op.result.type, op.result.hint or "tile"
    assert isinstance(t, SharedType)
    if v in e.products.tiles:
        declare_operand(e, op, stages_of(e, int(op.attrs.get("stages", 0))))  # type: ignore[call-overload]
        return
    found = accesses(e.grouping, v)
    if "stages" in op.attrs:
        stages = stages_of(e, int(op.attrs["stages"]))  # type: ignore[call-overload]
        e.env[v] = declare_stages(e, v, t, hint, stages, found)
    else:
        e.env[v] = declare_shared(e, v, t, hint, found)


@handles("copy_async")
def _copy_async(e: KernelEmitter, op: Op) -> None:
    shared, view = op.operands[:2]
    t = shared.type
    assert isinstance(t, SharedType) and isinstance(view.type, ViewType)
    if op in e.products.fetches:
        e.source.write(fetch_text(e, op, e.expr(shared)))
        return
    if why := e.products.refused.get(op):
        e.source.write(f"// Without tensor copies: {why}.")
    shape = [*(1,) * (view.type.rank - t.rank), *t.shape]
    e.source.write(copy_text(e, e.expr(shared), shape, view, op.operands[2:]))


def copy_text(e: KernelEmitter, name: str, shape: Sequence[Dim], view: Value, offsets: Sequence[Value]) -> str:
    """The statement that copies a tile of a view into shared memory."""
    known = copy_access(e, view, shape, [e.bounds.of(o) for o in offsets])
    box = f"ts::Box<{', '.join(map(str, shape))}>"
    return f"ts::copy_async<{box}, {known}>({name}, {e.expr(view)}, {cxx.braces(map(e.expr, offsets))});"


def copy_access(
    e: KernelEmitter, view: Value, shape: Sequence[Dim], offsets: Sequence[Interval], swapped: bool = False
) -> str:
    """The proved facts about a copy into shared memory, which moves 16 bytes at a time. `swapped`: the tile of the view
    with its axes swapped."""
    t = view.type
    assert isinstance(t, ViewType)
    ends = enumerate(zip(t.shape, offsets, shape, strict=True))
    edges = [x for a, (extent, r, d) in ends for x in _edge(e, 1 - a if swapped else a, extent, r, d)]
    if swapped:
        edges = edges[::-1]
    vector = max(1, 16 // t.dtype.itemsize)
    kind = "Aligned" if e.bounds.vectors(view, list(offsets), vector, swapped) else "Unaligned"
    return f"ts::{kind}<{', '.join(map(str, edges))}>"


@handles("load_shared")
def _load_shared(e: KernelEmitter, op: Op) -> None:
    t = op.result
    direct = all(_reads_directly(e, u, i) for u, i in t.uses)
    if t.uses and direct:
        return
    if is_scalar(t):
        e.let(t, f"ts::hw::load_shared({e.expr(op.operands[0])}.at(0, 0))")
    else:
        e.let(t, f"ts::load_shared<{e.layout(t)}>({e.expr(op.operands[0])})", f"{e.expr(op.operands[0])}_tile")


def _reads_directly(e: KernelEmitter, user: Op, operand: int) -> bool:
    if user.name == "tile.mma":
        return e.reads_shared(user, operand)
    return (
        user.name == "tile.transpose"
        and bool(user.result.uses)
        and all(u.name == "tile.mma" and e.reads_shared(u, i) for u, i in user.result.uses)
    )


@handles("store_shared")
def _store_shared(e: KernelEmitter, op: Op) -> None:
    shared, t = op.operands
    if is_scalar(t):
        e.source.write(f"if (ts::hw::thread() == 0) ts::hw::store_shared({e.expr(shared)}.at(0, 0), {e.expr(t)});")
    elif (turned := e.grouping.stored_turned(t)) is not None:
        e.source.write(f"ts::store_shared(ts::transposed({e.expr(shared)}), {e.tile(turned)});")
    else:
        e.source.write(f"ts::store_shared({e.expr(shared)}, {e.tile(t)});")
    if shared in e.products.tiles:
        e.source.write("ts::publish();")


# products
def _feeds_from_registers(e: KernelEmitter, op: Op) -> bool:
    return op.operands[0] not in e.splat and feeds_from_registers(op, e.grouping)


def is_copied(e: KernelEmitter, v: Value, user: Op) -> bool:
    """Whether the tile need not be loaded, because its only user copies it itself."""
    if user.name != "tile.mma" or any(i == 2 for _, i in v.uses) or _feeds_from_registers(e, user):
        return False
    return copied_operand(v, user) is not None


_OPERANDS = ("a", "b", "acc", "a_scale", "b_scale")


def _one_product(e: KernelEmitter, op: Op) -> None:
    """A product whose tiles have one element each."""
    t = dtype_of(op.result)
    a, b = (f"ts::cast<{cxx.type_name(t)}>({e.expr(v)})" for v in op.operands[:2])
    acc = e.expr(op.operands[2])
    text = f"ts::fma({a}, {b}, {acc})" if t.is_float else f"ts::add({acc}, ts::mul({a}, {b}))"
    e.let(op.result, text, op.operands[2].hint or "product")


@handles("mma")
def _mma(e: KernelEmitter, op: Op) -> None:
    if all(map(is_scalar, op.operands)):
        _one_product(e, op)
        return
    if (op, 0) in e.products.sources:
        HANDLERS["tile.warpgroup_mma"](e, op)
        return
    scaled = has_scales(op)
    e.headers |= {"mma_scaled" if scaled else "mma", "shared"}
    parts: list[str] = []
    staged: list[tuple[str, Value]] = []
    for i, v in enumerate(op.operands):
        if i == 2:
            continue
        source, transposed = shared_source(v, op)
        if source is not None:
            parts.append(f"ts::transposed({e.expr(source)})" if transposed else e.expr(source))
        elif i == 0 and _feeds_from_registers(e, op):
            parts.append(e.expr(v))
        else:
            filled = [Copied()] if copied_operand(v, op) is not None else held(e.grouping, v, "stored")
            found = [*filled, operand(e.grouping, op, i, False)] if i < 2 else []
            t = SharedType(shape_of(v), dtype_of(v))
            name = declare_shared(e, (op, i), t, f"{v.hint or _OPERANDS[i]}_staged", found)
            staged.append((name, v))
            parts.append(name)
    if staged:
        loads = [load for _, v in staged if (load := copied_operand(v, op)) is not None]
        if loads:
            e.marks.enter("load", loads)
        copies = [_fill_staged(e, op, name, v) for name, v in staged]
        if op.parent is None or op.parent.name != "tile.pipeline":  # each step of it starts with a barrier anyway
            e.source.write("ts::sync();")
        for text in copies:
            e.source.write(text)
        if loads:
            e.marks.enter(WAIT, loads)
        e.source.write("ts::barrier();" if loads else "ts::sync();")
        e.marks.begin(op)
    hint = op.operands[2].hint or "product"
    if is_scalar(op.result):  # every thread sums the one element, as it holds it
        acc = f"ts::full<ts::Blocked<1, 1, 1, 1, 1>>({e.expr(op.operands[2])})"
        e.let(op.result, f"ts::mma({', '.join(parts)}, {acc}).v[0]", hint)
    else:
        name = "mma_scaled" if scaled else "mma"
        e.let(op.result, f"ts::{name}({', '.join(parts)}, {e.tile(op.operands[2])})", hint)


def _fill_staged(e: KernelEmitter, product: Op, name: str, v: Value) -> str:
    """The statement that fills an operand's shared tile."""
    load = copied_operand(v, product)
    if load is not None:
        return copy_text(e, name, shape_of(v), load.operands[0], load.operands[1:])
    if is_scalar(v):
        return f"if (ts::hw::thread() == 0) ts::hw::store_shared({name}.at(0, 0), {e.expr(v)});"
    return f"ts::store_shared({name}, {e.tile(v)});"


# debugging
@handles("assert")
def _assert(e: KernelEmitter, op: Op) -> None:
    if not e.settings.debug:
        return
    e.headers.add("faults")
    number = len(e.asserts)
    extent = str(op.attrs.get("extent", 0))
    e.asserts.append((str(op.attrs.get("message", "assertion failed")), extent, op.span))
    holds, *shown = op.operands
    what = [e.tile(holds), *map(e.tile, shown)] if is_tile(holds) and shown else map(e.expr, op.operands)
    e.source.write(f"ts::check(faults, {number}, {', '.join(what)});")
