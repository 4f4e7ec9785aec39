"""Schedule IR to a Program: one tile kernel (or a fixed few) per group, and the buffers between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.lower.chunked_reduction import chunked_reduction
from tessera.compiler.lower.contract_kernel import contract_kernel
from tessera.compiler.lower.copies import copy_value, exchange, held_copy, join, settle
from tessera.compiler.lower.equal_groups import LoweredGroup
from tessera.compiler.lower.in_place import changes, destine, given_up, in_order
from tessera.compiler.lower.kernel_to_program import free_dims
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.launch_kernel import launch_kernel
from tessera.compiler.lower.parts import home_of, homes
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, flops_of, inside, scalars_of
from tessera.compiler.lower.put_slices import put_slices
from tessera.compiler.lower.row_writer import RowWriter
from tessera.compiler.lower.segments import fold_segments
from tessera.compiler.lower.sorting import sort_lines
from tessera.compiler.lower.spectral.passes import keep_table, transform_lines
from tessera.compiler.schedule.access import Access, collapse, gather_parts, sizes, units, written
from tessera.compiler.schedule.alignment import base_of
from tessera.compiler.schedule.blocks import map_block, part_block, row_block, sizes_for
from tessera.compiler.schedule.lifetimes import dies
from tessera.compiler.schedule.saved_values import places
from tessera.compiler.schedule.views import is_view, kind_of, layout_of
from tessera.compiler.structure import Structure
from tessera.compiler.tile.program import Branch, Loop, Program, Step, turned_together
from tessera.compiler.unit import LaunchCheck, Param
from tessera.errors import Span
from tessera.language.dims import Dim, symbols


def schedule_to_tile(
    func: Op, params: Sequence[Param], checks: Sequence[LaunchCheck], target: str, structure: Structure
) -> Program:
    """Lowers every group. The target's machine chooses block sizes, unless the function sets others."""
    own: Any = func.attrs.get("block", ())
    out = ProgramBuilder(str(func.attrs["sym_name"]), tuple(params), sizes_for(target, own))
    block = func.region.block
    for i, (arg, param) in enumerate(zip(block.args, params, strict=True)):
        if param.shape is None:
            out.scalars[arg] = i
        else:
            out.buffer(arg, param.shape, param.dtype, "input", i)
    states = cast("tuple[int, ...]", func.attrs.get("states", ()))
    results = block.terminator.operands
    count = len(results) - len(states)
    destine([(v, block.args[i]) for v, i in zip(results[count:], states, strict=True)], out)
    lower_block(block, out)
    outputs = [_output(v, func.span, out) for v in results[:count]]
    settle([(v, block.args[i]) for v, i in zip(results[count:], states, strict=True)], func.span, out)
    for v, name, span in places(func):
        i = out.of.get(v)
        if i is not None and out.buffers[i].role == "temp":
            out.buffers[i] = replace(out.buffers[i], kept=(name, span))
    free = {s for b in out.buffers for d in b.shape for s in symbols(d)}
    program = Program(
        out.name, out.params, tuple(out.buffers), tuple(out.steps), tuple(outputs), (), tuple(checks), func.span,
        structure, tuple(out.of[block.args[i]] for i in states), sides=_sides(block, out),
    )  # fmt: skip
    kernels = dict.fromkeys(launch.code for launch in program.launches)
    free |= {s for kernel in kernels for s in free_dims(kernel)}  # also those that are only numbers
    return replace(program, free=tuple(sorted(free)))


def _sides(block: Block, out: ProgramBuilder) -> dict[int, tuple[int, ...]]:
    """Which layers compute a buffer, where that is known of all values in it."""
    found: dict[int, tuple[int, ...]] = {}
    for op in block.ops[:-1]:
        group = op.name == "schedule.group"
        made = op.region.block.terminator.operands if group else op.results
        for result, v in zip(op.results, made, strict=True):
            maker = base_of(v).op
            if result in out.of and not is_view(op):
                sides = maker.origin.sides if maker is not None else ()
                i = out.of[result]
                found[i] = sides if found.setdefault(i, sides) == sides else ()
    return {i: sides for i, sides in found.items() if sides}


def lower_block(block: Block, out: ProgramBuilder) -> None:
    """Lowers everything but the terminator; views need no code."""
    out.homes.update(homes(block))
    for op in block.ops[:-1]:
        if op.name == "schedule.group":
            _LOWER[str(op.attrs["kind"])](op, out)
        elif op.name == "schedule.launch":
            launch_kernel(op, out)
        elif op.name == "schedule.if":
            _branch(op, out)
        elif op.name == "schedule.while":
            _loop(op, out)


def _branch(op: Op, out: ProgramBuilder) -> None:
    """A tensor that one path changes in place, and the other leaves as it is, stays where it is."""
    arms: list[list[Step]] = []
    for region in op.regions:
        wanted = zip(region.block.terminator.operands, op.results, strict=True)
        destine([(v, out.destined[r]) for v, r in wanted if r in out.destined], out)
        with out.collect() as steps:
            lower_block(region.block, out)
        arms.append(steps)
    for r, *given in zip(op.results, *(region.block.terminator.operands for region in op.regions), strict=True):
        place = _in_common(given, op, out)
        if place is not None and all(
            out.of.get(other) != place for other in op.results
        ):  # two results are two memories
            out.of[r] = place
            continue
        out.temp(r)
        for v, steps in zip(given, arms, strict=True):
            with out.collect() as copied:
                copy_value(v, r, op.span, out)
            steps += copied
    out.steps.append(Branch(out.of[_owner(op.operands[0])], tuple(arms[0]), tuple(arms[1])))


def _in_common(given: Sequence[Value], op: Op, out: ProgramBuilder) -> int | None:
    """The memory that both values of a branch are in already, if its content from before the branch is not needed."""
    found: set[int | None] = set()
    for v in given:
        layout = layout_of(v)
        base = layout.base if layout is not None and layout.whole else None
        inner = base is not None and base.op is not None and base.op.parent is op
        found.add(out.of.get(base) if base is not None and (inner or dies(base, op)) else None)
    return found.pop() if len(found) == 1 else None


def _loop(op: Op, out: ProgramBuilder) -> None:
    """The carried values are in the results' buffers; the next ones are computed in the same memory, or beside it in
    such that the buffers get by exchange. A value from before the loop that is not needed after it is carried in its
    own memory; not a state whose memory would go on to another one, as nothing would be left to exchange it with."""
    head, body = (r.block for r in op.regions)
    bases = [base_of(v) for v in body.terminator.operands]
    goes_on = {b for b, a in zip(bases, body.args, strict=True) if b is not a}
    taken: set[Value] = set()
    for v, r, a in zip(op.operands, op.results, body.args, strict=True):
        layout = layout_of(v)
        base = layout.base if layout is not None and layout.whole else None
        movable = a not in goes_on or base not in out.of or out.buffers[out.of[base]].role == "temp"
        if base in out.of and base not in taken and dies(base, op) and movable:
            taken.add(base)
            out.of[r] = out.of[base]
        else:
            out.temp(r)
            copy_value(v, r, op.span, out)
    for block in (head, body):
        out.of.update((a, out.of[r]) for a, r in zip(block.args, op.results, strict=True))
    destine(given_up(body), out)
    with out.collect() as before:
        lower_block(head, out)
    with out.collect() as round_:
        lower_block(body, out)
        turns = exchange(body, op.results, op.span, out)
    out.steps.append(Loop(out.of[_owner(head.terminator.operands[0])], tuple(before), tuple(round_), turns))


def _owner(v: Value) -> Value:
    layout = layout_of(v)
    assert layout is not None and layout.whole
    return layout.base


def _output(v: Value, span: Span, out: ProgramBuilder) -> int:
    """Makes the buffer behind a result an output, under the result's shape. One that has taken over the memory of a
    state is copied, and so is the last of those that exchange their memory: with the others alone bound to arrays, no
    memory would be free to sort them by."""
    layout = layout_of(v)
    assert layout is not None and layout.whole
    i = out.of[layout.base]
    beside = [out.buffers[b] for group in turned_together(out.steps) if i in group for b in group - {i}]
    if out.buffers[i].role == "input" or (beside and all(b.role != "temp" for b in beside)):
        return _output(held_copy(v, span, out), span, out)
    out.buffers[i] = replace(out.buffers[i], role="output", shape=layout.shape, name=v.hint or out.buffers[i].name)
    return i


def _segments(body: GroupBody) -> list[tuple[Dim | None, ...]]:
    """Walks that must not be merged across: those of values inside the group, of iotas and of gathered axes."""
    out: list[tuple[Dim | None, ...]] = []
    for own in body.axes.values():
        out.append(tuple(0 if a in own else None for a in range(len(body.space))))
    for op in body.ops:
        if kind_of(op) == "gather":
            for part in gather_parts(op, body.axes[op.result])[0]:
                out.append(tuple(0 if a in part.axes else None for a in range(len(body.space))))
    return out


def _space(body: GroupBody, out: ProgramBuilder) -> Space:
    results = [a.strides for _, a in body.stores()]
    walks = [*[a.strides for a in body.accesses()], *results, *_segments(body), *_generated_walks(body)]
    kinds = [a in body.inner for a in range(len(body.space))]
    groups = collapse(body.space, kinds, walks) or [tuple(range(len(body.space)))]
    dims = sizes(body.space, groups)
    inner = tuple(bool(g) and kinds[g[0]] for g in groups)
    if any(inner):
        block: tuple[Dim, ...] = row_block(dims, inner, out.sizes)
    else:
        block = map_block(dims, out.sizes, units(walks, groups))
        if body.space:
            block = part_block(block, dims, [walk[groups[0][-1]] for walk in results], out.sizes)
    return Space(body.space, groups, dims, block, inner)


def _generated_walks(body: GroupBody) -> list[tuple[Dim | None, ...]]:
    """Positions within a random tensor run in its own memory order, whatever else is merged."""
    return [written(op.result, body.axes[op.result], body.space).strides for op in body.ops if kind_of(op) == "random"]


def _elementwise(group: Op, out: ProgramBuilder) -> None:
    changed = changes(group, out)

    def write(name: str) -> LoweredGroup:
        body = GroupBody.of(group, out.homes)
        kind = RowWriter if out.sizes.rows_again else KernelWriter
        writer = kind(_space(body, out), body.axes, scalars_of(group, out), group.span)
        for op in body.ops:
            writer.compute(op)
        places = dict(body.stores())
        stores = [(v, result, places[v]) for v, result in in_order(group, body, changed)]
        for side in _beside_each_other(stores, out) if not changed else [[s] for s in stores]:
            _, result, at = side[0]
            writer.store_beside([s[0] for s in side], replace(at, base=changed[result]) if result in changed else at)
        return LoweredGroup(group, writer.finish(name), writer.arguments, flops_of(body.ops))

    _once(group, out, write, changed)


def _beside_each_other(
    stores: list[tuple[Value, Value, Access]], out: ProgramBuilder
) -> list[list[tuple[Value, Value, Access]]]:
    """The stores of a group, those together that fill neighbouring elements of one result, as parts of a stack do."""
    found: list[list[tuple[Value, Value, Access]]] = []
    for v, result, at in stores:
        whole = home_of(result, out.homes).base
        last = found[-1] if found else []
        if last:
            _, r, first = last[0]
            near = home_of(r, out.homes).base is whole and first.strides == at.strides and 1 not in at.strides
            if near and at.offset == first.offset + len(last):
                last.append((v, result, at))
                continue
        found.append([(v, result, at)])
    return found


def _contract(group: Op, out: ProgramBuilder) -> None:
    def write(name: str) -> LoweredGroup:
        body = GroupBody.of(group, out.homes)
        return LoweredGroup(group, *contract_kernel(body, scalars_of(group, out), out.sizes, name), flops_of(body.ops))

    _once(group, out, write)


def _once(
    group: Op, out: ProgramBuilder, write: Callable[[str], LoweredGroup], changed: Mapping[Value, Value] | None = None
) -> None:
    """Launches the kernel that `write` makes under a name, of groups that are the same for the first alone. `changed`:
    results that have taken over memory, and its name within the group."""
    changed = changed or {}
    for result in group.results:
        if result not in changed:
            out.result(result)
    label = str(group.attrs["label"])
    name = out.kernel_name(label)
    places = [(home.strides, home.offset) for home in (home_of(r, out.homes) for r in group.results)]
    taken = [changed.get(r) for r in group.results]
    made = out.repeated.lowered(group, scalars_of(group, out), places, taken, name, lambda: write(name))
    out.launch(made.kernel, made.arguments, inside(group), label, made.flops, group.span)


_LOWER: dict[str, Callable[[Op, ProgramBuilder], None]] = {
    "map": _elementwise,
    "row": _elementwise,
    "chunks": chunked_reduction,
    "contract": _contract,
    "join": join,
    "scatter": fold_segments,
    "put": put_slices,
    "sort": sort_lines,
    "spectral": transform_lines,
    "table": keep_table,
}
