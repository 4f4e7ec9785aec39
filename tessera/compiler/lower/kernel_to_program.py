"""A kernel as a Program: one launch over its own arguments, and an estimate of the work in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.checks import Check
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.lower.kernel_work import flops, traffic
from tessera.compiler.tile.program import Buffer, Launch, Param, Program, ScalarArg, Window
from tessera.errors import CompileError, Diagnostic, Note
from tessera.language.dims import Dim, symbols


def kernel_program(
    op: Op, params: Sequence[Param], checks: Sequence[Check] = (), tuple_result: bool = False
) -> Program:
    """The Program of a `tile.func` over `params`, in the order of its arguments; further arguments are outputs.

    Raises CompileError (TS404) where a tile's extent depends on a dim without a size.
    """
    name = str(op.attrs["sym_name"])
    demand_static_tiles(op, name)
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
