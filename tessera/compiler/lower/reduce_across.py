"""Lowers `reduce_across`, a reduction over the programs of a grid, to two launches.

    tile.store out, x, place {across = "sum"}

becomes a store of x into a buffer with one slot for each program, and a second kernel, which combines the slots in
ascending order of the programs. So the result depends only on the blocks and their number, and needs no atomics.
"""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, TileType, ViewType
from tessera.compiler.tile.builder import TileBuilder
from tessera.immutable import immutable
from tessera.language.dims import Dim, prod
from tessera.language.scalars import REDUCERS, identity_of

ROWS, ELEMENTS = 32, 4096
"""shares that are combined at a time, neighbours first; fewer of large tiles"""


@immutable
class SecondStage:
    """The kernel that combines the shares. Its arguments: theirs, number `shares` of the first kernel's, and what that
    stored to, number `target`."""

    kernel: Op
    shares: int
    target: int


def stages(kernel: Op) -> list[SecondStage]:
    """Takes the shares of all programs out of a kernel, in place: it gets an argument for each, behind the others."""
    stores = [op for op in kernel.region.block.ops if op.name == "tile.store" and "across" in op.attrs]
    return [stage for n, op in enumerate(stores) if (stage := _stage(kernel, op, n)) is not None]


def _stage(kernel: Op, store: Op, n: int) -> SecondStage | None:
    name = str(store.attrs.pop("across"))
    grid = cast("tuple[Dim, ...]", kernel.attrs["grid"])
    along = sorted(_axes(store))
    across = [a for a in range(len(grid)) if a not in along and grid[a] != 1]
    if not across:
        return None
    block, tile = kernel.region.block, store.operands[1]
    t = cast(TileType, tile.type)
    count, lines = prod([grid[a] for a in across]), prod([grid[a] for a in along])
    target = _root(store.operands[0])
    shares = block.add_arg(ViewType((count, lines, *t.shape), t.dtype), "shares")
    b = TileBuilder(block, block.index(store), store.span)
    place = [_number(b, grid, across), _number(b, grid, along), *(b.index(0) for _ in t.shape)]
    b.store(shares, b.reshape(tile, (1, 1, *t.shape)), place)
    second = _combining(kernel, store, name, along, shares, target, n)
    store.erase()
    writes = cast("tuple[int, ...]", kernel.attrs["writes"])
    kernel.attrs["writes"] = (*(i for i in writes if i != target.index), shares.index)
    kernel.attrs["arg_names"] = tuple(a.hint for a in block.args)
    return SecondStage(second, shares.index, target.index)


def _combining(kernel: Op, store: Op, name: str, along: list[int], shares: Value, target: Value, n: int) -> Op:
    grid = cast("tuple[Dim, ...]", kernel.attrs["grid"])
    own = tuple(grid[a] for a in along)
    block, t = Block(), cast(TileType, store.operands[1].type)
    source = block.add_arg(shares.type, shares.hint)
    known = {target: block.add_arg(target.type, target.hint)}
    b = TileBuilder(block, span=store.span)
    line = _number(b, own, range(len(own)))
    rows, elements = 1, cast(int, prod(t.shape))  # tiles have sizes by now
    while 2 * rows <= min(ROWS, ELEMENTS // max(1, elements)):
        rows *= 2
    compute = t.dtype.compute
    identity = identity_of(name, compute)
    start = b.full(t.shape, identity, compute)
    body = Block()
    counter, carried = body.add_arg(INDEX, "program"), body.add_arg(start.type, "total")
    with b.inside(body):
        place = [counter, line, *(b.index(0) for _ in t.shape)]
        found = b.cast(b.load(source, place, (rows, 1, *t.shape), fill=identity), compute)
        found = b.reshape(found, (rows, *t.shape)) if rows > 1 else b.reshape(found, t.shape)
        if rows > 1:
            found = _folded(b, found, name)
        b.op("tile.yield", (b.map(REDUCERS[name], carried, found),))
    bounds = [b.index(0), b.index(cast(ViewType, source.type).shape[0]), b.index(rows)]
    loop = b.op("tile.for", [*bounds, start], [start.type], regions=[Region([body])])
    view, *offsets = (_copied(b, v, known, along) for v in (store.operands[0], *store.operands[2:]))
    b.store(view, b.cast(loop.result, t.dtype), offsets)
    b.op("tile.return")
    attrs: dict[str, Attr] = {
        "sym_name": f"{kernel.attrs['sym_name']}_across_{n}",
        "grid": own or (1,),
        "arg_names": tuple(a.hint for a in block.args),
        "writes": (1,),
    }
    return Op("tile.func", (), (), store.span, attrs, [Region([block])])


def _folded(b: TileBuilder, x: Value, name: str) -> Value:
    """Rows combined two at a time, neighbours first."""
    t, region = cast(TileType, x.type), Block()
    left, right = (region.add_arg(TileType((), t.dtype)) for _ in range(2))
    with b.inside(region):
        b.op("tile.yield", (b.map(REDUCERS[name], left, right),))
    attrs: dict[str, Attr] = {"axis": 0, "prefixes": False}
    return b.op("tile.fold", (x,), [TileType(t.shape[1:], t.dtype)], attrs, regions=[Region([region])]).result


def _number(b: TileBuilder, grid: tuple[Dim, ...], axes: range | list[int]) -> Value:
    """This program's number along some axes of the grid."""
    out: Value | None = None
    for a in axes:
        at = b.program_id(a)
        out = at if out is None else b.iop("iadd", b.iop("imul", out, b.index(grid[a])), at)
    return b.index(0) if out is None else out


def _copied(b: TileBuilder, v: Value, known: dict[Value, Value], along: list[int]) -> Value:
    """What a place is computed with, over the axes of the grid that are left."""
    if v not in known:
        op = v.op
        assert op is not None
        if op.name == "tile.program_id":
            known[v] = b.program_id(along.index(cast(int, op.attrs["axis"])))
        else:
            operands = [_copied(b, x, known, along) for x in op.operands]
            known[v] = b.value(op.name, operands, v.type, dict(op.attrs), v.hint)
    return known[v]


def _axes(store: Op) -> set[int]:
    """The axes of the grid that the place of a store depends on."""
    found, waiting = set[int](), [store.operands[0], *store.operands[2:]]
    while waiting:
        op = waiting.pop().op
        if op is not None and op.name == "tile.program_id":
            found.add(cast(int, op.attrs["axis"]))
        elif op is not None:
            waiting += op.operands
    return found


def _root(view: Value) -> Value:
    while view.op is not None:
        view = view.op.operands[0]
    return view
