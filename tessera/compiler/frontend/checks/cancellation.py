"""Differences of nearly equal numbers, and squares that overflow, for which an exact function exists."""

from __future__ import annotations

import ast

from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.checks.ranges import behind, constant, dtype_of, made_by, name_of, same, square_of
from tessera.compiler.frontend.fixes import CandidateFix
from tessera.compiler.graph.operator import axes_of
from tessera.compiler.ir.core import Op, Value
from tessera.language.dtypes import DType


def _digits(dtype: DType) -> str:
    return f"the digits that {dtype} has not kept"


def _float(v: Value) -> bool:
    return dtype_of(v).is_float


def exponential_less_one(op: Op, look: Look) -> Finding | None:
    """exp(x) - 1, also spelled exp(x) + -1."""
    i = 0
    if name_of(op) == "add":
        i = 1 if constant(op.operands[0]) is not None else 0
    e = made_by(op.operands[i], "exp")
    if e is None or constant(op.operands[1 - i]) != (-1 if name_of(op) == "add" else 1) or not _float(e.result):
        return None
    message = f"exp(x) - 1 is wrong near x = 0: the 1 has pushed out {_digits(dtype_of(e.result))}.\nUse expm1(x)."
    node = look.node(op.span)
    call = look.call(node.left, "exp") if isinstance(node, ast.BinOp) and name_of(op) == "sub" else None
    fixes = [look.replaced("Use expm1", (node, call.named("expm1")))] if node is not None and call is not None else []
    return Finding("TS314", message, op.span, fixes)


def one_less_cosine(op: Op, look: Look) -> Finding | None:
    """1 - cos(x)."""
    c = made_by(op.operands[1], "cos")
    if c is None or constant(op.operands[0]) != 1 or not _float(c.result):
        return None
    message = (
        f"1 - cos(x) is wrong near x = 0: cos(x) is nearly 1 there, and the difference lacks "
        f"{_digits(dtype_of(c.result))}.\nUse 2 * sin(x / 2)**2, which is the same."
    )
    node, fixes = look.node(op.span), list[CandidateFix]()
    if isinstance(node, ast.BinOp) and (call := look.call(node.right, "cos")) is not None:
        sine = call.named("sin", f"{look.atom(call.operand)} / 2")
        fixes = [look.replaced("Use 2 * sin(x / 2)**2", (node, f"2 * {sine} ** 2"))]
    return Finding("TS314", message, op.span, fixes)


def difference_of_means(op: Op, look: Look) -> Finding | None:
    """mean(x * x) - mean(x)**2."""
    squares, mean = _averaged(op.operands[0]), square_of(op.operands[1])
    plain = _averaged(mean) if mean is not None else None
    x = square_of(squares.operands[0]) if squares is not None else None
    if squares is None or plain is None or x is None or not same(x, plain.operands[0]):
        return None
    if axes_of(squares) != axes_of(plain) or not _float(op.result):
        return None
    message = (
        "this variance loses its digits: where the mean is large beside the spread, two nearly equal numbers are "
        "subtracted, and the result may even be negative.\n"
        + (
            "Take the mean off first: mean((x - mean)**2)."
            if look.kernel
            else "Use var(x), which takes the mean off first."
        )
    )
    return Finding("TS314", message, op.span, _variance(op, squares, look))


def _averaged(v: Value) -> Op | None:
    """The mean, or the sum that is divided by a number."""
    v = behind(v)
    if (op := made_by(v, "mean")) is not None:
        return op
    scaled = made_by(v, "div", "mul")
    if scaled is None:
        return None
    total, count = (made_by(x, "sum") for x in scaled.operands)
    return total if count is None else None


def _variance(op: Op, squares: Op, look: Look) -> list[CandidateFix]:
    """`x.var(...)` with the arguments of the mean of squares, where the whole difference stands as one expression."""
    node, mean = look.node(op.span), look.node(squares.span)
    if look.kernel or not isinstance(node, ast.BinOp) or not isinstance(mean, ast.Call) or name_of(squares) != "mean":
        return []
    if op.result.type != squares.result.type:  # the other mean has lost an axis that this one has kept
        return []
    call = look.call(mean, "mean")
    if call is None:
        return []
    value = call.operand
    if isinstance(value, ast.BinOp):
        value = value.left
    elif (inner := look.call(value, "square")) is not None:
        value = inner.operand
    else:
        return []
    operand = look.text(value) if call.prefix else look.atom(value)
    text = call.named("var", operand, call.rest) if call.prefix else f"{operand}.var({call.rest})"
    return [look.replaced("Use var", (node, text))]


def logarithm_of_one_more(op: Op, look: Look) -> Finding | None:
    """log(1 + x), and log(1 + exp(x))."""
    total = made_by(op.operands[0], "add")
    if total is None or not _float(total.result):
        return None
    ones = [i for i in (0, 1) if constant(total.operands[i]) == 1]
    if not ones or not _float(behind(total.operands[1 - ones[0]])):
        return None
    e = made_by(total.operands[1 - ones[0]], "exp")
    name = "softplus" if e is not None else "log1p"
    why = (
        "is infinite for large x and 0"
        if e is not None
        else f"is wrong near x = 0: the 1 has pushed out {_digits(dtype_of(op.result))}"
    )
    message = f"log(1 + exp(x)) {why} for x far below 0" if e is not None else f"log(1 + x) {why}"
    fixes = list[CandidateFix]()
    call = look.call(look.node(op.span), "log")
    if call is not None and isinstance(call.operand, ast.BinOp) and isinstance(call.operand.op, ast.Add):
        sides = [call.operand.left, call.operand.right]
        rest = [s for s in sides if not (isinstance(s, ast.Constant) and s.value == 1)]
        inner = look.call(rest[0], "exp") if e is not None and len(rest) == 1 else None
        new = inner.operand if inner is not None else rest[0] if e is None and len(rest) == 1 else None
        if new is not None:
            fixes = [look.replaced(f"Use {name}", (call.node, call.named(name, look.text(new))))]
    return Finding("TS314", f"{message}.\nUse {name}(x).", op.span, fixes)


def logarithm_of_activation(op: Op, look: Look) -> Finding | None:
    """log of softmax(x), sigmoid(x) and 1 - sigmoid(x), which is -inf where the probability is rounded to 0."""
    p = made_by(op.operands[0], "softmax", "sigmoid")
    if p is None:
        return _logarithm_of_complement(op, look)
    name = name_of(p)
    better = "log_softmax(x)" if name == "softmax" else "-softplus(-x)"
    message = f"log({name}(x)) is -inf where {name}(x) is rounded to 0, and loses digits before that.\nUse {better}."
    fixes = list[CandidateFix]()
    call = look.call(look.node(op.span), "log")
    inner = look.call(call.operand, name) if call is not None else None
    if call is not None and inner is not None:
        if name == "softmax":
            fixes = [look.replaced("Use log_softmax", (call.node, inner.named("log_softmax", rest=inner.rest)))]
        else:
            text = look.operand(call.node, "-" + inner.named("softplus", f"-{look.atom(inner.operand)}"))
            fixes = [look.replaced("Use -softplus(-x)", (call.node, text))]
    return Finding("TS314", message, op.span, fixes)


def _logarithm_of_complement(op: Op, look: Look) -> Finding | None:
    rest = made_by(op.operands[0], "sub")
    p = made_by(rest.operands[1], "sigmoid") if rest is not None and constant(rest.operands[0]) == 1 else None
    if p is None:
        return None
    message = (
        "log(1 - sigmoid(x)) is -inf where sigmoid(x) is rounded to 1, and loses digits before that.\nUse -softplus(x)."
    )
    fixes = list[CandidateFix]()
    call = look.call(look.node(op.span), "log")
    inner = look.call(call.operand.right, "sigmoid") if call and isinstance(call.operand, ast.BinOp) else None
    if call is not None and inner is not None:
        text = look.operand(call.node, "-" + inner.named("softplus", look.text(inner.operand)))
        fixes = [look.replaced("Use -softplus(x)", (call.node, text))]
    return Finding("TS314", message, op.span, fixes)


def root_of_squares(op: Op, look: Look) -> Finding | None:
    """sqrt(a * a + b * b), whose squares overflow long before the root does."""
    total = made_by(op.operands[0], "add")
    parts = [square_of(v) for v in total.operands] if total is not None else []
    dtype = dtype_of(op.result)
    if len(parts) != 2 or None in parts or not dtype.is_float:
        return None
    bound = dtype.maximum**0.5
    message = (
        f"the squares overflow for elements beyond {bound:.3g}, and are 0 below {bound**-1:.1g}, although the root "
        f"would fit {dtype}.\nUse hypot(a, b)."
    )
    call, fixes = look.call(look.node(op.span), "sqrt"), list[CandidateFix]()
    if call is not None and isinstance(call.operand, ast.BinOp) and not look.kernel:
        a, b = (_squared(look, side) for side in (call.operand.left, call.operand.right))
        if a is not None and b is not None:
            text = (
                call.named("hypot", f"{look.text(a)}, {look.text(b)}")
                if call.prefix
                else (f"{look.atom(a)}.hypot({look.text(b)})")
            )
            fixes = [look.replaced("Use hypot", (call.node, text))]
    return Finding("TS318", message, op.span, fixes, severity="warning" if dtype.maximum < 1e5 else "note")


def _squared(look: Look, node: ast.expr) -> ast.expr | None:
    """x in the text of x * x, x**2 or square(x)."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Pow)):
        return node.left
    call = look.call(node, "square")
    return call.operand if call is not None else None
