"""Which operators run together in one kernel.

Greedy over program order. An operator joins the group of one of its operands when it fits onto that group's iteration
space (alignment.py), when the cost model finds no reason against it, and when no path leads out of the group and back;
two groups that meet in an operator are merged under the same conditions. Views belong to no group: they are windows.
What is refused keeps its reason (refusals.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tessera.compiler.graph.passes.rematerialize import orders, size_of
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.launches import LAUNCHES
from tessera.compiler.ir.types import Shape
from tessera.compiler.schedule import cost
from tessera.compiler.schedule.access import collapse, reads, written
from tessera.compiler.schedule.alignment import (
    Axes,
    align,
    base_of,
    in_order,
    is_full,
    is_row,
    long_reduction,
    reduced_axes,
    shape_of,
    through_views,
)
from tessera.compiler.schedule.dependencies import Dependencies
from tessera.compiler.schedule.lifetimes import captured, read_before, readers
from tessera.compiler.schedule.matrices import contraction
from tessera.compiler.schedule.refusals import Apart, Refusal
from tessera.compiler.schedule.views import is_view, kind_of
from tessera.errors import Diagnostic, TargetError
from tessera.immutable import mutable
from tessera.language.dims import Dim


@mutable(eq=False)
class FusionGroup:
    """A kernel that is being built. `axes`: the axes of `space` that each of its values has; `moved`: the values that
    are transposed; `outside`: what it reads, `walks`: the strides of these reads; `needs`: what other groups compute
    for it. All fields are extended with each operator and are not recomputed."""

    kind: str
    space: Shape
    inner: tuple[int, ...] = ()
    ops: list[Op] = field(default_factory=list[Op])
    axes: dict[Value, Axes] = field(default_factory=dict[Value, Axes])
    moved: list[Value] = field(default_factory=list[Value])
    outside: set[Value] = field(default_factory=set[Value])
    walks: dict[tuple[Dim | None, ...], None] = field(default_factory=dict[tuple[Dim | None, ...], None])
    needs: set[Op] = field(default_factory=set[Op])

    def add(self, op: Op, added: dict[Value, Axes]) -> None:
        """Adds an operator; `added` gives the axes of its results."""
        self.ops.append(op)
        self.axes.update(added)
        self.moved += [v for v, own in added.items() if not in_order(own)]
        for v, access in reads(op, self.axes, self.space):
            self.outside.add(v)
            self.walks[access.strides] = None

    def with_op(self, op: Op, added: dict[Value, Axes], inner: tuple[int, ...]) -> FusionGroup:
        """The group with one more operator."""
        new = FusionGroup(
            self.kind, self.space, inner, [*self.ops], {**self.axes}, [*self.moved], {*self.outside}, {**self.walks},
            self.needs,
        )  # fmt: skip
        new.add(op, added)
        return new

    def become(self, trial: FusionGroup) -> None:
        """Takes over what a trial of it has found; `kind` and `needs` stay."""
        self.inner, self.ops, self.axes, self.moved = trial.inner, trial.ops, trial.axes, trial.moved
        self.outside, self.walks = trial.outside, trial.walks

    def fits(self, inner: tuple[int, ...], values: Iterable[Axes]) -> bool:
        """Whether each of the values is full, a row value, or the same everywhere."""
        return all(
            not any(a >= 0 for a in own) or is_full(own, self.space) or (bool(inner) and is_row(own, self.space, inner))
            for own in values
        )


class FusionGrouping:
    """The groups of one block. `order` is the position of each op in the program.

    What it decides is `join`, whether an operator comes into a group, and `merge`, whether two groups become one.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.order = {op: i for i, op in enumerate(block.ops)}
        self.repeated = {op for op in block.ops if op.origin.again}
        self.orders: dict[Op, int] = orders(block) if self.repeated else {}
        self.of: dict[Op, FusionGroup] = {}
        self.dependencies: Dependencies[FusionGroup] = Dependencies()
        self.sources: dict[Op, list[Op]] = {}
        """the ops that compute the operands of each op, without views"""
        self.awaited: set[Op] = set()
        """the ops that run before another changes what they read"""
        self.refused: dict[tuple[Op, Op], str] = {}
        """(operator, reader) -> why the reader is not in its group"""
        for op in block.ops[:-1]:
            if not is_view(op) and kind_of(op) != "generate":
                bases = (base_of(v).op for v in (*op.operands, *captured(op)))
                before = read_before(op)
                self.awaited.update(before)
                self.sources[op] = [b for b in (*bases, *before) if b is not None and b in self.of]
                self.place(op)

    # dependencies between groups
    def producers(self, op: Op) -> list[FusionGroup]:
        """Groups that compute operands of `op`, latest first."""
        found = {self.of[source]: self.order[source] for source in self.sources[op]}
        return sorted(found, key=lambda g: -found[g])

    # placing
    def place(self, op: Op) -> None:
        if op.name in LAUNCHES:
            group = FusionGroup("launch", (), ops=[op])
        elif op.regions:
            group = FusionGroup("control", (), ops=[op])
        elif kind_of(op) == "contract":
            group = FusionGroup("contract", shape_of(op.result))
            group.add(op, {op.result: tuple(a if d != 1 else -1 for a, d in enumerate(group.space))})
        elif kind_of(op) == "scatter" and (numbering := self.numbers(op)):
            group = numbering
            group.kind = "scatter"
            group.ops.append(op)
        elif (kind := kind_of(op)) in ("join", "scatter", "put", "sort", "spectral", "table"):
            group = FusionGroup(kind, shape_of(op.result), ops=[op])
            if kind == "join":
                self.merge_parts(op)
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
        self.need(group, [source for source in self.sources[op] if self.of[source] is not group])

    def numbers(self, op: Op) -> FusionGroup | None:
        """The elementwise group that computes the numbers of the segments that `op` folds, and nothing else."""
        x, numbers = op.operands
        g = self.of.get(numbers.op) if numbers.op is not None else None
        if g is None or g.kind != "map" or g.space != shape_of(numbers) or base_of(x).op in g.ops:
            return None
        ops = {*g.ops, op}
        return None if any(leaves(r, ops) for o in g.ops for r in o.results) else g

    def merge_parts(self, op: Op) -> None:
        """Parts of a concatenation that read the same memory are computed together, where they have one shape."""
        groups: list[FusionGroup] = []
        for g in dict.fromkeys(self.of[part] for part in self.parts(op)):
            read = {base_of(v) for v in g.outside}
            for h in groups:
                if g.space == h.space and any(base_of(v) in read for v in h.outside) and self.merge(h, g):
                    break
            else:
                groups.append(g)

    def parts(self, op: Op) -> list[Op]:
        """The ops that compute the parts of a concatenation, and of concatenations among the parts, each once."""
        found: dict[Op, None] = {}
        todo = [op]
        while todo:
            source = todo.pop()
            if source in found:
                continue
            found[source] = None
            if source is op or kind_of(source) == "join":
                todo += reversed(self.sources[source])
        return [p for p in found if p is not op and kind_of(p) != "join"]

    def need(self, g: FusionGroup, sources: list[Op]) -> None:
        g.needs.update(sources)
        for source in sources:
            self.dependencies.add(g, self.of[source])

    def refuse(self, g: FusionGroup, op: Op, apart: Apart) -> None:
        """Keeps why `op` is not in `g`."""
        for source in self.sources[op]:
            if self.of[source] is g:
                self.refused.setdefault((source, op), apart.cause)

    def refusals(self, group: FusionGroup) -> list[Refusal]:
        """Why a group is none with those that it needs: one reason for each of them."""
        found: dict[FusionGroup, Refusal] = {}
        for op in group.ops:
            for source in self.sources[op]:
                if (other := self.of[source]) is not group and other not in found and not is_stored_by(source, op):
                    cause = self.refused.get((source, op)) or cause_by_kind(source, op)
                    found[other] = Refusal.of(source, op, cause, other.ops)
        return list(found.values())

    def start(self, op: Op) -> FusionGroup:
        kind = kind_of(op)
        folded = kind in ("reduce", "scan")
        space = shape_of(op.operands[0] if folded else op.result)
        inner = reduced_axes(op) if folded else ()
        group = FusionGroup("row" if inner else "map", space, inner)
        if long_reduction(op):
            group.kind = "chunks"
        added = align(op, group.axes, space)
        if added is None:
            raise TargetError(Diagnostic("TS602", f"{op.name} has no lowering for these operands", op.span))
        group.add(op, added)
        return group

    def join(self, g: FusionGroup, op: Op) -> bool:
        """Takes `op` into `g` where that is legal and worth it; else keeps why not."""
        try:
            trial = self.trial(g, op)
        except Apart as apart:
            self.refuse(g, op, apart)
            return False
        inner = trial.inner
        g.kind = "chunks" if long_reduction(op) else "row" if inner else g.kind
        g.become(trial)
        self.of[op] = g
        self.need(g, [source for source in self.sources[op] if self.of[source] is not g])
        return True

    def trial(self, g: FusionGroup, op: Op) -> FusionGroup:
        """The group as it would be with `op`. Raises Apart."""
        inner = self.joined_inner(g, op)
        if not is_number(op.result) and not has_in_common(g, [op]):
            raise Apart("number")
        if not cost.worth_fusing(len(g.ops) + 1, len(g.outside)):
            raise Apart("size")
        added = align(op, g.axes, g.space)
        if added is None:
            given = [through_views(v, g.axes, g.space) for v in op.operands]
            raise Apart("order" if any(own is None or not in_order(own) for own in given) else "shape")
        if not g.fits(inner, added.values()):  # its other values do: `inner` stays, or there was none
            raise Apart("shape")
        if any(h is not g and self.dependencies.known(h, on=g) for h in self.producers(op)):
            raise Apart("between")
        trial = g.with_op(op, added, inner)
        self.demand_allowed(trial, op)
        return trial

    def joined_inner(self, g: FusionGroup, op: Op) -> tuple[int, ...]:
        """The group's inner axes with `op` in it. Raises Apart where it may not come in."""
        kind = kind_of(op)
        if g.kind in _BY_GROUP:
            raise Apart(_BY_GROUP[g.kind])
        if g.kind == "contract" and kind != "map":
            raise Apart("whole rows")
        if kind not in ("reduce", "scan"):
            return g.inner
        if long_reduction(op) and g.kind != "map":
            raise Apart("axes")
        own = through_views(op.operands[0], g.axes, g.space)
        if own is None or not in_order(own):
            raise Apart("order")
        if not own or not is_full(own, g.space):
            raise Apart("shape")
        inner = tuple(sorted(own[a] for a in reduced_axes(op) if own[a] >= 0))
        if g.inner not in ((), inner):
            raise Apart("axes")
        return inner

    def demand_allowed(self, trial: FusionGroup, op: Op) -> None:
        """Raises Apart where a group may not be as it would be with `op` in it."""
        if not cost.worth_fusing(len(trial.ops), len(trial.outside)):
            raise Apart("size")
        if any(o in self.repeated for o in trial.ops):
            order = min(self.orders[o] for o in trial.ops)
            if any(o in self.repeated and o.origin.order > order for o in trial.ops):
                raise Apart("computed again")
        if trial.moved and not stores_along_blocks(trial):
            raise Apart("transposed")
        if trial.kind == "contract":
            if not epilogue_fits(trial):
                raise Apart("epilogue")
            if for_a_reduction(op, trial):
                raise Apart("reduced")
            if self.holds_operands(trial, op):
                raise Apart("later")
        elif long_reduction(op):
            ops = set(trial.ops)
            if any(leaves(r, ops) for o in trial.ops if o is not op for r in o.results):
                raise Apart("other results")
            if len(collapse(trial.space, [0] * len(trial.space), [*trial.walks])) > 1:
                raise Apart("order")

    def holds_operands(self, g: FusionGroup, op: Op) -> bool:
        """Whether the product of `g`, if it takes in `op`, waits for what is computed after it, and so do its operands,
        which are much larger than its result."""
        product = g.ops[0]
        later = [s for s in self.sources[op] if s not in g.ops and self.order[s] > self.order[product]]
        if not any(not is_number(r) for s in later for r in s.results):
            return False
        return 4 * size_of(product.result) < sum(map(size_of, product.operands))

    def merge(self, g: FusionGroup, h: FusionGroup) -> bool:
        """Takes `h` into `g` where that is legal; else keeps why not."""
        try:
            trial = self.merged(g, h)
        except Apart as apart:
            self.refuse(h, g.ops[-1], apart)
            return False
        for op in h.ops:
            self.of[op] = g
        g.kind = trial.kind
        g.become(trial)
        g.needs = {source for source in g.needs | h.needs if self.of[source] is not g}
        self.dependencies.merge(g, h)
        return True

    def merged(self, g: FusionGroup, h: FusionGroup) -> FusionGroup:
        """The two as one group. Raises Apart."""
        for kind in (h.kind, g.kind):
            if kind not in ("map", "row"):
                raise Apart(_BY_GROUP.get(kind, "two kernels"))
        if g.space != h.space:
            raise Apart("shape")
        if g.inner and h.inner and g.inner != h.inner:
            raise Apart("axes")
        if g.space.count(1) != len(g.space) and not (has_in_common(g, h.ops) or has_in_common(h, g.ops)):
            raise Apart("number")
        if not cost.worth_fusing(len(g.ops) + len(h.ops), 0):
            raise Apart("size")
        if self.leads_through_others(g, h) or self.leads_through_others(h, g):
            raise Apart("between")
        inner = g.inner or h.inner
        trial = FusionGroup("row" if inner else "map", g.space, inner)
        for op in sorted([*g.ops, *h.ops], key=lambda o: self.order[o]):
            added = align(op, trial.axes, g.space)
            if added is None:
                raise Apart("order")
            trial.add(op, added)
        if not trial.fits(inner, trial.axes.values()):
            raise Apart("shape")
        self.demand_allowed(trial, trial.ops[-1])
        return trial

    def leads_through_others(self, g: FusionGroup, h: FusionGroup) -> bool:
        """Whether `g` needs `h` through a third group."""
        return any(k not in (g, h) and self.dependencies.known(k, on=h) for k in {self.of[s] for s in g.needs})

    def early_numbers(self) -> set[Op]:
        """Ops that compute numbers of arguments and such numbers alone: nothing waits in memory if they run early."""
        found: set[Op] = set()
        for op, sources in self.sources.items():
            if not op.regions and found.issuperset(sources) and all(is_number(r) for r in op.results):
                found.add(op)
        return found

    def sorted(self) -> list[FusionGroup]:
        """All groups, producers before consumers, otherwise in the order in which the program has what they read: one
        that came before would draw all that it needs before others, whose operands wait in memory meanwhile."""
        early = self.early_numbers()
        ready = {g: max(self.order[op] for op in (g.ops[0], *(g.needs - early))) for g in self.of.values()}
        groups = sorted(ready, key=lambda g: (ready[g], self.order[g.ops[0]]))
        out: dict[FusionGroup, None] = {}

        def visit(g: FusionGroup) -> None:
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


_BY_GROUP = {
    "join": "parts",
    "scatter": "segments",
    "put": "put",
    "sort": "sorted lines",
    "spectral": "transformed lines",
    "table": "table",
    "chunks": "sum of everything",
    "control": "loop or branch",
    "launch": "called kernel",
}
"""groups that take in nothing"""
_BY_READER = {
    "contract": "product reads",
    "gather": "computed places",
    "scatter": "segments",
    "put": "put",
    "sort": "sorted lines",
    "spectral": "transformed lines",
    "random": "random",
    "join": "parts",
    "pad": "parts",
}
"""kinds of operators that are in no group with what computes their operands"""


def cause_by_kind(source: Op, op: Op) -> str:
    """Why an operator that came into no group has none with its source."""
    for one in (op, source):
        if one.name in LAUNCHES:
            return "called kernel"
        if one.regions:
            return "loop or branch"
    return _BY_READER.get(kind_of(op) or "", "scheduler")


def is_stored_by(source: Op, op: Op) -> bool:
    """Whether a part of a concatenation is for it alone, so that its kernel stores to its place there."""
    return (
        kind_of(op) == "join"
        and kind_of(source) in ("map", "reduce", "scan", "contract", "join")
        and all(r is op for v in source.results for r in readers(v))
    )


def is_number(v: Value) -> bool:
    shape = shape_of(v)
    return shape.count(1) == len(shape)


def has_in_common(g: FusionGroup, ops: Iterable[Op]) -> bool:
    """Whether operators read more than numbers of what a group computes or reads."""
    read: list[Value] = []
    for op in ops:
        for v in op.operands:
            base = base_of(v)
            if base in g.axes and not is_number(base):
                return True
            read.append(base)
    return any(base in read and not is_number(base) for base in map(base_of, g.outside))


def leaves(v: Value, ops: set[Op]) -> bool:
    """Whether a value is used by others than `ops`, perhaps through views."""
    others = [u for u in v.users if u not in ops]
    return any(not is_view(u) or any(leaves(r, ops) for r in u.results) for u in others)


def epilogue_fits(g: FusionGroup) -> bool:
    """Whether all that an epilogue touches can be walked as [*batch, rows, columns] of its contraction."""
    c = contraction(g.ops[0])
    kinds = [next(i for i, labels in enumerate((*c.batch, c.rows, c.columns)) if x in labels) for x in c.out]
    result = g.ops[0].result
    moved = [written(v, g.axes[v], g.space).strides for v in g.moved]
    walks = [written(result, g.axes[result], g.space).strides, *moved, *g.walks]
    groups = collapse(g.space, kinds, walks)
    return len({kinds[axes[0]] for axes in groups}) == len(groups)


def for_a_reduction(op: Op, g: FusionGroup) -> bool:
    """Whether `op`, the last of a product's group, only leads to a reduction, which can compute it from a value that
    the group stores anyway: else the group would store its result as well."""
    source = next((base_of(v) for v in op.operands if base_of(v) in g.axes), None)
    if source is None or not leaves(source, {*g.ops}):
        return False
    while kind_of(op) == "map" and len(op.result.users) == 1:
        op = op.result.users[0]
    return kind_of(op) in ("reduce", "scan")


def stores_along_blocks(g: FusionGroup) -> bool:
    """Whether everything that a group stores is contiguous in memory along the last axis of its blocks.

    Elementwise groups choose their blocks by how memory is walked, so that all they store may be transposed; but not
    one result and another not. Blocks of products and of rows are given: where each element of one would be a store of
    its own, a copy is quicker.
    """
    if all(keeps_last(g.axes[v]) or not is_full(g.axes[v], g.space) for v in g.moved):
        return True
    ops = set(g.ops)
    straight = [v for v, own in g.axes.items() if is_full(own, g.space) and keeps_last(own)]
    return not g.inner and g.kind != "contract" and not any(leaves(v, ops) for v in straight)


def keeps_last(own: Axes) -> bool:
    """Whether the last of a value's axes is the last that it has of the space."""
    real = [a for a in own if a >= 0]
    return not real or real[-1] == max(real)
