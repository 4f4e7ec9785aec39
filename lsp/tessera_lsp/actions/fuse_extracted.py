"""Operators that the compiler keeps apart, as one kernel: it may walk what no group of operators can.

A product's operands in a group are in memory before it begins, and its rows are never whole. A kernel computes both
where it needs them: norms before a product, softmax between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tessera.compiler.frontend.analysis import Analysis
from tessera.compiler.ir.core import Op, Value
from tessera.language.dims import Dim
from tessera_lsp.actions import Offer, Selection, tried
from tessera_lsp.actions.fuse import KERNELS, TITLE, saved, size
from tessera_lsp.actions.part import selected
from tessera_lsp.announced import FUSE as KIND
from tessera_lsp.known import Known
from tessera_lsp.levels import NoIR, schedule
from tessera_lsp.predictions import machine_name

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.settings import Settings


def offer(
    document: Document, known: Known, selection: Selection, settings: Settings, groups: Sequence[Op]
) -> Offer | None:
    """`groups`: the kernels that what is selected is part of. None where a kernel of its own launches no fewer."""
    from tessera_lsp.actions.extract_kernel import extracted
    from tessera_lsp.actions.kernel_axes import NoKernel

    part = selected(known, selection)
    if part is None or part.empty:
        return None
    try:
        edits = extracted(document, known, part, settings.dims)
        after = tried(known, edits)
        fewer = _launches(known.analysis, settings) - _launches(after.analysis, settings) if after is not None else 0
    except (NoKernel, NoIR):
        return None
    if fewer < 1:
        return None
    kernels = f"{fewer + 1} kernels become one"
    return Offer(f"{TITLE} in a kernel: {kernels}{saved(_kept(groups), fewer, settings)}", KIND, edits)


def _launches(analysis: Analysis, settings: Settings) -> int:
    func = schedule(analysis, settings.dims, machine_name(settings.target))
    return sum(op.name in KERNELS for op in func.walk())


def _kept(groups: Sequence[Op]) -> Dim:
    """The bytes of what one of the groups writes and others read."""
    total: Dim = 0
    for r in (r for g in groups for r in g.results):
        readers = _readers(r)
        inside = [u for u in readers if u in groups]
        total = total + size(r) * (len(inside) + (0 < len(inside) == len(readers)))
    return total


def _readers(v: Value) -> list[Op]:
    """Who reads a value, perhaps through views of it."""
    return [
        reader
        for user in v.users
        for reader in (
            [o for r in user.results for o in _readers(r)]
            if user.name.startswith("graph.") and user.results
            else [user]
        )
    ]
