"""Shapes beside names: after an assignment where the type is new, and after parameters annotated by another name.

Each dim of a hint is a part of its own, which leads to where the dim was bound.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from tessera.compiler.frontend.analysis import ExprInfo
from tessera.compiler.ir.types import IndexType
from tessera_lsp.known import Known, is_tensor
from tessera_lsp.names import bound_by, parameters

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer

_WORD = re.compile(r"([^\W\d]\w*)")


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT, lsp.InlayHintOptions(resolve_provider=False))
    async def inlay_hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        document = await server.document(params.text_document)
        first, last = (document.text.place(p)[0] for p in (params.range.start, params.range.end))
        return [
            _hint(document, known, e)
            for known in document.known
            if known.first_line <= last and known.last_line >= first
            for e in shown(known)
            if first <= e.span.end_line <= last
        ]


def shown(known: Known) -> Iterator[ExprInfo]:
    """The expressions that get a hint, in the order of the text.

    A name is given its type again only where that differs from what stands beside it above; that a coordinate is an
    index is no news.
    """
    named = {p.arg for p in parameters(known.tree) if isinstance(p.annotation, (ast.Name, ast.Attribute))}
    found = {
        e.span: e
        for e in known.expressions
        if (e.kind == "assign" and not isinstance(e.type, IndexType))
        or (e.kind == "param" and e.name in named and is_tensor(e.type) and e.type.shape)
    }
    types: dict[str, Any] = {e.name: e.text for e in known.expressions if e.kind == "param"}
    for e in sorted(found.values(), key=lambda e: (e.kind != "param", e.span.line, e.span.col)):
        if e.kind == "assign" and (types.get(e.name) == e.text or e.name == e.text):
            continue
        types[e.name] = e.text
        yield e


def _hint(document: Document, known: Known, e: ExprInfo) -> lsp.InlayHint:
    parameter = e.kind == "param"
    return lsp.InlayHint(
        position=document.text.at(e.span.end_line, e.span.end_col),
        label=_label(document, known, e.text, "" if parameter else ": "),
        kind=lsp.InlayHintKind.Type,
        padding_left=parameter,
    )


def _label(document: Document, known: Known, text: str, lead: str) -> list[lsp.InlayHintLabelPart]:
    parts: list[lsp.InlayHintLabelPart] = []
    plain = lead
    for i, word in enumerate(_WORD.split(text)):
        span = known.dims.get(word) if i % 2 else None
        if span is None:
            plain += word
            continue
        if plain:
            parts.append(lsp.InlayHintLabelPart(plain))
            plain = ""
        axes = bound_by(known, word)
        parts.append(
            lsp.InlayHintLabelPart(
                word,
                tooltip=f"{word} is {' and '.join(axes).replace('`', '')}" if axes else f"the dim {word}",
                location=document.location(span),
            )
        )
    return [*parts, lsp.InlayHintLabelPart(plain)] if plain else parts
