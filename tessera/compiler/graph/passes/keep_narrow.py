"""Lets kernels widen what they read of tensors that are kept in fewer bits, instead of copies that are wider."""

from __future__ import annotations

from tessera.compiler.graph.operator import BY_OP, kernel_for, split_operands, tensor, types_of
from tessera.compiler.ir.core import Op


def keep_narrow(func: Op) -> None:
    """Gives kernels the operands of casts, in place, where the operator says that its kernel takes them. Behind
    derivatives, which are by the operands that the operator has."""
    for op in func.walk():
        operator = BY_OP.get(op.name)
        if operator is None or operator.narrow is None:
            continue
        places = operator.narrow(types_of(split_operands(op)))
        wide = [op.operands[i] for i in places]
        casts = [v.op for v in wide if v.op is not None and v.op.name == "graph.cast"]
        kept = [cast.operands[0] for cast in casts]
        if not places or len(casts) < len(places) or len({tensor(v).dtype for v in kept}) > 1:
            continue
        if not tensor(kept[0]).dtype.is_low_precision or tensor(wide[0]).dtype.is_low_precision:
            continue
        for i, v in zip(places, kept, strict=True):
            op.set_operand(i, v)
        if kernel_for(op) is None:
            for i, v in zip(places, wide, strict=True):
                op.set_operand(i, v)
