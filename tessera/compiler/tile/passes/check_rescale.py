"""Finds the online softmax that rescales twice (TS311).

With p = exp(s - m'), where m' is the new running maximum, a row sum of p is already relative to m'. Multiplying it by
exp(m_block - m') as well, where m_block = max(s), applies that correction a second time. The published algorithm
(Dao 2023, FlashAttention-2) does one or the other.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.errors import Diagnostic, Note

_TRANSPARENT = frozenset({"tile.cast", "tile.broadcast", "tile.reshape"})


def check_rescale(kernel: Op) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for op in kernel.walk():
        if op.name != "tile.mul":
            continue
        for factor, total in (op.operands, tuple(reversed(op.operands))):
            shift, sum_ = _exponential(factor), _source(total).op
            if shift is None or sum_ is None or sum_.name != "tile.reduce" or sum_.attrs["op"] != "sum":
                continue
            terms = _exponential(sum_.operands[0])
            if terms is None or terms[1] is not shift[1] or not _is_maximum(shift[0], terms[0]):
                continue
            found.append(_warning(op, sum_))
            break
    return found


def _warning(op: Op, sum_: Op) -> Diagnostic:
    message = (
        "this row sum is rescaled twice: its terms were already taken relative to the new maximum, and the factor "
        "moves them there once more, so the normaliser comes out too small whenever the maximum grows.\n"
        "Leave the factor out, or take the terms relative to the block's own maximum."
    )
    return Diagnostic("TS311", message, op.span, "warning", (Note("the terms were summed here", sum_.span),))


def _source(v: Value) -> Value:
    """The value behind conversions and broadcasts."""
    while v.op is not None and v.op.name in _TRANSPARENT:
        v = v.op.operands[0]
    return v


def _exponential(v: Value) -> tuple[Value, Value] | None:
    """(x, m) where v is exp(x - m)."""
    op = _source(v).op
    if op is None or op.name not in ("tile.exp", "tile.exp2"):
        return None
    difference = _source(op.operands[0]).op
    if difference is None or difference.name != "tile.sub":
        return None
    return _source(difference.operands[0]), _source(difference.operands[1])


def _is_maximum(m: Value, of: Value) -> bool:
    return (
        m.op is not None
        and m.op.name == "tile.reduce"
        and m.op.attrs["op"] == "max"
        and _source(m.op.operands[0]) is of
    )
