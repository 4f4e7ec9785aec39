"""Growing a selection: from a name to its expression, its statement, its block, its function, the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import reduce
from itertools import zip_longest

from lsprotocol import types as lsp

from tessera.compiler.frontend.syntax.parse import source_of
from tessera.compiler.frontend.syntax.trees import first_line
from tessera.errors import Span
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_SELECTION_RANGE)
    async def selection_ranges(params: lsp.SelectionRangeParams) -> list[lsp.SelectionRange]:
        document = await server.document(params.text_document)
        return [_around(document, position) for position in params.positions]


def _around(document: Document, position: lsp.Position) -> lsp.SelectionRange:
    line, col = document.text.place(position)
    spans = [s for s in _spans(document, line) if document.holds(s.line) and s.contains(line, col)]
    ranges = [document.text.span_range(s) for s in sorted(spans, key=_size, reverse=True)]
    distinct = [r for r, inner in zip_longest(ranges, ranges[1:]) if r != inner]
    here = lsp.SelectionRange(lsp.Range(position, position))
    outer = reduce(lambda parent, r: lsp.SelectionRange(r, parent), distinct, None)
    return outer or here


def _spans(document: Document, line: int) -> Iterator[Span]:
    """Of the top-level statements on a line, and all in them."""
    source = source_of(document.file, document.text.plain)
    around = [s for s in document.scope.tree.body if first_line(s) <= line <= (s.end_lineno or s.lineno)]
    for node in (n for s in around for n in ast.walk(s)):
        if isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword)):
            span = source.span(node)
            yield span
            body: list[ast.stmt] = getattr(node, "body", []) if isinstance(node, ast.stmt) else []
            if body:
                first, last = source.span(body[0]), source.span(body[-1])
                yield Span(document.file, first.line, first.col, last.end_line, last.end_col)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.decorator_list:
                yield Span(document.file, first_line(node), 1, span.end_line, span.end_col)


def _size(span: Span) -> tuple[int, int, int]:
    """Nested spans in order: the longer in lines, then from further left, then to further right."""
    return span.end_line - span.line, -span.col if span.line == span.end_line else 0, span.end_col
