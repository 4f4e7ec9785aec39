"""Writer of `tile.print`."""

from __future__ import annotations

from math import prod

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda.emit import KernelEmitter, handles
from tessera.compiler.targets.cuda.groups import dtype_of, is_tile, shape_of
from tessera.compiler.targets.cuda.printing import HEADER, Site, times


@handles("print")
def _print(e: KernelEmitter, op: Op) -> None:
    x = op.operands[0]
    shape, dtype = tuple(int(n) for n in shape_of(x)), dtype_of(x)  # type: ignore[arg-type]
    once = HEADER + -(-prod(shape) * dtype.itemsize // 16) * 16
    e.source.write(f"printer.show({len(e.prints)}, {e.tile(x) if is_tile(x) else e.expr(x)});")
    e.prints.append(Site(str(op.attrs.get("label", "")), shape, dtype.name, once * times(op)))
