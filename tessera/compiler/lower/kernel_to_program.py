"""A kernel as a Program: one launch over its own arguments, and an estimate of the work in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.checks import Check
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.tile.program import Buffer, Launch, Param, Program, ScalarArg, Window
from tessera.errors import CompileError, Diagnostic
from tessera.language.dims import Dim, ceildiv, dim_max, dim_min, floordiv, mod, prod, symbols
from tessera.language.scalars import TABLE


def kernel_program(
    op: Op, params: Sequence[Param], checks: Sequence[Check] = (), tuple_result: bool = False
) -> Program:
    """The Program of a `tile.func` over `params`, in the order of its arguments; further arguments are outputs.

    Raises CompileError (TS404) where a tile's extent depends on a dim without a size.
    """
    name = str(op.attrs["sym_name"])
    _demand_static_tiles(op, name)
    args = op.region.block.args
    buffers: list[Buffer] = []
    bound: list[Window | ScalarArg] = []
    for i, a in enumerate(args):
        param = i if i < len(params) else None
        if isinstance(a.type, ViewType):
            role = "output" if param is None else "input"
            buffers.append(Buffer(i, a.hint, a.type.shape, a.type.dtype, role, param))
            bound.append(Window(i))
        else:
            assert isinstance(a.type, TileType) and param is not None
            bound.append(ScalarArg(param, a.type.dtype))
    results = cast("tuple[int, ...]", op.attrs.get("returns", ()))
    launch = Launch(op, tuple(bound), op.span, flops(op), traffic(op), name)
    several = tuple_result or len(results) > 1
    free, shown = free_dims(op), tuple(checks)
    return Program(name, tuple(params), tuple(buffers), (launch,), results, free, shown, op.span, several)


def _demand_static_tiles(op: Op, name: str) -> None:
    for inner in op.walk():
        for v in inner.results:
            if isinstance(v.type, (TileType, SharedType)) and (found := set[str]().union(*map(symbols, v.type.shape))):
                needed = f"{', '.join(sorted(found))} must have a size when the kernel is compiled"
                message = f"this tile is {v.type.pretty()}; {needed}"
                raise CompileError(Diagnostic("TS404", message, inner.span, function=name))


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


# estimates


def traffic(op: Op) -> Dim:
    """The least bytes moved: every argument read once and every one stored to written once."""
    writes = cast("tuple[int, ...]", op.attrs.get("writes", ()))
    total: Dim = 0
    for i, a in enumerate(op.region.block.args):
        if isinstance(a.type, ViewType):
            read = any(
                user.name not in ("tile.store", "tile.scatter") or user.operands[0] is not a for user in _users(a)
            )
            total = total + prod(a.type.shape) * a.type.dtype.itemsize * (int(read) + int(i in writes))
    return total


def _users(v: Value) -> list[Op]:
    """The ops that read or write a view, through its subviews."""
    out: list[Op] = []
    for user in v.users:
        out += _users(user.result) if user.name == "tile.subview" else [user]
    return out


def flops(op: Op) -> Dim:
    """Floating point operations of all programs: two for each product that is summed, the table's for each function."""
    grid = cast("tuple[Dim, ...]", op.attrs["grid"])
    return prod(grid) * _flops(op.region.block, grid)


def _flops(block: Block, grid: tuple[Dim, ...]) -> Dim:
    total: Dim = 0
    for op in block.ops:
        if op.name == "tile.for":
            lower, upper, step = (_size(v, grid) for v in op.operands[:3])
            total = total + ceildiv(upper - lower, step) * _flops(op.region.block, grid)
        elif op.regions:  # one of two branches, or a loop of unknown length: the longer one, once
            parts = [_flops(r.block, grid) for r in op.regions]
            total = total + max(parts, key=lambda p: p if isinstance(p, int) else 0)
        else:
            total = total + _op_flops(op)
    return total


def _op_flops(op: Op) -> Dim:
    name = op.name.partition(".")[2]
    if name == "mma":
        a, b = (cast(TileType, v.type).shape for v in op.operands[:2])
        return 2 * a[0] * a[1] * b[1]
    if name == "contract":
        rows, columns = cast(TileType, op.result.type).shape
        return 2 * rows * columns * cast(ViewType, op.operands[0].type).shape[1]
    if name in ("reduce", "scan"):
        return prod(cast(TileType, op.operands[0].type).shape)
    if name in TABLE and name not in ("where",):
        t = cast(TileType, op.result.type)
        arithmetic = cast(TileType, op.operands[0].type).dtype
        return prod(t.shape) * TABLE[name].flops if arithmetic.is_float or arithmetic.is_complex else 0
    return 0


def _size(v: Value, grid: tuple[Dim, ...]) -> Dim:
    """An index as a size: exact where it depends on sizes alone, else for the middle of the grid and of each loop."""
    op = v.op
    if op is None:
        loop = v.owner.region.op if isinstance(v.owner, Block) and v.owner.region else None
        return (
            floordiv(_size(loop.operands[0], grid) + _size(loop.operands[1], grid), 2)
            if loop is not None and loop.name == "tile.for"
            else 1
        )
    if op.name == "tile.dim":
        return cast(Dim, op.attrs["dim"])
    if op.name == "tile.program_id":
        return floordiv(grid[cast(int, op.attrs["axis"])], 2)
    if op.name == "tile.to_index":
        return 1
    a, b = (_size(x, grid) for x in op.operands)
    match op.name:
        case "tile.iadd":
            return a + b
        case "tile.isub":
            return a - b
        case "tile.imul":
            return a * b
        case "tile.idiv":
            return floordiv(a, b)
        case "tile.imod":
            return mod(a, b)
        case "tile.imin":
            return dim_min(a, b)
        case _:
            return dim_max(a, b)
