"""Narrow formats: casts to 8 bits without a scale, and sums in 16 bits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.checks.ranges import behind, constant, dtype_of, name_of, smallest
from tessera.compiler.frontend.fixes import CandidateFix
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.launches import outside_kernels
from tessera.errors import Note, Span
from tessera.language.dtypes import DType

LONG = 16
"""steps of a loop from which a sum in 16 bits counts as long"""

_MOVED = ("slice", "concat", "transpose", "permute")
_KEPT = (*_MOVED, "where", "clip", "maximum", "minimum", "round", "neg", "abs", "relu")


def unscaled(op: Op, look: Look) -> Finding | None:
    """cast(x, fp8) of values that nothing has brought into the format's range."""
    source, target = dtype_of(op.operands[0]), dtype_of(op.result)
    if not (source.is_float and target.is_float) or target.bits > 8 or source.bits <= 8 or target.exponent >= 8:
        return None
    low, high = look.ranges.of(op.operands[0])
    policy = getattr(op.result.type, "policy", None)
    if (-target.maximum <= low and high <= target.maximum) or _scaled(op.operands[0]) or (policy and policy.loss_scale):
        return None
    message = (
        f"{target} holds magnitudes from {smallest(target):.2g} to {target.maximum:g}: what is larger becomes "
        f"{target.maximum:g}, what is smaller 0.\n"
        f"Multiply by a scale first, such as {target.maximum:g} / max(abs(x)), and divide by it after use."
    )
    return Finding("TS313", message, op.span)


def _scaled(v: Value, depth: int = 8) -> bool:
    """Whether the values were multiplied or divided by something that is the same for many of them."""
    op = behind(v).op
    if op is None or depth == 0:
        return False
    if name_of(op) in ("mul", "div"):
        return any(_is_scale(x, op.result) for x in op.operands)
    return name_of(op) in _KEPT and any(_scaled(x, depth - 1) for x in op.operands)


def _is_scale(x: Value, of: Value) -> bool:
    narrow, wide = getattr(behind(x).type, "shape", ()), getattr(of.type, "shape", ())
    return narrow != wide or constant(x) is not None


def narrow_sum(op: Op, look: Look) -> Finding | None:
    """acc = acc + term in a loop, where acc has 16 bits or fewer and the terms do not depend on it."""
    carried, body = op.operands[3:], op.region.block
    if _steps(op) < LONG:
        return None
    for i, start in enumerate(carried):
        dtype = dtype_of(start)
        if not dtype.is_float or dtype.bits > 16:
            continue
        total = behind(body.terminator.operands[i]).op
        if total is None or name_of(total) not in ("add", "sub"):
            continue
        own = body.args[i + 1]
        sides = [behind(x) for x in total.operands]
        rest = [x for x in sides if x is not own]
        if len(rest) != 1 or _depends(rest[0], own):
            continue
        return _long_sum(total, start, look)
    return None


def unrolled_sum(op: Op, look: Look) -> Finding | None:
    """The same in a loop that was unrolled: one addition of the text, that often in a row."""
    dtype = dtype_of(op.result)
    if not dtype.is_float or dtype.bits > 16 or any(_same_addition(op, u) for u in op.result.users):
        return None
    steps, first = 1, op
    while (earlier := _earlier(first)) is not None:
        steps, first = steps + 1, earlier
    before = _earlier(op)
    if before is None or steps < LONG or any(_depends(x, before.result) for x in _terms(op)):
        return None
    start = [
        x for x in map(behind, first.operands) if x.op is None or not op.span.contains(x.op.span.line, x.op.span.col)
    ]
    return _long_sum(op, start[0] if len(start) == 1 else None, look)


def _same_addition(op: Op, other: Op) -> bool:
    return name_of(other) == name_of(op) and other.span == op.span


def _earlier(op: Op) -> Op | None:
    """The step before, whose result this addition goes on with."""
    found = [x.op for x in map(behind, op.operands) if x.op is not None and _same_addition(op, x.op)]
    return found[0] if len(found) == 1 else None


def _terms(op: Op) -> list[Value]:
    return [x for x in map(behind, op.operands) if x.op is None or not _same_addition(op, x.op)]


def _long_sum(total: Op, start: Value | None, look: Look) -> Finding:
    dtype = dtype_of(total.result if start is None else start)
    message = (
        f"this sum is kept in {dtype}, which has {dtype.mantissa + 1} binary digits: once it is "
        f"{2 ** (dtype.mantissa + 1)} times a term, adding the term changes nothing.\n"
        "Keep it in f32 and cast the result."
    )
    place = None if start is None else _start(start)
    notes = (Note("it starts here", place),) if place is not None else ()
    return Finding("TS317", message, total.span, _wider(start, look) if start is not None else [], notes)


def _steps(op: Op) -> float:
    lower, upper, step = (constant(v) if constant(v) is not None else _dim(v) for v in op.operands[:3])
    if lower is None or upper is None or not step:
        return float("inf")
    return (upper - lower) / step


def _dim(v: Value) -> float | None:
    size = v.op.attrs.get("dim") if v.op is not None else None
    return float(size) if isinstance(size, int) else None


def _depends(v: Value, on: Value) -> bool:
    """Whether `v` is computed from `on` inside the loop: then it is a state that changes, and no sum."""
    queue, seen = [v], set[int]()
    while queue:
        x = queue.pop()
        if x is on:
            return True
        if x.op is None or id(x) in seen:
            continue
        seen.add(id(x))
        queue += x.op.operands
        queue += [y for r in x.op.regions for b in r.blocks for inner in b.ops for y in inner.operands]
    return False


def _start(v: Value) -> Span | None:
    op = behind(v).op
    return op.span if op is not None else None


def _wider(start: Value, look: Look) -> list[CandidateFix]:
    """f32 in place of the narrow dtype where the sum starts."""
    op = behind(start).op
    node = look.node(op.span) if op is not None else None
    if not isinstance(node, ast.Call):
        return []
    narrow = dtype_of(start).name
    for given in [*node.args, *(k.value for k in node.keywords)]:
        text = look.text(given)
        if text.rpartition(".")[2] == narrow:
            return [look.replaced("Start from f32", (given, text[: len(text) - len(narrow)] + "f32"))]
    return []


# In which precision the sums of a program are made: what `tessera check --numerics` lists.

_SUMS = frozenset({
    "sum", "mean", "var", "std", "norm", "prod", "logsumexp", "cumsum", "cumprod", "matmul", "einsum", "dot",
    "contract", "linear", "attention", "softmax", "log_softmax", "layer_norm", "rms_norm", "cross_entropy", "mse",
    "mma",
})  # fmt: skip


def accumulations(analysis: Analysis) -> Iterator[tuple[Span, str, str]]:
    """Place, text and `f16 summed in f32, rounded to f16` of every sum that the function's own text makes."""
    seen: set[Span] = set()
    for op in outside_kernels(*analysis.evaluated):
        if name_of(op) not in _SUMS or op.span.file != analysis.definition.file or op.span in seen:
            continue
        seen.add(op.span)
        given, made, result = _operand_dtype(op), _accumulator(op), dtype_of(op.result)
        rounded = f", rounded to {result}" if result != made else ""
        yield op.span, analysis.definition.text.segment(op.span), f"{given} summed in {made}{rounded}"


def _operand_dtype(op: Op) -> DType:
    """The dtype of what is summed; a kernel's values have been widened where they were loaded."""
    v = op.operands[0]
    while v.op is not None and v.op.name == "tile.cast":
        v = v.op.operands[0]
    return dtype_of(v)


def _accumulator(op: Op) -> DType:
    if op.dialect == "tile":
        return dtype_of(op.result)
    policy = getattr(op.result.type, "policy", None)
    return policy.accum if policy is not None and policy.accum is not None else dtype_of(op.operands[0]).accumulate
