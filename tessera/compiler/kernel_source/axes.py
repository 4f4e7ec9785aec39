"""Along which coordinates of a kernel the axes of a function's values lie.

Axes that must walk together, because values meet element by element, are one `Line`. Around products each read of an
argument counts by itself: a residual is read along its rows by the product and along the product's columns by the sum.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.syntax.parse import Source
from tessera.compiler.graph.operator import REGISTRY, attributes_of, tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.launches import LAUNCHES, kernel_of
from tessera.compiler.ir.types import shape_text
from tessera.compiler.kernel_source.spelling import written
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim


class NoKernel(Exception):
    """Why there is no kernel for this, for people. `{}` in it stands for an operator."""

    def __init__(self, why: str, op: Op | None = None) -> None:
        super().__init__(why if op is None else why.replace("{}", op.name.removeprefix("graph.")))
        self.why, self.op = why, op


@contextmanager
def named_as_in(source: Source) -> Generator[None]:
    """An operator that is the reason is called what it is in the text: operators are taken apart for kernels."""
    try:
        yield
    except NoKernel as e:
        if e.op is None:
            raise
        raise NoKernel(e.why.replace("{}", written(source, e.op))) from None


@dataclass(slots=True, eq=False)
class Line:
    """`same`: a line that this one has been found to be. Of two names for its size the shorter one is kept."""

    dim: Dim
    same: Line | None = None

    @property
    def found(self) -> Line:
        line = self
        while line.same is not None:
            line = line.same
        return line

    def join(self, other: Line) -> None:
        a, b = self.found, other.found
        if a is not b:
            b.same = a
            a.dim = min(a.dim, b.dim, key=lambda d: (not isinstance(d, int), len(str(d))))


Place = tuple[Line | None, ...]
"""for each axis its line; None for an axis of size 1"""
Use = tuple[Op, int]
"""an operand of an op, by its number"""


@immutable
class AxisPart:
    """`size` elements of an `axis` of that size, from `start` on. `end`: all that there are from there."""

    start: Dim
    size: Dim
    axis: Dim
    end: bool


@mutable
class Axes:
    """`reads`: the reads of arguments. `reduced`: along which line reductions and prefixes go. `summed`: products."""

    values: dict[Value, Place] = field(default_factory=dict[Value, Place])
    reads: dict[Use, Place] = field(default_factory=dict[Use, Place])
    reduced: dict[Op, Line] = field(default_factory=dict[Op, Line])
    summed: dict[Op, Line] = field(default_factory=dict[Op, Line])

    parts: dict[Use, tuple[AxisPart | None, ...]] = field(default_factory=dict["Use", "tuple[AxisPart | None, ...]"])
    """of reads of a part of an argument; None for a whole axis"""
    joined: dict[Op, tuple[Line, ...]] = field(default_factory=dict[Op, "tuple[Line, ...]"])
    """of results that are put together: the line of each piece, along the last axis"""
    blocks: dict[Op, tuple[Line, Line]] = field(default_factory=dict[Op, "tuple[Line, Line]"])
    """the lines of which a program of a product has a block"""

    def of(self, op: Op, i: int) -> Place:
        """Of an operand."""
        v = op.operands[i]
        place = self.values[v] if v.op is not None else self.reads[op, i]
        return tuple(a.found if a is not None else None for a in place)

    def of_value(self, v: Value) -> Place:
        return tuple(a.found if a is not None else None for a in self.values[v])

    def along(self, op: Op) -> Line | None:
        """The line that an op leads over; None for those that work element by element."""
        line = self.reduced.get(op) or self.summed.get(op)
        return line.found if line is not None else None

    @property
    def in_parts(self) -> list[Line]:
        """The lines that walk a part of an argument."""
        return [a for a, p in self._parts() if a is not None and p is not None]

    def _parts(self) -> Iterator[tuple[Line | None, AxisPart | None]]:
        return ((a, p) for use, parts in self.parts.items() for a, p in zip(self.of(*use), parts, strict=True))

    def ends_early(self, line: Line) -> bool:
        """Whether behind the last element of a line an argument has others, which a block would reach into."""
        return any(a is line and p is not None and not p.end for a, p in self._parts())

    def wholes(self) -> list[Line]:
        return list(dict.fromkeys(a.found for a in self.reduced.values()))

    def sums(self) -> list[Line]:
        return list(dict.fromkeys(a.found for a in self.summed.values()))


def axes_of(func: Op, apart: bool) -> Axes:
    """The axes of a `graph.func` without control flow. Raises NoKernel for an operator that has no tile form.

    `apart`: each read of an argument has lines of its own.
    """
    out = Axes()
    known: dict[Value, Place] = {}
    for op in func.region.block.ops:
        for i, v in enumerate(op.operands):
            if v.op is None:
                out.reads[op, i] = _fresh(v) if apart else known.setdefault(v, _fresh(v))
        if op.name == "graph.return":
            continue
        if op.name in LAUNCHES:
            raise NoKernel(f"{kernel_of(op).attrs['sym_name']} is a kernel already, which no other kernel can call")
        if op.regions:
            raise NoKernel("it branches or loops on what the tensors hold: a tile has no control flow of its own")
        name = op.name.removeprefix("graph.")
        rule = _RULES.get(name) or _RULES.get(kind_of(name) or "")
        if rule is None or name in _NOT_OF_TILES:
            raise NoKernel("{} has no tile form", op)
        rule(out, op)
    for v in out.values:
        lines = [a for a in out.of_value(v) if a is not None]
        if len(set(lines)) != len(lines):
            raise NoKernel("an argument meets its own transpose: a program would need two blocks of it")
    return out


_NOT_OF_TILES = frozenset({"bitcast"})
"""elementwise operators that `ts.tile` does not have"""


def kind_of(name: str) -> str | None:
    """The structural kind of an operator; a mean, which is made of others, counts as a reduction."""
    operator = REGISTRY.get(name)
    if operator is None or operator.kind is not None:
        return operator.kind if operator is not None else None
    return "reduce" if {"axis", "keepdims"} <= set(operator.parameter_names) else None


def _fresh(v: Value) -> Place:
    return tuple(None if d == 1 else Line(d) for d in tensor(v).shape)


def _aligned(out: Axes, op: Op) -> None:
    """Elementwise, and broadcasting: operands meet from the last axis on."""
    result = out.values[op.result] = _fresh(op.result)
    for i in range(len(op.operands)):
        _join(out.of(op, i), result)


def _join(a: Place, b: Place) -> None:
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x is not None and y is not None:
            y.join(x)


def _generated(out: Axes, op: Op) -> None:
    out.values[op.result] = _fresh(op.result)


def _reduced(out: Axes, op: Op) -> None:
    attrs, shape = attributes_of(op), tensor(op.operands[0]).shape
    axis: Any = attrs.pop("axis")
    kept = attrs.pop("keepdims", False)
    axes = tuple(range(len(shape))) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if attrs.keys() or len(axes) != 1:
        over = ", ".join(map(str, axes))
        raise NoKernel(f"{{}} of {shape_text(shape)} goes over the axes {over}; a program reduces along one", op)
    (at,) = axes
    place = out.of(op, 0)
    if (line := place[at]) is None:
        raise NoKernel("{} goes over an axis of size 1", op)
    out.reduced[op] = line
    out.values[op.result] = (*place[:at], *((None,) if kept else ()), *place[at + 1 :])


def _scanned(out: Axes, op: Op) -> None:
    place, axis = out.of(op, 0), op.attrs["axis"]
    assert isinstance(axis, int)
    line = place[axis]
    if attributes_of(op).keys() != {"axis"} or line is None:
        raise NoKernel("{} has no tile form in this way", op)
    out.reduced[op] = line
    out.values[op.result] = place


def _sliced(out: Axes, op: Op) -> None:
    """A part of an argument is read in place. An axis that is read in part has its own line."""
    (v,), result, attrs = op.operands, op.result, attributes_of(op)
    if v.op is not None:
        raise NoKernel("it takes a part of a computed value, and a program has only a block of that")
    if any(s != 1 for s in attrs["step"]):
        raise NoKernel("it takes elements with gaps between them, which is not a block of an argument")
    bounds = [
        None if m == 0 and n == d else AxisPart(m, e, d, n == d)
        for m, n, d, e in zip(attrs["start"], attrs["stop"], tensor(v).shape, tensor(result).shape, strict=True)
    ]
    own = _fresh(result)
    place = tuple(a if b is None else line for a, b, line in zip(out.reads[op, 0], bounds, own, strict=True))
    out.parts[op, 0] = tuple(bounds)
    out.reads[op, 0] = out.values[result] = place


def _joined(out: Axes, op: Op) -> None:
    """Tensors one after the other: each piece is stored by itself, so that this must be the end."""
    axis, rank = op.attrs["axis"], len(tensor(op.result).shape)
    if axis != rank - 1:
        raise NoKernel(f"it joins tensors along axis {axis}; a program stores pieces of the last axis only")
    if any(u.name != "graph.return" for u in op.result.users):
        raise NoKernel("it computes with tensors that it has joined: their pieces lie in several blocks")
    places = [out.of(op, i) for i in range(len(op.operands))]
    if any(p[-1] is None for p in places):
        raise NoKernel("it joins tensors of size 1")
    for other in places[1:]:
        _join(other[:-1], places[0][:-1])
    out.joined[op] = tuple(a for p in places if (a := p[-1]) is not None)
    out.values[op.result] = places[0]


def _product(out: Axes, op: Op) -> None:
    """A matrix product: rows of one operand, columns of the other, and batches."""
    lhs, rhs, result = (str(op.attrs[n]) for n in ("lhs", "rhs", "out"))
    lines: dict[str, Line] = {}
    for labels, place in ((lhs, out.of(op, 0)), (rhs, out.of(op, 1))):
        for letter, line in zip(labels, place, strict=True):
            if line is not None:
                lines.setdefault(letter, line).join(line)
    summed = [c for c in lhs if c in rhs and c not in result]
    own = [
        [c for c in result if c in mine and c not in other and c in lines] for mine, other in ((lhs, rhs), (rhs, lhs))
    ]
    if len(summed) != 1 or summed[0] not in lines or [] in own:
        raise NoKernel(f"the product {lhs},{rhs}->{result} has no rows and columns that tiles could be cut from")
    out.summed[op] = lines[summed[0]]
    first, second = sorted((own[0][-1], own[1][-1]), key=result.index)
    out.blocks[op] = lines[first], lines[second]
    out.values[op.result] = tuple(lines.get(c) for c in result)


def _transposed(out: Axes, op: Op) -> None:
    place = out.of(op, 0)
    out.values[op.result] = tuple(place[i] for i in op.attrs["perm"])  # type: ignore[union-attr]


def _reshaped(out: Axes, op: Op) -> None:
    """Axes of size 1 come and go; others keep their order."""
    before, after = tensor(op.operands[0]).shape, tensor(op.result).shape
    if [d for d in before if d != 1] != [d for d in after if d != 1]:
        raise NoKernel(f"it re-cuts {shape_text(before)} into {shape_text(after)}: a tile is a block of one shape")
    lines = iter([a for a in out.of(op, 0) if a is not None])
    out.values[op.result] = tuple(None if d == 1 else next(lines) for d in after)


_RULES: dict[str, Any] = {
    "constant": _generated, "generate": _generated, "map": _aligned, "reduce": _reduced, "scan": _scanned,
    "contract": _product, "transpose": _transposed, "reshape": _reshaped, "broadcast_to": _aligned,
    "slice": _sliced, "concat": _joined,
}  # fmt: skip
"""by the operator, or by its structural kind"""


def space(axes: Axes, results: Sequence[Value]) -> list[Line]:
    """The lines that the results walk, in order: those of the result with the most axes; the others have some of them.

    Raises NoKernel where no order serves all.
    """
    if not results:
        raise NoKernel("it gives no tensor")
    places = [[a for a in axes.of_value(v) if a is not None] for v in results]
    lead = max(places, key=len)
    if not lead:
        raise NoKernel("the result is a single value, of which there are no tiles")
    for place in places:
        if not _within(place, lead):
            raise NoKernel("the results lie in different orders")
    beside = {*lead, *axes.wholes(), *axes.sums(), *(a.found for pieces in axes.joined.values() for a in pieces)}
    for op, i in axes.reads:
        if any(a is not None and a not in beside for a in axes.of(op, i)):
            raise NoKernel(f"the results have no axis for all of {op.operands[i].hint or 'what is read'}")
    _join_reads(axes, lead)
    return lead


def _join_reads(axes: Axes, lead: Sequence[Line]) -> None:
    """Reads of one argument that differ only in what no result has walk it together, unless they meet crosswise."""
    reads = list(axes.reads)
    for n, (op, i) in enumerate(reads):
        for other, j in reads[n + 1 :]:
            if op.operands[i] is not other.operands[j]:
                continue
            pairs = [(a, b) for a, b in zip(axes.of(op, i), axes.of(other, j), strict=True) if a is not b]
            inner = [(a, b) for a, b in pairs if a is not None and b is not None and a not in lead and b not in lead]
            if len(inner) == len(pairs) and not any(_meet(axes, a, b) for a, b in inner):
                for a, b in inner:
                    a.join(b)


def _meet(axes: Axes, a: Line, b: Line) -> bool:
    """Whether a value has both."""
    return any(a in place and b in place for place in map(axes.of_value, axes.values))


def _within(part: Sequence[Line], whole: Sequence[Line]) -> bool:
    rest: Iterator[Line] = iter(whole)
    return all(any(a is b for b in rest) for a in part)
