"""How a function runs whose named dim is cut into parts, one for each device.

Which axis of a value is cut follows from its shape, for a dim has the same name in every value; each operator says in
its `partition` rule whether it keeps the parts apart. Operators without a rule are followed through their
decomposition, so that `softmax` along another axis needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import cast

from tessera.compiler.graph.control import LOOPS
from tessera.compiler.graph.cut import Combine, Cut, WholeNeeded
from tessera.compiler.graph.operator import BY_OP, REGISTRY, attributes_of, split_operands, tensor, types_of
from tessera.compiler.graph.passes.decompose import expand
from tessera.compiler.ir.core import Block, Op, Region, Value, clone
from tessera.compiler.ir.launches import LAUNCHES, kernel_of
from tessera.compiler.ir.types import TensorType
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic, Note, Span
from tessera.immutable import immutable, mutable
from tessera.language import dims
from tessera.language.dims import Dim, Expr


@immutable
class Placement:
    """An argument or result: `axis` is cut; without it each part has all of it. `combine`: each part has its share."""

    name: str
    type: TensorType
    axis: int | None = None
    combine: Combine | None = None


@immutable
class Collective:
    """An exchange between the parts: their shares of a value. Afterwards each part has the whole value."""

    operator: str
    type: TensorType
    combine: Combine
    span: Span

    def bytes(self, sizes: Mapping[str, int] | None = None) -> Dim:
        return dims.substitute(dims.prod(self.type.shape) * self.type.dtype.itemsize, sizes or {})

    def sent(self, sizes: Mapping[str, int] | None = None) -> str:
        """`all-reduce (sum) of [H] f32, 4.1 kB`."""
        return f"all-reduce ({self.combine}) of {self.type.pretty()}, {_quantity(self.bytes(sizes))}"


@immutable
class Problem:
    """An operator that needs the whole dim; `operator` as it is written, "" for what concerns all of the function."""

    operator: str
    why: str
    span: Span

    def explanation(self, dim: str) -> str:
        """`cumsum in line 7 needs the whole of B, for it runs along B`."""
        if not self.operator:
            return self.why
        return f"{self.operator} in line {self.span.line} needs the whole of {dim}, for {self.why}"


@mutable
class Partition:
    """A function cut along `dim`. Its parts run on their own, and only `collectives` are sent, if `ok`."""

    dim: str
    func: Op
    """the function in operators that work on parts; numbers that are the size of the whole dim are named by `total`"""
    arguments: list[Placement] = field(default_factory=list[Placement])
    results: list[Placement] = field(default_factory=list[Placement])
    collectives: list[Collective] = field(default_factory=list[Collective])
    problems: list[Problem] = field(default_factory=list[Problem])
    shares: dict[Value, Combine] = field(default_factory=dict[Value, Combine])
    """values of `func` whose shares the parts hold"""
    staged: bool = False
    """whether the function computes more after something has been sent, or reads the size of the whole dim: a part is
    not the function itself then (see `stages`)"""

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def total(self) -> str:
        """The name of the size of the whole dim in a part."""
        return f"{self.dim}_total"

    def sent(self, sizes: Mapping[str, int]) -> str:
        """All that is sent, in a line: `3 all-reduces, 12.3 kB in all`."""
        if len(self.collectives) <= 2:
            return "; ".join(c.sent(sizes) for c in self.collectives) or "no communication"
        total: Dim = 0
        for c in self.collectives:
            total = total + c.bytes(sizes)
        return f"{len(self.collectives)} all-reduces, {_quantity(total)} in all"

    def diagnostics(self, function: str) -> list[Diagnostic]:
        """One error (TS801) for each problem."""
        return [self._diagnostic(p, function) for p in self.problems]

    def _diagnostic(self, p: Problem, function: str) -> Diagnostic:
        message = f"{function} cannot be distributed over {self.dim}: {p.explanation(self.dim)}"
        hint = Note("distribute over a dim that every operator leaves alone, or take this step outside of the function")
        return Diagnostic("TS801", message, p.span, notes=(hint,), function=function, label=f"needs all of {self.dim}")


def partition(func: Op, dim: str, checks: Iterable[LaunchCheck] = ()) -> Partition:
    """How a `graph.func` runs on parts of `dim`, and why it cannot. `checks` are those that its launches make."""
    copy = clone(func, {})
    out = Partition(dim, copy)
    walk = _Walk(out, Cut(dim))
    names = cast("tuple[str, ...]", func.attrs["arg_names"])
    for name, arg in zip(names, copy.region.block.args, strict=True):
        out.arguments.append(Placement(name, tensor(arg), walk.axis(arg, func.span)))
    walk.block(copy.region.block)
    for a, b in walk.conditions(copy, checks) if out.ok else ():  # else they may be those of what is wrong already
        why = f"it is checked that {a} is {b}, which parts of {dim} need not fulfil"
        out.problems.append(Problem("", why, func.span))
    first = {(p.operator, p.span): p for p in reversed(out.problems)}
    out.problems = [p for p in out.problems if first[p.operator, p.span] is p]
    return out


def _quantity(size: Dim) -> str:
    """A number of bytes, as far as it is one."""
    if not isinstance(size, int):
        return f"{size} bytes"
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


@mutable
class _Walk:
    out: Partition
    cut: Cut
    refused: set[Value] = field(default_factory=set[Value])
    """values that depend on a problem, which are not reported again"""
    depth: int = 0
    """nesting depth of loops and branches"""

    def conditions(self, func: Op, checks: Iterable[LaunchCheck]) -> Iterator[tuple[Dim, Dim]]:
        for c in checks:
            if self.cut.mentioned((c.left, c.right)):
                yield c.left, c.right
        for a, b in cast("tuple[tuple[Dim, Dim], ...]", func.attrs.get("equal", ())):
            if self.cut.mentioned((a, b)):
                yield a, b
        for a, b in cast("tuple[tuple[Dim, Dim], ...]", func.attrs.get("divisible", ())):
            if self.cut.mentioned((a, b)):
                yield dims.mod(a, b), 0

    def axis(self, v: Value, span: Span) -> int | None:
        try:
            return self.cut.axis(tensor(v))
        except WholeNeeded as e:
            self.out.problems.append(Problem("", e.why, span))
            self.refused.add(v)
            return None

    def block(self, block: Block) -> None:
        """Each op as it is written; its decomposition has its name."""
        for op in list(block.ops):
            if op.name == "graph.return":
                self.returned(op)
            if op.name in ("graph.return", "graph.yield"):
                continue
            at, rest = block.ops.index(op), len(block.ops)
            name = str(kernel_of(op).attrs["sym_name"]) if op.name in LAUNCHES else op.name.removeprefix("graph.")
            expand(op, _RULES)
            for inner in block.ops[at : at + 1 + len(block.ops) - rest]:
                self.op(inner, name)

    def returned(self, op: Op) -> None:
        for i, v in enumerate(op.operands):
            axis = self.axis(v, op.span) if v not in self.refused else None
            self.out.results.append(Placement(v.hint or f"result {i}", tensor(v), axis, self.out.shares.get(v)))

    def op(self, op: Op, name: str) -> None:
        if not self.refused.isdisjoint(op.operands):
            self.refused.update(op.results)
            return
        try:
            how = self.passes(op)
            if how is not None and self.depth:
                self.cut.whole(f"it takes the {how} over {self.cut.dim} inside a loop or branch")
        except WholeNeeded as e:
            self.out.problems.append(Problem(name, e.why, op.span))
            self.refused.update(op.results)
            return
        self.out.staged |= not self.out.shares.keys().isdisjoint(op.operands)
        if how is not None:
            self.out.shares.update((r, how) for r in op.results)
            self.out.collectives += [Collective(name, tensor(r), how, op.span) for r in op.results]

    def passes(self, op: Op) -> Combine | None:
        """How the op's results on the parts give the whole ones; None where they are parts of them, or the same."""
        cut, operator = self.cut, BY_OP.get(op.name)
        if op.name in LOOPS:
            return self.regions(op)
        if not any(self.touched(o) for o in op.walk()):
            return None
        if op.name in LAUNCHES:
            cut.whole(f"a kernel may read and store anywhere along {cut.dim}")
        if operator is None or operator.partition is None:
            cut.whole("nothing says how it goes by parts")
        if op.name == "graph.full" and cut.mentioned(size := op.attrs["value"]):
            op.attrs["value"] = dims.substitute(cast("Expr", size), {cut.dim: dims.symbol(self.out.total)})
            self.out.staged = True
        first, operands, attrs = tensor(op.results[0]), types_of(split_operands(op)), attributes_of(op)
        try:
            out = cut.axis(first)
        except WholeNeeded:
            operator.partition(Cut(cut.dim, None, first.rank), *operands, **attrs)  # whose own reason says more
            raise
        return operator.partition(Cut(cut.dim, out, first.rank), *operands, **attrs)

    def touched(self, op: Op) -> bool:
        """Whether the dim occurs in the op or its values."""
        shapes = (v.type.shape for v in (*op.operands, *op.results) if isinstance(v.type, TensorType))
        return any(map(self.cut.mentioned, shapes)) or self.cut.mentioned(tuple(op.attrs.values()))

    def regions(self, op: Op) -> None:
        """Loops and branches: carried values are cut as they are outside, for their types are the same."""
        self.depth += 1
        for region in op.regions:
            for v in region.block.args:
                self.cut.axis(tensor(v))
            self.block(region.block)
            if not self.refused.isdisjoint(region.block.terminator.operands):
                self.refused.update(op.results)
        self.depth -= 1
        self.out.staged |= any(not self.out.shares.keys().isdisjoint(o.operands) for o in op.walk())


_RULES = frozenset(name for name, o in REGISTRY.items() if o.partition is not None)
"""Operators that are asked themselves, and not taken apart."""


# A function cut along a dim as a row of functions: after each of them the parts send each other their shares.


@immutable
class Stage:
    """`func` takes what the values `takes` of the whole function are, and gives `gives`."""

    func: Op
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]


def stages(found: Partition) -> list[Stage]:
    """The functions, in order. A share is known as a whole from the next one on."""
    *ops, end = found.func.region.block.ops
    known: dict[Value, int] = dict.fromkeys(found.func.region.block.args, 0)
    """the first stage in which a value can be used; values that depend on no argument are recomputed at each use"""
    at: dict[Op, int] = {}
    for op in ops:
        before = [known[v] for v in _used(op) if v in known]
        if before:
            at[op] = max(before)
            known.update((r, at[op] + (r in found.shares)) for r in op.results)
    last = max(at.values(), default=0)
    out: list[Stage] = []
    for i in range(last + 1):
        later = {v for op in ops if at.get(op, -1) > i for v in _used(op)} | set(end.operands)
        gives = [r for op in ops if at.get(op) == i for r in op.results if r in later]
        if i == last:
            gives += [v for v in end.operands if v not in known and v not in gives]
        out.append(_stage(found.func, i, [op for op in ops if at.get(op, i) == i], gives))
    return out


def _stage(whole: Op, number: int, ops: Sequence[Op], gives: Sequence[Value]) -> Stage:
    kept, needed = list[Op](), set(gives)
    for op in reversed(ops):
        if not needed.isdisjoint(op.results):
            kept.insert(0, op)
            needed.update(_used(op))
    made = {r for op in kept for r in op.results}
    takes = tuple(dict.fromkeys(v for op in kept for v in _used(op) if v not in made))
    block = Block([v.type for v in takes], [v.hint for v in takes])
    mapping = dict(zip(takes, block.args, strict=True))
    for op in kept:
        block.append(clone(op, mapping))
    block.append(Op("graph.return", [mapping[v] for v in gives], (), whole.span))
    names = tuple(f"{v.hint or 'value'}_{i}" for i, v in enumerate(takes))
    attrs = {**whole.attrs, "sym_name": f"{whole.attrs['sym_name']}_{number}", "arg_names": names}
    return Stage(Op("graph.func", (), (), whole.span, attrs, [Region([block])]), takes, tuple(gives))


def _used(op: Op) -> Iterable[Value]:
    """The values from outside of an op that it uses, also inside its regions."""
    inside = {*_made(op)}
    return dict.fromkeys(v for o in op.walk() for v in o.operands if v not in inside)


def _made(op: Op) -> Iterator[Value]:
    for o in op.walk():
        yield from o.results
        for region in o.regions:
            for block in region.blocks:
                yield from block.args
