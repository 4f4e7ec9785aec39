"""Shapes beside names: after an assignment where the type is new, and after parameters annotated by another name.
After one that brings state: what the function does with it. Before the indices of a kernel: the axis that each stands
at, where there are fewer of them than axes.

Each dim of a hint is a part of its own, which leads to where the dim was bound. A hint can be inserted as annotation:
whether the text stands it is tried when somebody points at the hint.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from lsprotocol import types as lsp

from tessera.compiler.frontend.called.inside import CalledProgram
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.names.values import is_dict, is_tuple
from tessera.compiler.frontend.result import ExprInfo, type_text
from tessera.compiler.frontend.sizes import defaults
from tessera.compiler.ir.types import IndexType, shape_text
from tessera.editor.functions import Known, is_tensor, policy_of, takes_gradients
from tessera.editor.names import bound_by, parameters
from tessera.editor.refactor import annotate
from tessera_lsp.document import Document
from tessera_lsp.features import live_values
from tessera_lsp.features.live_values import LiveCell
from tessera_lsp.server import TesseraServer
from tessera_lsp.settings import Settings

_WORD = re.compile(r"([^\W\d]\w*)")
EVERYTHING = Settings()
NEAR = 2
"""lines above and below the cursor whose hints are shown in quiet mode too"""


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    async def inlay_hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        document = await server.document(params.text_document, shapes=True)
        first, last = (document.text.place(p)[0] for p in (params.range.start, params.range.end))
        near = _near(server, document) if server.settings.quiet else None
        there = [k for k in document.shown if k.first_line <= last and k.last_line >= first]
        types = [
            _hint(document, known, e, _text(e.type, server.settings))
            for known in there
            for e in shown(known, server.settings)
            if first <= e.span.end_line <= last and (near is None or e.span.line in near or _reshapes(known, e))
        ]
        indices = [
            _index_hint(document, e)
            for known in there
            for e in found_axes(known, server.settings)
            if first <= e.span.line <= last and (near is None or e.span.line in near)
        ]
        presets = [
            hint
            for known in there
            if server.settings.shapes
            for hint in _presets(document, known, server.settings_for(document))
            if near is None or document.text.place(hint.position)[0] in near
        ]
        kept = (
            _kept(server, document, range(first, last + 1)) if any(map(_has_backward_pass, document.programs)) else ()
        )
        touched = _touched(server, document, range(first, last + 1))
        cell = await live_values.cell_at(server, params.text_document)
        rows = range(params.range.start.line, params.range.end.line + 1)
        live = [h for h in _live(server, cell) if h.position.line in rows] if cell is not None else ()
        if cell is not None and server.settings.sizes:
            _explain_sizes(cell, types)
        return [*presets, *types, *indices, *kept, *touched, *live]

    @server.feature(lsp.INLAY_HINT_RESOLVE)
    async def resolve(hint: lsp.InlayHint) -> lsp.InlayHint:
        if isinstance(hint.data, str):
            document = await server.document(lsp.TextDocumentIdentifier(hint.data))
            place = document.text.place(hint.position)
            known = document.function_at(place[0])
            edit = annotate.at(document, known, *place) if known is not None else None
            if edit is not None:
                hint.text_edits = [lsp.TextEdit(document.text.span_range(edit.span), edit.text)]
        return hint


def _kept(server: TesseraServer, document: Document, lines: range) -> Iterable[lsp.InlayHint]:
    from tessera_lsp.features import kept_hints  # slow: it schedules programs, which few files have it do

    return kept_hints.of(server, document, lines)


def _touched(server: TesseraServer, document: Document, lines: range) -> Iterable[lsp.InlayHint]:
    from tessera_lsp.features import access_hints  # slow: as above, for those who have chosen a GPU

    return access_hints.of(server, document, lines) if server.settings_for(document).target != "auto" else ()


def _live(server: TesseraServer, cell: LiveCell) -> Iterator[lsp.InlayHint]:
    """In a notebook's cells, those without `%%tessera` too, what the kernel tells: values of arrays, sizes of calls."""
    settings = server.settings
    near = _near(server, cell) if settings.quiet else None
    for hint in live_values.hints(cell, settings) if settings.values else ():
        line = cell.text.place(hint.position)[0]
        if near is None or line in near:
            yield hint
    yield from live_values.calls(cell) if settings.sizes else ()


def _explain_sizes(cell: LiveCell, hints: Iterable[lsp.InlayHint]) -> None:
    """The tooltips of dims say what these were at the last call."""
    for hint in hints:
        call = live_values.call_at(cell, hint.position.line)
        for part in hint.label if call is not None and not isinstance(hint.label, str) else ():
            if call is not None and part.value in call.sizes:
                part.tooltip = "\n".join(filter(None, (str(part.tooltip or ""), call.text([part.value]))))


def _has_backward_pass(program: CalledProgram) -> bool:
    return takes_gradients(program.analysis)


def shown(known: Known, settings: Settings = EVERYTHING) -> Iterator[ExprInfo]:
    """The expressions that get a hint, in the order of the function.

    A name is given its type again only where that differs from what stands beside it above; that a coordinate is an
    index is no news, nor is a counter's own name.
    """
    named = {p.arg for p in parameters(known.tree) if isinstance(p.annotation, (ast.Name, ast.Attribute, type(None)))}
    found = {
        e.span: e
        for e in known.expressions
        if (e.kind == "assign" and not isinstance(e.type, IndexType))
        or (e.kind == "param" and e.name in named and is_tensor(e.type) and e.type.shape)
    }
    yield from (e for e in known.expressions if e.kind == "state")
    texts = {e.name: _text(e.type, settings) for e in known.expressions if e.kind == "param"}
    for e in sorted(found.values(), key=lambda e: (e.kind != "param", e.span.line, e.span.col)):
        text = _text(e.type, settings)
        if not text or (e.kind == "assign" and (texts.get(e.name) == text or e.name == text)):
            continue
        texts[e.name] = text
        yield e


def found_axes(known: Known, settings: Settings = EVERYTHING) -> list[ExprInfo]:
    """The indices of which a rule says where they stand. As many indices as axes speak for themselves."""
    return [e for e in known.expressions if e.kind == "index" and settings.shapes and not e.type.complete]


def _presets(document: Document, known: Known, settings: Settings) -> Iterator[lsp.InlayHint]:
    """Behind numbers that are known when a function is compiled: what is shown of it holds for their defaults."""
    preset = defaults(known.analysis, settings.dims)
    for p in definition_signature(known.analysis.definition).parameters if preset else ():
        span = known.span(p.default) if p.default is not None else None
        dim = str(getattr(p.annotation, "dim", None) or p.name)
        if span is not None and dim in preset:
            yield lsp.InlayHint(
                position=document.text.at(span.end_line, span.end_col),
                label="(default)",
                tooltip=f"What is shown below is for {p.name}={preset[dim]}; a call may give another value.",
                padding_left=True,
            )


def _index_hint(document: Document, e: ExprInfo) -> lsp.InlayHint:
    return lsp.InlayHint(
        position=document.text.at(e.span.line, e.span.col),
        label=f"{e.type.label}:",
        kind=lsp.InlayHintKind.Parameter,
        tooltip=e.type.pretty(),
        padding_right=True,
    )


def _text(type: Any, settings: Settings) -> str:
    """What of a type is to be shown."""
    if is_tuple(type):
        inner = [_text(t, settings) for t in type]
        return f"({', '.join(inner)})" if any(inner) else ""
    if is_dict(type):
        fields = {name: _text(t, settings) for name, t in type.items()}
        return f"{{{', '.join(f'{n}: {t}' for n, t in fields.items())}}}" if any(fields.values()) else ""
    if not is_tensor(type):
        return type_text(type) if settings.shapes else ""
    shape, policy = shape_text(type.shape), policy_of(type)
    rest = type_text(type).removeprefix(f"{shape} {type.dtype}").removesuffix(policy).strip()
    parts = (settings.shapes, shape), (settings.dtypes, str(type.dtype)), (settings.shapes, rest)
    return " ".join(text for wanted, text in (*parts, (settings.policies, policy)) if wanted and text)


def _near(server: TesseraServer, document: Document | LiveCell) -> range:
    """The lines around the cursor."""
    if server.cursor is None or server.cursor[0] != document.uri:
        return range(0)
    line = document.text.place(lsp.Position(server.cursor[1], 0))[0]
    return range(line - NEAR, line + NEAR + 1)


def _reshapes(known: Known, e: ExprInfo) -> bool:
    """Whether the shape is another than that of everything the value is computed from."""
    shape = e.type.shape if is_tensor(e.type) else None
    for statement in ast.walk(known.tree):
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or statement.value is None:
            continue
        whole = known.span(statement)
        if whole is not None and whole.contains(e.span.line, e.span.col):
            read = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
            types = (known.type_of(name, whole.line, whole.col) for name in read)
            return not any(is_tensor(t) and t.shape == shape for t in types)
    return True


def _hint(document: Document, known: Known, e: ExprInfo, text: str) -> lsp.InlayHint:
    parameter = e.kind in ("param", "state")
    return lsp.InlayHint(
        position=document.text.at(e.span.end_line, e.span.end_col),
        label=_label(document, known, text, "" if parameter else ": "),
        kind=lsp.InlayHintKind.Type,
        padding_left=parameter,
        data=document.uri,
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
