"""Software pipelining: the copies of later steps of a loop are under way while a step computes.

A loop is pipelined where its body fills shared tiles that only it reads (the author's `cp_async`), or loads tiles that
only products use. What fills them becomes the fetch region of a `tile.pipeline`; the barriers that stood around it go,
and those that other shared tiles need are placed anew. The results keep their bits: no product changes its operands.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Block, Builder, Op, Region, Value, clone
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.tile.passes.place_barriers import place_barriers
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.compiler.tile.pipelines import MOVABLE

LOOPS = ("tile.for", "tile.while", "tile.pipeline")
STORES = ("tile.store", "tile.scatter")


def pipeline_loads(kernel: Op) -> None:
    """Pipelines every loop that allows it, with the kernel's num_stages; 1 leaves the kernel as it is."""
    stages = kernel.attrs.get("num_stages") or 1
    if not isinstance(stages, int) or stages < 2:
        return
    changed = False
    for op in list(kernel.walk()):
        if op.name == "tile.for" and not any(x.name in LOOPS for x in op.region.block.ops for x in x.walk()):
            changed |= _pipeline(op, stages)
    if changed:
        remove_dead(kernel)
        place_barriers(kernel)


def _pipeline(loop: Op, stages: int) -> bool:
    body = loop.region.block
    stored = {_memory(x.operands[0]) for x in loop.walk() if x.name in STORES}
    fills = [op for op in body.ops if (_copied(op, loop) or _loaded(op, body)) and _runs_ahead(op, body, stored)]
    copies = [x for x in loop.walk() if x.name == "tile.copy_async"]
    if not fills or any(x not in fills for x in copies):
        return False
    fetch = Block([INDEX], [body.args[0].hint])
    moved: dict[Value, Value] = {body.args[0]: fetch.args[0]}
    before = Builder.before(loop)
    for op in fills:
        view, offsets = (op.operands[1], op.operands[2:]) if op.results == [] else (op.operands[0], op.operands[1:])
        ring = op.operands[0] if not op.results else _ring(before, op)
        ring.op.attrs["stages"] = stages  # type: ignore[union-attr]
        operands = [ring, *(_moved(v, body, fetch, moved) for v in (view, *offsets))]
        Builder(fetch, None, op.span).op("tile.copy_async", operands)
        _read_instead(op, ring)
    Builder(fetch, None, loop.span).op("tile.yield")
    for op in [x for x in body.ops if x.name == "tile.barrier"]:
        op.erase()
    loop.regions = ()
    types, hints = [r.type for r in loop.results], [r.hint for r in loop.results]
    regions = Region([fetch]), Region([body])
    made = Op("tile.pipeline", loop.operands, types, loop.span, {"stages": stages}, regions, hints)
    assert loop.block is not None
    loop.block.insert(loop.block.ops.index(loop), made)
    for old, new in zip(loop.results, made.results, strict=True):
        old.replace_by(new)
    loop.erase()
    return True


def _copied(op: Op, loop: Op) -> bool:
    """A copy into a tile that nothing else fills and that is read in the same step only, behind the copy."""
    if op.name != "tile.copy_async":
        return False
    shared, body = op.operands[0], loop.region.block
    if shared.op is None or shared.op.name != "tile.alloc_shared" or shared.op.block is body:
        return False
    at = body.ops.index(op)
    for user in shared.users:
        outer = _in_block(user, body)
        if outer is None or (user is not op and (body.ops.index(outer) <= at or _writes(user, shared))):
            return False
    return True


def _writes(op: Op, shared: Value) -> bool:
    return op.name in ("tile.copy_async", "tile.store_shared") and op.operands[0] is shared


def _loaded(op: Op, body: Block) -> bool:
    """A load that products alone use: the copy brings what the load would."""
    if op.name != "tile.load" or op.attrs.get("masked") or op.attrs.get("fill", 0) != 0 or op.attrs.get("inside"):
        return False
    t = op.result.type
    if not isinstance(t, TileType) or t.rank != 2 or 1 in t.shape or not op.result.uses:
        return False
    return all(_feeds_product(user, i, body) for user, i in op.result.uses)


def _feeds_product(user: Op, operand: int, body: Block) -> bool:
    if user.block is not body:
        return False
    if user.name == "tile.transpose":
        return all(u.name == "tile.mma" and i != 2 and u.block is body for u, i in user.result.uses)
    return user.name == "tile.mma" and operand != 2


def _runs_ahead(op: Op, body: Block, stored: set[Value]) -> bool:
    """Whether the place that is read is known steps before, changes from step to step, and is not stored to."""
    view, *offsets = op.operands[1:] if not op.results else op.operands
    if not isinstance(view.type, ViewType) or _memory(view) in stored:
        return False
    needed = [view, *offsets]
    seen: set[Value] = set()
    while needed:
        v = needed.pop()
        if v in seen:
            continue
        seen.add(v)
        if v.owner is body and v.index > 0:
            return False
        if v.op is not None and v.op.block is body:
            if v.op.name not in MOVABLE:
                return False
            needed += v.op.operands
    return body.args[0] in seen


def _moved(v: Value, body: Block, fetch: Block, moved: dict[Value, Value]) -> Value:
    """`v` as fetch computes it."""
    if v in moved or v.op is None or v.op.block is not body:
        return moved.get(v, v)
    for x in v.op.operands:
        _moved(x, body, fetch, moved)
    fetch.append(clone(v.op, moved))
    return moved[v]


def _ring(before: Builder, load: Op) -> Value:
    """The shared tile that takes a load's place."""
    t = load.result.type
    assert isinstance(t, TileType)
    with before.at(load.span):
        hint = load.result.hint or f"{_memory(load.operands[0]).hint or 'tile'}_ahead"
        return before.value("tile.alloc_shared", (), SharedType(t.shape, t.dtype, "xor"), {}, hint)


def _read_instead(op: Op, ring: Value) -> None:
    """The body reads the ring where it copied or loaded."""
    if op.results:
        direct = [(user, i) for user, i in op.result.uses if user.name == "tile.mma"]
        for user, i in direct:
            user.set_operand(i, ring)
        if op.result.uses:
            content = Builder.before(op).value("tile.load_shared", (ring,), op.result.type, {}, op.result.hint)
            op.result.replace_by(content)
    op.erase()


def _memory(v: Value) -> Value:
    while v.op is not None and v.op.name == "tile.subview":
        v = v.op.operands[0]
    return v


def _in_block(op: Op, block: Block) -> Op | None:
    """The op of `block` that `op` is or is nested in."""
    at: Op | None = op
    while at is not None and at.block is not block:
        at = at.parent
    return at
