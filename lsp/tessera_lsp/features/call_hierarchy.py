"""Who calls a function, and what it calls, in all files of the workspace. Calls outside functions are the module's."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera.compiler.frontend.trees import first_line
from tessera.errors import Span
from tessera_lsp.index import Index, Target, Unit
from tessera_lsp.names import covers
from tessera_lsp.uses import FUNCTIONS, Place, everywhere, own_name, places, rows_with

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = tuple[Unit, Function]


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
    async def prepare(params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem]:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        index = Index(server)
        unit = index.of(document)
        for place in places(unit, rows=[line]):
            if covers(own_name(unit, place.node), line, col):
                found = _meant(index, unit, place)
                return [_item(*found)] if found is not None else []
        return []

    @server.feature(lsp.CALL_HIERARCHY_INCOMING_CALLS)
    async def incoming(params: lsp.CallHierarchyIncomingCallsParams) -> list[lsp.CallHierarchyIncomingCall]:
        index = Index(server)
        found = await _of_item(index, params.item)
        calls = await _calls_of(index, *found) if found is not None else []
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
                called = _meant(index, unit, place) if place.call and place.function is function else None
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


async def _calls_of(index: Index, unit: Unit, function: Function) -> list[tuple[lsp.CallHierarchyItem, lsp.Range]]:
    """Who calls a function, each with the place of one call."""
    if function in unit.tree.body or unit.scope.bound.get(function.name) is function:
        found = await everywhere(index, Target(unit.file, function.name))
        calls = [(u, use.place, use.span) for u, use in found if use.place.call is not None]
    else:
        calls = [
            (unit, place, span)
            for place in places(unit, rows_with(unit, [function.name]))
            if place.call is not None and _meant(index, unit, place) == (unit, function)
            if (span := own_name(unit, place.node)) is not None
        ]
    return [
        (_item(u, place.function) if place.function is not None else _module(u, span), u.location(span).range)
        for u, place, span in calls
    ]


def _meant(index: Index, unit: Unit, place: Place) -> Found | None:
    """The function of the workspace that stands at a place: a nested one, a method of `self`, or one of a module."""
    match place.node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return unit, place.node
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            around = next((o for o in reversed(place.owners) if isinstance(o, ast.ClassDef)), None)
            return _defined(unit, around.body, name) if around is not None else None
        case ast.Name(id=name):
            for owner in reversed(place.owners):
                found = _defined(unit, owner.body, name) if not isinstance(owner, ast.ClassDef) else None
                if found is not None:
                    return found
        case ast.Attribute():
            pass
        case _:
            return None
    dotted = ast.unparse(place.node)
    target = index.meaning(unit, dotted) if dotted.partition(".")[0] not in place.hidden else None
    home = index.unit(target.file) if target is not None else None
    node = home.scope.bound.get(target.name) if home is not None and target is not None else None
    return (home, node) if home is not None and isinstance(node, FUNCTIONS) else None


def _defined(unit: Unit, body: list[ast.stmt], name: str) -> Found | None:
    return next(((unit, s) for s in body if isinstance(s, FUNCTIONS) and s.name == name), None)


def _item(unit: Unit, node: Function) -> lsp.CallHierarchyItem:
    end = min(node.end_lineno or node.lineno, len(unit.source.lines))
    own = unit.location(unit.name_span(node))
    whole = Span(unit.file, first_line(node), 1, end, len(unit.source.lines[end - 1]) + 1)
    return lsp.CallHierarchyItem(
        node.name, lsp.SymbolKind.Function, own.uri, unit.location(whole).range, own.range, detail=_file_name(own.uri)
    )


def _module(unit: Unit, span: Span) -> lsp.CallHierarchyItem:
    """What runs outside functions: a script, a cell."""
    uri = unit.location(span).uri
    start = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    return lsp.CallHierarchyItem(_file_name(uri), lsp.SymbolKind.Module, uri, start, start)


def _file_name(uri: str) -> str:
    return PurePath(uri.partition("#")[0]).name
