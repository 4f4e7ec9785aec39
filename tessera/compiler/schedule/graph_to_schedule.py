"""Graph IR to Schedule IR: one `schedule.group` for each group of operators, in order (grouping.py decides them)."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.ir.core import Attr, Block, Op, Region, Value, clone
from tessera.compiler.ir.launches import LAUNCHES, kernel_of, launching
from tessera.compiler.machines import peaks_of, sizes_of
from tessera.compiler.schedule import dialect as dialect  # its ops are known where they are made
from tessera.compiler.schedule.alignment import base_of
from tessera.compiler.schedule.by_parts import compute_by_parts
from tessera.compiler.schedule.compute_again import compute_again
from tessera.compiler.schedule.grouping import FusionGroup, FusionGrouping, leaves
from tessera.compiler.schedule.normalise import normalise, turn_reductions
from tessera.compiler.schedule.other_axes import compute_for_sums
from tessera.compiler.schedule.short_axes import take_apart_short_axes
from tessera.compiler.schedule.views import kind_of

NOT_KEPT: Mapping[Op, str] = {}


def graph_to_schedule(func: Op, target: str, grouping: type[FusionGrouping] = FusionGrouping, own: bool = False) -> Op:
    """A `schedule.func` for a decomposed `graph.func`, which is left as it was, unless it is the caller's `own`.
    `grouping` decides which operators share a kernel."""
    source = func if own else clone(func, {})
    block = source.region.block
    take_apart_short_axes(block)
    kept = compute_by_parts(block, peaks_of(target))
    kept |= compute_again(block)
    if sizes_of(target).one_order:
        turn_reductions(block)
    eliminate_dead(source)
    normalise(block, sizes_of(target))
    body = schedule_block(block, {}, "schedule.return", grouping, kept)
    attrs = {"sym_name": func.attrs["sym_name"], "arg_names": func.attrs.get("arg_names", ()), "target": target}
    attrs |= {name: func.attrs[name] for name in ("block", "states") if name in func.attrs}
    return Op("schedule.func", (), (), func.span, attrs, [Region([body])])


def schedule_block(
    block: Block,
    known: dict[Value, Value],
    terminator: str,
    grouping: type[FusionGrouping] = FusionGrouping,
    kept: Mapping[Op, str] = NOT_KEPT,
) -> Block:
    """The groups of one block; `known` maps values of the blocks around it to what has been scheduled for them. `kept`:
    why operators are not computed again where slices of their results are read, or not part by part."""
    groups = grouping(block)
    compute_for_sums(groups)
    for (source, op), cause in groups.refused.items():
        groups.refused[source, op] = kept.get(source, cause) if cause in ("order", "parts") else cause
    body = Block([a.type for a in block.args], [a.hint for a in block.args])
    known.update(zip(block.args, body.args, strict=True))
    for group in groups.sorted():
        if group.kind in ("control", "launch"):
            new = _emit_alone(group.ops[0], known, body, grouping, kept)
        else:
            new = _emit(group, known)
        if apart := groups.refusals(group):
            new.attrs["apart"] = tuple(r.attribute() for r in apart)
        body.append(new)
    results = [_visible(v, known, body) for v in block.terminator.operands]
    body.append(Op(terminator, results, (), block.terminator.span))
    return body


def _emit_alone(
    op: Op, known: dict[Value, Value], body: Block, grouping: type[FusionGrouping], kept: Mapping[Op, str]
) -> Op:
    """Control flow, whose regions are scheduled, or the launch of a kernel, which stays as it is."""
    operands = [_visible(v, known, body) for v in op.operands]
    if op.name in LAUNCHES:
        regions = [launching(clone(kernel_of(op), {}), "schedule", op.span)]
    else:
        regions = [Region([schedule_block(r.block, known, "schedule.yield", grouping, kept)]) for r in op.regions]
    name = "schedule." + op.name.partition(".")[2]
    new = Op(
        name, operands, [r.type for r in op.results], op.span, dict(op.attrs), regions, [r.hint for r in op.results]
    )
    new.origin = op.origin
    known.update(zip(op.results, new.results, strict=True))
    return new


def _visible(v: Value, known: dict[Value, Value], body: Block) -> Value:
    """`v` in a scheduled block, with the views and generators that lead to it."""
    if v not in known:
        assert v.op is not None
        for w in v.op.operands:
            _visible(w, known, body)
        body.append(clone(v.op, known))
    return known[v]


def _emit(group: FusionGroup, known: dict[Value, Value]) -> Op:
    inside = {r for op in group.ops for r in op.results}
    outside = list(
        dict.fromkeys(
            b for op in group.ops for v in op.operands if (b := base_of(v)) not in inside and not _generated(b)
        )
    )
    ops = set(group.ops)
    results = [r for op in group.ops for r in op.results if leaves(r, ops)]
    block = Block([v.type for v in outside], [v.hint for v in outside])
    mapping = dict(zip(outside, block.args, strict=True))
    for op in group.ops:
        for v in op.operands:
            _bring(v, mapping, block)
        block.append(clone(op, mapping))
    block.append(Op("schedule.yield", [mapping[r] for r in results], (), group.ops[-1].span))
    attrs: dict[str, Attr] = {"kind": group.kind, "space": group.space, "inner": group.inner, "label": label(group.ops)}
    span = group.ops[0].span
    new = Op("schedule.group", [known[v] for v in outside], [r.type for r in results], span, attrs, [Region([block])],
             [r.hint for r in results])  # fmt: skip
    known.update(zip(results, new.results, strict=True))
    return new


def _generated(v: Value) -> bool:
    return v.op is not None and kind_of(v.op) == "generate"


def _bring(v: Value, mapping: dict[Value, Value], block: Block) -> None:
    """Clones the views and generators that lead to `v` into the group."""
    if v in mapping or v.op is None:
        return
    for w in v.op.operands:
        _bring(w, mapping, block)
    block.append(clone(v.op, mapping))


def label(ops: list[Op]) -> str:
    """The operators that people would name, e.g. "contract+add+gelu"; long ones are cut."""
    names = [op.name.partition(".")[2] for op in ops if op.name != "graph.cast"]
    if not names:
        names = ["copy" if all(op.result.type == op.operands[0].type for op in ops) else "cast"]
    return "+".join(names) if len(names) <= 5 else "+".join([*names[:3], f"{len(names) - 4} more", names[-1]])
