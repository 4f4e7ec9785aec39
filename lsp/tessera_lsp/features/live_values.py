"""What the arrays of a notebook's kernel hold: beside the assignments that gave them their names, in all Python cells,
and under the pointer. In `%%tessera` cells also the sizes that dims had at the last call of a function, as long as its
text is the one that was called.

A value stands only where the text above it in its cell, and its own, is the text that ran: the first edited line and
all below it show none. The value of a name that a later run bound anew stands there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lsprotocol import types as lsp

from tessera.compiler.ir.types import shape_text
from tessera.editor.assignments import assigned_names, last_assignments
from tessera.editor.live_arrays import LastCall, LiveArray
from tessera.editor.names import covers, is_local
from tessera_lsp import markup
from tessera_lsp.notebook import CellSource, Notebook
from tessera_lsp.server import TesseraServer
from tessera_lsp.settings import Settings
from tessera_lsp.text import Text

_WORD = re.compile(r"[^\W\d]\w*")
_WHOLE = Settings()


@dataclass(frozen=True, slots=True)
class LiveCell:
    """A cell of a notebook whose kernel has told of arrays. `text`: the notebook's, with the cell's positions."""

    uri: str
    notebook: Notebook
    source: CellSource
    text: Text


@dataclass(frozen=True, slots=True)
class ArrayUnder:
    """An array whose name stands under the pointer: its type and what it holds, as Markdown."""

    head: str
    text: str
    range: lsp.Range


async def cell_at(server: TesseraServer, identifier: lsp.TextDocumentIdentifier) -> LiveCell | None:
    """The cell under an address, with or without `%%tessera`, its notebook analysed. None where there is nothing to
    show in it. Raises JsonRpcContentModified when its text is superseded."""
    found = server.cell(identifier.uri)
    if found is None or not (found[0].live.arrays or found[0].live.called):
        return None
    notebook, source = found
    await notebook.document.ready()
    return LiveCell(source.uri, notebook, source, notebook.cell(source).text)


def hints(cell: LiveCell, settings: Settings) -> Iterator[lsp.InlayHint]:
    """Behind a name its type, unless it is annotated; behind the statement what the elements are."""
    arrays, spans = cell.notebook.live.arrays, cell.notebook.document.source
    for statement, names in _assigned(cell).items():
        texts: list[str] = []
        details: list[str] = []
        for name in names:
            array, place = arrays[name.id], spans.span(name)
            type = _type(array, settings) if isinstance(statement, ast.Assign) else ""
            if type:
                position = cell.text.at(place.end_line, place.end_col)
                yield lsp.InlayHint(position=position, label=f": {type}", kind=lsp.InlayHintKind.Type)
            if brief := array.brief():
                texts.append(f"{name.id}: {brief}" if len(names) > 1 else brief)
                details += [f"{name.id}: {_type(array, _WHOLE)}", *array.details()]
        if texts:
            whole = spans.span(statement)
            label = lsp.InlayHintLabelPart("; ".join(texts), tooltip="\n".join(details))
            yield lsp.InlayHint(cell.text.at(whole.end_line, whole.end_col), [label], padding_left=True)


_DEF = re.compile(r"\s*(?:async\s+)?def\s")


def calls(cell: LiveCell) -> Iterator[lsp.InlayHint]:
    """Behind the first line of a function that has been called the sizes of its dims then."""
    now = cell.source.text.lines
    for first, call in _called(cell):
        row = next((first + i for i, line in enumerate(call.lines) if _DEF.match(line)), first)
        position = cell.text.at(cell.notebook.first_line(cell.source) + row, len(now[row]) + 1)
        part = lsp.InlayHintLabelPart(call.text(), tooltip=f"the sizes at the last call of {call.name}")
        yield lsp.InlayHint(position, [part], padding_left=True, data={"now": True})


def call_at(cell: LiveCell, row: int) -> LastCall | None:
    """The last call of the function that a row of the cell, from 0, belongs to."""
    found = [(first, call) for first, call in _called(cell) if first <= row < first + len(call.lines)]
    return max(found, key=lambda place: place[0])[1] if found else None


def _called(cell: LiveCell) -> Iterator[tuple[int, LastCall]]:
    now = tuple(cell.source.text.lines)
    for call in cell.notebook.live.called if cell.source.magic is not None else ():
        count = len(call.lines)
        first = next((i for i in range(len(now) - count + 1) if now[i : i + count] == call.lines), None)
        if first is not None and call.sizes:
            yield first, call


def _assigned(cell: LiveCell) -> dict[ast.stmt, list[ast.Name]]:
    """The assignments of a cell that gave arrays of the kernel the names that they have now."""
    live, order = cell.notebook.live, cell.source.order
    ran = live.cells.get(order) if order is not None else None
    if ran is None:
        return {}
    lines, now = ran.split("\n"), cell.source.text.lines
    shortest = min(len(lines), len(now))
    same = next((i for i in range(shortest) if lines[i] != now[i]), shortest)
    gone = {word for line in lines[same:] for word in _WORD.findall(line)}
    """of lines that ran and stand there no more: they may have bound names anew"""
    first = cell.notebook.first_line(cell.source)
    body = cell.notebook.document.scope.tree.body
    own = [s for s in body if first <= s.lineno and (s.end_lineno or s.lineno) < first + same]
    found: dict[ast.stmt, list[ast.Name]] = {}
    for name, statement in last_assignments(own).items():
        array = live.arrays.get(name)
        if statement is not None and array is not None and array.cell == order and name not in gone:
            place = next(n for n in assigned_names(statement) if n.id == name)
            found.setdefault(statement, []).append(place)
    return found


async def under(server: TesseraServer, params: lsp.HoverParams) -> ArrayUnder | None:
    """The array of the kernel whose name stands at a place; none of a function's own variables is one."""
    cell = await cell_at(server, params.text_document)
    if cell is None:
        return None
    line, col = cell.text.place(params.position)
    document = cell.notebook.document
    known = document.function_at(line)
    for name in _names(document.scope.tree, line):
        array = cell.notebook.live.arrays.get(name.id)
        span = document.source.span(name)
        if array is not None and covers(span, line, col) and not (known is not None and is_local(known, name.id)):
            text = "".join(f"- {markup.inline(text)}\n" for text in array.details())
            head = markup.block(f"{name.id}: {_type(array, _WHOLE)}", "python")
            return ArrayUnder(head, f"{text}\n", cell.text.span_range(span))
    return None


def _names(tree: ast.Module, line: int) -> Iterator[ast.Name]:
    for statement in tree.body:
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            yield from (n for n in ast.walk(statement) if isinstance(n, ast.Name))


def _type(array: LiveArray, settings: Settings) -> str:
    parts = (settings.shapes, shape_text(array.type.shape)), (settings.dtypes, str(array.type.dtype))
    return " ".join(text for wanted, text in parts if wanted and text)
