"""Who calls a function, and what it calls, in all files of the workspace. Calls outside functions are the module's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from lsprotocol import types as lsp

from tessera.compiler.frontend.syntax.trees import first_line
from tessera.editor.names import covers
from tessera.errors import Span
from tessera_lsp.index import Index, IndexedUnit
from tessera_lsp.server import TesseraServer
from tessera_lsp.uses import FUNCTIONS, Found, Function, calls_of, meant, own_name, places


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
    async def prepare(params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem]:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        index = Index(server)
        unit = index.of(document)
        for place in places(unit, rows=[line]):
            if covers(own_name(unit, place.node), line, col):
                found = meant(index, unit, place)
                return [_item(*found)] if found is not None else []
        return []

    @server.feature(lsp.CALL_HIERARCHY_INCOMING_CALLS)
    async def incoming(params: lsp.CallHierarchyIncomingCallsParams) -> list[lsp.CallHierarchyIncomingCall]:
        index = Index(server)
        found = await _of_item(index, params.item)
        calls = await _calls(index, *found) if found is not None else []
        return [
            lsp.CallHierarchyIncomingCall(caller, [r for item, r in calls if item == caller])
            for caller in _distinct(item for item, _ in calls)
        ]

    @server.feature(lsp.CALL_HIERARCHY_OUTGOING_CALLS)
    async def outgoing(params: lsp.CallHierarchyOutgoingCallsParams) -> list[lsp.CallHierarchyOutgoingCall]:
        index = Index(server)
        found = await _of_item(index, params.item)
        calls: list[tuple[lsp.CallHierarchyItem, lsp.Range]] = []
        if found is not None:
            unit, function = found
            for place in places(unit, rows=[*range(function.lineno, (function.end_lineno or function.lineno) + 1)]):
                called = meant(index, unit, place) if place.call and place.function is function else None
                span = own_name(unit, place.node)
                if called is not None and span is not None:
                    calls.append((_item(*called), unit.location(span).range))
        return [
            lsp.CallHierarchyOutgoingCall(called, [r for item, r in calls if item == called])
            for called in _distinct(item for item, _ in calls)
        ]


def _distinct(items: Iterable[lsp.CallHierarchyItem]) -> list[lsp.CallHierarchyItem]:
    return list({(i.uri, i.selection_range.start.line, i.selection_range.start.character): i for i in items}.values())


async def _of_item(index: Index, item: lsp.CallHierarchyItem) -> Found | None:
    """The function that an item stands for."""
    unit = await index.at(item.uri)
    if unit is None:
        return None
    named = (p.node for p in places(unit) if isinstance(p.node, FUNCTIONS) and p.node.name == item.name)
    here = lsp.Location(item.uri, item.selection_range)
    return next(((unit, f) for f in named if unit.location(unit.name_span(f)) == here), None)


async def _calls(index: Index, unit: IndexedUnit, function: Function) -> list[tuple[lsp.CallHierarchyItem, lsp.Range]]:
    """Who calls a function, each with the place of one call."""
    return [
        (_item(u, place.function) if place.function is not None else _module(u, span), u.location(span).range)
        for u, place, span in await calls_of(index, unit, function)
    ]


def _item(unit: IndexedUnit, node: Function) -> lsp.CallHierarchyItem:
    end = min(node.end_lineno or node.lineno, len(unit.source.lines))
    own = unit.location(unit.name_span(node))
    whole = Span(unit.file, first_line(node), 1, end, len(unit.source.lines[end - 1]) + 1)
    return lsp.CallHierarchyItem(
        node.name, lsp.SymbolKind.Function, own.uri, unit.location(whole).range, own.range, detail=_file_name(own.uri)
    )


def _module(unit: IndexedUnit, span: Span) -> lsp.CallHierarchyItem:
    """What runs outside functions: a script, a cell."""
    uri = unit.location(span).uri
    start = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    return lsp.CallHierarchyItem(_file_name(uri), lsp.SymbolKind.Module, uri, start, start)


def _file_name(uri: str) -> str:
    return PurePath(uri.partition("#")[0]).name
