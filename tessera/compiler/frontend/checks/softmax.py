"""Exponentials that are divided by their sum: a softmax that overflows unless the maximum is subtracted first, and an
online softmax whose sums are not brought to the new maximum."""

from __future__ import annotations

import ast
import math

from tessera.compiler.frontend.checks.finding import Call, Finding, Look
from tessera.compiler.frontend.checks.ranges import (
    alike,
    behind,
    below_maximum,
    constant,
    dtype_of,
    made_by,
    name_of,
    same,
    summed_in_loop,
)
from tessera.compiler.frontend.fixes import CandidateFix
from tessera.compiler.graph.operator import axes_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.errors import Note, Span

_PRODUCTS = ("matmul", "contract", "einsum", "mma", "mul")
_EXP = ("exp", "exp2")
SMALL = 1e-2
"""what is added to a divisor only to keep it from 0 is less"""


def unshifted(op: Op, look: Look) -> Finding | None:
    """exp(x) / sum(exp(x)), or (exp(x) @ v) / sum(exp(x)), where nothing keeps x small."""
    for above, below in _quotients(op):
        total = _total(below)
        e = made_by(total.operands[0], *_EXP) if total is not None else None
        if total is None or e is None or not _is_of(above, e) or not _overflows(e, look):
            continue
        message = (
            f"this softmax overflows: {_limit_text(e)}, and infinity divided by infinity is NaN; where all are far "
            "below 0, it is 0 / 0.\nSubtract the maximum first, which changes nothing else."
        )
        notes = (Note("the exponentials are taken here", e.span),) if e.span.line != op.span.line else ()
        return Finding("TS312", message, op.span, _fixes(op, e, total, look), notes)
    return None


def by_hand(op: Op, look: Look) -> Finding | None:
    """exp(x) / (1 + exp(x)) and (exp(x) - exp(-x)) / (exp(x) + exp(-x)): infinity by infinity for large x."""
    total = made_by(op.operands[1], "add")
    found = _activation(op.operands[0], total) if total is not None else None
    if found is None or not _overflows(found[1], look):
        return None
    better, e = found
    message = f"{_limit_text(e)}, and infinity divided by infinity is NaN.\nUse {better}(x), which is the same."
    node, call = look.node(op.span), look.call(look.node(e.span), "exp")
    inside = call is not None and node is not None and any(inner is call.node for inner in ast.walk(node))
    fixes = [look.replaced(f"Use {better}", (node, call.named(better)))] if inside and node and call else []
    return Finding("TS312", message, op.span, fixes)


def _activation(above: Value, total: Op) -> tuple[str, Op] | None:
    """sigmoid or tanh, where that is what exponentials make, and exp(x)."""
    if (e := made_by(above, "exp")) is not None:
        sides = zip(total.operands, reversed(total.operands), strict=True)
        return ("sigmoid", e) if any(same(x, e.result) and constant(y) == 1 for x, y in sides) else None
    difference = made_by(above, "sub")
    e, inverse = (made_by(v, "exp") for v in difference.operands) if difference is not None else (None, None)
    opposite = made_by(inverse.operands[0], "neg") if inverse is not None else None
    if e is None or inverse is None or opposite is None or not same(opposite.operands[0], e.operands[0]):
        return None
    a, b = total.operands
    x, y = e.result, inverse.result
    return ("tanh", e) if (same(a, x) and same(b, y)) or (same(a, y) and same(b, x)) else None


def _quotients(op: Op) -> list[tuple[Value, Value]]:
    """(dividend, divisor) of x / y, x * (1 / y) and x * reciprocal(y)."""
    if name_of(op) == "div":
        return [(op.operands[0], op.operands[1])]
    out: list[tuple[Value, Value]] = []
    for above, other in (op.operands, tuple(reversed(op.operands))):
        inverse = made_by(other, "div", "reciprocal")
        if inverse is not None and (name_of(inverse) == "reciprocal" or constant(inverse.operands[0]) == 1):
            out.append((above, inverse.operands[-1]))
    return out


def _total(v: Value) -> Op | None:
    """The sum that `v` is, perhaps with a small number added, perhaps made step by step in a loop."""
    if (plus := made_by(v, "add")) is not None:
        added = [constant(x) for x in plus.operands]
        v = next((plus.operands[1 - i] for i in (0, 1) if (c := added[i]) is not None and abs(c) < SMALL), v)
    return made_by(v, "sum") or summed_in_loop(v)


def _overflows(e: Op, look: Look) -> bool:
    dtype = dtype_of(e.result)
    if dtype.bits > 32 or not dtype.is_float:
        return False
    return not below_maximum(e.operands[0]) and look.ranges.of(e.operands[0])[1] > _limit(e)


def _limit(e: Op) -> float:
    return math.log(dtype_of(e.result).maximum) / math.log(math.e if name_of(e) == "exp" else 2.0)


def _limit_text(e: Op) -> str:
    return f"{name_of(e)} of more than {_limit(e):.4g} is infinite in {dtype_of(e.result)}"


def unrescaled(op: Op, look: Look) -> Finding | None:
    """acc + sum(exp(s - m)) in a loop that raises m: what acc holds already is relative to the maximum before."""
    body = op.region.block
    ends = [behind(v) for v in body.terminator.operands]
    states = list(zip(body.args[1:], ends, strict=True))
    for own, new in states:
        top = made_by(new, "maximum")
        if top is None or not any(behind(x) is own for x in top.operands):
            continue
        for state, end in states:
            added = made_by(end, "add", "mma")
            if added is None or not any(behind(x) is state for x in added.operands):
                continue
            if any(_relative_to(x, new) for x in added.operands if behind(x) is not state):
                message = (
                    "this sum is not rescaled: its new terms are relative to the new maximum, those that it holds to "
                    "the maximum of their time.\n"
                    "Multiply it by exp(old maximum - new maximum) before the new terms are added."
                )
                return Finding("TS311", message, added.span, notes=(Note("the maximum grows here", top.span),))
    return None


def _relative_to(v: Value, top: Value, depth: int = 6) -> bool:
    """Whether `v` is made of exp(s - top)."""
    op = behind(v).op
    if op is None or depth == 0:
        return False
    if name_of(op) in _EXP:
        shift = made_by(op.operands[0], "sub")
        return shift is not None and behind(shift.operands[1]) is top
    return name_of(op) in (*_PRODUCTS, "sum", "transpose", "permute", "where") and any(
        _relative_to(x, top, depth - 1) for x in op.operands
    )


def _is_of(v: Value, e: Op) -> bool:
    """Whether the dividend is the exponential, or a product with it."""
    if alike(v, e.result):
        return True
    product = made_by(v, *_PRODUCTS)
    return product is not None and any(alike(x, e.result) for x in product.operands)


def _fixes(op: Op, e: Op, total: Op, look: Look) -> list[CandidateFix]:
    if e.parent is not op.parent:
        return []  # the maximum of all steps is not that of one
    axes = axes_of(total) or ()
    rank = len(getattr(e.result.type, "shape", ()))
    axis = f"axis={axes[0] - rank if axes[0] == rank - 1 else axes[0]}" if len(axes) == 1 else ""
    if (not axis and len(axes) != rank) or (axis and not look.kernel and not _divides_along(op, axes, rank)):
        return []
    out: list[CandidateFix] = []
    whole = look.node(op.span)
    if isinstance(whole, ast.BinOp) and (left := look.call(whole.left, "exp")) and axis and not look.kernel:
        out.append(look.replaced("Use softmax", (whole, left.named("softmax", rest=axis))))
    spans = dict.fromkeys((e.span, *_exponentials(total)))
    calls = [look.call(look.node(span), "exp", "exp2") for span in spans]
    if calls and all(calls):
        changes = [(c.operand, _shifted(look, c, axis)) for c in calls if c is not None]
        out.append(look.replaced("Subtract the maximum first", *changes))
    return out


def _divides_along(op: Op, axes: tuple[int, ...], rank: int) -> bool:
    """Whether each exponential is divided by the sum that it is part of: x[N, N] / sum(x, axis=1) takes another one."""
    below: Shape = getattr(op.operands[1].type, "shape", ())
    return (len(below) == rank and below[axes[0]] == 1) or (len(below) == rank - 1 and axes[0] == 0)


def _exponentials(total: Op) -> list[Span]:
    inner = made_by(total.operands[0], "exp", "exp2")
    return [inner.span] if inner is not None else []


def _shifted(look: Look, c: Call, axis: str) -> str:
    rest = f"{axis}, keepdim=True" if axis else ""
    text = f"{look.atom(c.operand)} - {c.named('max', rest=rest)}"
    return text if c.prefix != "" else f"({text})"


# Finds the online softmax that rescales twice (TS311).
#
# With p = exp(s - m'), where m' is the new running maximum, a row sum of p is already relative to m'.
# Multiplying it by exp(m_block - m') as well, where m_block = max(s), applies that correction a second time.
# The published algorithm (Dao 2023, FlashAttention-2) does one or the other.

_TRANSPARENT = frozenset({"tile.cast", "tile.broadcast", "tile.reshape"})


def rescaled_twice(op: Op, look: Look) -> Finding | None:
    if op.name != "tile.mul":
        return None
    for factor, total in (op.operands, tuple(reversed(op.operands))):
        shift, sum_ = _exponential(factor), _source(total).op
        if shift is None or sum_ is None or sum_.name != "tile.reduce" or sum_.attrs["op"] != "sum":
            continue
        terms = _exponential(sum_.operands[0])
        if terms is None or terms[1] is not shift[1] or not _is_maximum(shift[0], terms[0]):
            continue
        message = (
            "this row sum is rescaled twice: its terms were already taken relative to the new maximum, and the factor "
            "moves them there once more, so the normaliser comes out too small whenever the maximum grows.\n"
            "Leave the factor out, or take the terms relative to the block's own maximum."
        )
        return Finding("TS311", message, op.span, notes=(Note("the terms were summed here", sum_.span),))
    return None


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
