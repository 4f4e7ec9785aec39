"""Kernels that move values: copies into windows for concat and pad, and into the buffers of branches and loops."""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.operator import attributes_of, operator_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.lower.access import Access, access, collapse, sizes, written
from tessera.compiler.lower.alignment import Axes, shape_of
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.layout import contiguous, kind_of, layout_of
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, inside, scalars_of
from tessera.compiler.schedule.blocks import map_block
from tessera.errors import Span
from tessera.language.dims import Dim, prod


def copy_value(v: Value, into: Value, span: Span, out: ProgramBuilder) -> None:
    """A launch that copies a function-level value into the buffer of another of its shape."""
    own: Axes = tuple(a if d != 1 else -1 for a, d in enumerate(shape_of(v)))
    _copy(v, written(into, own, shape_of(v)), set(out.scalars), {}, span, out, "copy")


def _copy(
    v: Value, target: Access, scalars: set[Value], known: dict[Value, Value], span: Span, out: ProgramBuilder, what: str
) -> None:
    """A kernel that copies the window `v` into the window `target`."""
    layout = layout_of(v)
    assert layout is not None
    space = shape_of(v)
    own: Axes = tuple(a if d != 1 else -1 for a, d in enumerate(space))
    source = access(layout, own, space)
    groups = collapse(space, [0] * len(space), [source.strides, target.strides]) or [tuple(range(len(space)))]
    dims = sizes(space, groups)
    writer = KernelWriter(
        Space(space, groups, dims, map_block(dims, out.device), (False,) * len(dims)), {}, scalars, span
    )
    base = layout.base
    if base in scalars:
        writer.tiles[v] = writer.unit(writer.scalar(base))
    elif base.op is not None and kind_of(base.op) == "generate":
        writer.tiles[v] = writer.generated(base.op, source)
    else:
        writer.tiles[v] = writer.load(source, v.hint or "x")
    writer.store(v, target)
    out.launch(writer.finish(out.kernel_name(what)), writer.arguments, known, what, 0, span)


def join(group: Op, out: ProgramBuilder) -> None:
    """concat and pad: each input is copied into its window of the result, which pad has filled before."""
    body = GroupBody.of(group)
    (op,) = body.ops
    (result,) = group.results
    out.temp(result)
    strides = contiguous(shape_of(result))
    if op.name == "graph.pad":
        _fill(group, op, out)
    operator: Any = operator_of(op)
    starts = operator.windows([shape_of(v) for v in op.operands], **attributes_of(op))
    for v, start in zip(op.operands, starts, strict=True):
        offset: Dim = 0
        for s, at in zip(strides, start, strict=True):
            offset = offset + s * at
        target = Access(
            op.result, offset, tuple(s if d != 1 else None for s, d in zip(strides, shape_of(v), strict=True))
        )
        _copy(v, target, scalars_of(group, out), inside(group), group.span, out, op.name.partition(".")[2])


def _fill(group: Op, op: Op, out: ProgramBuilder) -> None:
    n = prod(shape_of(op.result))
    t = op.result.type
    assert isinstance(t, TensorType)
    writer = KernelWriter(Space((n,), [(0,)], (n,), map_block((n,), out.device), (False,)), {}, set(), group.span)
    value: Any = op.attrs["value"]
    kept = bool(value) if t.dtype.kind == "bool" else float(value) if t.dtype.is_float else int(value)
    writer.tiles[op.result] = writer.unit(writer.b.constant(kept, t.dtype))
    writer.store(op.result, Access(op.result, 0, (1,)))
    out.launch(writer.finish(out.kernel_name("fill")), writer.arguments, inside(group), "fill", 0, group.span)
