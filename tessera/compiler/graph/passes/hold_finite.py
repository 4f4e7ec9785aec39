"""The policy `saturate`: what an operator computes is held at the largest finite value of its dtype.

A step of its own behind each operator that rounds, so that it is seen in the IR and fused with what it follows. What
only moves or selects elements keeps an infinity that was written, such as that of a mask.
"""

from __future__ import annotations

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY, attributes_of, facts_of, operator_of, split_operands, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes

SELECTING = frozenset(("where", "maximum", "minimum", "max", "min", "neg", "abs", "relu", "sign"))
"""what computes element by element, or along an axis, and gives only what it was given"""


def hold_finite(func: Op) -> None:
    """Adds the step behind each result under the policy, in place."""
    for op in func.walk():
        held = [r for r in op.results if _saturates(r)]
        if held and op.block is not None and rounds(op):
            for result in held:
                _hold(op, result)


def _saturates(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.is_float and bool(v.type.policy and v.type.policy.saturate)


def rounds(op: Op) -> bool:
    """Whether an operator computes floats, by itself or in its decomposition."""
    name = op.name.removeprefix("graph.")
    if name not in REGISTRY or not any(tensor(r).dtype.is_float for r in op.results):
        return False
    if name == "cast" and dtypes.widens(tensor(op.operands[0]).dtype, tensor(op.result).dtype):
        return False
    operator = operator_of(op)
    if operator.decompose is not None:
        block = Block()
        g = GraphBuilder(Builder(block, span=op.span), facts_of(op))
        made = operator.decompose(g, *split_operands(op), **attributes_of(op))
        inner = list(block.ops)
        found = any(rounds(o) for o in inner)
        for o in reversed(inner):
            o.erase()
        if made is not None:
            return found
    moves = operator.kind in ("view", "join", "gather", "sort", "generate", "random", "control")
    return not moves and name not in SELECTING


def _hold(op: Op, result: Value) -> None:
    assert op.block is not None
    uses = list(result.uses)
    most = tensor(result).dtype.maximum
    g = GraphBuilder(Builder(op.block, op.block.index(op) + 1, op.span), facts_of(op))
    held = g.clip(result, -most, most)
    for user, i in uses:
        user.set_operand(i, held)
