"""What the names in functions and kernels are: dims, operators, dtypes, parameters, constants.

An editor's own grammar colours Python; this adds what only the analysis knows, and leaves all else alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from lsprotocol import types as lsp

from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import MISSING, Builtin, Namespace, OperatorRef
from tessera.editor import names, signatures
from tessera.editor.functions import Known
from tessera.errors import Span
from tessera.language.dtypes import DType
from tessera_lsp.capabilities import MODIFIERS, TOKENS
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer

_OURS = ("defaultLibrary",)


@dataclass(frozen=True, slots=True)
class Token:
    """A name and what it is. A grid coordinate such as `tile_m` is a dim that is read only."""

    span: Span
    type: str
    modifiers: tuple[str, ...] = ()


def register(server: TesseraServer) -> None:
    last: dict[str, tuple[str, list[int]]] = {}
    numbers = count(1)

    def remember(uri: str, data: list[int]) -> str:
        for closed in [u for u in last if not server.is_open(u)]:
            del last[closed]
        last[uri] = str(next(numbers)), data
        return last[uri][0]

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL)
    async def full(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        document = await server.document(params.text_document)
        data = _encoded(document, _tokens(document))
        return lsp.SemanticTokens(data, remember(document.uri, data))

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA)
    async def delta(params: lsp.SemanticTokensDeltaParams) -> lsp.SemanticTokens | lsp.SemanticTokensDelta:
        document = await server.document(params.text_document)
        number, old = last.get(document.uri, ("", []))
        data = _encoded(document, _tokens(document))
        result = remember(document.uri, data)
        if number != params.previous_result_id:
            return lsp.SemanticTokens(data, result)
        return lsp.SemanticTokensDelta(_edits(old, data), result)

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE)
    async def within(params: lsp.SemanticTokensRangeParams) -> lsp.SemanticTokens:
        document = await server.document(params.text_document)
        first, last_line = (document.text.place(p)[0] for p in (params.range.start, params.range.end))
        return lsp.SemanticTokens(_encoded(document, _tokens(document, first, last_line)))


def _tokens(document: Document, first: int = 1, last: int | None = None) -> list[Token]:
    found: dict[tuple[int, int], Token] = {}
    values: dict[str, Any] = {}
    for known in document.known:
        if known.last_line < first or (last is not None and known.first_line > last):
            continue
        for token in (*_dims(known), *_words(document, known, values)):
            s = token.span
            if s.line == s.end_line and s.line >= first and (last is None or s.line <= last):
                found.setdefault((s.line, s.col), token)
    return [found[place] for place in sorted(found)]


def _dims(known: Known) -> Iterator[Token]:
    for o in names.dim_occurrences(known):
        yield Token(o.span, "typeParameter", ("readonly",) if o.coordinate else ())


def _words(document: Document, known: Known, values: dict[str, Any]) -> Iterator[Token]:
    given = {p.arg for p in names.parameters(known.tree)}
    tree = known.tree
    yield Token(names.definition_name(document.text.plain.split("\n"), tree), "function", ("declaration",))
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Name, ast.Attribute, ast.arg)):
            continue
        span = names.word_span(known, node)
        kind = _kind(document, known, node, given, values) if span is not None else None
        if span is not None and kind is not None:
            yield Token(span, *kind)


def _kind(
    document: Document, known: Known, node: ast.Name | ast.Attribute | ast.arg, given: set[str], values: dict[str, Any]
) -> tuple[str, tuple[str, ...]] | None:
    if isinstance(node, ast.arg):
        return "parameter", ("declaration",)
    if isinstance(node, ast.Name) and names.is_local(known, node.id):
        declared = ("declaration",) if isinstance(node.ctx, ast.Store) else ()
        return ("parameter", ()) if node.id in given else ("variable", declared)
    dotted = ast.unparse(node)
    if dotted not in values:
        owned = names.is_local(known, dotted.partition(".")[0])
        values[dotted] = MISSING if owned else signatures.resolve(document.scope, dotted)
    found = _of_value(values[dotted])
    if found is None and isinstance(node, ast.Attribute) and signatures.of_method(node.attr) is not None:
        return "method", _OURS
    return found


def _of_value(value: Any) -> tuple[str, tuple[str, ...]] | None:
    match value:
        case DType():
            return "type", _OURS
        case Builtin(path=path) if path.rpartition(".")[2][0].isupper():
            return "type", _OURS  # Tensor, Tile, Const
        case OperatorRef() | Builtin():
            return "function", _OURS
        case Closure():
            return "function", ()
        case Namespace():
            return "namespace", _OURS
        case bool() | int() | float() | str():
            return "variable", ("readonly",)
        case _:
            return None


def _encoded(document: Document, tokens: Sequence[Token]) -> list[int]:
    """Five numbers a token, its place told from the one before (LSP, SemanticTokens)."""
    data: list[int] = []
    line = start = 0
    for token in tokens:
        place = document.text.span_range(token.span)
        same = place.start.line == line
        modifiers = sum(1 << MODIFIERS.index(m) for m in token.modifiers)
        data += [place.start.line - line, place.start.character - (start if same else 0)]
        data += [place.end.character - place.start.character, TOKENS.index(token.type), modifiers]
        line, start = place.start.line, place.start.character
    return data


def _edits(old: list[int], new: list[int]) -> list[lsp.SemanticTokensEdit]:
    """One edit of what differs between the common beginning and the common end."""
    if old == new:
        return []
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    tail = next((i for i in range(limit - head) if old[-1 - i] != new[-1 - i]), limit - head)
    return [lsp.SemanticTokensEdit(head, len(old) - head - tail, new[head : len(new) - tail])]
