"""Writer of `tile.sort`."""

from __future__ import annotations

from math import prod

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda import cxx
from tessera.compiler.targets.cuda.emit import KernelEmitter, handles
from tessera.compiler.targets.cuda.groups import dtype_of, is_tile, shape_of, squeezed


@handles("sort")
def _sort(e: KernelEmitter, op: Op) -> None:
    x, t = op.operands[0], op.result
    axis, positions = int(op.attrs["axis"]), bool(op.attrs.get("positions"))  # type: ignore[call-overload]
    if not is_tile(x) or axis not in squeezed(shape_of(x)):  # one element along the axis is in order
        e.env[t] = cxx.literal(0, dtype_of(t)) if positions else e.expr(x)
        if is_tile(t) and (positions or x in e.splat):
            e.splat.add(t)
        return
    e.headers.add("sort")
    kept = squeezed(shape_of(x))
    sizes = [int(shape_of(x)[a]) for a in kept]  # type: ignore[call-overload]
    at = kept.index(axis)
    total = prod(sizes)
    e.need_scratch(-(-total * dtype_of(x).itemsize // 4) * 4 + 4 * total)
    name = "argsort" if positions else "sort"
    descending = "true" if op.attrs.get("descending") else "false"
    e.let(t, f"ts::{name}<{descending}, {sizes[at]}, {prod(sizes[at + 1 :])}>({e.tile(x)})", t.hint or name)
