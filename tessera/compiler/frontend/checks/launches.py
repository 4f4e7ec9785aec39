"""Kernel calls in functions: a kernel's store makes a new value, which must be used."""

from __future__ import annotations

from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import kernel_of, shows, stored


def unseen(op: Op, look: Look) -> Finding | None:
    """A kernel is called for what it stores to its arguments, as outside of functions, and nothing reads that."""
    changed = [r.hint for r, i in zip(op.results, stored(op), strict=True) if i < len(op.operands)]
    if not look.whole or not changed or any(r.uses for r in op.results) or shows(op):
        return None
    kernel, names = kernel_of(op).attrs["sym_name"], " and ".join(filter(None, changed)) or "its arguments"
    message = (
        f"{kernel} stores to {names}, and nothing reads what it stored, so it does not run. Tensors are values in a "
        f"function:\nthe caller's stay as they are. Return {names}, or leave the call out."
    )
    return Finding("TS416", message, op.span, look.without("Leave the call out", op.span))
