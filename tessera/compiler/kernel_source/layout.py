"""Where a kernel's programs stand: which lines are cut into tiles, how dims are called, how arguments are read."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from itertools import chain, count
from string import ascii_uppercase

from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.compiler.kernel_source.axes import Axes, AxisPart, Line, NoKernel, Place
from tessera.immutable import mutable
from tessera.language import dims
from tessera.language.dims import Dim


@mutable
class KernelPlan:
    """`lead`: the results' lines. `order`: in which tiles hold their axes. `widths`: of lines that are cut into blocks.

    `names`: what the kernel calls the dims of lines. A line of which a program holds all is `held`; one that it walks
    in steps, to sum up what it finds, is `looped`. What of the lead is neither cut nor held is a batch.
    """

    axes: Axes
    lead: list[Line]
    order: list[Line] = field(default_factory=list[Line])
    widths: dict[Line, int | str] = field(default_factory=dict[Line, "int | str"])
    held: list[Line] = field(default_factory=list[Line])
    looped: list[Line] = field(default_factory=list[Line])
    outputs: list[str] = field(default_factory=list[str])
    """names of the arrays that results are stored to, where the blocks of a result do not say where they belong"""
    names: dict[Line, Dim] = field(default_factory=dict[Line, Dim])
    counters: dict[Line, str] = field(default_factory=dict[Line, str])
    linear: str = ""
    """the name of the lanes, where a program has some elements of the last axis"""
    plain: bool = False
    """arguments are read whole: a program has some rows of them"""
    explicit: bool = False
    """batches are written as coordinates"""

    def read(self, op: Op, i: int) -> str:
        """The text that reads an argument for this use of it."""
        name, place = op.operands[i].hint, self.axes.of(op, i)
        if not place or self.plain:
            return name
        return self.indexed(name, place, self.axes.parts.get((op, i)) or (None,) * len(place))

    def indexed(self, name: str, place: Place, parts: Sequence[AxisPart | None]) -> str:
        """This program's block of an array. `parts`: along which axes it lies within a part of it."""
        items = [self._index(a, part) for a, part in zip(place, parts, strict=True)]
        if not self.explicit:
            items = items[self._batches(place) :]
        if items == [":"] and len(place) == 1:
            return name
        while len(items) > 1 and items[-1] == ":":
            items.pop()
        kept = [a for a in place if a is not None and not self._batch(a)]
        turned = kept != self.tile(place)
        if turned and len(kept) != 2:
            raise NoKernel(f"{name} is read in another order of its axes than the result has")
        return f"{name}[{', '.join(items)}]{'.T' if turned else ''}"

    def _index(self, a: Line | None, part: AxisPart | None) -> str:
        first = kernel_dim(self, part.start) if part is not None else 0
        if a is None:
            return text_of(first)
        if a in self.held:
            ends = text_of(first) if first != 0 else "", self._stop(a, part)
            return (":" if all(e.isalnum() or not e for e in ends) else " : ").join(ends).strip()
        at = self.linear if self.linear and a is self.lead[-1] else self.start(a)
        begin = at if first == 0 else f"{at} + {text_of(first)}"
        width = self.widths.get(a)
        if width is None:
            return begin
        known = isinstance(first, int) and isinstance(width, int)
        end = f"{at} + {first + width}" if known else f"{begin} + {width}"  # type: ignore[operator]
        return f"{begin} : {end}"

    def _stop(self, a: Line, part: AxisPart | None) -> str:
        """Where a part that is held ends; "" if that follows without knowing that sizes divide."""
        if part is None or part.start + a.dim == part.axis:
            return ""
        return text_of(kernel_dim(self, part.start + a.dim))

    def start(self, a: Line) -> str:
        """Where a program's block of a line begins; "" where it holds all of it."""
        return "" if a in self.held else self.counters.get(a) or f"tile_{self.names[a]}".lower()

    def tile(self, place: Place) -> list[Line]:
        """The axes of a tile, in their order."""
        return sorted((a for a in place if a is not None and not self._batch(a)), key=self.order.index)

    def extents(self, place: Place) -> str:
        """The shape of a tile, as text: `(32, 64)`."""
        sizes = [str(self.widths.get(a) or text_of(self.names[a])) for a in self.tile(place)]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def _batch(self, a: Line | None) -> bool:
        lanes = bool(self.linear) and a is self.lead[-1]
        return a is not None and not lanes and a not in self.widths and a not in self.held

    def _batches(self, place: Place) -> int:
        """How many leading axes are batches."""
        return next((n for n, a in enumerate(place) if not self._batch(a)), len(place))

    def hides_batches(self, place: Place) -> bool:
        """Whether a read has batches behind other axes, or nothing but batches: implicit ones would not be found."""
        lead, rest = place[: self._batches(place)], place[self._batches(place) :]
        return any(map(self._batch, rest)) or (bool(lead) and not any(a in self.widths for a in rest))

    def shape(self, place: Place) -> Shape:
        """With the names of the kernel's dims; 1 stays 1."""
        return tuple(1 if a is None else self.names[a] for a in place)


def text_of(d: Dim) -> str:
    """A size as code says it."""
    return ast.unparse(ast.parse(str(d), mode="eval"))


def name_dims(out: KernelPlan, func: Op, taken: Collection[str]) -> None:
    """Gives dims and loops their names. Raises NoKernel. `taken`: names that none of them may have."""
    groups = _groups(out.axes, func)
    missing = [a for a in out.order if not any(a in g for g in groups)]
    if not out.outputs and (lost := [a for a in missing if a in out.lead]):
        raise NoKernel(f"no argument has the axis {lost[0].dim} of the result")
    groups += [{a} for a in missing]
    grid = {a for a in out.lead if a not in out.held}
    named = (
        {a for a in grid if a in out.widths or out.explicit or isinstance(a.dim, int)}
        if not (out.linear or out.plain)
        else set[Line]()
    )
    used: dict[str, list[set[Line]]] = {}
    made: list[set[Line]] = []
    bound = {str(d) for v in func.region.block.args for d in tensor(v).shape if v.uses and dims.is_symbol(d)}
    fresh = _fresh({*taken, *bound}, groups)
    for group in groups:
        dim = next(iter(group)).dim
        if len(group & grid) > 1:
            raise NoKernel(f"one argument is read along two axes of the result, which both are {dim}")
        wanted: Dim = dim
        if not group & named and all(s in bound for s in dims.symbols(dim)) and not dims.is_symbol(dim):
            made.append(group)  # 64, or D // 2 where D has a name
        elif not isinstance(dim, int) or group & named:
            text = str(dim)
            clash = any(g & grid and group & grid for g in used.get(text.lower(), ()))
            other = text.lower() in used and not any(next(iter(g)).dim == dim for g in used[text.lower()])
            if isinstance(dim, int) or not dims.is_symbol(dim) or clash or other:
                text = next(fresh)
            used.setdefault(text.lower(), []).append(group)
            wanted = dims.symbol(text)
        out.names.update(dict.fromkeys(group, wanted))
    for group in made:
        out.names.update(dict.fromkeys(group, kernel_dim(out, next(iter(group)).dim)))
    free = (c for c in chain("kji", (f"k{n}" for n in count(2))) if c not in taken)
    counters: dict[Dim, str] = {}
    for a in out.looped:
        name = out.names[a]
        counters[name] = counters.get(name) or next(free)
        out.counters[a] = counters[name]


def _groups(axes: Axes, func: Op) -> list[set[Line]]:
    """Lines whose dims have one name, for they are the same axis of an argument."""
    at: dict[tuple[Value, int], set[Line]] = {}
    for op, i in axes.reads:
        for n, a in enumerate(axes.of(op, i)):
            if a is not None and ((op, i) not in axes.parts or axes.parts[op, i][n] is None):
                at.setdefault((op.operands[i], n), set()).add(a)
    number = {v: n for n, v in enumerate(func.region.block.args)}
    out: list[set[Line]] = []
    for _, lines in sorted(at.items(), key=lambda each: (number[each[0][0]], each[0][1])):
        joined = [g for g in out if g & lines]
        first = joined[0] if joined else lines
        for g in (lines, *joined[1:]):
            first |= g
        out = [*(g for g in out if g not in joined[1:]), *([] if joined else [first])]
    return out


def _fresh(taken: Collection[str], groups: list[set[Line]]) -> Iterator[str]:
    """Names for dims that have none."""
    known = {str(a.dim).lower() for g in groups for a in g}
    letters = [*"MNRCTUVW", *ascii_uppercase, *(f"{c}2" for c in ascii_uppercase)]
    yield from (c for c in dict.fromkeys(letters) if c.lower() not in known and c not in taken)


def kernel_dim(out: KernelPlan, size: Dim) -> Dim:
    """A size that the function computes with, in the kernel's dims. Raises NoKernel where they do not give it."""
    own = {str(a.dim): d for a, d in out.names.items() if dims.is_symbol(a.dim)}
    for v in (op.operands[i] for op, i in out.axes.parts):
        own = {**{s: dims.symbol(s) for d in tensor(v).shape if dims.is_symbol(d) for s in dims.symbols(d)}, **own}
    lost = [s for s in dims.symbols(size) if s not in own]
    if lost:
        raise NoKernel(f"it computes with the size {lost[0]}, which is not an axis of what the kernel reads")
    return dims.substitute(size, own)


def argument_place(axes: Axes, v: Value) -> Place:
    """The lines of an argument, by its first read."""
    op, i = next((op, i) for op, i in axes.reads if op.operands[i] is v)
    return axes.of(op, i)


def argument_shape(out: KernelPlan, v: Value) -> Shape:
    """Of an argument, in the kernel's dims; axes that are read only in part have the function's dims."""
    shape = list(tensor(v).shape)
    for op, i in out.axes.reads:
        if op.operands[i] is v:
            parts = out.axes.parts.get((op, i)) or (None,) * len(shape)
            for n, (a, part) in enumerate(zip(out.axes.of(op, i), parts, strict=True)):
                shape[n] = out.names[a] if a is not None and part is None else shape[n]
    return tuple(shape)
