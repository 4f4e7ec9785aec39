"""Kernels that move values: copies into windows for concat and pad, and into the buffers of branches and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tessera.compiler.graph.builder import number_of
from tessera.compiler.graph.operator import attributes_of, operator_of
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.parts import window, windows
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, inside, scalars_of
from tessera.compiler.lower.sorting import temporary
from tessera.compiler.schedule.access import Access, access, collapse, sizes, units, written
from tessera.compiler.schedule.alignment import Axes, base_of, shape_of
from tessera.compiler.schedule.blocks import map_block, part_block
from tessera.compiler.schedule.views import ViewLayout, kind_of, layout_of
from tessera.errors import Span
from tessera.language.dims import Dim, prod


def copy_value(v: Value, into: Value, span: Span, out: ProgramBuilder) -> None:
    """A launch that copies a function-level value into the buffer of another of its shape."""
    own: Axes = tuple(a if d != 1 else -1 for a, d in enumerate(shape_of(v)))
    copy_window(v, written(into, own, shape_of(v)), set(out.scalars), {}, span, out, "copy")


def settle(pairs: Sequence[tuple[Value, Value]], span: Span, out: ProgramBuilder) -> None:
    """Copies each value into the memory of another, as if all at once: a value whose memory is written is first copied
    elsewhere. A value that is already in its place is not copied."""
    moving = [(v, to) for v, to in pairs if out.of.get(base_of(v)) != out.of[to]]
    taken = {out.of[to] for _, to in pairs}
    for i, (v, to) in enumerate(moving):
        if out.of.get(base_of(v)) in taken:
            moving[i] = held_copy(v, span, out), to
    for v, to in moving:
        copy_value(v, to, span, out)


def exchange(body: Block, results: Sequence[Value], span: Span, out: ProgramBuilder) -> tuple[tuple[int, ...], ...]:
    """Has what the body of a loop gives carried on, as if all at once: the buffers in which it has been computed, or
    carried up to now, exchange their memory with those of `results` (`Loop.turns`). What is in no such buffer, or in
    that of another one too, is copied."""
    places = [out.of[to] for to in results]
    found = [_own_memory(v, to, body, out) for v, to in zip(body.terminator.operands, results, strict=True)]
    used = {i for i, place in zip(found, places, strict=True) if i == place}
    source: dict[int, int] = {}
    copied: list[tuple[Value, Value]] = []
    for v, to, i in zip(body.terminator.operands, results, found, strict=True):
        if i is None or (i in used and i != out.of[to]):
            copied.append((v, to))
        elif i not in used:
            source[out.of[to]] = i
            used.add(i)
    read = {*source.values(), *(out.of.get(base_of(v)) for v, _ in copied)}
    for v, to in copied:
        if out.of[to] in read:
            source[out.of[to]] = out.of[held_copy(v, span, out)]
        else:
            copy_value(v, to, span, out)
    return _cycles(source)


def _own_memory(v: Value, to: Value, body: Block, out: ProgramBuilder) -> int | None:
    """The buffer that `v` fills, if it is of the size of that of `to`, and nothing outside of the loop needs it."""
    layout = layout_of(v)
    if layout is None or not layout.whole:
        return None
    base, i = layout.base, out.of.get(layout.base)
    own = base in body.args or (base.op is not None and base.op.block is body)
    if i is None or not own:
        return None
    here, there = out.buffers[i], out.buffers[out.of[to]]
    return i if here.dtype is there.dtype and prod(here.shape) == prod(there.shape) else None


def _cycles(source: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Who gets whose memory, as cycles: what begins a chain gives its own to what ends it."""
    given, found = set(source.values()), list[tuple[int, ...]]()
    for start in sorted(source, key=given.__contains__):
        if any(start in cycle for cycle in found):
            continue
        cycle = [start]
        while (i := source.get(cycle[-1], start)) != start:
            cycle.append(i)
        found.append(tuple(cycle))
    return tuple(found)


def held_copy(v: Value, span: Span, out: ProgramBuilder) -> Value:
    """A value in memory of its own."""
    t = v.type
    assert isinstance(t, TensorType)
    copy = temporary(t.shape, t.dtype, v.hint or "kept", span, out)
    copy_value(v, copy, span, out)
    return copy


def copy_window(
    v: Value, target: Access, scalars: set[Value], known: dict[Value, Value], span: Span, out: ProgramBuilder, what: str
) -> None:
    """A kernel that copies the window `v` into the window `target`."""
    layout = layout_of(v)
    assert layout is not None
    space = shape_of(v)
    own: Axes = tuple(a if d != 1 else -1 for a, d in enumerate(space))
    source = access(layout, own, space)
    writer = _writer(space, [source.strides, target.strides], scalars, span, out)
    base = layout.base
    if base in scalars:
        writer.tiles[v] = writer.unit(writer.scalar(base))
    elif base.op is not None and kind_of(base.op) == "generate":
        writer.tiles[v] = writer.generated(base.op, source)
    else:
        writer.tiles[v] = writer.load(source, v)
    writer.store(v, target)
    out.launch(writer.finish(out.kernel_name(what)), writer.arguments, known, what, 0, span)


def _writer(
    space: Shape, walks: Sequence[Sequence[Dim | None]], scalars: set[Value], span: Span, out: ProgramBuilder
) -> KernelWriter:
    """A kernel over the fewest axes that describe `walks` through `space`, the last of which is that of its result."""
    groups = collapse(space, [0] * len(space), walks) or [tuple(range(len(space)))]
    dims = sizes(space, groups)
    block = map_block(dims, out.sizes, units(walks, groups))
    if space:
        block = part_block(block, dims, [walks[-1][groups[0][-1]]], out.sizes)
    return KernelWriter(Space(space, groups, dims, block, (False,) * len(dims)), {}, scalars, span)


def join(group: Op, out: ProgramBuilder) -> None:
    """concat and pad: each input that is not in its window of the result yet is copied into it. Around that of pad is
    its fill value."""
    body = GroupBody.of(group, out.homes)
    (op,), (home,) = body.ops, body.homes
    out.result(group.result)
    known = inside(group)
    if op.name == "graph.pad":
        _fill(group, op, home, out)
    for v, place in zip(op.operands, windows(op, home), strict=True):
        if known.get(base_of(v)) not in out.homes:
            copy_window(v, _access(place), scalars_of(group, out), known, group.span, out, op.name.partition(".")[2])


def _access(place: ViewLayout) -> Access:
    """A window, walked along its own axes."""
    return access(place, tuple(a if d != 1 else -1 for a, d in enumerate(place.shape)), place.shape)


def _fill(group: Op, op: Op, home: ViewLayout, out: ProgramBuilder) -> None:
    """Fills the surroundings of pad's operand: the border as slabs side by side, or everything where launches cost more
    than that and nothing is stored there yet."""
    shape, inner = shape_of(op.result), shape_of(op.operands[0])
    (begin,) = operator_of(op).windows([inner], **attributes_of(op))  # type: ignore[attr-defined]
    sides = list(_sides(begin, inner, shape))
    if len(sides) > out.sizes.sides and inside(group).get(base_of(op.operands[0])) not in out.homes:
        sides = [((0,) * len(shape), shape)]
    t = op.result.type
    assert isinstance(t, TensorType)
    value: Any = op.attrs["value"]
    kept = number_of(value, t.dtype)
    for start, size in sides:
        target = _access(window(home, start, size))
        writer = _writer(size, [target.strides], set(), group.span, out)
        writer.tiles[op.result] = writer.unit(writer.b.constant(kept, t.dtype))
        writer.store(op.result, target)
        out.launch(writer.finish(out.kernel_name("fill")), writer.arguments, inside(group), "fill", 0, group.span)


def _sides(begin: Shape, inner: Shape, shape: Shape) -> Iterator[tuple[Shape, Shape]]:
    """(start, shape) of the slabs around a window, two an axis: the outermost are contiguous, and none overlap."""
    for a, (at, n, whole) in enumerate(zip(begin, inner, shape, strict=True)):
        for start, size in ((0, at), (at + n, whole - at - n)):
            if size != 0:
                yield (*begin[:a], start, *(0,) * (len(shape) - a - 1)), (*inner[:a], size, *shape[a + 1 :])
