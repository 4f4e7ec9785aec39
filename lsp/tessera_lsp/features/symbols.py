"""The outline: functions and kernels, classes and constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lsprotocol import types as lsp

from tessera.compiler.frontend.syntax.parse import source_of
from tessera.compiler.frontend.syntax.trees import first_line
from tessera.editor.names import definition_name
from tessera.editor.signatures import of_definition
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        document = await server.document(params.text_document)
        return list(_of_body(document, [s for s in document.scope.tree.body if document.holds(s.lineno)]))


def _of_body(document: Document, body: list[ast.stmt]) -> Iterator[lsp.DocumentSymbol]:
    source = source_of(document.file, document.text.plain)
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _function(document, node)
            case ast.ClassDef():
                yield _named(document, node, lsp.SymbolKind.Class, list(_of_body(document, node.body)))
            case ast.Assign(targets=[ast.Name(id=name) as target]):
                kind = lsp.SymbolKind.Constant if name.isupper() else lsp.SymbolKind.Variable
                whole, own = (document.text.span_range(source.span(n)) for n in (node, target))
                yield lsp.DocumentSymbol(name, kind, whole, own)
            case ast.If():
                yield from _of_body(document, [*node.body, *node.orelse])
            case _:
                pass


def _function(document: Document, node: ast.FunctionDef | ast.AsyncFunctionDef) -> lsp.DocumentSymbol:
    symbol = _named(document, node, lsp.SymbolKind.Function, [])
    symbol.detail = f"({', '.join(of_definition(node).names)})"
    return symbol


def _named(
    document: Document,
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    kind: lsp.SymbolKind,
    children: list[lsp.DocumentSymbol],
) -> lsp.DocumentSymbol:
    lines = document.text.plain.split("\n")
    own = document.text.span_range(definition_name(lines, node))
    end = min(node.end_lineno or node.lineno, len(lines))
    start = document.text.at(first_line(node), 1)
    whole = lsp.Range(start, document.text.at(end, len(lines[end - 1]) + 1))
    return lsp.DocumentSymbol(node.name, kind, whole, own, children=children)
