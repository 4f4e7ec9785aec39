"""Graph IR to Schedule IR: decides which operators run together in one kernel.

Greedy over program order. An operator joins the group of one of its operands when it fits onto that group's iteration
space (alignment.py), when the cost model finds no reason against it, and when no path leads out of the group and back;
two groups that meet in an operator are merged under the same conditions. Views belong to no group: they are windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value, clone
from tessera.compiler.ir.launches import LAUNCHES, kernel_of, launching
from tessera.compiler.ir.types import Shape
from tessera.compiler.schedule import cost
from tessera.compiler.schedule import dialect as dialect  # its ops are known where they are made
from tessera.compiler.schedule.access import collapse, reads, written
from tessera.compiler.schedule.alignment import (
    Axes,
    align,
    base_of,
    is_full,
    is_row,
    long_reduction,
    reduced_axes,
    shape_of,
    through_views,
)
from tessera.compiler.schedule.dependencies import Dependencies
from tessera.compiler.schedule.matrices import contraction
from tessera.compiler.schedule.normalise import normalise
from tessera.compiler.schedule.views import is_view, kind_of
from tessera.errors import Diagnostic, TargetError
from tessera.language.dims import Dim


@dataclass(eq=False)
class Group:
    """A kernel in the making. `axes`: how each of its values lies on `space`; `outside`: what it reads, and `walks` by
    which strides; `needs`: what others compute for it. All of it grows with each operator and is not computed anew."""

    kind: str
    space: Shape
    inner: tuple[int, ...] = ()
    ops: list[Op] = field(default_factory=list[Op])
    axes: dict[Value, Axes] = field(default_factory=dict[Value, Axes])
    outside: set[Value] = field(default_factory=set[Value])
    walks: dict[tuple[Dim | None, ...], None] = field(default_factory=dict[tuple[Dim | None, ...], None])
    needs: set[Op] = field(default_factory=set[Op])

    def add(self, op: Op, added: dict[Value, Axes]) -> None:
        """Takes in an operator whose results lie as `added` says."""
        self.ops.append(op)
        self.axes.update(added)
        for v, access in reads(op, self.axes, self.space):
            self.outside.add(v)
            self.walks[access.strides] = None

    def with_op(self, op: Op, added: dict[Value, Axes], inner: tuple[int, ...]) -> Group:
        """What it would be with one more operator."""
        new = replace(
            self, inner=inner, ops=[*self.ops], axes={**self.axes}, outside={*self.outside}, walks={**self.walks}
        )
        new.add(op, added)
        return new

    def become(self, trial: Group) -> None:
        """Takes over what a trial of it has found; `kind` and `needs` stay."""
        self.inner, self.ops, self.axes = trial.inner, trial.ops, trial.axes
        self.outside, self.walks = trial.outside, trial.walks

    def fits(self, inner: tuple[int, ...], values: Iterable[Axes]) -> bool:
        """Whether each of the values is full, a row value, or the same everywhere."""
        return all(
            not any(a >= 0 for a in own) or is_full(own, self.space) or (bool(inner) and is_row(own, self.space, inner))
            for own in values
        )


class Grouping:
    """The groups of one block. `order` is the position of each op in the program.

    What it decides is `join`, whether an operator comes into a group, and `merge`, whether two groups become one.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.order = {op: i for i, op in enumerate(block.ops)}
        self.of: dict[Op, Group] = {}
        self.dependencies: Dependencies[Group] = Dependencies()
        self.sources: dict[Op, list[Op]] = {}
        """what computes the operands of each op, views left out"""
        for op in block.ops[:-1]:
            if not is_view(op) and kind_of(op) != "generate":
                bases = (base_of(v).op for v in (*op.operands, *captured(op)))
                self.sources[op] = [b for b in bases if b is not None and b in self.of]
                self.place(op)

    # dependencies between groups
    def producers(self, op: Op) -> list[Group]:
        """Groups that compute operands of `op`, latest first."""
        found = {self.of[source]: self.order[source] for source in self.sources[op]}
        return sorted(found, key=lambda g: -found[g])

    # placing
    def place(self, op: Op) -> None:
        if op.name in LAUNCHES:
            group = Group("launch", (), ops=[op])
        elif op.regions:
            group = Group("control", (), ops=[op])
        elif kind_of(op) == "contract":
            group = Group("contract", shape_of(op.result))
            group.add(op, {op.result: tuple(a if d != 1 else -1 for a, d in enumerate(group.space))})
        elif kind_of(op) in ("join", "pad"):
            group = Group("join", shape_of(op.result), ops=[op])
        else:
            candidates = [] if kind_of(op) in ("gather", "random") else self.producers(op)
            for g in candidates:
                if self.join(g, op):
                    for other in candidates:
                        if other is not self.of[op]:
                            self.merge(self.of[op], other)
                    return
            group = self.start(op)
        self.of[op] = group
        self.need(group, self.sources[op])

    def need(self, g: Group, sources: list[Op]) -> None:
        g.needs.update(sources)
        for source in sources:
            self.dependencies.add(g, self.of[source])

    def start(self, op: Op) -> Group:
        kind = kind_of(op)
        folded = kind in ("reduce", "scan")
        space = shape_of(op.operands[0] if folded else op.result)
        inner = reduced_axes(op) if folded else ()
        group = Group("row" if inner else "map", space, inner)
        if long_reduction(op):
            group.kind = "chunks"
        added = align(op, group.axes, space)
        if added is None:
            raise TargetError(Diagnostic("TS602", f"{op.name} has no lowering for these operands", op.span))
        group.add(op, added)
        return group

    def join(self, g: Group, op: Op) -> bool:
        inner = self.joined_inner(g, op)
        if inner is None or not cost.worth_fusing(len(g.ops) + 1, len(g.outside)):
            return False
        added = align(op, g.axes, g.space)
        if added is None or not g.fits(inner, added.values()):  # its other values do: `inner` stays, or there was none
            return False
        if any(h is not g and self.dependencies.known(h, on=g) for h in self.producers(op)):
            return False
        trial = g.with_op(op, added, inner)
        if not self.allowed(trial, op):
            return False
        g.kind = "chunks" if long_reduction(op) else "row" if inner else g.kind
        g.become(trial)
        self.of[op] = g
        self.need(g, [source for source in self.sources[op] if self.of[source] is not g])
        return True

    def joined_inner(self, g: Group, op: Op) -> tuple[int, ...] | None:
        """The group's inner axes with `op` in it; None where it may not come in."""
        kind = kind_of(op)
        if g.kind in ("join", "chunks", "control", "launch") or (g.kind == "contract" and kind != "map"):
            return None
        if kind not in ("reduce", "scan"):
            return g.inner
        if long_reduction(op) and g.kind != "map":
            return None
        own = through_views(op.operands[0], g.axes, g.space)
        if not own or not is_full(own, g.space):
            return None
        inner = tuple(sorted(own[a] for a in reduced_axes(op) if own[a] >= 0))
        return inner if g.inner in ((), inner) else None

    def allowed(self, trial: Group, op: Op) -> bool:
        if not cost.worth_fusing(len(trial.ops), len(trial.outside)):
            return False
        if trial.kind == "contract":
            return epilogue_fits(trial)
        if long_reduction(op):
            ops = set(trial.ops)
            if any(_leaves(r, ops) for o in trial.ops if o is not op for r in o.results):
                return False  # its programs give one value for each chunk, and nothing else
            return len(collapse(trial.space, [0] * len(trial.space), [*trial.walks])) <= 1
        return True

    def merge(self, g: Group, h: Group) -> None:
        """Takes `h` into `g` where that is legal."""
        kinds = {g.kind, h.kind}
        if kinds - {"map", "row"} or g.space != h.space or (g.inner and h.inner and g.inner != h.inner):
            return
        if not cost.worth_fusing(len(g.ops) + len(h.ops), 0):
            return
        if self.leads_through_others(g, h) or self.leads_through_others(h, g):
            return
        inner = g.inner or h.inner
        trial = Group("row" if inner else "map", g.space, inner)
        for op in sorted([*g.ops, *h.ops], key=lambda o: self.order[o]):
            added = align(op, trial.axes, g.space)
            if added is None:
                return
            trial.add(op, added)
        if not trial.fits(inner, trial.axes.values()) or not self.allowed(trial, trial.ops[-1]):
            return
        for op in h.ops:
            self.of[op] = g
        g.kind = trial.kind
        g.become(trial)
        g.needs = {source for source in g.needs | h.needs if self.of[source] is not g}
        self.dependencies.merge(g, h)

    def leads_through_others(self, g: Group, h: Group) -> bool:
        """Whether `g` needs `h` through a third group."""
        return any(k not in (g, h) and self.dependencies.known(k, on=h) for k in {self.of[s] for s in g.needs})

    def sorted(self) -> list[Group]:
        """All groups, producers before consumers, otherwise in program order."""
        groups = sorted(set(self.of.values()), key=lambda g: self.order[g.ops[0]])
        out: dict[Group, None] = {}

        def visit(g: Group) -> None:
            if g in out:
                return
            for op in g.ops:
                for h in reversed(self.producers(op)):
                    if h is not g:
                        visit(h)
            out[g] = None

        for g in groups:
            visit(g)
        return list(out)


def _leaves(v: Value, ops: set[Op]) -> bool:
    """Whether a value is used by others than `ops`, perhaps through views."""
    others = [u for u in v.users if u not in ops]
    return any(not is_view(u) or any(_leaves(r, ops) for r in u.results) for u in others)


def epilogue_fits(g: Group) -> bool:
    """Whether all that an epilogue touches can be walked as [*batch, rows, columns] of its contraction."""
    c = contraction(g.ops[0])
    kinds = [next(i for i, labels in enumerate((*c.batch, c.rows, c.columns)) if x in labels) for x in c.out]
    result = g.ops[0].result
    walks = [written(result, g.axes[result], g.space).strides, *g.walks]
    groups = collapse(g.space, kinds, walks)
    return len({kinds[axes[0]] for axes in groups}) == len(groups)


def captured(op: Op) -> list[Value]:
    """Values from outside that the regions of `op` use."""
    inner = [o for region in op.regions for block in region.blocks for top in block.ops for o in top.walk()]
    own = {r for o in inner for r in o.results} | {
        a for o in (op, *inner) for r in o.regions for b in r.blocks for a in b.args
    }
    return list(dict.fromkeys(v for o in inner for v in o.operands if v not in own))


def graph_to_schedule(func: Op, target: str, grouping: type[Grouping] = Grouping) -> Op:
    """A `schedule.func` for a decomposed `graph.func`, which is left as it was. `grouping` decides which operators
    share a kernel."""
    source = clone(func, {})
    block = source.region.block
    normalise(block)
    body = schedule_block(block, {}, "schedule.return", grouping)
    attrs = {"sym_name": func.attrs["sym_name"], "arg_names": func.attrs.get("arg_names", ()), "target": target}
    attrs |= {"block": func.attrs["block"]} if "block" in func.attrs else {}
    return Op("schedule.func", (), (), func.span, attrs, [Region([body])])


def schedule_block(
    block: Block, known: dict[Value, Value], terminator: str, grouping: type[Grouping] = Grouping
) -> Block:
    """The groups of one block; `known` maps values of the blocks around it to what has been scheduled for them."""
    groups = grouping(block)
    body = Block([a.type for a in block.args], [a.hint for a in block.args])
    known.update(zip(block.args, body.args, strict=True))
    for group in groups.sorted():
        if group.kind in ("control", "launch"):
            body.append(_emit_alone(group.ops[0], known, body, grouping))
        else:
            body.append(_emit(group, known))
    results = [_visible(v, known, body) for v in block.terminator.operands]
    body.append(Op(terminator, results, (), block.terminator.span))
    return body


def _emit_alone(op: Op, known: dict[Value, Value], body: Block, grouping: type[Grouping]) -> Op:
    """Control flow, whose regions are scheduled, or the launch of a kernel, which stays as it is."""
    operands = [_visible(v, known, body) for v in op.operands]
    if op.name in LAUNCHES:
        regions = [launching(clone(kernel_of(op), {}), "schedule", op.span)]
    else:
        regions = [Region([schedule_block(r.block, known, "schedule.yield", grouping)]) for r in op.regions]
    name = "schedule." + op.name.partition(".")[2]
    new = Op(name, operands, [r.type for r in op.results], op.span, {}, regions, [r.hint for r in op.results])
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


def _emit(group: Group, known: dict[Value, Value]) -> Op:
    inside = {r for op in group.ops for r in op.results}
    outside = list(
        dict.fromkeys(
            b for op in group.ops for v in op.operands if (b := base_of(v)) not in inside and not _generated(b)
        )
    )
    ops = set(group.ops)
    results = [r for op in group.ops for r in op.results if _leaves(r, ops)]
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
    names = [op.name.partition(".")[2] for op in ops if op.name != "graph.cast"] or ["copy"]
    return "+".join(names) if len(names) <= 5 else "+".join([*names[:3], f"{len(names) - 4} more", names[-1]])
