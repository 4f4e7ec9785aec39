"""The kernels of a long reduction to a scalar: partial results of fixed chunks, then their combination in order."""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType, TileType, ViewType
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, flops_of, inside, scalars_of
from tessera.compiler.schedule.views import kind_of
from tessera.language import dtypes
from tessera.language.dims import ceildiv, prod
from tessera.language.order import CHUNK


def chunked_reduction(group: Op, out: ProgramBuilder) -> None:
    """A long reduction: one partial result per CHUNK elements, then one program that combines them in order."""
    body = GroupBody.of(group)
    (fold,) = [op for op in body.ops if kind_of(op) == "reduce"]
    axes = tuple(a for a, d in enumerate(body.space) if d != 1)
    n = prod(body.space)
    count = ceildiv(n, CHUNK)
    writer = KernelWriter(
        Space(body.space, [axes], (n,), (CHUNK,), (False,)), body.axes, scalars_of(group, out), group.span
    )
    for op in body.ops[: body.ops.index(fold)]:
        writer.compute(op)
    name = fold.name.partition(".")[2]
    b = writer.b
    with b.at(fold.span):
        x = writer.stretch(writer.operand(fold, fold.operands[0]), (True,))
        wide = partial_dtype(fold)
        x = b.cast(x, wide)
        at = b.program_id(0) if writer.grid else b.index(0)
        if not isinstance(n, int) or n % CHUNK:
            left = b.iop("imin", b.iop("isub", b.index(n), b.iop("imul", at, b.index(CHUNK))), b.index(CHUNK))
            size = b.value("tile.to_scalar", (left,), TileType((), dtypes.int32))
            number = b.value("tile.iota", (), TileType((CHUNK,), dtypes.int32), {"axis": 0})
            in_range = b.map("lt", number, b.broadcast(size, (CHUNK,), ()))
            x = b.map("where", in_range, x, b.full((CHUNK,), identity(name, wide), wide))
        partial = b.reshape(b.reduce(name, x, (0,)), (1,))
        span = fold.span
        partials = Op("graph.partials", (), (TensorType((count,), wide),), span, {}, hints=("partials",)).result
        out.temp(partials)
        view = writer.window(partials, 0, ViewType((count,), wide), "partials", write=True)
        b.store(view, partial, [at])
    label = str(group.attrs["label"])
    out.launch(writer.finish(out.kernel_name(label)), writer.arguments, inside(group), label, flops_of(body.ops), span)
    _combine(group, fold, partials, name, out)


def _combine(group: Op, fold: Op, partials: Value, name: str, out: ProgramBuilder) -> None:
    t = partials.type
    assert isinstance(t, TensorType)
    writer = KernelWriter(Space((1,), [(0,)], (1,), (1,), (False,)), {}, set(), fold.span)
    b = writer.b
    view = writer.window(partials, 0, ViewType(t.shape, t.dtype), "partials")
    whole = b.load(view, [b.index(0)], t.shape)
    result = group.results[0]
    rt = result.type
    assert isinstance(rt, TensorType)
    total = b.cast(b.reshape(b.reduce(name, whole, (0,)), (1,)), rt.dtype)
    out.result(result)
    target = writer.window(result, 0, ViewType((1,), rt.dtype), "out", write=True)
    b.store(target, total, [b.index(0)])
    label = f"{name} of partials"
    out.launch(writer.finish(out.kernel_name(label)), writer.arguments, {}, label, t.shape[0], fold.span)


def partial_dtype(fold: Op) -> dtypes.DType:
    if fold.name in ("graph.any", "graph.all"):
        return dtypes.bool_
    t = fold.result.type
    assert isinstance(t, TensorType)
    return t.policy.accum if t.policy and t.policy.accum else t.dtype.compute


def identity(name: str, dtype: dtypes.DType) -> bool | int | float:
    """The value that changes nothing in a reduction."""
    if name in ("sum", "any"):
        return False if dtype.kind == "bool" else 0.0 if dtype.is_float else 0
    if name in ("prod", "all"):
        return True if dtype.kind == "bool" else 1.0 if dtype.is_float else 1
    low = name == "max"
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype.kind == "uint":
        return 0 if low else int(2**dtype.bits - 1)
    return -(2 ** (dtype.bits - 1)) if low else 2 ** (dtype.bits - 1) - 1
