"""What becomes of a function whose named dim is cut into parts, one for each device.

Which axis of a value is cut follows from its shape, for a dim has its name wherever it goes; each operator says in its
`partition` rule whether it keeps the parts apart. Operators without a rule are followed through their decomposition, so
that `softmax` along another axis needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from tessera.compiler.graph.control import LOOPS
from tessera.compiler.graph.cut import Combine, Cut, WholeNeeded
from tessera.compiler.graph.decompose import expand
from tessera.compiler.graph.operator import REGISTRY, attributes_of, split_operands, tensor, types_of
from tessera.compiler.ir.checks import Check
from tessera.compiler.ir.core import Block, Op, Value, clone
from tessera.compiler.ir.types import TensorType
from tessera.errors import Diagnostic, Note, Span
from tessera.language import dims
from tessera.language.dims import Dim


@dataclass(frozen=True, slots=True)
class Place:
    """One argument or result: `axis` is cut; without it each device has all of it. `combine`: how what the parts give
    becomes the whole result, by communication."""

    name: str
    type: TensorType
    axis: int | None = None
    combine: Combine | None = None
    span: Span | None = None
    """of the operator whose results are combined"""

    def sent(self, sizes: Mapping[str, int] | None = None) -> str:
        """What each part sends: `all-reduce (sum) of [H] f32, 4.1 kB`."""
        size = dims.substitute(dims.prod(self.type.shape) * self.type.dtype.itemsize, sizes or {})
        return f"all-reduce ({self.combine}) of {self.type.pretty()}, {_quantity(size)}"


@dataclass(frozen=True, slots=True)
class Problem:
    """An operator that needs the whole dim; `operator` as it is written, "" for what concerns all of the function."""

    operator: str
    why: str
    span: Span

    def said(self, dim: str) -> str:
        """`softmax in line 7 needs the whole of B, for it takes the max over B`."""
        if not self.operator:
            return self.why
        return f"{self.operator} in line {self.span.line} needs the whole of {dim}, for {self.why}"


@dataclass(slots=True)
class Partition:
    """A function cut along `dim`. Its parts run on their own, and only `collectives` are sent, if `ok`."""

    dim: str
    arguments: list[Place] = field(default_factory=list[Place])
    results: list[Place] = field(default_factory=list[Place])
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def collectives(self) -> list[Place]:
        """The results that are combined from those of all parts."""
        return [r for r in self.results if r.combine is not None]

    def diagnostics(self, function: str) -> list[Diagnostic]:
        """One error (TS801) for each problem."""
        return [self._diagnostic(p, function) for p in self.problems]

    def _diagnostic(self, p: Problem, function: str) -> Diagnostic:
        said = f"{function} cannot be distributed over {self.dim}: {p.said(self.dim)}"
        hint = "distribute over a dim that every operator leaves alone, or take this step outside of the function"
        return Diagnostic(
            "TS801", said, p.span, notes=(Note(hint),), function=function, label=f"needs all of {self.dim}"
        )


def partition(func: Op, dim: str, checks: Iterable[Check] = ()) -> Partition:
    """How a `graph.func` runs on parts of `dim`, and why it cannot. `checks` are those that its launches make."""
    copy = clone(func, {})
    out = Partition(dim)
    walk = _Walk(out, Cut(dim))
    names = cast("tuple[str, ...]", func.attrs["arg_names"])
    for name, arg in zip(names, copy.region.block.args, strict=True):
        out.arguments.append(Place(name, tensor(arg), walk.axis(arg, "", func.span)))
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


@dataclass(slots=True)
class _Walk:
    out: Partition
    cut: Cut
    partial: dict[Value, tuple[Combine, Span]] = field(default_factory=dict[Value, tuple[Combine, Span]])
    """values of which each device has its part's own"""
    refused: set[Value] = field(default_factory=set[Value])
    """what follows from a problem is no problem of its own"""

    def conditions(self, func: Op, checks: Iterable[Check]) -> Iterator[tuple[Dim, Dim]]:
        for c in checks:
            if self.cut.mentioned((c.left, c.right)):
                yield c.left, c.right
        for a, b in cast("tuple[tuple[Dim, Dim], ...]", func.attrs.get("equal", ())):
            if self.cut.mentioned((a, b)):
                yield a, b
        for a, b in cast("tuple[tuple[Dim, Dim], ...]", func.attrs.get("divisible", ())):
            if self.cut.mentioned((a, b)):
                yield dims.mod(a, b), 0

    def axis(self, v: Value, operator: str, span: Span) -> int | None:
        try:
            return self.cut.axis(tensor(v))
        except WholeNeeded as e:
            self.out.problems.append(Problem(operator, e.why, span))
            self.refused.add(v)
            return None

    def block(self, block: Block) -> None:
        """Each op as it is written; what it decomposes to goes by its name."""
        for op in list(block.ops):
            if op.name == "graph.return":
                self.returned(op)
            if op.name in ("graph.return", "graph.yield"):
                continue
            at, rest = block.ops.index(op), len(block.ops)
            name = (
                op.name.removeprefix("graph.") if op.name != "graph.full" else ""
            )  # a size that is written as a number
            expand(op, _RULES)
            for inner in block.ops[at : at + 1 + len(block.ops) - rest]:
                self.op(inner, name)

    def returned(self, op: Op) -> None:
        for i, v in enumerate(op.operands):
            how, span = self.partial.get(v, (None, None))
            axis = self.axis(v, "", op.span) if v not in self.refused else None
            self.out.results.append(Place(v.hint or f"result {i}", tensor(v), axis, how, span))

    def op(self, op: Op, name: str) -> None:
        if not self.refused.isdisjoint(op.operands):
            self.refused.update(op.results)
            return
        try:
            how = self.passes(op)
        except WholeNeeded as e:
            self.out.problems.append(Problem(name, e.why, op.span))
            self.refused.update(op.results)
            return
        if how is not None:
            self.partial.update((r, how) for r in op.results)

    def passes(self, op: Op) -> tuple[Combine, Span] | None:
        """How the op's results on the parts give the whole ones; None where they are parts of them, or the same."""
        cut, operator = self.cut, REGISTRY.get(op.name.removeprefix("graph."))
        waiting = next((self.partial[v] for v in op.operands if v in self.partial), None)
        if op.name in LOOPS:
            return self.regions(op, waiting)
        if waiting is not None:
            if operator is None or operator.kind != "view" or cut.mentioned(tuple(op.attrs.values())):
                cut.whole(self.early(waiting, op))
            return waiting
        if not any(self.touched(o) for o in op.walk()):
            return None
        if operator is None or operator.partition is None:
            cut.whole("nothing says how it goes by parts")
        first, operands, attrs = tensor(op.results[0]), types_of(split_operands(op)), attributes_of(op)
        try:
            out = cut.axis(first)
        except WholeNeeded:
            operator.partition(Cut(cut.dim, None, first.rank), *operands, **attrs)  # whose own reason says more
            raise
        how = operator.partition(Cut(cut.dim, out, first.rank), *operands, **attrs)
        return None if how is None else (how, op.span)

    def touched(self, op: Op) -> bool:
        """Whether the dim occurs in the op or its values."""
        shapes = (v.type.shape for v in (*op.operands, *op.results) if isinstance(v.type, TensorType))
        return any(map(self.cut.mentioned, shapes)) or self.cut.mentioned(tuple(op.attrs.values()))

    def regions(self, op: Op, waiting: tuple[Combine, Span] | None) -> None:
        if waiting is not None:
            self.cut.whole(self.early(waiting, op))
        for region in op.regions:
            for v in region.block.args:
                self.cut.axis(tensor(v))
            self.block(region.block)
            ends = region.block.terminator.operands
            if bad := [v for v in ends if v in self.partial]:
                self.cut.whole(self.early(self.partial[bad[0]], op))
            if not self.refused.isdisjoint(ends):
                self.refused.update(op.results)

    def early(self, waiting: tuple[Combine, Span], user: Op) -> str:
        """Why what is combined when the function returns cannot be used before."""
        (how, span), dim = waiting, self.cut.dim
        if span == user.span:
            return f"it takes the {how} over {dim}"
        return f"it uses the {how} over {dim} of line {span.line}, which is put together where the function returns"


_RULES = frozenset(name for name, o in REGISTRY.items() if o.partition is not None)
"""Operators that are asked themselves, and not taken apart."""
