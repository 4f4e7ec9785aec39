"""Renaming: dims in the annotations and the body of their function, and `tile_m` with them in kernels; variables and
parameters, with the keywords of calls; functions and constants in every file of the workspace."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from keyword import iskeyword

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from tessera.editor import names
from tessera.editor.functions import Known
from tessera.editor.names import COORDINATE
from tessera.editor.refactor import tried
from tessera.errors import Edit, Span
from tessera_lsp.capabilities import RequestFailedError
from tessera_lsp.document import Document
from tessera_lsp.features.references import own_places, target_at
from tessera_lsp.index import Index, IndexedTarget, IndexedUnit, word_pattern
from tessera_lsp.server import TesseraServer
from tessera_lsp.uses import calls_of, everywhere, uses


@dataclass(frozen=True, slots=True)
class NameChange:
    unit: IndexedUnit
    span: Span
    text: str


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    async def prepare_rename(params: lsp.PrepareRenameParams) -> lsp.PrepareRenameResult | None:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        found = own_places(document, line, col)
        if found is None:
            index = Index(server)
            target = target_at(index, document, line, col)
            span = _written(index, document, target, line, col) if target is not None else None
            found = [names.Occurrence(target.name, span)] if target is not None and span is not None else []
        here = next((o for o in found if names.covers(o.span, line, col)), None)
        return (
            lsp.PrepareRenamePlaceholder(document.text.span_range(here.span), here.name) if here is not None else None
        )

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    async def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        new = params.new_name
        if not new.isidentifier() or iskeyword(new):
            raise JsonRpcInvalidParams(f"{new!r} is not a name")
        document = await server.document(params.text_document)
        if not document.parses:
            raise RequestFailedError("the text does not parse, so not every place of the name is known")
        line, col = document.text.place(params.position)
        index = Index(server)
        own = own_places(document, line, col)
        known = document.function_at(line)
        if own is not None and known is not None:
            return _edit(_refuse_new_errors(known, await _within(index, document, known, own, new)))
        target = target_at(index, document, line, col)
        if target is None or _written(index, document, target, line, col) is None:
            raise RequestFailedError("there is no name here that Tessera can rename")
        return _edit(await _everywhere(index, target, new))


def _written(index: Index, document: Document, target: IndexedTarget, line: int, col: int) -> Span | None:
    """Where the target's own name is written at a place; None for another name of it, and for what no file binds."""
    home = index.unit(target.file)
    bound = home.scope.bound.get(target.name) if home is not None else None
    if isinstance(bound, (ast.Import, ast.ImportFrom)) and not any(a.asname == target.name for a in bound.names):
        return None
    unit = index.of(document)
    here = (u.span for u in uses(index, unit, target) if u.word == target.name)
    return next((s for s in here if names.covers(s, line, col)), None)


def _refuse_new_errors(known: Known, changes: list[NameChange]) -> list[NameChange]:
    """Raises where the function would have more errors than it has: a dim may stand in a class as well."""
    own = [Edit(c.span, c.text) for c in changes if c.span.file == known.analysis.definition.file]
    after = tried(known, own)
    errors = [d for d in after.analysis.diagnostics if d.severity == "error"] if after is not None else []
    if after is not None and len(errors) > sum(d.severity == "error" for d in known.diagnostics):
        raise RequestFailedError(f"{known.analysis.name} would not fit together any more: {errors[0].message}")
    return changes


async def _within(
    index: Index, document: Document, known: Known, own: list[names.Occurrence], new: str
) -> list[NameChange]:
    """A dim or variable of one function, also where its decorators name it; a parameter also where callers do."""
    unit, old = index.of(document), own[0].name
    written = {n.id for n in ast.walk(known.tree) if isinstance(n, ast.Name)} | {
        p.arg for p in names.parameters(known.tree)
    }
    if new != old and new in written | set(known.analysis.dims):
        raise RequestFailedError(f"{known.analysis.name} has a dim or variable {new} already")
    changes = [NameChange(unit, o.span, COORDINATE + new.lower() if o.coordinate else new) for o in own]
    changes += [NameChange(unit, s, new) for d in known.tree.decorator_list for s in _named_in(unit, d, old)]
    if any(p.arg == old for p in names.parameters(known.tree)):
        for caller, place, _ in await calls_of(index, unit, known.tree):
            for keyword in place.call.keywords if place.call is not None else ():
                changes += [NameChange(caller, _start(caller, keyword, old), new)] if keyword.arg == old else []
        _complete(index, IndexedTarget(unit.file, known.tree.name))
    return changes


def _complete(index: Index, target: IndexedTarget) -> None:
    """Raises where a text that was looked into may write the name in a part that does not parse."""
    broken = index.broken(target)
    if broken is not None:
        raise RequestFailedError(f"{broken.file} does not parse, so not every place of {target.name} is known")


def _named_in(unit: IndexedUnit, decorator: ast.expr, name: str) -> list[Span]:
    """Where a decorator names a parameter or dim: as a keyword, or in quotes."""
    out: list[Span] = []
    for node in ast.walk(decorator):
        if isinstance(node, ast.keyword) and node.arg == name:
            out.append(_start(unit, node, name))
        elif isinstance(node, ast.Constant) and node.value == name:
            span = unit.source.span(node)
            quotes = unit.source.segment(span).index(name)
            out.append(Span(span.file, span.line, span.col + quotes, span.line, span.col + quotes + len(name)))
    return out


def _start(unit: IndexedUnit, node: ast.AST, name: str) -> Span:
    span = unit.source.span(node)
    return Span(span.file, span.line, span.col, span.line, span.col + len(name))


async def _everywhere(index: Index, target: IndexedTarget, new: str) -> list[NameChange]:
    """A function or constant, wherever it is written by its own name. What it is imported as elsewhere stays."""
    found = [(unit, use) for unit, use in await everywhere(index, target) if use.word == target.name]
    _complete(index, target)
    for unit in {unit.file: unit for unit, _ in found}.values() if new != target.name else ():
        if word_pattern([new]).search(unit.source.text):
            raise RequestFailedError(f"{new} is written in {unit.file} already")
    return [NameChange(unit, use.span, new) for unit, use in found]


def _edit(changes: Iterable[NameChange]) -> lsp.WorkspaceEdit:
    """Tied to the versions of the texts that are open."""
    edits: dict[str, lsp.TextDocumentEdit] = {}
    for c in changes:
        place = c.unit.location(c.span)
        identifier = lsp.OptionalVersionedTextDocumentIdentifier(place.uri, c.unit.version(place.uri))
        edit = edits.setdefault(place.uri, lsp.TextDocumentEdit(identifier, []))
        edit.edits = [*edit.edits, lsp.TextEdit(place.range, c.text)]
    return lsp.WorkspaceEdit(document_changes=list(edits.values()))
