"""Hints of what functions keep for their backward passes: loaded when a file has one that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lsprotocol import types as lsp

from tessera.compiler.lower.memory_limit import shown
from tessera.compiler.schedule.saved_values import KeptValue
from tessera.editor.kept import HINTED, KeptValues, why
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer

_found: dict[str, KeptValues] = {}
"""by document, what was found at its last hints"""


def of(server: TesseraServer, document: Document, lines: range) -> Iterator[lsp.InlayHint]:
    """Behind an assignment how many bytes of it are kept for a backward pass, where sizes are known."""
    for closed in [uri for uri in _found if not server.is_open(uri)]:
        del _found[closed]
    settings = server.settings_for(document)
    values = _found.setdefault(document.uri, KeptValues(HINTED)).of(document.programs, settings.dims, settings.target)
    kept: dict[tuple[int, str], list[KeptValue]] = {}
    for v in values:
        if v.name and v.at.file == document.file and v.at.line in lines and isinstance(v.bytes, int):
            kept.setdefault((v.at.line, v.name), []).append(v)
    ends = _ends(document, {line for line, _ in kept})
    assigned = {(e.span.line, e.name) for k in document.shown for e in k.expressions if e.kind == "assign"}
    for (line, name), found in kept.items():
        if line in ends and (line, name) in assigned:
            yield lsp.InlayHint(
                position=document.text.at(line, ends[line]),
                label=f"kept {shown(sum(v.bytes for v in found if isinstance(v.bytes, int)))}",
                tooltip="\n".join(why(v, settings.target) for v in found),
                padding_left=True,
            )


def _ends(document: Document, lines: set[int]) -> dict[int, int]:
    """The column behind the assignment that each of these lines is."""
    found: dict[int, int] = {}
    for known in document.shown:
        if not any(known.first_line <= line <= known.last_line for line in lines):
            continue
        for node in ast.walk(known.tree):
            span = known.span(node) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
            if span is not None and span.line == span.end_line and span.line in lines:
                found.setdefault(span.line, span.end_col)
    return found
