"""Accesses of a kernel that a GPU could make in whole vectors, if a size were known to be a multiple."""

from __future__ import annotations

from collections.abc import Iterator

from tessera import knobs
from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.fixes import CandidateFix, at_top
from tessera.compiler.ir.core import Op
from tessera.compiler.machines import is_gpu
from tessera.compiler.tile.offsets import Bounds
from tessera.compiler.tile.vectors import Narrow, assertion, narrow
from tessera.errors import Fix, Note


def narrow_accesses(ops: list[Op], look: Look) -> Iterator[Finding]:
    """One finding for the sizes of each assert that would help, where the target moves memory in vectors."""
    kernel = ops[0].block.region.op if ops and ops[0].block is not None and ops[0].block.region is not None else None
    if kernel is None or not is_gpu(knobs.target()):
        return
    bounds = Bounds(kernel, look.facts, aligned=frozenset(kernel.region.block.args))
    found: dict[tuple[str, ...], list[tuple[Op, Narrow]]] = {}
    for op in ops:
        access = narrow(op, bounds) if op.span.file == look.file else None
        if access is not None and access.sizes and look.dims >= {*access.sizes}:
            found.setdefault(access.sizes, []).append((op, access))
    for sizes, accesses in found.items():
        op, access = max(accesses, key=lambda a: a[1].elements)  # multiples of 8 are some of 4
        said = assertion(dict.fromkeys(sizes, access.elements))
        message = f"{access}.\nSay so at the top, if it is: {said}"
        edit = at_top(look.definition, said)
        fixes = [CandidateFix(Fix(f"Insert {said}", (edit,)))] if edit is not None else []
        others = {
            (o.span.line, o.span.col): Note(f"{a.view.hint or 'the array'} here too", o.span)
            for o, a in accesses
            if o.span != op.span
        }
        yield Finding("TS417", message, op.span, fixes, tuple(others.values()), "note")
