"""In which precision the sums of a program are made: what `tessera check --numerics` lists."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.compiler.frontend.analysis import Analysis
from tessera.compiler.frontend.checks.values import dtype_of, name_of
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import outside_kernels
from tessera.errors import Span
from tessera.language.dtypes import DType

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
        given, made, result = _given(op), _accumulator(op), dtype_of(op.result)
        rounded = f", rounded to {result}" if result != made else ""
        yield op.span, analysis.definition.text.segment(op.span), f"{given} summed in {made}{rounded}"


def _given(op: Op) -> DType:
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
