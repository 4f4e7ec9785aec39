"""Who calls a function, and what it calls, within a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera.compiler.frontend.definition import source_of
from tessera.compiler.frontend.trees import first_line
from tessera_lsp.names import covers, definition_name

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer

Function = ast.FunctionDef | ast.AsyncFunctionDef


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
    async def prepare(params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem]:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        source = source_of(document.file, document.text.plain)
        calls = (c for f in _functions(document) for c in _calls(f) if covers(source.span(c.func), line, col))
        named = {ast.unparse(c.func) for c in calls}
        lines = document.text.plain.split("\n")
        found = (f for f in _functions(document) if f.name in named or covers(definition_name(lines, f), line, col))
        return [_item(document, f) for f in found]

    @server.feature(lsp.CALL_HIERARCHY_INCOMING_CALLS)
    async def incoming(params: lsp.CallHierarchyIncomingCallsParams) -> list[lsp.CallHierarchyIncomingCall]:
        document = await server.document(params.item)
        return [
            lsp.CallHierarchyIncomingCall(_item(document, caller), _places(document, calls))
            for caller in _functions(document)
            if (calls := [c for c in _calls(caller) if ast.unparse(c.func) == params.item.name])
        ]

    @server.feature(lsp.CALL_HIERARCHY_OUTGOING_CALLS)
    async def outgoing(params: lsp.CallHierarchyOutgoingCallsParams) -> list[lsp.CallHierarchyOutgoingCall]:
        document = await server.document(params.item)
        here = [f for f in _functions(document) if _item(document, f).selection_range == params.item.selection_range]
        made = [c for f in here for c in _calls(f)]
        return [
            lsp.CallHierarchyOutgoingCall(_item(document, called), _places(document, calls))
            for called in _functions(document)
            if (calls := [c for c in made if ast.unparse(c.func) == called.name])
        ]


def _functions(document: Document) -> Iterator[Function]:
    tree = document.scope.tree
    return (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _calls(function: Function) -> Iterator[ast.Call]:
    """Its own calls, not those of functions inside it."""
    inside = [n for s in function.body for n in ast.walk(s) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    theirs = {id(n) for f in inside for n in ast.walk(f)}
    body = (n for s in function.body for n in ast.walk(s))
    return (n for n in body if isinstance(n, ast.Call) and id(n) not in theirs)


def _places(document: Document, calls: list[ast.Call]) -> list[lsp.Range]:
    source = source_of(document.file, document.text.plain)
    return [document.location(source.span(c.func)).range for c in calls]


def _item(document: Document, node: Function) -> lsp.CallHierarchyItem:
    lines = document.text.plain.split("\n")
    own = definition_name(lines, node)
    end = min(node.end_lineno or node.lineno, len(lines))
    place = document.location(type(own)(document.file, own.line, own.col, own.end_line, own.end_col))
    whole = type(own)(document.file, first_line(node), 1, end, len(lines[end - 1]) + 1)
    return lsp.CallHierarchyItem(
        node.name, lsp.SymbolKind.Function, place.uri, document.location(whole).range, place.range
    )
