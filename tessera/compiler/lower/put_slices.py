"""The kernel that stores slices into a tensor in order: where two slices overlap, the later one wins."""

from __future__ import annotations

from tessera.compiler.graph.operator import attributes_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, TensorType, ViewType
from tessera.compiler.lower.copies import copy_window
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, inside, scalars_of
from tessera.compiler.lower.sorting import scalar
from tessera.compiler.schedule.access import written
from tessera.compiler.schedule.alignment import base_of, shape_of
from tessera.compiler.schedule.lifetimes import dies
from tessera.compiler.schedule.views import ViewLayout, layout_of
from tessera.language import dtypes
from tessera.language.dims import prod


def put_slices(group: Op, out: ProgramBuilder) -> None:
    """Stores the slices to the tensor's own memory where its old value is not needed; else to a copy."""
    (op,) = GroupBody.of(group).ops
    x, indices, updates = op.operands
    _take_over(op, group, out)
    axis: int = attributes_of(op)["axis"]
    shape, (count,) = shape_of(x), shape_of(indices)
    before, n, after = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    columns = max(1, min(after, out.sizes.columns)) if isinstance(after, int) else out.sizes.columns
    space = (before, after)
    writer = KernelWriter(Space(space, [(0,), (1,)], space, (1, columns), (False, False)), {}, set(), group.span)
    b, (outer, column) = writer.b, writer.offsets
    given, places, dtype, index = _window(updates), _window(indices), _type(updates).dtype, _type(indices).dtype
    target = writer.window(op.result, 0, ViewType((before, n, after), dtype), "x", write=True)
    source = writer.window(given.base, given.offset, ViewType((before, count, after), dtype), "updates")
    at = writer.window(places.base, places.offset, ViewType((count,), index), "indices")

    def step(i: Value) -> list[Value]:
        """Places outside are mapped behind the end, where stores are left out."""
        place = b.cast(b.reshape(b.load(at, [i], (1,)), ()), dtypes.int64)
        size, zero = scalar(b, b.index(n)), b.constant(0, dtypes.int64)
        if index.kind != "uint":
            place = b.map("where", b.map("lt", place, zero), b.map("add", place, size), place)
        outside = b.map("logical_or", b.map("lt", place, zero), b.map("ge", place, size))
        row = b.value("tile.to_index", (b.map("where", outside, size, place),), INDEX)
        b.store(target, b.load(source, [outer, i, column], (1, 1, columns)), [outer, row, column])
        return []

    if count == 1:
        step(b.index(0))
    else:
        b.loop(b.index(0), b.index(count), b.index(1), [], step)
    moved = 2 * before * count * after * dtype.itemsize + count * index.itemsize
    kernel = writer.finish(out.kernel_name("put"))
    out.launch(kernel, writer.arguments, inside(group), "put", 0, group.span, moved)


def _take_over(op: Op, group: Op, out: ProgramBuilder) -> None:
    """Gives the result the memory of the tensor, or a copy of it."""
    (result,) = group.results
    x, *others = op.operands
    known, layout = inside(group), _window(x)
    held = known.get(layout.base)
    alone = layout.base not in map(base_of, others)
    if held is not None and held in out.of and layout.whole and alone and dies(held, group):
        out.of[result] = out.of[held]
        return
    out.temp(result)
    own = tuple(a if d != 1 else -1 for a, d in enumerate(shape_of(x)))
    target = written(op.result, own, shape_of(x))
    copy_window(x, target, scalars_of(group, out), known, group.span, out, "copy")


def _window(v: Value) -> ViewLayout:
    layout = layout_of(v)
    assert layout is not None, "views that need a copy have been given one"
    return layout


def _type(v: Value) -> TensorType:
    assert isinstance(v.type, TensorType)
    return v.type
