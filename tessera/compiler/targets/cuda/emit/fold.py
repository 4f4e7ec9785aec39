"""Writer of `tile.fold`: elements in shared memory, combined two at a time by a lambda written from the op's region."""

from __future__ import annotations

from math import prod

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, contiguous_strides, handles
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_tile, shape_of, squeezed
from tessera.compiler.targets.cuda.write import cxx
from tessera.language.order import pairs


@handles("fold")
def _fold(e: KernelEmitter, op: Op) -> None:
    axis, prefixes = int(op.attrs["axis"]), bool(op.attrs.get("prefixes"))  # type: ignore[call-overload]
    shape = tuple(int(n) for n in shape_of(op.operands[0]))  # type: ignore[arg-type]
    if not is_tile(op.operands[0]) or 0 in shape:  # one element, or none, is as it is
        for r, v in zip(op.results, op.operands, strict=True):
            e.env[r] = e.expr(v) if 0 not in shape else cxx.literal(0, dtype_of(r))
            if is_tile(r):
                e.splat.add(r)
        return
    e.headers |= {"elements", "fold"}
    w = e.source
    w.write("ts::hw::sync();")
    places, used = list[str](), 0
    for v in op.operands:
        places.append(e.fresh(f"{v.hint or 'x'}_shared"))
        w.write(f"auto* {places[-1]} = ts::spill({used}, {e.tile(v)});")
        used += -(-prod(shape) * dtype_of(v).itemsize // 16) * 16
    e.need_scratch(used)
    w.write("ts::hw::sync();")
    combine = _lambda(e, op, places, prefixes)
    stride = prod(shape[axis + 1 :])
    sizes = f"{shape[axis]}, {stride}, {prod(shape) // shape[axis]}"
    for first, apart, count in pairs(shape[axis], prefixes):
        w.write(f"ts::combine_pairs<{sizes}>({combine}, {first}, {apart}, {count});")
    strides = list(contiguous_strides(shape))
    if not prefixes:
        del strides[axis]
    for r, place in zip(op.results, places, strict=True):
        if not is_tile(r):
            e.let(r, f"ts::hw::load_shared({place})", "folded")
            continue
        kept = squeezed(shape_of(r))
        steps = " + ".join(f"at.at[{n}] * {strides[a]}" for n, a in enumerate(kept))
        box = f"ts::Box<{', '.join(str(shape_of(r)[a]) for a in kept)}>"
        each = f"[&](const ts::Coordinates<{len(kept)}>& at) {{ return ts::hw::load_shared({place} + ({steps})); }}"
        e.let(r, f"ts::each_element<{cxx.type_name(dtype_of(r))}, {e.layout(r)}, {box}>({each})", "folded")


def _lambda(e: KernelEmitter, op: Op, places: list[str], prefixes: bool) -> str:
    """Makes of the elements at two places those of one of them."""
    block, w = op.region.block, e.source
    name, left, right = (e.fresh(n) for n in ("combine", "left", "right"))
    with w.block(f"auto {name} = [&](int {left}, int {right})"):
        for i, arg in enumerate(block.args):
            place, at = places[i % len(places)], left if i < len(places) else right
            e.let(arg, f"ts::hw::load_shared({place} + {at})", arg.hint or "element")
        with e.marks.silent():
            e.emit_block(block)
        to = right if prefixes else left
        values = [e.expr(v) for v in block.terminator.operands]
        for place, v, text in zip(places, op.operands, values, strict=True):
            w.write(f"ts::hw::store_shared({place} + {to}, {cxx.type_name(dtype_of(v))}({text}));")
    w.write(";")
    return name
