"""A notebook after any changes is what it would be if it had been opened so."""

from __future__ import annotations

import random

import pytest
from lsprotocol import types as lsp

from tests.lsp.test_notebooks import FIRST, IMPORTS, SECOND

TEXTS = (
    IMPORTS,
    FIRST,
    SECOND,
    "HEADS = 8\n",
    "HEADS = 2\nx = (\n",
    "%%tessera\n@ts.function\ndef g(é: Tensor['N']):\n    a = '𝒮'; y = é + HEADS\n    return halved(y)\n",
    "%%tessera\n@ts.function\ndef attend(x: Tensor['B', 'S']):\n    return x.sum(-1)\n",
    "%%time\nfrom tessera import *\n",
    "%%bash\nls\n",
    "",
)


class Model:
    """The cells as a client has them: address -> text, and the order in which they ran."""

    def __init__(self, seed):
        from tessera_lsp.notebook import Notebook

        self.random = random.Random(seed)
        self.made = 0
        self.cells: list[lsp.NotebookCell] = []
        self.texts: dict[str, str] = {}
        self.ran = 0
        self.notebook = Notebook("file:///a.ipynb", "utf-16", lambda document: None)
        self.notebook.open([], [])

    def item(self):
        self.made += 1
        uri = f"cell:{self.made}"
        self.texts[uri] = self.random.choice(TEXTS)
        cell = lsp.NotebookCell(lsp.NotebookCellKind.Code, uri)
        return cell, lsp.TextDocumentItem(uri, "python", 1, self.texts[uri])

    def change(self):
        kind = self.random.choice(["add", "add", "remove", "move", "type", "run"]) if self.cells else "add"
        at = self.random.randrange(len(self.cells)) if self.cells else 0
        getattr(self, kind)(at)

    def splice(self, start, deleted, cells, opened=(), closed=()):
        self.cells[start : start + deleted] = cells
        array = lsp.NotebookCellArrayChange(start, deleted, list(cells))
        gone = [lsp.TextDocumentIdentifier(c.document) for c in closed]
        self.tell(structure=lsp.NotebookDocumentCellChangeStructure(array, list(opened), gone))

    def tell(self, **cells):
        self.notebook.change(lsp.NotebookDocumentChangeEvent(cells=lsp.NotebookDocumentCellChanges(**cells)))

    def add(self, at):
        cell, item = self.item()
        self.splice(at, 0, [cell], [item])

    def remove(self, at):
        self.splice(at, 1, [], closed=[self.cells[at]])

    def move(self, at):
        rest = [*self.cells]
        cell = rest.pop(at)
        rest.insert(self.random.randrange(len(rest) + 1), cell)
        self.splice(0, len(self.cells), rest)

    def run(self, at):
        self.ran += 1
        cell = lsp.NotebookCell(lsp.NotebookCellKind.Code, self.cells[at].document)
        cell.execution_summary = lsp.ExecutionSummary(self.ran)
        self.cells[at] = cell
        self.tell(data=[cell])

    def type(self, at):
        uri = self.cells[at].document
        old, new = self.texts[uri], self.random.choice(TEXTS)
        lines = old.split("\n")
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2))
        self.texts[uri] = new
        identifier = lsp.VersionedTextDocumentIdentifier(2, uri)
        change = lsp.NotebookDocumentCellContentChanges(identifier, [lsp.TextDocumentContentChangePartial(whole, new)])
        self.tell(text_content=[change])

    def fresh(self):
        from tessera_lsp.notebook import Notebook

        notebook = Notebook("file:///a.ipynb", "utf-16", lambda document: None)
        notebook.open(self.cells, [lsp.TextDocumentItem(u, "python", 1, t) for u, t in self.texts.items()])
        return notebook


async def seen(notebook):
    await notebook.document.ready()
    return [
        (
            cell.uri,
            [(cell.location(e.span), e.name, e.text) for k in cell.known for e in k.expressions],
            [(d.code, d.message, cell.location(d.span)) for d in cell.diagnostics],
        )
        for cell in notebook.cells()
    ]


@pytest.mark.parametrize("seed", range(6))
async def test_changes_give_what_opening_gives(seed):
    model, shown = Model(seed), 0
    for _ in range(25):
        model.change()
        now = await seen(model.notebook)
        assert now == await seen(model.fresh())
        shown += sum(len(expressions) for _, expressions, _ in now)
    assert shown
