"""The index of the workspace: the definition of each name, and its other uses.

Open texts count as they are in the editor, others as they are on the disk. Nothing is kept from one search to the next:
only files that mention the name are parsed, and the disk is read in a thread.
"""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lsprotocol import types as lsp
from pygls.uris import from_fs_path, to_fs_path

from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.syntax.parse import Source, source_of
from tessera.compiler.frontend.syntax.reparse import parsed
from tessera.compiler.frontend.workspace import SUFFIXES, Modules
from tessera.editor.names import definition_name
from tessera.errors import Span
from tessera_lsp.document import LARGEST, Document
from tessera_lsp.notebook import Notebook
from tessera_lsp.server import TesseraServer
from tessera_lsp.text import Text
from tessera_lsp.workspace import looked_at, stamp, text_of

FILES = 8
"""files through which an imported name is followed"""


@dataclass(frozen=True, slots=True)
class IndexedTarget:
    """What a name means: a name at the top of a file."""

    file: str
    name: str


@dataclass(frozen=True, slots=True)
class IndexedUnit:
    """One text: a file, or the cells of a notebook together. `version`: that of the open text, None where it is not.
    `parses`: whether all of it is in the tree."""

    scope: TextScope
    source: Source
    location: Callable[[Span], lsp.Location]
    version: Callable[[str], int | None]
    parses: bool = True

    @property
    def file(self) -> str:
        return self.scope.file

    @property
    def tree(self) -> ast.Module:
        return self.scope.tree

    def name_span(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Span:
        """The place of the name in `def name`."""
        found = definition_name(self.source.lines, node)
        return Span(self.file, found.line, found.col, found.end_line, found.end_col)

    def binding(self, name: str) -> Span | None:
        """Where the name is bound at the top of the file, last, as it is after the module has run."""
        node = self.scope.bound.get(name)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return self.name_span(node)
        for inner in ast.walk(node) if node is not None else ():
            match inner:
                case ast.Name(id=found, ctx=ast.Store()) if found == name:
                    return self.source.span(inner)
                case ast.alias(name=imported, asname=asname) if (asname or imported.partition(".")[0]) == name:
                    span = self.source.span(inner)
                    return replace(span, line=span.end_line, col=span.end_col - len(asname)) if asname else span
                case _:
                    pass
        return None


class Index:
    """One search. What is open must have been analysed (`ready`) for its newest text to be the one that is searched."""

    def __init__(self, server: TesseraServer) -> None:
        self._server = server
        self._modules = Modules()  # of its own: what a search looks into is not read again before each analysis
        self._modules.opened = server.modules.opened
        self._units: dict[str, IndexedUnit | None] = {}

    # texts
    def unit(self, file: str) -> IndexedUnit | None:
        """The text under a path; None where there is none."""
        if file not in self._units:
            self._units[file] = self._open(file) or self._on_disk(file)
        return self._units[file]

    async def at(self, uri: str) -> IndexedUnit | None:
        """The text under an address, that of its whole notebook for a cell."""
        cell = self._server.cell(uri)
        document = cell[0].document if cell is not None else self._server.documents.get(uri)
        if document is not None:
            await document.ready()
        file = document.file if document is not None else to_fs_path(uri)
        return self.unit(file) if file else None

    def of(self, document: Document) -> IndexedUnit:
        """An open document, or the notebook of a cell."""
        return self.unit(document.file) or _of_document(document, document.scope)

    def _documents(self) -> list[Document]:
        return [*self._server.documents.values(), *(n.document for n in self._server.notebooks.values())]

    def _open(self, file: str) -> IndexedUnit | None:
        for notebook in self._server.notebooks.values():
            if notebook.document.file == file:
                return _of_notebook(notebook)
        document = next((d for d in self._server.documents.values() if d.file == file), None)
        if document is None:
            return None
        if document.concerns_tessera:
            return _of_document(document, document.scope)
        scope, parses = self._parsed(file, document.text.plain)
        return replace(_of_document(document, scope), parses=parses)

    def _on_disk(self, file: str, text: str | None = None) -> IndexedUnit | None:
        if text is None and stamp(Path(file)) is None:
            return None
        whole = Text(text_of(Path(file)) if text is None else text, self._server.encoding)
        uri = from_fs_path(file) or file
        scope, parses = self._parsed(file, whole.plain)
        return IndexedUnit(
            scope,
            source_of(file, whole.plain),
            lambda span: lsp.Location(uri, whole.span_range(span)),
            lambda _: None,
            parses,
        )

    def _parsed(self, file: str, text: str) -> tuple[TextScope, bool]:
        found = parsed(text if len(text) <= LARGEST else "", file)
        return TextScope(file, text, found.tree), not found.problems

    async def mentioning(self, words: Iterable[str]) -> AsyncIterator[IndexedUnit]:
        """Every text in which one of the words is written, open ones first. Other work goes on meanwhile.

        Raises JsonRpcContentModified when somebody types in one of them.
        """
        written = word_pattern(words)
        opened = self._documents()
        for document in opened:
            if written.search(document.text.text):
                await document.ready()
                yield self.of(document)
        skipped = {d.file for d in opened}

        def look(path: Path) -> tuple[str, str] | None:
            text = text_of(path) if str(path) not in skipped and stamp(path) is not None else ""
            return (str(path), text) if written.search(text) else None

        async for path, text in looked_at(self._server, look):
            if path not in self._units:
                self._units[path] = self._on_disk(path, text)
            found = self._units[path]
            if found is not None:
                yield found

    def broken(self, target: IndexedTarget) -> IndexedUnit | None:
        """A text that has been looked into, imports the target's file or is it, and does not parse."""
        looked_into = [u for u in self._units.values() if u is not None and not u.parses]
        return next((u for u in looked_into if u.file == target.file or target.file in self._imports(u)), None)

    def _imports(self, unit: IndexedUnit) -> Iterator[str]:
        """The files whose names it may write."""
        for node in ast.walk(unit.tree):
            match node:
                case ast.ImportFrom(module=module, level=level, names=names):
                    path = self._path(unit.file, module or "", level)
                    targets = (self.meaning(unit, a.asname or a.name) for a in names)
                    yield from (t.file for t in targets if t is not None)
                case ast.Import(names=[ast.alias(name=name), *_]):
                    path = self._path(unit.file, name, 0)
                case _:
                    continue
            yield (self._modules.file_of(path) if path is not None else None) or ""

    # names
    def meaning(self, unit: IndexedUnit, dotted: str, depth: int = 0) -> IndexedTarget | None:
        """What a name of the module means, `norm` or `layers.norm`, through files of the workspace that import it.

        None for names that the module does not bind, and for attributes of what is not a file.
        """
        head, *rest = dotted.split(".")
        node = unit.scope.bound.get(head)
        if depth > FILES or (node is None and not unit.scope.stars):
            return None
        match node:
            case None:
                starred = (self._path(unit.file, module, level) for module, level in unit.scope.stars)
                return next((t for path in starred if (t := self._member(path, [head, *rest], depth))), None)
            case ast.ImportFrom(module=module, level=level, names=names):
                alias = next((a for a in names if (a.asname or a.name) == head), None)
                path = self._path(unit.file, module or "", level)
                found = self._member(path, [alias.name, *rest], depth) if alias is not None else None
            case ast.Import(names=names):
                alias = next((a for a in names if head in (a.asname, a.name.partition(".")[0])), None)
                path = self._path(unit.file, alias.name if alias and alias.asname else head, 0)
                found = self._member(path, rest, depth)
            case _:
                found = None
        return found or (IndexedTarget(unit.file, head) if not rest else None)

    def _path(self, importer: str, name: str, level: int) -> str | None:
        return self._modules.path(importer, name, level)

    def _member(self, path: str | None, names: list[str], depth: int) -> IndexedTarget | None:
        """A name of the file or package at `path`; the file itself is not a target."""
        if path is None or not names:
            return None
        file = self._modules.file_of(path)
        unit = self.unit(file) if file else None
        found = self.meaning(unit, ".".join(names), depth + 1) if unit is not None else None
        if found is not None or Path(path).suffix in SUFFIXES:
            return found
        return self._member(self._modules.file(Path(path), names[:1]), names[1:], depth + 1)


def _of_document(document: Document, scope: TextScope) -> IndexedUnit:
    return IndexedUnit(scope, document.source, document.location, lambda _: document.version, document.parses)


def _of_notebook(notebook: Notebook) -> IndexedUnit:
    document = notebook.document
    versions = {s.uri: s.version for s in notebook.sources}
    return IndexedUnit(document.scope, document.source, notebook.location, versions.get, document.parses)


def word_pattern(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<!\w){re.escape(w)}(?!\w)" for w in words))
