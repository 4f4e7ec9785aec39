"""tile.contract -> a loop over k: stages of both operands are copied into shared memory ahead of the products that use
them. Decides how much of k a stage holds and how many stages are under way.

Products that sm_90a's warpgroup instructions can take go to `expand_warpgroups`; `warpgroups` decides which.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, handles
from tessera.compiler.targets.cuda.emit.memory import copy_access, declare_stages
from tessera.compiler.targets.cuda.emit.phases import WAIT
from tessera.compiler.targets.cuda.emit.warpgroups import expand_on_warpgroups
from tessera.compiler.targets.cuda.layouts.banks import Copied
from tessera.compiler.targets.cuda.layouts.groups import is_scalar
from tessera.compiler.targets.cuda.layouts.swizzle import operand
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.offsets import strides_of
from tessera.compiler.tile.ranges import Interval
from tessera.language.order import SPAN, levels

STAGE_BYTES = 64
"""Bytes of k per row of a stage: four 16-byte pieces, the least that the swizzle spreads over all banks."""


def stage_depth(op: Op) -> int:
    """How much of k a stage holds."""
    va, vb = op.operands[0].type, op.operands[1].type
    assert isinstance(va, ViewType) and isinstance(vb, ViewType)
    return max(8, STAGE_BYTES // max(va.dtype.itemsize, vb.dtype.itemsize))


def _lies_transposed(view: Value) -> bool:
    """Whether the operand is contiguous along the first axis: then the stage holds it transposed, so that copies move
    whole pieces of 16 bytes."""
    steps = strides_of(view)
    return steps[0] == 1 and steps[1] != 1


@handles("contract")
def expand_contract(e: KernelEmitter, op: Op) -> None:
    """Writes the loop. Raises TargetError TS405 where even two stages exceed shared memory."""
    if is_scalar(op.result):
        _inner_product(e, op)
        return
    plan = e.warpgroups.get(op, "")
    if isinstance(plan, Products):
        expand_on_warpgroups(e, op, plan)
        return
    if e.settings.warpgroup_dtypes:
        e.source.write(f"// Without wgmma: {plan}.")
    e.headers |= {"mma", "shared", "memory"}
    a, b, row, col = op.operands
    va, vb, t = a.type, b.type, op.result.type
    assert isinstance(va, ViewType) and isinstance(vb, ViewType) and isinstance(t, TileType)
    m, n = (int(d) for d in t.shape)  # type: ignore[call-overload]
    depth = stage_depth(op)
    size = m * depth * va.dtype.itemsize + depth * n * vb.dtype.itemsize
    e.marks.enter("load", (op,))
    stages = e.stages(op, size, 3 if e.settings.arch >= 80 else 2, padding=256)
    left = _operand(e, op, 0, a, (m, depth), stages, row, k_axis=1)
    right = _operand(e, op, 1, b, (depth, n), stages, col, k_axis=0)
    acc, k, i = e.fresh(op.result.hint or "acc"), e.fresh("k"), e.fresh("stage")
    e.declare(acc, op.result)
    fetch, size = e.fresh("fetch"), cxx.size(va.shape[1])
    w = e.source
    with w.block(f"auto {fetch} = [&](ts::idx {i}, ts::idx {k})"):
        with w.block(f"if ({k} < {size})"):
            w.write(left.copy(i, k))
            w.write(right.copy(i, k))
        w.write("ts::commit();")
    w.lines[-1] += ";"
    w.write(f"auto {acc} = ts::full<{e.layout(op.result)}>({cxx.literal(0, t.dtype)});")
    sums = e.fresh("sums") if _in_chains(e, op) else ""
    if sums:
        many = "false" if isinstance(va.shape[1], int) and va.shape[1] <= SPAN else "true"
        w.write(f"ts::Sums<{cxx.type_name(t.dtype)}, {e.layout(op.result)}, {many}> {sums};")
    w.write("ts::sync();")
    for s in range(stages - 1):
        w.write(f"{fetch}({s}, {s * depth});")
    e.marks.end()
    with w.block(f"for (ts::idx {k} = 0, {i} = 0; {k} < {size}; {k} += {depth}, ++{i})"):
        e.marks.enter(WAIT, (op,))
        w.write(f"ts::wait_for_stage<{stages - 2}>();")
        e.marks.enter("load", (op,))
        w.write(f"{fetch}({i} + {stages - 1}, {k} + {(stages - 1) * depth});")
        e.marks.enter("mma", (op,))
        w.write(f"{acc} = ts::mma({left.use(i)}, {right.use(i)}, {acc});")
        if sums:
            w.write(f"{sums}.reach({acc}, {k} + {depth}, {size});")
        e.marks.end()
    e.marks.enter("mma", (op,))
    w.write("ts::barrier();")
    if sums:
        e.let(op.result, f"{sums}.result({size})", op.result.hint or "product")
    else:
        e.env[op.result] = acc


def _in_chains(e: KernelEmitter, op: Op) -> bool:
    """Whether the sum is cut into chains: not on tensor cores, whose accumulators stay where they are."""
    view, t, layout = op.operands[0].type, op.result.type, e.layout_of(op.result)
    assert isinstance(view, ViewType) and isinstance(t, TileType)
    if layout.tensor_core or layout.quarters or not (t.dtype.is_float or t.dtype.is_complex):
        return False
    return levels(view.shape[1]) > 1


def _inner_product(e: KernelEmitter, op: Op) -> None:
    """One row times one column: the chains of the sum are shared out, so that all threads take part."""
    e.headers |= {"sums"}
    a, b, row, col = op.operands
    t = op.result.type
    assert isinstance(t, TileType)
    e.need_scratch(e.threads * t.dtype.itemsize)
    places = ", ".join(map(e.expr, (a, row, b, col)))
    e.let(op.result, f"ts::inner_product<{cxx.type_name(t.dtype)}>({places})", "dot")


class _operand:
    """The stages of one operand: how they are declared, filled and used."""

    def __init__(
        self,
        e: KernelEmitter,
        op: Op,
        number: int,
        view: Value,
        shape: tuple[int, int],
        stages: int,
        offset: Value,
        k_axis: int,
    ) -> None:
        t = view.type
        assert isinstance(t, ViewType)
        depth_total, step = t.shape[k_axis], shape[k_axis]
        self.swapped = _lies_transposed(view)
        self.view, self.offset, self.k_axis = e.expr(view), e.expr(offset), k_axis
        held = shape[::-1] if self.swapped else shape
        self.box = f"ts::Box<{held[0]}, {held[1]}>"
        steps = Interval(0, None if not isinstance(depth_total, int) else (depth_total - 1) // step * step, step)
        ranges = [e.bounds.of(offset), steps] if k_axis == 1 else [steps, e.bounds.of(offset)]
        self.known = copy_access(e, view, shape, ranges, self.swapped)
        found = [Copied(), operand(e.grouping, op, number, self.swapped)]
        self.name = declare_stages(e, (op, number), SharedType(held, t.dtype), view.hint or "ab"[number], stages, found)

    def copy(self, stage: str, k: str) -> str:
        at = [self.offset, k] if (self.k_axis == 1) != self.swapped else [k, self.offset]
        view = f"ts::swap_axes({self.view})" if self.swapped else self.view
        return f"ts::copy_async<{self.box}, {self.known}>({self.name}[{stage}], {view}, {{{at[0]}, {at[1]}}});"

    def use(self, stage: str) -> str:
        text = f"{self.name}[{stage}]"
        return f"ts::transposed({text})" if self.swapped else text
