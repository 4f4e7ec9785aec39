"""`tile.scan`: inclusive prefixes, one element after the other along the axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.elementary import elementwise
from tessera.compiler.targets.cpu.elementary.convert import Elem, Pair, cast, round_to
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.llvm.values import Val, const
from tessera.compiler.targets.cpu.loops.index import dtype_of, unsupported
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.language.dtypes import DType

BESIDE = (4, 2)
"""lines that are added up side by side"""


@writes("scan")
def write_scan(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """Serial along the axis; lanes run along the last axis where that is another one."""
    ev, fn = k.ev, k.fn
    x, axis = op.operands[0], int(op.attrs["axis"])  # type: ignore[arg-type]
    shape, classes = shape_of(x), plan.spaces.of(x)
    if op.result not in ev.cells:
        ev.cells[op.result] = k.scratch(op.result)
    if classes[axis] is None:
        cell = ev.cells.pop(op.result)
        writer.write(plan.copy(x, cell))
        ev.cells[op.result] = cell
        return
    last = classes[-1] if axis != len(shape) - 1 else None
    lanes = 1 if last is None else ev.isa.lanes(max(8, 8 * dtype_of(op.result).compute.itemsize))
    others = [(c, d) for c, d in zip(classes, shape, strict=True) if c is not None and c not in (classes[axis], last)]
    saved = dict(ev.env)

    def serial(lines: Sequence[Mapping[int | None, Coord]] = ({},)) -> None:
        """Lines at these coordinates, side by side: each addition of one waits for the one before."""
        floor, ev.mem.floor = ev.mem.floor, fn.depth
        start = [fn.splat(v, lanes) for v in _start(op, dtype_of(op.result), k)]
        with fn.loop(0, ev.dim(shape[axis]), 1, start * len(lines)) as loop:
            ev.env[classes[axis]] = Coord(loop.index)  # type: ignore[index]
            found: list[Val] = []
            for i, line in enumerate(lines):
                ev.env |= line  # type: ignore[operator]
                ev.memo = {}
                found += _step(op, k, classes, loop.carried[i * len(start) : (i + 1) * len(start)], lanes)
            loop.next = found
        ev.memo = {}
        ev.mem.floor = floor

    def across(rest: list[tuple[int | None, object]]) -> None:
        if rest:
            (c, d), *inner = rest
            alone = bool(inner) or lanes > 1
            beside = 1 if alone else next((n for n in BESIDE if isinstance(d, int) and d % n == 0), 1)
            with fn.loop(0, ev.dim(d), beside) as loop:  # type: ignore[arg-type]
                if beside > 1:
                    serial([{c: Coord(loop.index, n)} for n in range(beside)])
                else:
                    ev.env[c] = Coord(loop.index)  # type: ignore[index]
                    across(inner)
        elif last is None:
            serial()
        else:
            extent = ev.dim(shape[-1])
            ev.limits[last] = extent
            with fn.loop(0, extent, lanes) as loop:
                ev.env[last] = Coord(loop.index, 0, lanes)
                serial()
            del ev.limits[last]

    across(others)  # type: ignore[arg-type]
    ev.env = saved


def _start(op: Op, d: DType, k: KernelFunction) -> list[Val]:
    name = str(op.attrs["op"])
    if name in ("sum", "prod") and d.kind == "bool":
        unsupported(op, f"a {name} scan of bools")
    e = elementwise.identity(name, d.compute, k.ev.vm)
    return [e.re, e.im] if isinstance(e, Pair) else [const(e.const or 0, e.ty)]


def _step(op: Op, k: KernelFunction, classes: tuple[int | None, ...], carried: list[Val], lanes: int) -> list[Val]:
    ev, fn = k.ev, k.fn
    x, d = op.operands[0], dtype_of(op.result)
    element = cast(ev.element(x, classes), dtype_of(x), d.compute, ev.vm)
    before: Elem = Pair(*carried) if len(carried) == 2 else carried[0]
    total = elementwise.combine(str(op.attrs["op"]), before, element, d.compute, ev.vm)
    rounded = round_to(total, d, ev.vm) if isinstance(total, Val) and d.is_low_precision else total
    ev.write_cell(ev.cells[op.result], classes, rounded)
    return [fn.splat(v, lanes) for v in ([total.re, total.im] if isinstance(total, Pair) else [total])]
