"""The kernels of a long reduction to a scalar: partial results of fixed chunks, then their combination in order."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType, TileType, ViewType
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, flops_of, inside, scalars_of
from tessera.compiler.schedule.alignment import shape_of
from tessera.compiler.schedule.views import kind_of
from tessera.compiler.tile.builder import TileBuilder
from tessera.language import dtypes
from tessera.language.dims import Dim, ceildiv, prod
from tessera.language.order import CHUNK

_SEARCHES = {"argmax": "max", "argmin": "min"}
"""the reductions that find a place, and what they find it of"""


def chunked_reduction(group: Op, out: ProgramBuilder) -> None:
    """A long reduction: partial results per CHUNK elements, then one program that combines them in order."""
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
    b, span, kept = writer.b, fold.span, list[Value]()
    with b.at(span):
        x = writer.stretch(writer.operand(fold, fold.operands[0]), (True,))
        x = b.cast(x, partial_dtype(fold))
        at = b.program_id(0) if writer.grid else b.index(0)
        x = _in_range(b, name, x, at, n)
        for hint, partial in _partials(b, name, x, at):
            t = partial.type
            assert isinstance(t, TileType)
            partials = Op("graph.partials", (), (TensorType((count,), t.dtype),), span, {}, hints=(hint,)).result
            out.temp(partials)
            view = writer.window(partials, 0, ViewType((count,), t.dtype), hint, write=True)
            b.store(view, b.reshape(partial, (1,)), [at])
            kept.append(partials)
    label = str(group.attrs["label"])
    out.launch(writer.finish(out.kernel_name(label)), writer.arguments, inside(group), label, flops_of(body.ops), span)
    _combine(group, fold, kept, name, out)


def _in_range(b: TileBuilder, name: str, x: Value, at: Value, n: Dim) -> Value:
    """The elements of chunk `at`, and behind the last of `n` what changes nothing."""
    if isinstance(n, int) and n % CHUNK == 0:
        return x
    t = x.type
    assert isinstance(t, TileType)
    nothing = identity(_SEARCHES.get(name, name), t.dtype)
    load = x.op
    if load is not None and load.name == "tile.load" and not load.attrs.get("masked"):
        load.attrs |= {"fill": nothing, "defined": True}  # costs nothing where there are elements
        return x
    left = b.iop("imin", b.iop("isub", b.index(n), b.iop("imul", at, b.index(CHUNK))), b.index(CHUNK))
    size = b.value("tile.to_scalar", (left,), TileType((), dtypes.int32))
    number = b.value("tile.iota", (), TileType((CHUNK,), dtypes.int32), {"axis": 0})
    in_range = b.map("lt", number, b.broadcast(size, (CHUNK,), ()))
    return b.map("where", in_range, x, b.full((CHUNK,), nothing, t.dtype))


def _partials(b: TileBuilder, name: str, x: Value, at: Value) -> list[tuple[str, Value]]:
    """What is kept of a chunk, by name. Of a search: the extremum, and its place among all elements."""
    if name not in _SEARCHES:
        return [("partials", b.reduce(name, x, (0,)))]
    first = b.value("tile.to_scalar", (b.iop("imul", at, b.index(CHUNK)),), TileType((), dtypes.int64))
    places = b.map("add", b.reduce(name, x, (0,)), first)
    return [("extrema", b.reduce(_SEARCHES[name], x, (0,), any_of_equal=True)), ("places", places)]


def _combine(group: Op, fold: Op, kept: Sequence[Value], name: str, out: ProgramBuilder) -> None:
    writer = KernelWriter(Space((1,), [(0,)], (1,), (1,), (False,)), {}, set(), fold.span)
    b, wholes = writer.b, list[Value]()
    shape = shape_of(kept[0])
    for partials in kept:
        t = partials.type
        assert isinstance(t, TensorType)
        view = writer.window(partials, 0, ViewType(shape, t.dtype), partials.hint or "partials")
        wholes.append(b.load(view, [b.index(0)], shape))
    (result,) = group.results
    rt = result.type
    assert isinstance(rt, TensorType)
    total = b.reduce(name, wholes[0], (0,))
    if name in _SEARCHES:  # the place that the chunk with the first of the extrema found
        number = b.value("tile.iota", (), TileType(shape, dtypes.int64), {"axis": 0})
        chosen = b.map("eq", number, b.broadcast(total, shape, ()))
        total = b.reduce("sum", b.map("where", chosen, wholes[1], b.full(shape, 0, dtypes.int64)), (0,))
    out.result(result)
    target = writer.window(result, 0, ViewType((1,), rt.dtype), "out", write=True)
    b.store(target, b.cast(b.reshape(total, (1,)), rt.dtype), [b.index(0)])
    label = f"{name} of partials"
    out.launch(writer.finish(out.kernel_name(label)), writer.arguments, {}, label, shape[0], fold.span)


def partial_dtype(fold: Op) -> dtypes.DType:
    """What a long reduction computes with."""
    if fold.name in ("graph.any", "graph.all"):
        return dtypes.bool_
    found, given = fold.result.type, fold.operands[0].type
    assert isinstance(found, TensorType) and isinstance(given, TensorType)
    if fold.name.partition(".")[2] in _SEARCHES:
        return given.dtype.compute
    return found.policy.accum if found.policy and found.policy.accum else found.dtype.compute


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
