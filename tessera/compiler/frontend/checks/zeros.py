"""Divisions by sums and norms that may be 0, and logarithms of them."""

from __future__ import annotations

import ast
import math

from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.checks.ranges import (
    below_maximum,
    constant,
    dtype_of,
    made_by,
    name_of,
    picked_from_softmax,
    smallest,
    summed_in_loop,
)
from tessera.compiler.frontend.fixes import CandidateFix
from tessera.compiler.graph.operator import axes_of
from tessera.compiler.ir.core import Op, Value
from tessera.errors import Note
from tessera.language.dtypes import DType

_SUMS = ("sum", "mean", "norm", "std", "var", "max")
_WHY = {
    "norm": "where all elements are 0",
    "std": "where all elements are equal",
    "var": "where all elements are equal",
    "max": "where all elements are 0",
}


def logarithm(op: Op, look: Look) -> Finding | None:
    """log(sum(...)), where nothing keeps the sum above 0."""
    total = _sum_of(op.operands[0], roots=False) or _exponentials_of_loop(op.operands[0])
    if total is None or name_of(total) in ("max", "norm") or _guarded(op) or look.ranges.of(total.result)[0] > 0:
        return None
    e = made_by(total.operands[0], "exp")
    if e is not None:
        return None if below_maximum(e.operands[0]) else _log_sum_exp(op, total, e, look)
    dtype = dtype_of(op.result)
    message = (
        f"this {name_of(total)} is 0 {_why(total, look)}, and the logarithm of 0 is -inf.\nAdd a small number to it."
    )
    node = look.call(look.node(op.span), name_of(op))
    fixes: list[CandidateFix] = []
    if node is not None and look.ranges.of(total.result)[0] == 0:
        small = _small(total, dtype)
        fixes = [look.replaced(f"Add {small}", (node.operand, f"{_summand(look, node.operand)} + {small}"))]
        if node.prefix == "":
            fixes = [look.replaced(f"Add {small}", (node.operand, f"({look.text(node.operand)} + {small})"))]
    return Finding("TS315", message, op.span, fixes, _at(total, op))


def _exponentials_of_loop(v: Value) -> Op | None:
    total = summed_in_loop(v)
    return total if total is not None and _of_exponentials(total) else None


def _log_sum_exp(op: Op, total: Op, e: Op, look: Look) -> Finding | None:
    dtype = dtype_of(e.result)
    if name_of(op) != "log" or name_of(total) != "sum" or dtype.bits > 32:
        return None
    message = (
        f"log(sum(exp(x))) is infinite where an x exceeds {_overflow(dtype):.4g}, and -inf where all are far below 0.\n"
        + ("Take the maximum m off first: m + log(sum(exp(x - m)))." if look.kernel else "Use logsumexp(x).")
    )
    call, fixes = look.call(look.node(op.span), "log"), list[CandidateFix]()
    inner = look.call(call.operand, "sum") if call is not None else None
    power = look.call(inner.operand, "exp") if inner is not None else None
    if call is not None and inner is not None and power is not None and not look.kernel:
        fixes = [look.replaced("Use logsumexp", (call.node, power.named("logsumexp", rest=inner.rest)))]
    return Finding("TS315", message, op.span, fixes)


def _overflow(dtype: DType) -> float:
    return math.log(dtype.maximum)


def divisor(op: Op, look: Look) -> Finding | None:
    """x / norm(x), x / sum(w), x * rsqrt(var): a 0 below makes the quotient NaN or infinite."""
    below = op.operands[-1] if name_of(op) == "div" else op.operands[0]
    if not dtype_of(op.result).is_float or _guarded(op):
        return None
    total, eps = _sum_of(below), None
    if total is None:
        total, eps = _lost_eps(below)
    if total is None or look.ranges.of(below)[0] > 0 or _of_exponentials(total) or _of_any_sign(total, look):
        return None
    terms = total.operands[0]
    if name_of(total) == "sum" and picked_from_softmax(terms) and made_by(terms, "softmax") is None:
        return None
    if name_of(total) == "max" and look.ranges.of(total.result)[0] < 0:
        return None
    dtype = dtype_of(below)
    message = f"this {name_of(total)} is 0 {_why(total, look)}, and the quotient is then NaN or infinite.\n"
    if eps is not None:
        message += f"The {eps:g} that is added to it is 0 in {dtype}, whose smallest number is {smallest(dtype):.1g}."
    else:
        message += "Add a small number to it." if look.ranges.of(total.result)[0] == 0 else "Keep it away from 0."
    fixes = _larger_eps(op, total, eps, look, dtype) if eps is not None else []
    if eps is None and look.ranges.of(total.result)[0] == 0:
        fixes = _eps(op, total, look, dtype)
    return Finding("TS316", message, op.span, fixes, _at(total, op))


def _at(total: Op, op: Op) -> tuple[Note, ...]:
    return (Note(f"the {name_of(total)} is taken here", total.span),) if total.span.line != op.span.line else ()


def _of_exponentials(total: Op) -> bool:
    """The sum of a softmax: another rule speaks of it."""
    return name_of(total) == "sum" and made_by(total.operands[0], "exp", "exp2") is not None


def _of_any_sign(total: Op, look: Look) -> bool:
    """Unknown terms, such as normalised weights, do not prove that they may cancel out."""
    return name_of(total) in ("sum", "mean") and look.ranges.of(total.operands[0])[0] < 0


def _sum_of(v: Value, roots: bool = True) -> Op | None:
    """The reduction that `v` is, or is the root or a multiple of."""
    if (op := made_by(v, *_SUMS)) is not None:
        return op if axes_of(op) != () else None
    if (scaled := made_by(v, "mul", "div")) is not None and constant(scaled.operands[1]):
        return _sum_of(scaled.operands[0], roots)
    root = made_by(v, "sqrt", "pow", "abs") if roots else None
    if root is None or (name_of(root) == "pow" and constant(root.operands[1]) != 0.5):
        return None
    return made_by(root.operands[0], *_SUMS)


def _lost_eps(v: Value) -> tuple[Op | None, float | None]:
    """The reduction and the number added to it, or to its root, that is 0 in the dtype."""
    if (root := made_by(v, "sqrt")) is not None:
        found = _lost_eps(root.operands[0])
        if found[0] is not None:
            return found
    total = made_by(v, "add")
    if total is None:
        return None, None
    for i in (0, 1):
        eps, held = constant(total.operands[i]), dtype_of(total.operands[i])
        if eps and 0 < eps <= smallest(held) / 2 and (found := _sum_of(total.operands[1 - i])) is not None:
            return found, eps
    return None, None


def _why(total: Op, look: Look) -> str:
    if name_of(total) in _WHY:
        return _WHY[name_of(total)]
    return "where all its terms are 0" if look.ranges.of(total.operands[0])[0] == 0 else "where its terms cancel out"


def _guarded(op: Op) -> bool:
    """Whether the program has thought of it: the result is chosen by `where`, or this is a branch or a while loop."""
    users = op.results[0].users
    if users and all(u.name.endswith(".where") for u in users):
        return True
    outer = op.parent
    while outer is not None:
        if outer.name.endswith((".if", ".while")):
            return True
        outer = outer.parent
    return False


def _small(total: Op, dtype: DType) -> str:
    if name_of(total) in ("var", "std"):
        return "1e-5"
    return "1e-6" if dtype.exponent < 8 else "1e-12"


def _summand(look: Look, node: ast.expr) -> str:
    """The text of `node` as the left side of a +."""
    return look.text(node) if isinstance(node, ast.BinOp) else look.atom(node)


def _larger_eps(op: Op, total: Op, eps: float, look: Look, dtype: DType) -> list[CandidateFix]:
    """Another number where the lost one is written."""
    node, small = look.node(op.span), _small(total, dtype)
    found = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and n.value == eps] if node is not None else []
    return [look.replaced(f"Add {small} instead", (n, small)) for n in found]


def _eps(op: Op, total: Op, look: Look, dtype: DType) -> list[CandidateFix]:
    node = look.node(op.span)
    small = _small(total, dtype)
    if name_of(op) != "div":
        call = look.call(node, name_of(op))
        below = call.operand if call is not None and call.prefix != "" else None
        text = f"{_summand(look, below)} + {small}" if below is not None else ""
    else:
        below = node.right if isinstance(node, ast.BinOp) else None
        root = look.call(below, "sqrt")
        if root is not None and root.prefix != "":
            below = root.operand
            text = f"{_summand(look, below)} + {small}"
        else:
            text = f"({_summand(look, below)} + {small})" if below is not None else ""
    return [look.replaced(f"Add {small}", (below, text))] if below is not None else []
