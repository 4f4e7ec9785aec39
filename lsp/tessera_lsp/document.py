"""An open document: its text, and what the front end knows of it.

An edit changes the text at once and asks for an analysis; at most one runs, giving way to other work every few
milliseconds, and ending early when a newer text has arrived meanwhile. Who reads a document waits for the analysis of
the text that was there when the request came, and is told ContentModified when a newer text arrives meanwhile. Shapes
are known before the gradients of the steps of `ts.train` are taken (`shapes`). What must be there at once, as
completions, is read from what was known last (`soon`, `recent`).
"""

from __future__ import annotations

import asyncio
import itertools
import linecache
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified
from pygls.uris import from_fs_path, to_fs_path

from tessera.compiler.frontend.called.inside import CalledProgram, MadeObject
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.values import OutsideArray
from tessera.compiler.frontend.result import each_once
from tessera.compiler.frontend.syntax.parse import Source, source_of
from tessera.compiler.frontend.syntax.reparse import common_length
from tessera.compiler.frontend.syntax.trees import first_line
from tessera.compiler.frontend.workspace import Modules, imported_files
from tessera.editor.functions import Known
from tessera.errors import Diagnostic, Edit, Note, Span
from tessera_lsp.background import Aside
from tessera_lsp.text import Text

if TYPE_CHECKING:
    from tessera.compiler.frontend.called.trainings import Training

log = logging.getLogger(__name__)
_NUMBERS = itertools.count(1)
TURN = 0.004
"""seconds that an analysis runs before messages that have come are handled"""
LONG_ANALYSIS = 0.1
"""seconds after which an analysis goes on only when others have had as much time"""
PATIENCE = 8
"""turns that an answer which is wanted at once leaves to the analysis, which mostly is done by then"""
LONG = 2_000
"""lines; with longer files such an answer does not wait"""
LARGEST = 2_000_000
"""characters; a longer text is data rather than a program"""


class Document:
    """`analysed` is called after every analysis of the newest text. `told`: whether somebody has been told the shapes
    of the present text before all was known."""

    def __init__(
        self,
        item: lsp.TextDocumentItem,
        encoding: str = "utf-16",
        analysed: Callable[[Document], None] | None = None,
        modules: Modules | None = None,
    ) -> None:
        self.uri, self.version = item.uri, item.version
        self.file = to_fs_path(item.uri) or item.uri
        self.text = Text(item.text, encoding)
        self.known: list[Known] = []
        self.shown: list[Known] = []
        """with what calls tell of what is inside, and plain functions of which calls tell"""
        self.problems: list[Diagnostic] = []
        self.seen: Text | None = None
        """the text that was analysed last"""
        self.closed = False
        self.edited = 0
        """the number of the message that brought this text"""
        self._number = next(_NUMBERS)
        self.by_import = False
        """whether the analysis was asked for because an imported file has changed"""
        self.modules = modules or Modules()
        self._files = FileAnalysis(self.file, modules=self.modules)
        self._rounds = 0
        self._analysed = analysed
        self.told = False
        self._waiting: asyncio.Future[None] | None = None
        self._shapes: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def scope(self) -> TextScope:
        """The names of the module."""
        return self._files.scope

    @property
    def trainings(self) -> list[Training]:
        """The calls of `ts.train`."""
        return self._files.trainings

    @property
    def programs(self) -> list[CalledProgram]:
        """All that is compiled: functions, and the steps of `ts.train`."""
        return self._files.programs

    @property
    def objects(self) -> list[MadeObject]:
        """Those that calls outside of programs are given."""
        return self._files.objects

    @property
    def source(self) -> Source:
        """The text as the compiler's spans count it."""
        return source_of(self.file, self.text.plain)

    @property
    def state(self) -> str:
        """Names this text among all that the server has seen: a document opened anew starts at version 1 again."""
        return f"{self._number}.{self.version}.{self._rounds}"

    @property
    def parses(self) -> bool:
        return not any(d.code in ("TS101", "TS900") for d in self.problems)

    @property
    def concerns_tessera(self) -> bool:
        """Whether the text is ours to read: other Python files are other servers' business, mistakes included."""
        return self.uri.endswith(".tess") or "tessera" in self.text.text

    def edit(self, version: int, changes: Sequence[lsp.TextDocumentContentChangeEvent]) -> None:
        for change in changes:
            self.text = self.text.changed(change)
        self.version = version
        self.request_analysis()

    def request_analysis(self) -> None:
        """Of the newest text, which others that import the file are to see as well."""
        if not self._rounds:
            self.modules.changed.append(self._elsewhere)
        self._request(by_import=False)
        self.modules.open(self.file, self.text.plain)

    def analyse_anew(self) -> None:
        """Forgets what is kept: something beside the text has changed that the analysis depends on."""
        self._files = FileAnalysis(self.file, modules=self.modules, arrays=self._files.arrays)
        self._request(by_import=False)

    def read_arrays(self, arrays: Mapping[str, OutsideArray]) -> None:
        """Takes the arrays that names of the text have where it runs."""
        if arrays != self._files.arrays:
            self._files.arrays = arrays
            self._request(by_import=False)

    def _elsewhere(self, file: str) -> None:
        if file != self.file and file in imported_files(self.scope):
            self._request(by_import=True)

    def changed_on_disk(self, files: Collection[str], appeared: bool) -> None:
        """`appeared`: some are new or gone, so an import may mean another file than before."""
        if self._rounds and (appeared or not imported_files(self.scope).isdisjoint(files)):
            self._request(by_import=True)

    def _request(self, by_import: bool) -> None:
        self.by_import = by_import
        self._rounds += 1
        self._supersede()
        self._waiting = asyncio.get_running_loop().create_future()
        self._shapes = asyncio.get_running_loop().create_future()
        self.told = False
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        self.closed = True
        self._supersede()
        if self._rounds:
            self.modules.changed.remove(self._elsewhere)
            self.modules.open(self.file, None)
            self._rounds = 0

    def _supersede(self) -> None:
        for waiting in (self._waiting, self._shapes):
            if waiting is not None and not waiting.done():
                waiting.set_exception(JsonRpcContentModified())
                waiting.exception()  # marked as seen: nobody need be waiting

    async def ready(self) -> None:
        """Returns when the present text has been analysed. Raises JsonRpcContentModified when it is superseded."""
        await self._when(self._waiting)

    async def shapes(self) -> None:
        """The same when all shapes of the present text are known; its gradients may follow."""
        await self._when(self._shapes)
        self.told |= self._waiting is not None and not self._waiting.done()

    async def _when(self, waiting: asyncio.Future[None] | None) -> None:
        rounds = self._rounds
        if waiting is not None:
            await asyncio.shield(waiting)
        if rounds != self._rounds:  # the text has changed since the analysis ended, before we were resumed
            raise JsonRpcContentModified

    async def soon(self) -> None:
        """Returns a moment later, or when a text of the document has been analysed for the first time.

        Raises JsonRpcContentModified when it is superseded.
        """
        for _ in range(PATIENCE if len(self.text.lines) <= LONG else 0):
            if self._shapes is None or self._shapes.done():
                break
            await asyncio.sleep(0)
        if self.seen is None or self._shapes is None or self._shapes.done():
            await self._when(self._shapes)

    @property
    def newest(self) -> bool:
        """Whether what is known is known of the present text."""
        return self.seen is self.text

    async def _run(self) -> None:
        while self._waiting is not None and not self._waiting.done() and not self.closed:
            text, waiting = self.text, self._waiting
            await asyncio.sleep(0)
            if text is self.text:  # else: more typing has arrived already
                await self.analyse(text)
            if text is not self.text or waiting.done():
                continue
            waiting.set_result(None)
            self._tell_shapes(text)
            if self._analysed is not None and not self.closed:
                self._report(self._analysed)

    def _report(self, analysed: Callable[[Document], None]) -> None:
        try:
            analysed(self)
        except Exception:
            log.exception("the findings of %s could not be sent", self.uri)

    async def analyse(self, text: Text) -> None:
        """A fault of the analysis is logged and shown, and ends here: the next text starts afresh."""
        try:
            if self.concerns_tessera and len(text.text) <= LARGEST:
                if not await self._complete(text):
                    return
                self.problems = list(self._files.problems)
            else:
                self._files, self.problems = FileAnalysis(self.file, modules=self.modules), []
            self._take()
            self.seen = text
        except Exception:
            log.exception("the analysis of %s failed", self.uri)
            self._files, self.known, self.shown = FileAnalysis(self.file, modules=self.modules), [], []
            message = "Tessera could not analyse this file; the language server's log says why"
            self.problems = [Diagnostic("TS900", message, Span(self.file, 1, 1, 1, 1), severity="warning")]

    def _take(self) -> None:
        self.known = [Known(a, self._files) for a in self._files.analyses]
        self.shown = [Known(i.analysis, self._files, i) for i in self._files.inside]

    def _tell_shapes(self, text: Text) -> None:
        """To those who wait for no more than these."""
        if self._shapes is not None and not self._shapes.done():
            self.seen = text
            self._shapes.set_result(None)

    async def _complete(self, text: Text) -> bool:
        """Analyses in turns with all else; False where it was given up for a newer text. When it has taken long, what
        others analyse comes first."""
        aside = Aside(partial(self._walk, text.plain))
        long = time.monotonic() + LONG_ANALYSIS
        try:
            while not aside.turn(TURN):
                told = self._files.shapes_of == text.plain and self.seen is not text and text is self.text
                if told:  # and who waits for them is answered before the gradients are taken
                    self._take()
                    self._tell_shapes(text)
                await asyncio.sleep(TURN if told or time.monotonic() > long else 0)
                if text is not self.text or self.closed:
                    return False
        finally:
            aside.end()
        return True

    def _walk(self, text: str, aside: Aside) -> None:
        told = False
        with closing(self._files.steps(text)) as steps:
            for _ in steps:
                first, told = not told and self._files.shapes_of == text, self._files.shapes_of == text
                aside.pause(now=first)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """All findings, each once: a mistake in a helper is found by everyone who calls it."""
        found = ((k.analysis.definition.name, _at_home(d, self.file)) for k in self.known for d in k.diagnostics)
        return each_once([*((d.function, d) for d in self.problems), *found])

    def function_at(self, line: int) -> Known | None:
        """The function that a line belongs to: the innermost, which starts last."""
        return _innermost(self.known, line)

    def shown_at(self, line: int) -> Known | None:
        """The same with what is to be shown inside it, plain functions too."""
        return _innermost(self.shown, line)

    def recent(self, line: int, col: int) -> tuple[Known | None, int, int]:
        """The function at a place as it was analysed last, and where the place was then.

        A line that is new counts as the end of the one above it. While a newer text is being analysed, trees stand in
        its lines already, and spans where they were.
        """
        if self.seen is None or self.seen is self.text:
            return self.shown_at(line), line, col
        old, new = self.seen.lines, self.text.lines
        head = common_length(old, new)
        below = min(common_length(old[::-1], new[::-1]), min(len(old), len(new)) - head)
        if line > len(new) - below:
            line += len(old) - len(new)
        elif line > len(old) - below:
            line, col = len(old) - below, len(old[len(old) - below - 1]) + 1
        lengths = ((k, (k.tree.end_lineno or k.tree.lineno) - first_line(k.tree)) for k in self.shown)
        found = [k for k, length in lengths if k.first_line <= line <= k.first_line + length]
        return max(found, key=lambda k: k.first_line, default=None), line, col

    # what a cell of a notebook answers differently
    def holds(self, line: int) -> bool:
        """Whether a line of the analysed text is one of those that the client has under this address."""
        return True

    def location(self, span: Span) -> lsp.Location:
        if span.file == self.file:
            return lsp.Location(self.uri, self.text.span_range(span))
        other = Text("".join(linecache.getlines(span.file)), self.text.encoding)
        return lsp.Location(from_fs_path(span.file) or span.file, other.span_range(span))

    def workspace_edit(self, edits: Iterable[Edit]) -> lsp.WorkspaceEdit | None:
        """Tied to the version of the text. None where another file would be changed."""
        edits = list(edits)
        if any(e.span.file != self.file for e in edits):
            return None
        identifier = lsp.OptionalVersionedTextDocumentIdentifier(self.uri, self.version)
        changes = [lsp.TextEdit(self.text.span_range(e.span), e.text) for e in edits]
        return lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(identifier, changes)])


def _innermost(functions: Iterable[Known], line: int) -> Known | None:
    """That of the functions at a line which starts last."""
    found = [k for k in functions if k.first_line <= line <= k.last_line]
    return max(found, key=lambda k: k.first_line, default=None)


def _at_home(d: Diagnostic, file: str) -> Diagnostic:
    """A finding in a function that was imported stands in this file where that was called."""
    call = next((n for n in reversed(d.notes) if n.span is not None and n.span.file == file), None)
    if d.span.file == file or call is None or call.span is None:
        return d
    notes = (Note(f"found in {d.function}", d.span), *(n for n in d.notes if n is not call))
    return replace(d, span=call.span, notes=notes, fixes=())
