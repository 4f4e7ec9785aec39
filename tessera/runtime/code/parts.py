"""Which parts of its operands each program of a launch reads, in the words of the author: as plain texts and lists,
which are stored with the plan and evaluated when somebody looks at a tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tessera.compiler.ir.types import Shape, ViewType
from tessera.compiler.tile.program import Buffer, BufferArg, Launch, Program
from tessera.compiler.tile.reads import Part, reads
from tessera.language.dims import Dim, prod

AxisText = tuple[str, str, str]
"""first index, the one behind the last, and the axis' extent: dims over the sizes and the program's numbers"""
OperandText = tuple[str, tuple[AxisText | None, ...], int]
"""an operand by its name or as NumPy would write it, its axes, None where it is not known what is read, and the bytes
of an element"""


def parts_read(program: Program, titles: Mapping[str, str]) -> list[tuple[OperandText, ...]]:
    """For each launch. Constants of the program are left out."""
    buffers = {b.id: b for b in program.buffers}
    names = {b.id: program.params[b.param].name for b in program.buffers if b.role == "input" and b.param is not None}
    return [_of_launch(launch, buffers, names, titles) for launch in program.launches]


def _of_launch(
    launch: Launch, buffers: Mapping[int, Buffer], names: dict[int, str], titles: Mapping[str, str]
) -> tuple[OperandText, ...]:
    """`names` of buffers grow by what the launch writes."""
    kernel, found = launch.kernel, list[OperandText]()
    for read in reads(kernel):
        argument = launch.args[read.argument]
        if isinstance(argument, BufferArg) and argument.buffer in names:
            t = cast(ViewType, kernel.region.block.args[read.argument].type)
            found.append(_told(names[argument.buffer], buffers[argument.buffer].shape, t, argument.offset, read.parts))
    for i in cast("tuple[int, ...]", kernel.attrs.get("writes", ())):
        argument = launch.args[i]
        if isinstance(argument, BufferArg) and argument.buffer not in names:
            title = titles[str(kernel.attrs.get("sym_name", launch.label))]
            names[argument.buffer] = f"({title.partition(' ')[2] or title})"
    return tuple(found)


def _told(name: str, shape: Shape, t: ViewType, offset: Dim, parts: tuple[Part | None, ...]) -> OperandText:
    """A view of a whole operand in the operand's own axes, where it has these."""
    extents = t.shape
    steps = t.strides if t.strides is not None else _contiguous(extents)
    own = list(zip(_contiguous(shape), shape, strict=True))
    seen = {(step, n): part for step, n, part in zip(steps, extents, parts, strict=True) if n != 1}
    if offset == 0 and {axis for axis in own if axis[1] != 1} == set(seen):  # also where axes are in another order
        extents, parts = shape, tuple((0, 1) if axis[1] == 1 else seen[axis] for axis in own)
    elif offset != 0 or t.strides is not None:
        name = f"a view of {name} as ({', '.join(map(str, extents))})"
    else:
        name += ".ravel()" if len(extents) == 1 else f".reshape({', '.join(map(str, extents))})"
    told = zip(parts, extents, strict=True)
    axes = tuple(None if p is None else (str(p[0]), str(p[1]), str(extent)) for p, extent in told)
    return name, axes, t.dtype.itemsize


def _contiguous(shape: Shape) -> list[Dim]:
    return [prod(shape[a + 1 :]) for a in range(len(shape))]
