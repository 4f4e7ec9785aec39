"""Exponentials that are divided by their sum: a softmax that overflows unless the maximum is subtracted first."""

from __future__ import annotations

import ast
import math

from tessera.compiler.frontend.checks.finding import Call, Finding, Look
from tessera.compiler.frontend.checks.values import axes_of, below_maximum, dtype_of, made_by, name_of, same
from tessera.compiler.frontend.fixes import Candidate
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.errors import Note, Span

_PRODUCTS = ("matmul", "contract", "einsum", "mma", "mul")


def unshifted(op: Op, look: Look) -> Finding | None:
    """exp(x) / sum(exp(x)), or (exp(x) @ v) / sum(exp(x)), where nothing keeps x small."""
    total = made_by(op.operands[1], "sum")
    e = made_by(total.operands[0], "exp", "exp2") if total is not None else None
    if total is None or e is None or not _is_of(op.operands[0], e):
        return None
    dtype = dtype_of(e.result)
    base = math.e if name_of(e) == "exp" else 2.0
    if dtype.bits > 32 or not dtype.is_float:
        return None
    limit = math.log(dtype.maximum) / math.log(base)
    if below_maximum(e.operands[0]) or look.ranges.of(e.operands[0])[1] <= limit:
        return None
    message = (
        f"this softmax overflows: {name_of(e)} of more than {limit:.4g} is infinite in {dtype}, and infinity divided "
        "by infinity is NaN; where all are far below 0, it is 0 / 0.\n"
        "Subtract the maximum first, which changes nothing else."
    )
    notes = (Note("the exponentials are taken here", e.span),) if e.span.line != op.span.line else ()
    return Finding("TS312", message, op.span, _fixes(op, e, total, look), notes)


def _is_of(v: Value, e: Op) -> bool:
    """Whether the dividend is the exponential, or a product with it."""
    if same(v, e.result):
        return True
    product = made_by(v, *_PRODUCTS)
    return product is not None and any(same(x, e.result) for x in product.operands)


def _fixes(op: Op, e: Op, total: Op, look: Look) -> list[Candidate]:
    axes = axes_of(total) or ()
    rank = len(getattr(e.result.type, "shape", ()))
    axis = f"axis={axes[0] - rank if axes[0] == rank - 1 else axes[0]}" if len(axes) == 1 else ""
    if (not axis and len(axes) != rank) or (axis and not look.kernel and not _divides_along(op, axes, rank)):
        return []
    out: list[Candidate] = []
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
