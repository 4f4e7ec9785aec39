"""Which of a kernel's own products (tile.mma) run on sm_90a's warpgroup instructions, and how their operands get there.

The choice depends on the target, the dtypes and whether n and k are such as instructions take; m is padded. Neither the
number of warps nor that of stages nor how an operand is fetched changes which instruction multiplies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import TypeAlias

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import SharedType, TileType
from tessera.compiler.targets.cuda.layouts.barriers import shared_source
from tessera.compiler.targets.cuda.layouts.groups import LayoutGroup, LayoutGrouping, dtype_of, is_tile, shape_of
from tessera.compiler.targets.cuda.tensor_cores.maps import LINE, Fetch, SwizzledTile, plan_fetch, widest_line
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import PLAIN
from tessera.compiler.tile.offsets import Bounds
from tessera.immutable import immutable, mutable
from tessera.language import dtypes
from tessera.language.dtypes import DType

ROWS = 64
"""Rows of the accumulator that one warpgroup holds at a time."""
REGISTERS = 160
"""Of a thread's 255, what accumulators may take before a second warpgroup shares them."""
WIDEST = 256
"""Columns of an instruction, and of an accumulator: 128 registers of each thread."""
SMALL = 64
"""Accumulator registers up to which nine warps have enough; beyond, each thread wants more than their 168."""
DTYPES = frozenset((dtypes.f16, dtypes.bf16))
"""Operands that wgmma reads in either order; what a tile holds may be used both ways."""

Key: TypeAlias = Value | tuple[Op, int]
"""A shared tile: the author's, or the one that an operand of a product is put into."""


@immutable
class OperandSource:
    """Where a product finds an operand: `value` in shared memory, in the accumulator's registers, or staged: put into
    shared memory first, by `load` where nothing else needs the tile. `turned`: it is stored there transposed."""

    kind: str
    value: Value
    turned: bool = False
    load: Op | None = None


@mutable
class ProductPlan:
    """`sources` by product and operand, `tiles` that hold them, `fetches`: the copies that are made by tensor copies;
    `refused`: why others are not; `replaced`: loads and transposes that staging makes needless."""

    sources: dict[tuple[Op, int], OperandSource] = field(default_factory=dict["tuple[Op, int]", OperandSource])
    tiles: dict[Key, SwizzledTile] = field(default_factory=dict["Key", SwizzledTile])
    fetches: dict[Op, Fetch] = field(default_factory=dict[Op, Fetch])
    refused: dict[Op, str] = field(default_factory=dict[Op, str])
    replaced: set[Op] = field(default_factory=set[Op])
    produced: dict[Op, list[Op]] = field(default_factory=dict[Op, "list[Op]"])
    """pipelines that producer warps fill, and what they compute for each"""
    producers: int = 0

    @property
    def loose(self) -> bool:
        """Whether tensor copies outside pipelines have to be waited for."""
        return any(not in_pipeline(op) for op in self.fetches)


def in_pipeline(copy: Op) -> Op | None:
    """The pipeline that a copy runs ahead in; loads are copied at their product."""
    loop = copy.parent if copy.name == "tile.copy_async" else None
    return loop if loop is not None and loop.name == "tile.pipeline" else None


def on_warpgroups(kernel: Op, grouping: LayoutGrouping, supported: frozenset[DType]) -> frozenset[Op]:
    """The products that warpgroups compute: all members of a group, which share one layout, or none."""
    out: set[Op] = set()
    if any(map(is_wide, kernel.walk())):
        return frozenset()
    for group in grouping.groups:
        if group.products and all(_fits(op, supported) for op in group.products):
            out.update(group.products)
    return frozenset(out)


def is_wide(op: Op) -> bool:
    """Whether a product keeps its kernel from warpgroups, which hold whole rows: such rows leave them no registers."""
    if op.name != "tile.mma" or op.operands[0].type.dtype not in DTYPES:  # type: ignore[union-attr]
        return False
    columns = shape_of(op.result)[1]
    return isinstance(columns, int) and columns > WIDEST


def _fits(op: Op, supported: frozenset[DType]) -> bool:
    if op.name != "tile.mma":
        return False
    a, b, acc = (v.type for v in (*op.operands[:2], op.result))
    assert isinstance(a, (TileType, SharedType)) and isinstance(b, (TileType, SharedType)) and isinstance(acc, TileType)
    sizes = (*acc.shape, a.shape[1])
    if a.dtype != b.dtype or a.dtype not in supported & DTYPES or acc.dtype != dtypes.f32:
        return False
    return all(isinstance(d, int) for d in sizes) and sizes[1] % 8 == 0 and sizes[2] % 16 == 0  # type: ignore[operator]


def warps_for(products: frozenset[Op], grouping: LayoutGrouping, asked: int | None) -> int:
    """4 or 8: no more than the rows occupy; the author's number, unless the accumulators need more registers."""
    rows = max(int(shape_of(op.result)[0]) for op in products)  # type: ignore[call-overload]
    if rows <= ROWS:
        return 4
    groups = {grouping.of(op.result): shape_of(op.result) for op in products}
    held = sum(-(-int(m) // ROWS) * int(n) // 2 for m, n in groups.values())  # type: ignore[call-overload]
    return 8 if asked is None or asked >= 8 or held > REGISTERS else 4


def plan_products(
    kernel: Op,
    grouping: LayoutGrouping,
    products: Collection[Op],
    warps: int,
    bounds: Bounds,
    alias: Mapping[Value, Value],
) -> ProductPlan:
    """Runs after the assignment of layouts, which says what an accumulator's registers hold."""
    plan = ProductPlan()
    for op in kernel.walk():
        for i in range(2) if op in products else ():
            source = _source(op, i, grouping)
            plan.sources[op, i] = source
            if source.kind == "registers":
                continue
            key = source.value if source.kind == "shared" else (op, i)
            plan.tiles[key] = _room(op, i, source, warps, plan.tiles.get(key))
            if source.load is not None:
                plan.replaced.add(source.load)
            if source.kind == "staged" and source.turned:
                plan.replaced.add(op.operands[i].op)  # type: ignore[arg-type]
    _plan_fetches(plan, kernel, bounds, alias)
    if warps > 4:
        _plan_producer(plan, kernel, {grouping.of(op.result) for op in products})
    return plan


def _source(op: Op, i: int, grouping: LayoutGrouping) -> OperandSource:
    v = op.operands[i]
    shared, turned = shared_source(v, op)
    if shared is not None:
        return OperandSource("shared", shared, turned)
    if i == 0 and feeds_from_registers(op, grouping):
        return OperandSource("registers", v)
    made = v.op
    if made is not None and made.name == "tile.transpose" and made.block is op.block and len(v.uses) == 1:
        inner = made.operands[0]
        if made.attrs["perm"] == (1, 0) and is_tile(inner):
            return OperandSource("staged", inner, True, copied_operand(inner, op, made))
    return OperandSource("staged", v, False, copied_operand(v, op) if len(v.uses) == 1 else None)


def _room(op: Op, i: int, source: OperandSource, warps: int, known: SwizzledTile | None) -> SwizzledTile:
    """The tile's own size and what products read of it: whole warpgroups of rows of the left operand, whole lines."""
    t = source.value.type
    assert isinstance(t, (SharedType, TileType))
    rows, cols = int(t.shape[0]), int(t.shape[1])  # type: ignore[call-overload]
    down = source.turned == (i == 0)  # k runs down the tile: m or n along its lines
    step = 16 * warps if i == 0 else 16 if down else 8
    down_to, across_to = (rows, _up(cols, step)) if down else (_up(rows, step), cols)
    widest = widest_line(cols, t.dtype.itemsize) if down and i == 1 else LINE
    if known is not None:
        down_to, across_to = max(down_to, known.padded_rows), max(across_to, known.padded_cols)
        widest = min(widest, known.widest)
    return SwizzledTile(rows, cols, down_to, across_to, t.dtype.itemsize, widest)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def feeds_from_registers(op: Op, grouping: LayoutGrouping) -> bool:
    """Whether operand a is in the very registers that the product reads: an accumulator whose rows stay in a warp."""
    a = op.operands[0]
    if not is_tile(a) or isinstance(a.type, SharedType) or not is_tile(op.result):
        return False
    la, lc = grouping.of(a).layout, grouping.of(op.result).layout
    if la is None or lc is None:
        return False
    return la.tensor_core and lc.tensor_core and la.col.t2 == 1 and la.row == lc.row and dtype_of(a).itemsize == 2


def copied_operand(v: Value, product: Op, through: Op | None = None) -> Op | None:
    """The load whose tile only this product uses, or the op `through` which it gets it: it is copied straight into the
    product's shared tile."""
    op = v.op
    if op is None or op.name != "tile.load" or op.attrs.get("masked") or op.attrs.get("fill", 0) != 0:
        return None
    if op.block is None or op.block is not product.block or v.users != [through or product] or not is_tile(v):
        return None
    between = op.block.ops[op.block.ops.index(op) + 1 : op.block.ops.index(product)]
    return None if any(x.regions or x.name in ("tile.store", "tile.scatter") for x in between) else op


def _plan_fetches(plan: ProductPlan, kernel: Op, bounds: Bounds, alias: Mapping[Value, Value]) -> None:
    stores = {_argument(op.operands[0]) for op in kernel.walk() if op.name in ("tile.store", "tile.scatter")}
    written = {alias.get(v, v) for v in stores}
    stored = frozenset(v for v in kernel.region.block.args if alias.get(v, v) in written)
    by_threads = {op.operands[0] for op in kernel.walk() if op.name == "tile.store_shared"}

    def take(op: Op, key: Key, view: Value, offsets: tuple[Value, ...]) -> None:
        if key in by_threads:
            plan.refused[op] = "its tile is also filled by threads"
            return
        found = plan_fetch(view, offsets, plan.tiles[key], kernel, bounds, stored)
        if isinstance(found, Fetch):
            plan.fetches[op] = found
        else:
            plan.refused[op] = found

    for op in kernel.walk():
        if op.name == "tile.copy_async" and op.operands[0] in plan.tiles:
            take(op, op.operands[0], op.operands[1], tuple(op.operands[2:]))
    for (op, i), source in plan.sources.items():
        if source.load is not None:
            take(source.load, (op, i), source.load.operands[0], tuple(source.load.operands[1:]))
    _all_or_none(plan, kernel)


def _all_or_none(plan: ProductPlan, kernel: Op) -> None:
    """All copies of one pipeline, whose arrival is counted together, are tensor copies, or none is; so are all copies
    into one tile."""
    copies = [op for op in kernel.walk() if op.name == "tile.copy_async"]
    changed = True
    while changed:
        changed = False
        for op in [x for x in copies if x in plan.fetches]:
            others = [
                x for x in copies if x.operands[0] is op.operands[0] or in_pipeline(x) is in_pipeline(op) is not None
            ]
            bad = next((x for x in others if x not in plan.fetches), None)
            if bad is not None:
                name = bad.operands[1].hint or "another operand"
                plan.refused[op] = f"{name}, which arrives with it, cannot be"
                del plan.fetches[op]
                changed = True


def _argument(v: Value) -> Value:
    while v.op is not None and v.op.name == "tile.subview":
        v = v.op.operands[0]
    return v


def _plan_producer(plan: ProductPlan, kernel: Op, accumulators: set[LayoutGroup]) -> None:
    """Warps that do nothing but fetch, where two warpgroups share the stages: if a thread of one warpgroup fetched, its
    warpgroup would wait until the other has released the stage. The loops of these warps must not depend on values that
    the others compute. One warp is enough; beside large accumulators there are four, which hand over their
    registers."""
    pipelines = [op for op in kernel.walk() if op.name == "tile.pipeline" and filled_by_tensor(plan, op)]
    parts = {op: _before(op, kernel.region.block) for op in pipelines}
    if parts and all(part is not None for part in parts.values()):
        plan.produced = {op: part for op, part in parts.items() if part is not None}
        held = sum(g.layout.registers for g in accumulators if g.layout is not None)
        plan.producers = 4 if held > SMALL else 1


def filled_by_tensor(plan: ProductPlan, pipeline: Op) -> bool:
    """Whether tensor copies fill all that a pipeline copies ahead."""
    return all(op in plan.fetches for op in pipeline.regions[0].block.ops if op.name == "tile.copy_async")


def _before(pipeline: Op, top: Block) -> list[Op] | None:
    """The ops of the kernel that a pipeline's bounds and copies need, or None where those are more than indices."""
    if pipeline.block is not top:
        return None
    fetch = pipeline.regions[0].block
    needed: set[Op] = set()
    wanted = [*pipeline.operands[:3], *(v for op in fetch.ops for v in op.operands)]
    while wanted:
        op = wanted.pop().op
        if op is None or op.block is fetch or op in needed:
            continue
        if op.block is not top or op.name not in (*PLAIN, "tile.alloc_shared"):
            return None
        needed.add(op)
        wanted += op.operands
    return [op for op in top.ops if op in needed]
