"""One form for what can be said in several: folds that change no bit of any result.

x * 1, x / 1 and x - 0 are replaced by x; x + 0 for integers only, since -0.0 + 0.0 is 0.0. Constants are folded through
operators that every target computes exactly, not through exp and its like.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import attributes_of, tensor
from tessera.compiler.graph.reference import evaluate_op
from tessera.compiler.ir.core import Builder, Op, Value
from tessera.compiler.ir.rewriter import Pattern, Step, rewrite
from tessera.compiler.ir.types import Shape
from tessera.language import dims, dtypes
from tessera.language.dtypes import DType

Rule = Callable[[GraphBuilder, Op], Value | None]
PATTERNS: dict[str, list[Pattern]] = {}
EXACT = {
    "add", "sub", "mul", "div", "floordiv", "mod", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor", "logical_not", "bit_and", "bit_or", "bit_xor", "bit_not",
    "shift_left", "shift_right", "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt", "square", "where",
    "cast",
}  # fmt: skip
"""operators on constants whose results are the same bits everywhere (correctly rounded, or integers)"""


def canonicalize(func: Op, trace: list[Step] | None = None) -> None:
    """Applies the rules below in place until none fits. `trace` receives every rewrite."""
    rewrite(func, PATTERNS, trace)


def _fold(builder: Builder, op: Op) -> Value | None:
    """Constants through exact operators."""
    if not _foldable(op):
        return None
    (folded,) = evaluate_op(op, [_as_array(v) for v in op.operands], {})
    return GraphBuilder(builder).constant(folded.item(), tensor(op.result).dtype)


def _foldable(op: Op) -> bool:
    constants = bool(op.operands) and all(constant_of(v) is not None for v in op.operands)
    return constants and tensor(op.result).dtype.bits >= 8


def _as_array(v: Value) -> Any:
    from tessera.language.rounding import round_to  # slow: NumPy, for programs in which something is folded

    return round_to(constant_of(v), tensor(v).dtype)


def constant_of(v: Value) -> bool | int | float | complex | None:
    """The number that a rank-0 constant holds; None for everything else."""
    op = v.op
    return cast("float", op.attrs["value"]) if op is not None and op.name == "graph.constant" else None


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the operators called `names`."""

    def add(f: Rule) -> Rule:
        @functools.wraps(f)
        def pattern(builder: Builder, op: Op) -> Value | None:
            return f(GraphBuilder(builder, at=op), op)

        for name in names:
            PATTERNS.setdefault(f"graph.{name}", []).append(pattern)
        return f

    return add


for _name in EXACT:
    PATTERNS[f"graph.{_name}"] = [_fold]


def _source(v: Value, name: str) -> Op | None:
    """The op that defines `v` if it is `graph.<name>`."""
    op = v.op
    return op if op is not None and op.name == f"graph.{name}" else None


def _number_of(v: Value) -> bool | int | float | complex | None:
    """The number that all elements of `v` are, where it is a constant under another shape."""
    while (op := v.op) is not None and op.name in ("graph.reshape", "graph.broadcast_to"):
        v = op.operands[0]
    return constant_of(v)


@rule("mul")
def _times_one(g: GraphBuilder, op: Op) -> Value | None:
    for x, one in (op.operands, op.operands[::-1]):
        if _number_of(one) == 1 and tensor(x).shape == tensor(op.result).shape:
            return x
    return None


@rule("div", "floordiv", "pow")
def _over_one(g: GraphBuilder, op: Op) -> Value | None:
    x, y = op.operands
    whole = op.name != "graph.floordiv" or not tensor(x).dtype.is_float
    return x if constant_of(y) == 1 and whole else None


@rule("pow")
def _squared(g: GraphBuilder, op: Op) -> Value | None:
    return g.square(op.operands[0]) if constant_of(op.operands[1]) == 2 else None


@rule("add")
def _plus_zero(g: GraphBuilder, op: Op) -> Value | None:
    for x, c in (op.operands, op.operands[::-1]):
        zero = constant_of(c)
        if zero == 0 and (tensor(x).dtype.is_integer or (isinstance(zero, float) and math.copysign(1, zero) < 0)):
            return x
    return None


@rule("sub")
def _minus_zero(g: GraphBuilder, op: Op) -> Value | None:
    x, y = op.operands
    zero = constant_of(y)
    positive = not isinstance(zero, float) or math.copysign(1, zero) > 0
    return x if zero == 0 and not isinstance(zero, complex) and positive else None


@rule("neg", "logical_not", "bit_not")
def _twice(g: GraphBuilder, op: Op) -> Value | None:
    inner = _source(op.operands[0], op.name.removeprefix("graph."))
    return inner.operands[0] if inner is not None else None


@rule("where")
def _decided(g: GraphBuilder, op: Op) -> Value | None:
    c, x, y = op.operands
    known = constant_of(c)
    return None if known is None else x if known else y


@rule("cast")
def _cast(g: GraphBuilder, op: Op) -> Value | None:
    x, target = op.operands[0], cast("DType", op.attrs["dtype"])
    if tensor(x).dtype == target:
        return x if tensor(x).policy == tensor(op.result).policy else None
    inner = _source(x, "cast")
    if inner is not None and dtypes.widens(tensor(inner.operands[0]).dtype, tensor(x).dtype):
        return g.to(inner.operands[0], target)
    return None


@rule("cast")
def _cast_of_full(g: GraphBuilder, op: Op) -> Value | None:
    """One number everywhere in another dtype is one number everywhere."""
    inner, t = _source(op.operands[0], "full"), tensor(op.result)
    if inner is None or t.policy is not None or not isinstance(inner.attrs["value"], (bool, int, float, complex)):
        return None
    return g.broadcast_to(g.to(g.constant(inner.attrs["value"], tensor(inner.result).dtype), t.dtype), t.shape)


@rule("reshape")
def _reshape(g: GraphBuilder, op: Op) -> Value | None:
    x, shape = op.operands[0], cast("Shape", op.attrs["shape"])
    if tensor(x).shape == shape:
        return x
    inner = _source(x, "reshape")
    return g.reshape(inner.operands[0], shape) if inner is not None else None


@rule("transpose")
def _transpose(g: GraphBuilder, op: Op) -> Value | None:
    x, perm = op.operands[0], cast("tuple[int, ...]", op.attrs["perm"])
    if perm == tuple(range(len(perm))):
        return x
    if (inner := _source(x, "transpose")) is not None:
        first = cast("tuple[int, ...]", inner.attrs["perm"])
        return g.transpose(inner.operands[0], tuple(first[i] for i in perm))
    return None


@rule("broadcast_to")
def _broadcast(g: GraphBuilder, op: Op) -> Value | None:
    x, shape = op.operands[0], cast("Shape", op.attrs["shape"])
    if tensor(x).shape == shape:
        return x
    inner = _source(x, "broadcast_to")
    return g.broadcast_to(inner.operands[0], shape) if inner is not None else None


@rule("slice")
def _slice(g: GraphBuilder, op: Op) -> Value | None:
    x = op.operands[0]
    start, stop, step = (cast("Shape", op.attrs[k]) for k in ("start", "stop", "step"))
    if all(a == 0 for a in start) and stop == tensor(x).shape and all(s == 1 for s in step):
        return x
    inner = _source(x, "slice")
    if inner is None or any(s != 1 for s in cast("Shape", inner.attrs["step"])):
        return None
    first = cast("Shape", inner.attrs["start"])
    shifted = (tuple(a + b for a, b in zip(first, at, strict=True)) for at in (start, stop))
    return g.slice(inner.operands[0], *shifted, step)


@rule("flip")
def _flip(g: GraphBuilder, op: Op) -> Value | None:
    x, axis = op.operands[0], op.attrs["axis"]
    if axis == () or all(tensor(x).shape[a] == 1 for a in cast("tuple[int, ...]", axis)):
        return x
    inner = _source(x, "flip")
    return inner.operands[0] if inner is not None and inner.attrs["axis"] == axis else None


@rule("sum", "prod", "max", "min", "any", "all")
def _reduced_nothing(g: GraphBuilder, op: Op) -> Value | None:
    return op.operands[0] if op.attrs["axis"] == () else None


@rule("sum", "prod", "any", "all")
def _reduced_empty(g: GraphBuilder, op: Op) -> Value | None:
    """A reduction of no elements is its identity."""
    out, shape = tensor(op.result), tensor(op.operands[0]).shape
    empty = any(shape[a] == 0 for a in cast("tuple[int, ...]", op.attrs["axis"]))
    identity = op.name in ("graph.prod", "graph.all")
    return (
        g.full(out.shape, bool(identity) if out.dtype.kind == "bool" else int(identity), out.dtype) if empty else None
    )


@rule("concat")
def _concat(g: GraphBuilder, op: Op) -> Value | None:
    axis = cast("int", op.attrs["axis"])
    kept = [v for v in op.operands if tensor(v).shape[axis] != 0]
    if not kept or len(kept) == len(op.operands) > 1:
        return None
    return kept[0] if len(kept) == 1 else g.concat(kept, axis=axis)


@rule("pad")
def _pad(g: GraphBuilder, op: Op) -> Value | None:
    nothing = all(a == 0 and b == 0 for a, b in cast("tuple[tuple[dims.Dim, dims.Dim], ...]", op.attrs["pad_width"]))
    return op.operands[0] if nothing else None


@rule("full")
def _full(g: GraphBuilder, op: Op) -> Value | None:
    attrs = attributes_of(op)
    known = isinstance(attrs["value"], (bool, int, float, complex))
    return g.constant(attrs["value"], attrs["dtype"]) if attrs["shape"] == () and known else None
