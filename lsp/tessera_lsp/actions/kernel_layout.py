"""Where a kernel's programs stand: which lines are cut into tiles, how dims are called, how arguments are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from string import ascii_uppercase

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.language import dims
from tessera.language.dims import Dim
from tessera_lsp.actions.kernel_axes import Axes, Line, NoKernel, space

ROWS, COLUMNS, DEPTH = 32, 64, 32
"""of the tiles of elementwise kernels and products; the last: of a product's steps"""
FEW_ROWS = 4
"""of which a program holds all columns"""


@dataclass(slots=True)
class Layout:
    """`lead`: the results' lines. `widths`: of those that are cut. `names`: what the kernel calls the dims of lines."""

    axes: Axes
    lead: list[Line]
    blocks: tuple[Line, ...] = ()
    """the two lines that tiles of products have"""
    widths: dict[Line, int | str] = field(default_factory=dict[Line, "int | str"])
    names: dict[Line, Dim] = field(default_factory=dict[Line, Dim])
    counters: dict[Line, str] = field(default_factory=dict[Line, str])
    linear: str = ""
    """the name of the lanes, where a program has some elements of the last axis"""
    plain: bool = False
    """arguments are read whole: a program has some rows of them"""
    explicit: bool = False
    """batches are written as coordinates"""

    @property
    def order(self) -> list[Line]:
        """In which tiles hold their axes: rows, then what is summed over or whole, then columns."""
        inner = [a for a in self.axes.wholes() if a not in self.lead]
        batches = [a for a in self.lead if a not in self.blocks]
        return [*batches, *self.blocks[:1], *self.axes.sums(), *self.blocks[1:], *inner]

    def read(self, op: Op, i: int) -> str:
        """The text that reads an argument for this use of it."""
        name, place = op.operands[i].hint, self.axes.of(op, i)
        if not place or self.plain:
            return name
        items = [self._index(a) for a in place]
        if not self.explicit:
            items = items[self._batches(place) :]
        while len(items) > 1 and items[-1] == ":":
            items.pop()
        kept = [a for a in place if a is not None and not self._batch(a)]
        turned = [self.order.index(a) for a in kept] != sorted(self.order.index(a) for a in kept)
        if turned and len(kept) != 2:
            raise NoKernel(f"{name} is read in another order of its axes than the result has")
        return f"{name}[{', '.join(items)}]{'.T' if turned else ''}"

    def _index(self, a: Line | None) -> str:
        if a is None:
            return "0"
        if self.linear and a is self.lead[-1]:
            return self.linear
        if a in self.axes.wholes():
            return ":"
        at = self.counters.get(a) or f"tile_{self.names[a]}".lower()
        return f"{at} : {at} + {self.widths[a]}" if a in self.widths else at

    def _batch(self, a: Line | None) -> bool:
        lanes = bool(self.linear) and a is self.lead[-1]
        return a is not None and not lanes and a not in self.widths and a not in self.axes.wholes()

    def _batches(self, place: tuple[Line | None, ...]) -> int:
        """How many leading axes are batches."""
        return next((n for n, a in enumerate(place) if not self._batch(a)), len(place))

    def hides_batches(self, place: tuple[Line | None, ...]) -> bool:
        """Whether a read has batches behind other axes, or nothing but batches: implicit ones would not be found."""
        lead, rest = place[: self._batches(place)], place[self._batches(place) :]
        return any(map(self._batch, rest)) or (bool(lead) and not any(a in self.widths for a in rest))

    def shape(self, place: tuple[Line | None, ...]) -> Shape:
        """With the names of the kernel's dims; 1 stays 1."""
        return tuple(1 if a is None else self.names[a] for a in place)


def layout(func: Op, axes: Axes, taken: Collection[str]) -> Layout:
    """Raises NoKernel. `taken`: names that no dim or counter may have."""
    results = func.region.block.ops[-1].operands
    if any(v.op is None for v in results):
        raise NoKernel("a result is one of the arguments as it is")
    out = Layout(axes, space(axes, results))
    wholes, sums = axes.wholes(), axes.sums()
    if sums:
        _blocks_of_products(out)
    elif wholes:
        _rows(out)
    elif len(out.lead) == 1:
        out.linear = next(n for n in ("i", "lanes", *(f"lanes_{n}" for n in range(2, 99))) if n not in taken)
    else:
        out.widths = dict(zip(out.lead[-2:], (ROWS, COLUMNS), strict=True))
    if not out.linear:
        out.explicit = any(map(out.hides_batches, (axes.of(op, i) for op, i in axes.reads)))
    _name(out, func, taken)
    return out


def _blocks_of_products(out: Layout) -> None:
    if out.axes.whole:
        name = next(iter(out.axes.whole.values())).name.removeprefix("graph.")
        raise NoKernel(f"{name} needs whole rows, and the programs of a product hold blocks of them")
    found = {tuple(a.found for a in pair) for pair in out.axes.blocks.values()}
    out.blocks = tuple(a for a in out.lead if all(a in pair for pair in found))
    if len(out.blocks) != 2:
        raise NoKernel("one product feeds another, or has other rows and columns: each is a kernel of its own")
    if any(a in out.lead for a in out.axes.sums()):
        raise NoKernel("a product sums over an axis that the result has")
    out.widths = {**dict(zip(out.blocks, (ROWS, COLUMNS), strict=True)), **dict.fromkeys(out.axes.sums(), DEPTH)}


def _rows(out: Layout) -> None:
    (row, *more) = out.axes.wholes()
    if more:
        raise NoKernel(f"it reduces along {row.dim} and along {more[0].dim}: a program holds all of one axis only")
    if row in out.lead[:-1]:
        raise NoKernel("it reduces along an axis that is not the result's last")
    rest = [a for a in out.lead if a is not row]
    full = [*rest, row]
    places = [p for op, i in out.axes.reads if (p := out.axes.of(op, i))]
    out.plain = all(list(p) in (full, [row]) for p in places) and any(list(p) == full for p in places)
    out.widths = dict.fromkeys(rest[-1:], FEW_ROWS)


# names


def _name(out: Layout, func: Op, taken: Collection[str]) -> None:
    groups = _groups(out.axes, func)
    grid = {a for a in out.lead if a not in out.axes.wholes()}
    named = {a for a in grid if a in out.widths or out.explicit} if not (out.linear or out.plain) else set[Line]()
    used: dict[str, list[set[Line]]] = {}
    fresh = _fresh(taken, groups)
    for group in groups:
        dim = next(iter(group)).dim
        if len(group & grid) > 1:
            raise NoKernel(f"one argument is read along two axes of the result, which both are {dim}")
        wanted: Dim = dim
        if not isinstance(dim, int) or group & named:
            text = str(dim)
            clash = any(g & grid and group & grid for g in used.get(text.lower(), ()))
            other = text.lower() in used and not any(next(iter(g)).dim == dim for g in used[text.lower()])
            if isinstance(dim, int) or not dims.is_symbol(dim) or clash or other:
                text = next(fresh)
            used.setdefault(text.lower(), []).append(group)
            wanted = dims.symbol(text)
        out.names.update(dict.fromkeys(group, wanted))
    missing = [a for a in out.lead if a not in out.names]
    if missing:
        raise NoKernel(f"no argument has the axis {missing[0].dim} of the result")
    free = (c for c in chain("k", (f"k{n}" for n in count(2))) if c not in taken)
    counters: dict[Dim, str] = {}
    for a in out.axes.sums():
        name = out.names[a]
        counters[name] = counters.get(name) or next(free)
        out.counters[a] = counters[name]


def _groups(axes: Axes, func: Op) -> list[set[Line]]:
    """Lines whose dims have one name, for they are the same axis of an argument."""
    at: dict[tuple[Value, int], set[Line]] = {}
    for op, i in axes.reads:
        for n, a in enumerate(axes.of(op, i)):
            if a is not None:
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


def kernel_dim(out: Layout, size: Dim) -> Dim:
    """A size that the function computes with, in the kernel's dims. Raises NoKernel where they do not give it."""
    own = {str(a.dim): d for a, d in out.names.items() if dims.is_symbol(a.dim)}
    lost = [s for s in dims.symbols(size) if s not in own]
    if lost:
        raise NoKernel(f"it computes with the size {lost[0]}, which is no axis of what the kernel reads")
    return dims.substitute(size, own)


def argument_place(axes: Axes, v: Value) -> tuple[Line | None, ...]:
    """The lines of an argument, by its first read."""
    op, i = next((op, i) for op, i in axes.reads if op.operands[i] is v)
    return axes.of(op, i)
