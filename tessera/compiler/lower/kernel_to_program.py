"""A kernel as a Program: one launch over its own arguments, and an estimate of the work in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias, cast

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.lower.reduce_across import SecondStage, stages
from tessera.compiler.structure import Structure, row
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.passes.mask_tails import tails_of
from tessera.compiler.tile.passes.padding import NONE, Axis
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.compiler.tile.program import Buffer, BufferArg, Launch, Program, ScalarArg
from tessera.compiler.unit import LaunchCheck, Param
from tessera.errors import CompileError, Diagnostic, Note, Span
from tessera.language.dims import Dim, Expr, ceildiv, dim_max, dim_min, floordiv, mod, prod, symbols
from tessera.language.scalars import TABLE

ZEROS = 4096
"""elements that a program fills"""


def kernel_program(
    op: Op, params: Sequence[Param], checks: Sequence[LaunchCheck] = (), structure: Structure = None
) -> Program:
    """The Program of a `tile.func` over `params`, in the order of its arguments; further arguments are outputs.

    Raises CompileError (TS404) where a tile's extent depends on a dim without a size.
    """
    name = str(op.attrs["sym_name"])
    demand_static_tiles(op, name)
    args = op.region.block.args
    buffers: list[Buffer] = []
    bound: list[BufferArg | ScalarArg] = []
    for i, a in enumerate(args):
        param = i if i < len(params) else None
        if isinstance(a.type, ViewType):
            role = "output" if param is None else "input"
            buffers.append(Buffer(i, a.hint, a.type.shape, a.type.dtype, role, param))
            bound.append(BufferArg(i))
        else:
            assert isinstance(a.type, TileType) and param is not None
            bound.append(ScalarArg(param, a.type.dtype))
    results = cast("tuple[int, ...]", op.attrs.get("returns", ()))
    zeros = [zeros_launch(args[i], i, op.span, name) for i in cast("tuple[int, ...]", op.attrs.get("zeroed", ()))]
    apart = stages(op)
    for s in apart:
        shares = args[s.shares]
        assert isinstance(shares.type, ViewType)
        buffers.append(Buffer(s.shares, shares.hint, shares.type.shape, shares.type.dtype, "temp"))
        bound.append(BufferArg(s.shares))
    launch = Launch(op, tuple(bound), op.span, flops(op), traffic(op), name)
    combined = [combining(s, bound[s.shares], bound[s.target]) for s in apart]
    given = row(len(results)) if structure is not None or len(results) > 1 else None
    free, shown = free_dims(op), tuple(checks)
    steps = (*zeros, launch, *combined)
    return Program(name, tuple(params), tuple(buffers), steps, results, free, shown, op.span, given)


def combining(stage: SecondStage, *args: BufferArg | ScalarArg) -> Launch:
    """The launch that combines what all programs have stored."""
    kernel = stage.kernel
    return Launch(kernel, args, kernel.span, flops(kernel), traffic(kernel), "shares")


def zeros_launch(result: Value, buffer: int, span: Span, name: str) -> Launch:
    """Fills a result that programs store in parts, so that what none stores to is 0."""
    view = result.type
    assert isinstance(view, ViewType)
    total, block = prod(view.shape), Block()
    target = block.add_arg(ViewType((total,), view.dtype), result.hint)
    b = TileBuilder(block, span=span)
    at = b.iop("imul", b.program_id(0), b.index(ZEROS))
    b.store(target, b.full((ZEROS,), False if view.dtype.kind == "bool" else 0, view.dtype), [at])
    b.op("tile.return")
    attrs: dict[str, Attr] = {"sym_name": f"{name}_zeros_{result.hint}", "grid": (ceildiv(total, ZEROS),),
             "arg_names": (result.hint,), "writes": (0,)}  # fmt: skip
    kernel = Op("tile.func", (), (), span, attrs, [Region([block])])
    return Launch(kernel, (BufferArg(buffer),), span, 0, total * view.dtype.itemsize, "zeros")


def demand_static_tiles(op: Op, name: str, notes: tuple[Note, ...] = ()) -> None:
    """Raises CompileError (TS404) for the first tile whose extent depends on a dim without a size."""
    for inner in op.walk():
        for v in inner.results:
            if isinstance(v.type, (TileType, SharedType)) and (found := set[str]().union(*map(symbols, v.type.shape))):
                needed = f"{', '.join(sorted(found))} must have a size when the kernel is compiled"
                message = f"this tile is {v.type.pretty()}; {needed}"
                raise CompileError(Diagnostic("TS404", message, inner.span, notes=notes, function=name))


def free_dims(op: Op) -> tuple[str, ...]:
    """The dims that are arguments of the compiled kernel."""
    found: set[str] = set()
    for d in cast("tuple[Dim, ...]", op.attrs["grid"]):
        found |= symbols(d)
    for inner in op.walk():
        if inner.name == "tile.dim":
            found |= symbols(cast(Dim, inner.attrs["dim"]))
    for a in op.region.block.args:
        if isinstance(a.type, ViewType):
            found |= set().union(*map(symbols, a.type.shape))
    return tuple(sorted(found))


# How much a kernel computes and moves, estimated from its IR.
#
# Operations on padding do not count: along an axis that walks a tensor of 100 elements in blocks of 64, a block
# holds 50 on average. Estimates are exact for loops and grids whose sizes are known; indices that only a
# running program knows count for the middle of their range.

Amount: TypeAlias = "Dim | Fraction"


def traffic(kernel: Op) -> Dim:
    """The least bytes moved: every argument read once and every one stored to written once."""
    writes = cast("tuple[int, ...]", kernel.attrs.get("writes", ()))
    total: Dim = 0
    for i, a in enumerate(kernel.region.block.args):
        if isinstance(a.type, ViewType):
            users = _users(a)
            read = any(user.name not in ("tile.store", "tile.scatter") for user in users)
            total = total + prod(a.type.shape) * a.type.dtype.itemsize * (int(read) + int(i in writes))
    return total


def _users(v: Value) -> list[Op]:
    """The ops that read or write a view, through its subviews."""
    out: list[Op] = []
    for user in v.users:
        out += _users(user.result) if user.name == "tile.subview" else [user]
    return out


def flops(kernel: Op) -> Dim:
    """Floating point operations of all programs: two for each product that is summed, the table's for each function."""
    work = _Work(kernel)
    total = _times(prod(work.grid), work.block(kernel.region.block))
    return round(total) if isinstance(total, Fraction) else total


class _Work:
    def __init__(self, kernel: Op) -> None:
        self.grid = cast("tuple[Dim, ...]", kernel.attrs["grid"])
        self.tails = tails_of(kernel)

    def block(self, block: Block) -> Amount:
        total: Amount = 0
        for op in block.ops:
            if op.name == "tile.for":
                total = _plus(total, _times(self.trips(op), self.block(op.region.block)))
            elif op.name == "tile.fold":
                steps = 2 if op.attrs.get("prefixes") else 1
                total = _plus(total, _times(steps, _times(self.elements(op.operands[0]), self.block(op.region.block))))
            elif op.regions:  # one of two branches, or a loop of unknown length: the longer one, once
                parts = [self.block(r.block) for r in op.regions]
                total = _plus(total, max(parts, key=lambda p: -1 if isinstance(p, Expr) else p))
            else:
                total = _plus(total, self.op(op))
        return total

    def op(self, op: Op) -> Amount:
        name = op.name.partition(".")[2]
        if name == "mma":
            return _times(2, _times(self.shape(op.operands[0])[-1], self.elements(op.result)))
        if name == "contract":
            rows, columns = self.shape(op.result)
            return _times(2, _times(rows, _times(columns, cast(ViewType, op.operands[0].type).shape[1])))
        if name in ("reduce", "scan"):
            return self.elements(op.operands[0])
        if name in TABLE and name != "where":
            dtype = cast(TileType, op.operands[0].type).dtype
            return _times(TABLE[name].flops, self.elements(op.result)) if dtype.is_float or dtype.is_complex else 0
        if op.name in PRIMITIVES:
            types = [cast(TileType, v.type) for v in op.operands]
            return PRIMITIVES[op.name].flops(types, cast(TileType, op.result.type), **op.attrs)
        return 0

    def elements(self, v: Value) -> Amount:
        out: Amount = 1
        for n in self.shape(v):
            out = _times(out, n)
        return out

    def shape(self, v: Value) -> list[Amount]:
        """The extents of a tile without padding, on average over programs and steps."""
        shape = cast("TileType | SharedType", v.type).shape
        tails = self.tails.get(v) or (NONE,) * len(shape)
        return [self.extent(n, t) for n, t in zip(shape, tails, strict=True)]

    def extent(self, size: Dim, tails: Axis) -> Amount:
        found: list[Fraction] = []
        for tail in tails:
            steps = self.steps(tail.offset)
            if isinstance(tail.extent, int) and isinstance(steps, int) and steps > 0:
                found.append(Fraction(tail.extent, steps))
        return min(found) if found and isinstance(size, int) and min(found) < size else size

    def steps(self, offset: Value) -> Dim | None:
        """How many values an index takes, where one program number or loop counter decides it."""
        sources = list(dict.fromkeys(_sources(offset)))
        if len(sources) != 1:
            return None
        op = sources[0].op
        if op is not None:
            return self.grid[cast(int, op.attrs["axis"])]
        loop = _loop(sources[0])
        return self.trips(loop) if loop is not None else None

    def trips(self, loop: Op) -> Dim:
        lower, upper, step = (self.index(v) for v in loop.operands[:3])
        return ceildiv(upper - lower, step)

    def index(self, v: Value) -> Dim:
        """An index: exact where it depends on sizes alone, else for the middle of the grid and of each loop."""
        op = v.op
        if op is None:
            loop = _loop(v)
            return floordiv(self.index(loop.operands[0]) + self.index(loop.operands[1]), 2) if loop is not None else 1
        match op.name:
            case "tile.dim":
                return cast(Dim, op.attrs["dim"])
            case "tile.program_id":
                return floordiv(self.grid[cast(int, op.attrs["axis"])], 2)
            case "tile.to_index":
                return 1
            case _:
                a, b = (self.index(x) for x in op.operands)
                return _INDEX[op.name](a, b)


_INDEX: dict[str, Callable[[Dim, Dim], Dim]] = {
    "tile.iadd": lambda a, b: a + b,
    "tile.isub": lambda a, b: a - b,
    "tile.imul": lambda a, b: a * b,
    "tile.idiv": floordiv,
    "tile.imod": mod,
    "tile.imin": dim_min,
    "tile.imax": dim_max,
}


def _loop(v: Value) -> Op | None:
    """The loop whose counter this is."""
    owner = v.owner.region.op if isinstance(v.owner, Block) and v.owner.region else None
    return owner if owner is not None and owner.name == "tile.for" and v.index == 0 else None


def _sources(v: Value) -> list[Value]:
    """The program numbers and loop counters that an index is computed from."""
    if v.op is None or v.op.name == "tile.program_id":
        return [v]
    return [s for x in v.op.operands for s in _sources(x)]


def _times(a: Amount, b: Amount) -> Amount:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return _whole(a) * _whole(b)
    return a * b


def _plus(a: Amount, b: Amount) -> Amount:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return _whole(a) + _whole(b)
    return a + b


def _whole(a: Amount) -> Dim:
    return round(a) if isinstance(a, Fraction) else a
