"""How the programs of a kernel divide the work: which lines they cut into blocks, hold whole, or walk in a loop."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from tessera.compiler.ir.core import Op
from tessera.compiler.kernel_source.axes import Axes, Line, NoKernel, space
from tessera.compiler.kernel_source.layout import KernelPlan, name_dims
from tessera.language import dims

ROWS, COLUMNS, DEPTH = 32, 64, 32
"""of the tiles of elementwise kernels and products; the last: of a loop's steps"""
FEW_ROWS = 4
"""rows of a tile, in a program without products that holds all columns"""
WHOLE_ROWS = 16
"""rows of a tile of a product, in a program that holds all its columns: the least that units for products take"""
TALL = 64
"""rows where a product feeds another: what is read for a step serves all of them"""
MOST, MOST_FED = 1024, 256
"""columns of a product that a program may hold, where they are known; and of a factor of one that feeds another"""
SUMS = ("sum", "mean", "max", "min", "prod", "any", "all")
"""what a loop can find step by step"""


def layout(func: Op, axes: Axes, taken: Collection[str], sizes: Mapping[str, int]) -> KernelPlan:
    """Raises NoKernel. `taken`: names that no dim or counter may have. `sizes`: the given sizes of dims."""
    results = func.region.block.ops[-1].operands
    if any(v.op is None for v in results):
        raise NoKernel("a result is one of the arguments as it is")
    out = KernelPlan(axes, space(axes, results))
    if axes.joined or any(a in out.lead for a in axes.in_parts):
        out.outputs = _outputs(len(results), taken)
    if axes.joined:
        _pieces(out)
    elif axes.summed:
        _products(out, sizes)
    elif axes.reduced:
        _reductions(out)
    elif len(out.lead) == 1:
        out.order = out.lead
        out.linear = next(n for n in ("i", "lanes", *(f"lanes_{n}" for n in range(2, 99))) if n not in taken)
    else:
        out.order = out.lead
        out.widths = dict(zip(out.lead[-2:], (ROWS, COLUMNS), strict=True))
    if not out.linear:
        shifted = any(a not in out.held for a in axes.in_parts)  # then a block says not which axis it is of
        out.explicit = shifted or any(map(out.hides_batches, (axes.of(op, i) for op, i in axes.reads)))
    if any(map(axes.ends_early, out.looped)):
        raise NoKernel("it sums over a part of an argument that ends early: a block would read past its end")
    name_dims(out, func, taken)
    return out


def _outputs(count: int, taken: Collection[str]) -> list[str]:
    names = (n for n in ("out", *(f"out_{i}" for i in range(2, 99))) if n not in taken)
    return list(itertools.islice(names, count))


def _pieces(out: KernelPlan) -> None:
    """All of a row of each piece in one program, which has a few of them. Raises NoKernel."""
    pieces = list(dict.fromkeys(a.found for lines in out.axes.joined.values() for a in lines))
    others = [a for a in (*out.axes.wholes(), *out.axes.sums()) if a not in pieces]
    if others or out.axes.summed:
        raise NoKernel("it joins tensors, and reduces along another axis: a program holds all of one axis only")
    rest = [a for a in out.lead if a not in pieces]
    out.held, out.order, out.widths = pieces, [*rest, *pieces], dict.fromkeys(rest[-1:], FEW_ROWS)


# reductions and prefixes


def _reductions(out: KernelPlan) -> None:
    (line, *more) = out.axes.wholes()
    if more:
        raise NoKernel(f"it reduces along {line.dim} and along {more[0].dim}: a program reduces along one axis")
    rest = [a for a in out.lead if a is not line]
    reads = [p for op, i in out.axes.reads if line in (p := out.axes.of(op, i))]
    if line in out.lead[-1:] or (line not in out.lead and all(p[-1] is line for p in reads)):
        _rows(out, line, rest)
        return
    last = rest[-1]
    out.widths[last] = COLUMNS
    if line in out.lead or not all(map(_stepwise, out.axes.reduced)):
        out.held = [line]
    else:
        out.looped = [line]
        out.widths[line] = DEPTH
    before = [a for a in rest if a is not last]
    out.order = out.lead if line in out.lead else [*before, line, last]


def _rows(out: KernelPlan, row: Line, rest: list[Line]) -> None:
    """All of a row in one program, which has a few of them."""
    full = [*rest, row]
    places = [p for op, i in out.axes.reads if (p := out.axes.of(op, i))]
    out.held, out.order, out.widths = [row], full, dict.fromkeys(rest[-1:], FEW_ROWS)
    alike = all(list(p) in (full, [row]) for p in places) and any(list(p) == full for p in places)
    out.plain = alike and not out.outputs


def _stepwise(op: Op) -> bool:
    return op.name.removeprefix("graph.") in SUMS


# products


def _products(out: KernelPlan, sizes: Mapping[str, int]) -> None:
    axes, lead = out.axes, out.lead
    inner = [op for op in axes.summed if any(a is not None and a not in lead for a in axes.of_value(op.result))]
    outer = [op for op in axes.summed if op not in inner]
    first, second = _block(out, outer, inner)
    if any(a in lead for a in axes.sums()):
        raise NoKernel("a product sums over an axis that the result has")
    for op in inner if outer else ():
        if first not in _pair(axes, op):
            raise NoKernel("one product would be computed anew for each block of rows of the other")
    for op in inner:
        if any(a not in (None, *lead, *_pair(axes, op)) for a in axes.of_value(op.result)):
            raise NoKernel("it sums over the batches of a product, each of which is a program's")
    out.held = list(dict.fromkeys(axes.summed[op].found for op in inner))
    if any(a in out.held for op in inner for a in axes.of_value(op.result)):
        raise NoKernel("three products feed each other: only two are one kernel")
    for op, line in axes.reduced.items():
        _reduced_around(out, op, line.found, second)
    if inner and outer and second not in out.held:
        out.held.append(second)
    beside = dict.fromkeys((*axes.wholes(), *axes.sums()))
    out.looped = [a for a in beside if a not in lead and a not in out.held]
    _widths(out, first, second, bool(inner and outer))
    for a in out.held:
        most = MOST if a is second else MOST_FED
        if isinstance(n := dims.substitute(a.dim, sizes), int) and n > most:
            raise NoKernel(f"each program would hold all {n} of an axis of a product, of which {most} may fit")
    batches = [a for a in lead if a not in out.widths and a not in out.held]
    early = [a for a in out.held if a not in (first, second)]
    middle = [*early, *(a for a in out.looped if a not in (first, second))]
    out.order = [*batches, first, *middle, second]


def _pair(axes: Axes, op: Op) -> tuple[Line, Line]:
    """Of a product's result: the lines of one operand and of the other, in their order."""
    first, second = axes.blocks[op]
    return first.found, second.found


def _block(out: KernelPlan, outer: list[Op], inner: list[Op]) -> tuple[Line, Line]:
    """Rows and columns of the products that make results; where there are only others, one is no result's."""
    pairs = {_pair(out.axes, op) for op in outer or inner}
    both = next(iter(pairs)) if len(pairs) == 1 else ()
    if outer:
        both = [a for a in out.lead if all(a in pair for pair in pairs)]
    if len(both) != 2 or not any(a in out.lead for a in both):
        raise NoKernel("one product feeds another, or has other rows and columns: each is a kernel of its own")
    return both[0], both[1]


def _reduced_around(out: KernelPlan, op: Op, line: Line, columns: Line) -> None:
    """A reduction before a product walks as the product does; one behind it needs whole rows. Raises NoKernel."""
    if line in out.lead:
        if line is not columns:
            raise NoKernel(f"{{}} goes over {line.dim}, of which the programs of a product have blocks only", op)
        if line not in out.held:
            out.held.append(line)
    elif line not in out.held and not _stepwise(op):
        raise NoKernel("{} needs whole rows, and the programs of a product hold blocks of them", op)


def _widths(out: KernelPlan, first: Line, second: Line, fed: bool) -> None:
    rows = TALL if fed else WHOLE_ROWS if second in out.held else ROWS
    out.widths = {a: w for a, w in ((first, rows), (second, COLUMNS)) if a not in out.held}
    out.widths.update(dict.fromkeys(out.looped, DEPTH))
