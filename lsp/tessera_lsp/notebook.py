"""A notebook: the text that its cells make together, analysed as one document, and what each cell shows of it.

`%%tessera` cells are taken as they are, under a comment in place of the magic. Of the other cells only what their text
binds matters, so what is IPython's own in them is taken out, and of a statement that does not parse only its names are
kept. Cells stand in the order in which they last ran, those that have not run yet behind: a name means what it would
mean after that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from tessera.compiler.frontend.called.inside import CalledProgram, MadeObject
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.syntax.fragments import bound_names
from tessera.compiler.frontend.syntax.parse import Source as SourceText
from tessera.compiler.frontend.syntax.parse import parse
from tessera.compiler.frontend.syntax.reparse import parsed
from tessera.compiler.frontend.workspace import Modules
from tessera.editor import live_arrays
from tessera.editor.functions import Known
from tessera.editor.live_arrays import LiveArrays
from tessera.errors import Diagnostic, Edit, Span
from tessera_lsp.document import Document
from tessera_lsp.text import Text

if TYPE_CHECKING:
    from tessera.compiler.frontend.called.trainings import Training

MAGIC = re.compile(r"\s*%%tessera(?![\w.])(.*)")
_HARMLESS = re.compile(r"\s*%%(?:time|capture)(?!\w)")
"""cell magics that run the cell's Python in the notebook's namespace"""
_LINE_MAGIC = re.compile(r"(\s*)(?:[%!?]|.*\S\?\s*$)")
_ASSIGNED_MAGIC = re.compile(r"(\s*[^\W\d]\w*\s*=\s*)[%!]")
_DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+([^\W\d]\w*)")
LANGUAGES = ("python", "tess")


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What the line of the magic says: `%%tessera --target sm_90a --dims S=4096,D=64`."""

    target: str = ""
    dims: Mapping[str, int] = field(default_factory=dict[str, int])


def options(line: str) -> CellOptions:
    """What cannot be understood is left out: the notebook itself refuses such a line."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in ("--target", "--dims"):
            found[name] = value if equals else following
    pairs = (part.partition("=") for part in found.get("--dims", "").replace(" ", "").split(","))
    dims = {name: int(value) for name, _, value in pairs if name.isidentifier() and value.isdecimal()}
    return CellOptions(found.get("--target", ""), dims)


@dataclass(slots=True)
class CellSource:
    """A cell as the client has it. `order`: when it last ran, None where it has not."""

    uri: str
    version: int
    text: Text
    code: bool
    order: int | None = None

    @property
    def magic(self) -> int | None:
        """The number of the line of `%%tessera`; None where this is no such cell."""
        if not self.code:
            return None
        first = next((i for i, line in enumerate(self.text.lines) if line.strip()), None)
        return first if first is not None and MAGIC.match(self.text.lines[first]) else None

    @property
    def options(self) -> CellOptions:
        row = self.magic
        return options(MAGIC.sub(r"\1", self.text.lines[row])) if row is not None else CellOptions()

    def lines(self) -> list[str]:
        """Its part of the notebook's text: as many lines, and columns that count the same."""
        row = self.magic
        if row is not None:
            line = self.text.lines[row]
            return [*self.text.lines[:row], line.replace("%", "#", 1), *self.text.lines[row + 1 :]]
        return list(_plain(tuple(self.text.lines))) if self.code else []


@lru_cache(maxsize=1024)
def _plain(lines: tuple[str, ...]) -> tuple[str, ...]:
    """An ordinary cell without what is IPython's own. In place of a statement that does not parse stands that its names
    have values, whatever these are: they stay known to other cells while it is being typed."""
    first = next((line for line in lines if line.strip()), "")
    if not first.lstrip().startswith("%%") or _HARMLESS.match(first):
        kept = tuple(map(_python, lines))
        if parse("\n".join(kept), "<cell>").tree is not None:
            return kept
        readable = list(kept)
        for piece in parsed("\n".join(kept), "<cell>").pieces:
            if piece.problems:
                readable[piece.start : piece.end] = _unread(kept[piece.start : piece.end])
        if parse("\n".join(readable), "<cell>").tree is not None:
            return tuple(readable)
    return ("",) * len(lines)


def _unread(statement: tuple[str, ...]) -> list[str]:
    """As many lines, that say no more of a statement than which names it binds."""
    defined = _DEFINITION.match(statement[0])
    names = [defined[1]] if defined else sorted(bound_names("\n".join(statement)))
    blank = [""] * len(statement)
    return [" = ".join([*names, "_"]), *blank[1:]] if names else blank


def _python(line: str) -> str:
    assigned = _ASSIGNED_MAGIC.match(line)
    if assigned is not None:
        return assigned[1] + "_"  # a value that the text does not tell
    magic = _LINE_MAGIC.match(line)
    return magic[1] + "pass" if magic is not None and not line.lstrip().startswith("#") else line


class Notebook:
    """The cells of one notebook and the document that they make."""

    def __init__(
        self, uri: str, encoding: str, analysed: Callable[[Document], None], modules: Modules | None = None
    ) -> None:
        self.sources: list[CellSource] = []
        self.live = LiveArrays()
        self.document = Document(lsp.TextDocumentItem(uri, "python", 0, ""), encoding, analysed, modules)
        self._encoding = encoding
        self._versions = count(1)
        self._first: dict[str, int] = {}
        self._shown: dict[str, tuple[int, int]] = {}

    @property
    def uri(self) -> str:
        return self.document.uri

    def open(
        self, cells: Iterable[lsp.NotebookCell], texts: Iterable[lsp.TextDocumentItem], metadata: Any = None
    ) -> None:
        self._splice(0, 0, cells, texts)
        self._read_arrays(metadata)
        self._compose()

    def _read_arrays(self, metadata: Any) -> None:
        """The kernel's arrays: all that there are, where something is said of them."""
        live = live_arrays.read(metadata)
        if live is not None:
            self.live = live
            self.document.read_arrays(live.types)

    def change(self, change: lsp.NotebookDocumentChangeEvent) -> list[str]:
        """Takes a change; gives the addresses of the cells that are no longer there."""
        self._read_arrays(change.metadata)
        cells = change.cells
        if cells is None:
            return []
        gone: list[str] = []
        if cells.structure is not None:
            array = cells.structure.array
            self._splice(array.start, array.delete_count, array.cells or (), cells.structure.did_open or ())
            gone = [closed.uri for closed in cells.structure.did_close or ()]
        by_uri = {s.uri: s for s in self.sources}
        for cell in cells.data or ():
            if cell.document in by_uri:
                _update_cell(by_uri[cell.document], cell)
        for content in cells.text_content or ():
            source = by_uri.get(content.document.uri)
            if source is not None:
                source.version = content.document.version
                for each in content.changes:
                    source.text = source.text.changed(each)
        self._compose()
        return gone

    def _splice(
        self, start: int, deleted: int, cells: Iterable[lsp.NotebookCell], opened: Iterable[lsp.TextDocumentItem]
    ) -> None:
        """Cells that are not opened by the same change are moved, and keep their text."""
        known = {s.uri: s for s in self.sources}
        for item in opened:
            text = Text(item.text, self._encoding)
            known[item.uri] = CellSource(item.uri, item.version, text, item.language_id in LANGUAGES)
        added = [known[cell.document] for cell in cells if cell.document in known]
        for cell in cells:
            if cell.document in known:
                _update_cell(known[cell.document], cell)
        self.sources[start : start + deleted] = added

    def _compose(self) -> None:
        """Puts the cells together; the analysis is asked for where that gives another text."""
        lines: list[str] = []
        self._first = {}
        for source in sorted(self.sources, key=lambda s: (s.order is None, s.order or 0)):
            self._first[source.uri] = len(lines)
            lines += source.lines()
        text = "\n".join([*lines, ""])
        if text != self.document.text.text or not self.document.version:
            self.document.edit(next(self._versions), [lsp.TextDocumentContentChangeWholeDocument(text)])

    def cells(self) -> list[NotebookCell]:
        """The `%%tessera` cells, in the order in which they stand."""
        return [self.cell(s) for s in self.sources if s.magic is not None]

    def cell(self, source: CellSource) -> NotebookCell:
        return NotebookCell(self, source, self._first[source.uri], len(source.text.lines))

    def has_spread(self) -> bool:
        """Whether the last change has changed what another cell than the one typed in shows. To be asked once each."""
        before, self._shown = self._shown, {c.uri: (c.version, c.summary()) for c in self.cells()}
        return any(
            before[uri][0] == version and before[uri][1] != summary
            for uri, (version, summary) in self._shown.items()
            if uri in before
        )

    def first_line(self, source: CellSource) -> int:
        """Where a cell begins in the whole text, from 1."""
        return self._first[source.uri] + 1

    def location(self, span: Span) -> lsp.Location:
        """A place in the cell that it lies in, which may be none of ours, or in another file."""
        found = self.source_at(span.line) if span.file == self.document.file else None
        if found is None:
            return self.document.location(span)
        source, first = found
        text = CellText(self.document.text, first, len(source.text.lines))
        return lsp.Location(source.uri, text.span_range(span))

    def source_at(self, line: int) -> tuple[CellSource, int] | None:
        """The cell that a line of the whole text belongs to, and how many lines stand above it."""
        for source in self.sources:
            first = self._first[source.uri]
            if source.code and first < line <= first + len(source.text.lines):
                return source, first
        return None


def _update_cell(source: CellSource, cell: lsp.NotebookCell) -> None:
    source.code = source.code and cell.kind == lsp.NotebookCellKind.Code
    ran = cell.execution_summary
    if ran is not None:
        source.order = ran.execution_order


class CellText(Text):
    """The text of a whole notebook, with the positions that a client counts in one of its cells."""

    __slots__ = ("first", "rows")

    def __init__(self, whole: Text, first: int, rows: int) -> None:
        for name in Text.__slots__:
            setattr(self, name, getattr(whole, name))
        self.first, self.rows = first, rows

    def _whole(self, position: lsp.Position) -> lsp.Position:
        if position.line >= self.rows:  # outside the cell: its end
            return super().at(self.first + self.rows, len(self.lines[self.first + self.rows - 1]) + 1)
        return lsp.Position(self.first + position.line, position.character)

    def _own(self, position: lsp.Position) -> lsp.Position:
        row = position.line - self.first
        if row < 0:
            return lsp.Position(0, 0)
        if row >= self.rows:  # of what was longer before it was broken, and is remembered
            return lsp.Position(self.rows - 1, self.units(self.lines[self.first + self.rows - 1]))
        return lsp.Position(row, position.character)

    def offset(self, position: lsp.Position) -> int:
        return super().offset(self._whole(position))

    def position(self, offset: int) -> lsp.Position:
        return self._own(super().position(offset))

    def place(self, position: lsp.Position) -> tuple[int, int]:
        return super().place(self._whole(position))

    def at(self, line: int, col: int) -> lsp.Position:
        return self._own(super().at(line, col))


class NotebookCell:
    """A cell, for features to read like a document: what of the notebook's document lies in it."""

    def __init__(self, notebook: Notebook, source: CellSource, first: int, rows: int) -> None:
        self._notebook, self._document, self._source = notebook, notebook.document, source
        self._first, self._last = first + 1, first + rows
        self.uri, self.version, self.options = source.uri, source.version, source.options
        self.text: Text = CellText(self._document.text, first, rows)

    @property
    def file(self) -> str:
        return self._document.file

    @property
    def modules(self) -> Modules:
        return self._document.modules

    @property
    def scope(self) -> TextScope:
        return self._document.scope

    @property
    def source(self) -> SourceText:
        return self._document.source

    @property
    def state(self) -> str:
        return f"{self._document.state}.{self.version}"

    @property
    def parses(self) -> bool:
        return self._document.parses

    @property
    def newest(self) -> bool:
        return self._document.newest

    @property
    def known(self) -> list[Known]:
        return [k for k in self._document.known if self.holds(k.first_line)]

    @property
    def shown(self) -> list[Known]:
        return [k for k in self._document.shown if self.holds(k.first_line)]

    @property
    def programs(self) -> list[CalledProgram]:
        return self._document.programs

    @property
    def trainings(self) -> list[Training]:
        return [t for t in self._document.trainings if self.holds(t.call.lineno)]

    @property
    def objects(self) -> list[MadeObject]:
        return self._document.objects

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [d for d in self._document.diagnostics if d.span.file == self.file and self.holds(d.span.line)]

    def summary(self) -> int:
        """Of everything that it shows: another number, another sight."""
        types = [(e.name, e.text, e.span.line - self._first, e.span.col) for k in self.shown for e in k.expressions]
        return hash((tuple(types), tuple((d.code, d.message, d.span.line - self._first) for d in self.diagnostics)))

    def holds(self, line: int) -> bool:
        return self._first <= line <= self._last

    def function_at(self, line: int) -> Known | None:
        return self._document.function_at(line)

    def shown_at(self, line: int) -> Known | None:
        return self._document.shown_at(line)

    def recent(self, line: int, col: int) -> tuple[Known | None, int, int]:
        return self._document.recent(line, col)

    def location(self, span: Span) -> lsp.Location:
        return self._notebook.location(span)

    def workspace_edit(self, edits: Iterable[Edit]) -> lsp.WorkspaceEdit | None:
        """Tied to the versions of the cells. None where it would change a cell that is not ours."""
        changed: dict[str, lsp.TextDocumentEdit] = {}
        for e in edits:
            found = self._notebook.source_at(e.span.line) if e.span.file == self.file else None
            if found is None or found[0].magic is None:
                return None
            source = found[0]
            identifier = lsp.OptionalVersionedTextDocumentIdentifier(source.uri, source.version)
            edit = changed.setdefault(source.uri, lsp.TextDocumentEdit(identifier, []))
            edit.edits = [*edit.edits, lsp.TextEdit(self.location(e.span).range, e.text)]
        return lsp.WorkspaceEdit(document_changes=list(changed.values()))
