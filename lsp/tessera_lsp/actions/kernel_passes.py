"""Which sums a kernel finds in which loop: those that need another's result come in a loop behind its own."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.compiler.ir.core import Op, Value
from tessera.language.dims import Dim
from tessera_lsp.actions.kernel_axes import Axes, Line, NoKernel
from tessera_lsp.actions.kernel_layout import Layout
from tessera_lsp.actions.kernel_online import Online, online


@dataclass(slots=True)
class Pass:
    """A loop over a `line`. `sums`: what is known at its end. `inner`: what it computes at each step, in order."""

    line: Line
    sums: list[Op]
    inner: list[Op]
    online: Online | None = None


def passes(func: Op, axes: Axes, made: Layout) -> list[Pass]:
    """Raises NoKernel where something walks two loops at once."""
    ops = func.region.block.ops[:-1]
    inner = [op for op in ops if any(a in made.looped for a in axes.of_value(op.result))]
    for op in inner:
        if sum(a in made.looped for a in axes.of_value(op.result)) > 1:
            raise NoKernel("it sums over two axes of one value, which are two loops in each other")
    depth: dict[Value, int] = {}
    found: dict[tuple[int, Dim], Pass] = {}
    for op in ops:
        least = max((depth.get(v, 0) for v in op.operands), default=0)
        line = axes.along(op)
        sums = line is not None and line in made.looped
        depth[op.result] = least + 1 if sums else least
        if sums and line is not None:
            found.setdefault((least, made.names[line]), Pass(line, [], inner)).sums.append(op)
    for at, name in sorted(found, key=lambda k: k[0]):
        late = found.get((at + 1, name))
        tops = [op for op in found[at, name].sums if op.name == "graph.max"] if late is not None else []
        made_online = [o for op in tops if (o := online(op, late.sums if late else (), inner)) is not None]
        if late is not None and len(made_online) == 1:
            found[at, name].online = made_online[0]
            found[at, name].sums += late.sums
            late.sums = []
    kept = [found[key] for key in sorted(found, key=lambda k: k[0]) if found[key].sums]
    for p in kept:
        p.inner = _needed(p, inner)
    return kept


def _needed(p: Pass, inner: list[Op]) -> list[Op]:
    """What the sums of a loop are made of, within it."""
    needed: set[Op] = set()
    stack = [v.op for op in p.sums for v in op.operands]
    while stack:
        op = stack.pop()
        if op is not None and op in inner and op not in needed:
            needed.add(op)
            stack += [v.op for v in op.operands]
    return [op for op in inner if op in needed]
