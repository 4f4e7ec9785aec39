"""How much a kernel computes and moves, estimated from its IR.

Operations on padding do not count: along an axis that walks a tensor of 100 elements in blocks of 64, a block holds 50
on average. Estimates are exact for loops and grids whose sizes are known; indices that only a running program knows
count for the middle of their range.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias, cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.tile.passes.mask_tails import tails_of
from tessera.compiler.tile.passes.padding import NONE, Axis, Tail
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.language.dims import Dim, Expr, ceildiv, dim_max, dim_min, floordiv, mod, prod
from tessera.language.scalars import TABLE

ALONE_NS = 15_000
"""a launch that takes less than this on one core, at 8 bytes and 8 operations a ns, is not worth waking workers for"""
CHUNKS = 64
"""pieces a launch is handed out in: enough to balance, few enough to keep memory accesses long"""
Amount: TypeAlias = "Dim | Fraction | float"


def traffic(kernel: Op) -> Dim:
    """The least bytes moved: every argument read once and every one stored to written once."""
    writes = cast("tuple[int, ...]", kernel.attrs.get("writes", ()))
    total: Dim = 0
    for i, a in enumerate(kernel.region.block.args):
        if isinstance(a.type, ViewType):
            users = users_of(a)
            read = any(user.name not in ("tile.store", "tile.scatter") for user in users)
            total = total + prod(a.type.shape) * a.type.dtype.itemsize * (int(read) + int(i in writes))
    return total


def users_of(v: Value) -> list[Op]:
    """The ops that read or write a view, through its subviews."""
    out: list[Op] = []
    for user in v.users:
        out += users_of(user.result) if user.name == "tile.subview" else [user]
    return out


def flops(kernel: Op) -> Dim:
    """Floating point operations of all programs: two for each product that is summed, the table's for each function."""
    return _whole(Work(kernel).total(operations))


def operations(op: Op, work: Work) -> Amount:
    """Floating point operations of one run of an op without regions."""
    name = op.name.partition(".")[2]
    if name in ("mma", "contract"):
        return _times(2, prod_of(work.product(op)))
    if name in ("reduce", "scan"):
        return work.elements(op.operands[0])
    if name in TABLE and name != "where":
        dtype = cast(TileType, op.operands[0].type).dtype
        return _times(TABLE[name].flops, work.elements(op.result)) if dtype.is_float or dtype.is_complex else 0
    if op.name in PRIMITIVES:
        types = [cast(TileType, v.type) for v in op.operands]
        return PRIMITIVES[op.name].flops(types, cast(TileType, op.result.type), **op.attrs)
    return 0


class Work:
    """How often the ops of a kernel run, and how large their tiles are."""

    def __init__(self, kernel: Op) -> None:
        self.kernel = kernel
        self.grid = cast("tuple[Dim, ...]", kernel.attrs["grid"])
        self.tails = tails_of(kernel)
        self._weigh: Callable[[Op, Work], Amount] = operations

    def total(self, weigh: Callable[[Op, Work], Amount]) -> Amount:
        """What all programs do together: the sum of what `weigh` says of one run of an op."""
        self._weigh = weigh
        return _times(prod(self.grid), self.block(self.kernel.region.block))

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
                share = self.share(op) if op.name == "tile.if" and not any(isinstance(p, Expr) for p in parts) else 1
                if share < 1:
                    total = _plus(total, _plus(_times(share, parts[0]), _times(1 - share, parts[1])))
                else:
                    total = _plus(total, max(parts, key=lambda p: -1 if isinstance(p, Expr) else p))
            else:
                total = _plus(total, self._weigh(op, self))
        return total

    def product(self, op: Op) -> list[Amount]:
        """Rows, columns and length of a product."""
        length: Amount
        if op.name == "tile.mma":
            length = self.shape(op.operands[0])[-1]
            return [self.elements(op.result), 1, length]
        left, right = (cast(ViewType, v.type).shape for v in op.operands[:2])
        lead = cast("tuple[int, int]", op.attrs.get("lead", (1, 1)))
        wholes = prod(left[: lead[0]]), prod(right[lead[1] :])
        blocks = cast(TileType, op.result.type).shape
        sides = zip(blocks, op.operands[2:4], wholes, strict=True)
        return [*(self.extent(block, (Tail(at, whole),)) for block, at, whole in sides), prod(left[lead[0] :])]

    def elements(self, v: Value) -> Amount:
        return prod_of(self.shape(v))

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

    def share(self, branch: Op) -> Fraction:
        """How often a branch takes its first side, by what it says of program numbers and loop counters: one of them
        equals a number once in all its values, and is above another half of the time. 1 where data decide."""
        return self._true(branch.operands[0])

    def _true(self, v: Value) -> Fraction:
        op = v.op
        if op is None:
            return Fraction(1)
        match op.name.partition(".")[2]:
            case "logical_and":
                return self._true(op.operands[0]) * self._true(op.operands[1])
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge" as name:
                values = [n for n in map(self._values, op.operands) if n > 1]
                if not values:
                    return Fraction(1)
                equal = Fraction(1, max(values))
                return {"eq": equal, "ne": 1 - equal}.get(name, Fraction(1, 2))
            case _:
                return Fraction(1)

    def _values(self, v: Value) -> int:
        """How many values a number takes, where it is made of one program number or loop counter; else 1."""
        while v.op is not None and v.op.name == "tile.cast":
            v = v.op.operands[0]
        if v.op is None or v.op.name != "tile.to_scalar" or isinstance(v.op.operands[0].type, TileType):
            return 1
        steps = self.steps(v.op.operands[0])
        return steps if isinstance(steps, int) else 1

    def trips(self, loop: Op) -> Dim:
        lower, upper, step = (self.index(v) for v in loop.operands[:3])
        return ceildiv(upper - lower, 1 if isinstance(step, int) and step <= 0 else step)  # of programs that fail

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


def prod_of(amounts: list[Amount]) -> Amount:
    out: Amount = 1
    for n in amounts:
        out = _times(out, n)
    return out


def _times(a: Amount, b: Amount) -> Amount:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return _whole(a) * _whole(b)
    return a * b


def _plus(a: Amount, b: Amount) -> Amount:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return _whole(a) + _whole(b)
    return a + b


def _whole(a: Amount) -> Dim:
    return a if isinstance(a, (int, Expr)) else round(a)
