"""Removes casts to a value's own dtype once all types carry their policy: the casts only set a policy from there on."""

from __future__ import annotations

from tessera.compiler.graph.operator import BY_OP, tensor
from tessera.compiler.ir.core import Op

ASKING = ("contract", "scatter")
"""kinds whose rule or lowering reads the policy of the operands"""


def drop_policy_casts(func: Op) -> None:
    """Gives each user the value itself, in place; the casts are then dead."""
    for op in func.walk():
        if op.name != "graph.cast" or tensor(op.operands[0]).dtype != tensor(op.result).dtype:
            continue
        for user, i in list(op.result.uses):
            operator = BY_OP.get(user.name)
            if operator is not None and operator.kind not in ASKING:
                user.set_operand(i, op.operands[0])
