"""Removes ops with unused results, and unused values of loops and branches."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.rewriter import erase_dead
from tessera.compiler.ir.spec import SPECS

READS = frozenset({"tile.load_shared", "tile.alloc_shared"})
"""ops that must keep their place among others, but may go when nothing needs them"""


def remove_dead(kernel: Op) -> None:
    erase_dead(kernel, _stays)
    while any(_unread(op) for op in kernel.walk() if op.name in ("tile.for", "tile.while", "tile.if")):
        erase_dead(kernel, _stays)


def _stays(op: Op) -> bool:
    spec = SPECS.get(op.name)
    removable = op.name in READS or (spec is not None and not spec.effects and not spec.terminator)
    return not removable or not op.results


def _unread(op: Op) -> bool:
    """Takes out the results that nothing reads, nor a step of the loop; whether there were any."""
    blocks = [r.block for r in op.regions]
    first = {"tile.for": 1, "tile.while": 0}.get(op.name)
    ends = [blocks[-1].terminator] if first is not None else [b.terminator for b in blocks]
    unread = [
        i
        for i, result in enumerate(op.results)
        if not result.uses
        and i != op.attrs.get("going")
        and (first is None or all(_goes_round(b.args[first + i], ends[0], i) for b in blocks))
    ]
    if not unread:
        return False
    for end in ends:
        end.set_operands(_without(end.operands, unread))
    if first is not None:
        at = len(op.operands) - len(op.results)
        op.set_operands([*op.operands[:at], *_without(op.operands[at:], unread)])
        for block in blocks:
            block.args[first:] = _without(block.args[first:], unread)
            _number(block.args)
        if (going := op.attrs.get("going")) is not None:
            assert isinstance(going, int)
            op.attrs["going"] = going - sum(i < going for i in unread)
    op.results[:] = _without(op.results, unread)
    _number(op.results)
    return True


def _goes_round(arg: Value, end: Op, i: int) -> bool:
    """Whether a carried value is at most carried on as it is."""
    return all(use == (end, i) for use in arg.uses)


def _without(values: Sequence[Value], which: Sequence[int]) -> list[Value]:
    return [v for i, v in enumerate(values) if i not in which]


def _number(values: Sequence[Value]) -> None:
    for i, v in enumerate(values):
        v.index = i
