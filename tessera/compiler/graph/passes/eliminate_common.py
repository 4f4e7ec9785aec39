"""Of two ops that compute the same value, removes the later one."""

from __future__ import annotations

from typing import TypeAlias

from tessera.compiler.ir.core import Block, Op
from tessera.compiler.ir.launches import LAUNCHES
from tessera.compiler.ir.rewriter import replace_op
from tessera.compiler.ir.spec import SPECS
from tessera.compiler.ir.types import type_text

Key: TypeAlias = tuple[str, tuple[int, ...], str, str]


def eliminate_common(func: Op) -> None:
    """Replaces, in place, every op without effects and regions by an equal one that comes before it.

    Ops in a region see those outside it, never those of a sister region.
    """
    for region in func.regions:
        for block in region.blocks:
            _sweep(block, {})


def _sweep(block: Block, known: dict[Key, Op]) -> None:
    for op in list(block.ops):
        if op.regions:
            for region in () if op.name in LAUNCHES else op.regions:  # a kernel's loads see what it has stored
                for inner in region.blocks:
                    _sweep(inner, dict(known))
            continue
        spec = SPECS[op.name]
        if spec.effects or spec.terminator:
            continue
        before = known.setdefault(key_of(op), op)
        if before is not op:
            replace_op(op, before.results)


def key_of(op: Op) -> Key:
    # as text, since 1 == 1.0 == True and 0.0 == -0.0 as values, and nan differs from itself
    attrs = repr(sorted(op.attrs.items()))
    return op.name, tuple(map(id, op.operands)), attrs, repr([type_text(r.type) for r in op.results])
