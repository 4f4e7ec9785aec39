"""Hints of accesses to a GPU's memory that touch more of it than they need: static figures.

They need the target's layouts, which this server never loads: a process of its own finds them from the same text, while
nobody types. Until it has, there are no hints; then the client is asked to ask again.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator, Mapping

from lsprotocol import types as lsp

from tessera.compiler.ir.core import Op
from tessera.compiler.levels import NoIR, Touched, accesses
from tessera.compiler.machines import CUDA_ARCHITECTURES, canonical
from tessera.editor.functions import Known
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer

PAUSE = 0.5
"""seconds without a change after which a process is started"""
MANY = 1.2
"""a request that touches so many times the sectors that would do gets a hint"""
State = tuple[str, tuple[tuple[str, int], ...]]
"""a target and sizes"""


class AccessHints:
    """Of one document, by analysis of a function: the state that they were found for, and accesses with lines counted
    from the function's first."""

    def __init__(self) -> None:
        self.known: dict[Op, tuple[State, list[Touched]]] = {}
        self.task: asyncio.Task[None] | None = None
        self.sought: tuple[State, set[Op]] | None = None
        """what the task is for"""

    def seeks(self, state: State, ops: Mapping[Op, Known]) -> bool:
        if self.task is None or self.task.done() or self.sought is None:
            return False
        return self.sought[0] == state and ops.keys() <= self.sought[1]


_of: dict[str, AccessHints] = {}


def of(server: TesseraServer, document: Document, lines: range) -> Iterator[lsp.InlayHint]:
    """At the end of a line, what its accesses touch, where a person has chosen a GPU and the sizes are known."""
    for closed in [uri for uri in _of if not server.is_open(uri)]:
        _end(_of.pop(closed))
    settings = server.settings_for(document)
    target = canonical(settings.target)
    if target not in CUDA_ARCHITECTURES:
        return
    own, state = _of.setdefault(document.uri, AccessHints()), (target, tuple(sorted(settings.dims.items())))
    asked = [k for k in document.known if k.analysis.op is not None and set(k.analysis.dims) <= set(settings.dims)]
    own.known = {op: own.known[op] for k in asked if (op := k.analysis.op) in own.known and own.known[op][0] == state}
    missing = {op: k for k in asked if (op := k.analysis.op) is not None and op not in own.known}
    if missing and not own.seeks(state, missing):
        _end(own)
        own.sought = state, set(missing)
        own.task = asyncio.ensure_future(_find(server, document, own, list(missing.values()), state))
    for known in asked:
        _, found = own.known.get(known.analysis.op, (state, []))
        for line in sorted({a.line for a in found}):
            at, some = known.first_line + line, [a for a in found if a.line == line]
            if at in lines:
                yield _hint(document, known, at, some)


def _hint(document: Document, known: Known, line: int, found: list[Touched]) -> lsp.InlayHint:
    worst = max(found, key=lambda a: a.sectors / a.least)
    spans = (known.span(node) for node in ast.walk(known.tree) if isinstance(node, (ast.stmt, ast.expr)))
    end = max((span.end_col for span in spans if span is not None and span.end_line == line), default=1)
    return lsp.InlayHint(
        position=document.text.at(line, end),
        label=f"{worst.sectors:.3g} sectors a request, {worst.least:.3g} at best",
        tooltip="\n".join(["Static, of 32 bytes, for arrays that start at a sector:", *(a.text for a in found)]),
        padding_left=True,
    )


async def _find(
    server: TesseraServer, document: Document, own: AccessHints, missing: list[Known], state: State
) -> None:
    target, sizes = state
    await asyncio.sleep(PAUSE)
    for known in missing:
        analysis, op = known.analysis, known.analysis.op
        assert op is not None
        try:
            found = await accesses(analysis, analysis.definition.source, target, dict(sizes))
        except NoIR:  # what does not compile is told by diagnostics
            found = []
        first = known.first_line
        own.known[op] = (
            state,
            [
                Touched(a.text.partition(": ")[2], a.file, a.line - first, a.sectors, a.least)
                for a in found
                if a.sectors > MANY * a.least and a.file == analysis.definition.file
            ],
        )
        if own.known[op][1]:
            server.refresh("inlay_hint")


def _end(own: AccessHints) -> None:
    """A process that works for an earlier text ends with its task."""
    if own.task is not None:
        own.task.cancel()
