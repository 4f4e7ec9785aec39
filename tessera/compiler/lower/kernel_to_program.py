"""A kernel as a Program: one launch over its own arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.lower.reduce_across import SecondStage, stages
from tessera.compiler.structure import Structure, row
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.program import Buffer, BufferArg, Launch, Program, ScalarArg
from tessera.compiler.tile.work import flops, traffic
from tessera.compiler.unit import LaunchCheck, Param
from tessera.errors import CompileError, Diagnostic, Note, Span
from tessera.language.dims import Dim, ceildiv, prod, symbols

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
                names = sorted(found)
                needed = f"{', '.join(names)} must have a size when the kernel is compiled"
                given = ", ".join(f"{name}=1024" for name in names)
                ahead = f"ts.compile(..., dims=dict({given})) or --dims {given.replace(' ', '')}"
                message = f"this tile is {v.type.pretty()}; {needed}.\nA call gives it, and ahead of calls {ahead}."
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
