"""Cells of notebooks: one namespace, in the order in which they ran, and nothing shown outside `%%tessera`."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.test_structure import decoded

pytestmark = pytest.mark.asyncio(loop_scope="module")

IMPORTS = "import tessera as ts\nfrom tessera import Tensor\n%load_ext tessera_jupyter\nHEADS = 4\nfiles = !ls\n"
FIRST = """%%tessera --target sm_90a --dims "S=4096,D=64"
def halved(é):
    return é / 2
"""
SECOND = """%%tessera
@ts.function
def attend(x: Tensor["B", "S", "D"]):
    note = "𝒮é"; q = x.reshape(B, S, HEADS, D // HEADS)
    k = halved(q).sum(-1)
    return ts.sofmax(k)
"""


class Notebook:
    """A notebook as a client has it, telling the server of every change as VS Code does."""

    def __init__(self, editor, *cells, name="lab.ipynb"):
        self.editor, self.uri, self.version = editor, f"file:///work%20shop/{name}", 1
        self.cells: list[lsp.NotebookCell] = []
        made = [self.cell(c) for c in cells]
        self.cells += [cell for cell, _ in made]
        document = lsp.NotebookDocument(self.uri, "jupyter-notebook", 1, self.cells)
        editor.client.notebook_document_did_open(
            lsp.DidOpenNotebookDocumentParams(document, [item for _, item in made])
        )

    def cell(self, text, language="python"):
        number = len(self.editor.texts)
        uri = f"vscode-notebook-cell:/work%20shop/lab.ipynb#{number}"
        self.editor.texts[uri], self.editor.versions[uri] = text, 1
        kind = lsp.NotebookCellKind.Markup if language == "markdown" else lsp.NotebookCellKind.Code
        return lsp.NotebookCell(kind, uri), lsp.TextDocumentItem(uri, language, 1, text)

    def __getitem__(self, number):
        return lsp.TextDocumentIdentifier(self.cells[number].document)

    def tell(self, **cells):
        self.version += 1
        identifier = lsp.VersionedNotebookDocumentIdentifier(self.version, self.uri)
        change = lsp.NotebookDocumentChangeEvent(cells=lsp.NotebookDocumentCellChanges(**cells))
        self.editor.client.notebook_document_did_change(lsp.DidChangeNotebookDocumentParams(identifier, change))

    def replace(self, number, old, new):
        uri = self.cells[number].document
        text = self.editor.texts[uri]
        start = text.index(old)
        area = lsp.Range(self.editor.position(text, start), self.editor.position(text, start + len(old)))
        self.editor.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.editor.versions[uri], uri)
        content = lsp.NotebookDocumentCellContentChanges(document, [lsp.TextDocumentContentChangePartial(area, new)])
        self.tell(text_content=[content])
        self.editor.texts[uri] = text[:start] + new + text[start + len(old) :]

    def splice(self, start, deleted, *cells):
        """Cells are texts, which are opened, or cells that are there, which are moved."""
        made = [self.cell(c) if isinstance(c, str) else (c, None) for c in cells]
        gone = [lsp.TextDocumentIdentifier(c.document) for c in self.cells[start : start + deleted] if c not in cells]
        self.cells[start : start + deleted] = [cell for cell, _ in made]
        array = lsp.NotebookCellArrayChange(start, deleted, [cell for cell, _ in made])
        opened = [item for _, item in made if item is not None]
        self.tell(structure=lsp.NotebookDocumentCellChangeStructure(array, opened, gone))

    def ran(self, number, order):
        self.cells[number].execution_summary = lsp.ExecutionSummary(order)
        self.tell(data=[self.cells[number]])

    def close(self):
        cells = [lsp.TextDocumentIdentifier(c.document) for c in self.cells]
        self.editor.client.notebook_document_did_close(
            lsp.DidCloseNotebookDocumentParams(lsp.NotebookDocumentIdentifier(self.uri), cells)
        )


async def test_cells_share_a_namespace(editor):
    book = Notebook(editor, IMPORTS, FIRST, SECOND)
    assert await editor.hints(book[2]) == {
        'note = "𝒮é"; q': ": [B, S, 4, D//4] f32",
        "k": ": [B, S, 4] f32",
    }
    q = (await editor.inlay_hints(book[2]))[0]
    assert q.position == editor.at(book[2], "; q| = x")
    leads = next(p.location for p in q.label if p.value == "S")
    assert leads.uri == book[2].uri and editor.covered(book[2], leads.range) == '"S"'
    (found,) = await editor.diagnostics(book[2])
    assert found.code == "TS104" and editor.covered(book[2], found.range) == "ts.sofmax"
    assert found.range.start == editor.at(book[2], "return |ts.sofmax")
    assert not await editor.diagnostics(book[1])


async def test_features_inside_a_cell(editor):
    book = Notebook(editor, IMPORTS, FIRST, SECOND)
    cell = book[2]
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(cell, editor.at(cell, "halved(|q)")))
    assert "q: [B, S, 4, D//4] f32" in hover.contents.value and editor.covered(cell, hover.range) == "q"
    line = SECOND[: SECOND.index("def ")].count("\n") + 1  # as the person sees it
    assert f"(line {line})" in hover.contents.value
    params = lsp.CompletionParams(cell, editor.at(cell, "x.reshape(|B"))
    labels = {i.label for i in (await editor.client.text_document_completion_async(params)).items}
    assert {"S", "HEADS", "halved", "x"} <= labels
    area = lsp.Range(editor.at(cell, "ts.|sofmax"), editor.at(cell, "ts.|sofmax"))
    asked = lsp.CodeActionParams(cell, area, lsp.CodeActionContext([], only=[lsp.CodeActionKind.QuickFix]))
    (action,) = await editor.client.text_document_code_action_async(asked)
    (change,) = action.edit.document_changes
    assert (change.text_document.uri, change.text_document.version) == (cell.uri, 1)
    assert editor.covered(cell, change.edits[0].range) == "sofmax" and change.edits[0].new_text == "softmax"
    renaming = lsp.RenameParams(text_document=cell, position=editor.at(cell, 'Tensor["B", "|S"'), new_name="T")
    (change,) = (await editor.client.text_document_rename_async(renaming)).document_changes
    assert [editor.covered(cell, e.range) for e in change.edits] == ["S", "S"]
    symbols = await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(cell))
    assert [(s.name, editor.covered(cell, s.selection_range)) for s in symbols] == [("attend", "attend")]
    params = lsp.SignatureHelpParams(cell, editor.at(cell, "halved(|q)"))
    assert (await editor.client.text_document_signature_help_async(params)).signatures[0].label == "halved(é)"


async def test_structure_inside_a_cell(editor):
    book = Notebook(editor, IMPORTS, FIRST, SECOND)
    cell, text = book[2], editor.texts[book[2].uri]
    lines = text.count("\n")
    folds = await editor.client.text_document_folding_range_async(lsp.FoldingRangeParams(cell))
    assert folds and all(0 < f.start_line < f.end_line <= lines for f in folds)
    tokens = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(cell))
    legend = editor.result.capabilities.semantic_tokens_provider.legend
    seen = [t[:2] for t in decoded(editor, cell, legend, tokens.data)]
    assert ("attend", "function") in seen and seen.count(("B", "typeParameter")) == 2
    other = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(book[0]))
    assert not other.data
    params = lsp.SelectionRangeParams(cell, [editor.at(cell, "halved(|q)")])
    (selection,) = await editor.client.text_document_selection_range_async(params)
    assert editor.covered(cell, selection.range) == "q" and editor.covered(cell, selection.parent.range) == "halved(q)"
    while selection.parent is not None:
        selection = selection.parent
        assert 0 <= selection.range.start.line <= selection.range.end.line <= lines
    params = lsp.DocumentHighlightParams(cell, editor.at(cell, "halved(|q)"))
    marks = await editor.client.text_document_document_highlight_async(params)
    assert [editor.covered(cell, m.range) for m in marks] == ["q", "q"]
    at = lsp.CallHierarchyPrepareParams(cell, editor.at(cell, "k = |halved(q)"))
    (called,) = await editor.client.text_document_prepare_call_hierarchy_async(at)
    assert (called.name, called.uri) == ("halved", book[1].uri)


async def test_bad_input(editor):
    """Answered or ignored, and the notebook goes on."""
    book = Notebook(editor, IMPORTS, FIRST, SECOND)
    far = lsp.Position(99_999, 99_999)
    for cell in (book[0], book[2]):
        await editor.client.text_document_hover_async(lsp.HoverParams(cell, far))
        await editor.client.text_document_completion_async(lsp.CompletionParams(cell, far))
        await editor.client.text_document_definition_async(lsp.DefinitionParams(cell, far))
        await editor.client.text_document_code_lens_async(lsp.CodeLensParams(cell))
        nothing = lsp.CodeActionParams(cell, lsp.Range(far, far), lsp.CodeActionContext([]))
        await editor.client.text_document_code_action_async(nothing)
    ghost = lsp.NotebookCell(lsp.NotebookCellKind.Code, "vscode-notebook-cell:/ghost")
    book.tell(data=[ghost])
    book.tell(structure=lsp.NotebookDocumentCellChangeStructure(lsp.NotebookCellArrayChange(90, 5, [ghost])))
    elsewhere = lsp.VersionedTextDocumentIdentifier(2, ghost.document)
    change = lsp.TextDocumentContentChangeWholeDocument("x")
    book.tell(text_content=[lsp.NotebookDocumentCellContentChanges(elsewhere, [change])])
    for text in ("%%tessera", "\ufeff%%tessera\r\nx = 1\r\n", "", "%%tessera\n" + "(" * 2000, "%%tessera\n\x00"):
        book.splice(3, 1, text)
        await editor.diagnostics(book[3])
        await editor.inlay_hints(book[3])
    book.splice(3, 1)
    assert len(await editor.hints(book[2])) == 2


async def test_definitions_lead_into_other_cells(editor):
    book = Notebook(editor, IMPORTS, FIRST, SECOND)

    async def goes_to(mark):
        params = lsp.DefinitionParams(book[2], editor.at(book[2], mark))
        return await editor.client.text_document_definition_async(params)

    found = await goes_to("hal|ved(q)")
    assert (found.uri, found.range.start) == (book[1].uri, editor.at(book[1], "def |halved"))
    found = await goes_to("B, S, HEA|DS, D")
    assert (found.uri, found.range.start) == (book[0].uri, editor.at(book[0], "|HEADS = 4"))


async def test_nothing_is_shown_outside_tessera_cells(editor):
    plain = "@ts.function\ndef f(x: Tensor['N', 'K']):\n    y = x @ x\n    return y\n"
    book = Notebook(editor, IMPORTS, plain, "%%bash\necho 'tessera'\n", SECOND.replace("halved(q)", "q"))
    for number in range(3):
        assert not await editor.inlay_hints(book[number])
        assert not await editor.diagnostics(book[number])
        assert await editor.client.text_document_hover_async(lsp.HoverParams(book[number], lsp.Position(2, 5))) is None
        params = lsp.CompletionParams(book[number], lsp.Position(2, 5))
        assert not (await editor.client.text_document_completion_async(params)).items
    assert len(await editor.hints(book[3])) == 2


async def test_a_plain_cell_that_does_not_parse_keeps_its_names(editor):
    """What is not the broken statement means what it says; what is, something unknown: no name is missing elsewhere."""
    settings = "HEADS = 8\nTWO = 2\n%time x = 3\n"
    using = "%%tessera\n" + SECOND.partition("\n")[2].replace("ts.sofmax(k)", "ts.softmax(k * TWO)")
    book = Notebook(editor, IMPORTS, settings, "%%writefile x.py\nHEADS = 16\n", FIRST, using)
    whole = await editor.hints(book[4])
    assert whole['note = "𝒮é"; q'] == ": [B, S, 8, D//8] f32" and not await editor.diagnostics(book[4])
    for old, new in (
        ("TWO = 2", "TWO = ("),
        ("TWO = (", "TWO = 'a"),
        ("TWO = 'a", "def TWO(a"),
        ("def TWO(a", "TWO = 2"),
    ):
        book.replace(1, old, new)
        assert await editor.hints(book[4]) == whole, new
        assert not await editor.diagnostics(book[4]), new
    book.replace(1, "HEADS = 8", "HEADS = 8 8")
    hints = await editor.hints(book[4])
    assert 'note = "𝒮é"; q' not in hints or "8" not in hints['note = "𝒮é"; q']
    assert not await editor.diagnostics(book[4])


async def test_markdown_and_other_languages_are_left_out(editor):
    book = Notebook(editor, IMPORTS)
    made = [book.cell("# HEADS = 2\n", "markdown"), book.cell("heads <- 2 %%tessera\n", "r"), book.cell(SECOND)]
    book.cells += [cell for cell, _ in made]
    array = lsp.NotebookCellArrayChange(1, 0, [cell for cell, _ in made])
    opened = [item for _, item in made if item.language_id == "python"]  # the others are of no interest to the server
    book.tell(structure=lsp.NotebookDocumentCellChangeStructure(array, opened))
    assert (await editor.hints(book[3]))['note = "𝒮é"; q'] == ": [B, S, 4, D//4] f32"


async def test_cells_that_are_added_moved_and_removed(editor):
    book = Notebook(editor, IMPORTS, SECOND)
    assert "TS103" in [d.code for d in await editor.diagnostics(book[1])], "halved is not there yet"
    book.splice(1, 0, FIRST)
    assert len(await editor.hints(book[2])) == 2
    first, second = book.cells[1:]
    book.splice(1, 2, second, first)
    assert len(await editor.hints(book[1])) == 2, "the cell has moved up, its names have not changed"
    assert [d.code for d in await editor.diagnostics(book[1])] == ["TS104"]
    book.splice(2, 1)
    assert "TS103" in [d.code for d in await editor.diagnostics(book[1])]


async def test_the_order_in_which_cells_ran_decides(editor):
    book = Notebook(editor, IMPORTS, "HEADS = 8\n", FIRST, SECOND)
    assert (await editor.hints(book[3]))['note = "𝒮é"; q'] == ": [B, S, 8, D//8] f32"
    book.ran(1, 1)
    book.ran(0, 2)
    assert (await editor.hints(book[3]))['note = "𝒮é"; q'] == ": [B, S, 4, D//4] f32"


async def test_typing_in_a_cell(editor):
    book = Notebook(
        editor, IMPORTS, FIRST, SECOND, "%%tessera\n@ts.function\ndef g(x: Tensor['N']):\n    y = x + 1\n    return y\n"
    )
    assert await editor.hints(book[3]) == {"y": ": [N] f32"}
    book.replace(2, "    k = halved(q).sum(-1)\n", "    k = halved(q\n")
    assert await editor.hints(book[3]) == {"y": ": [N] f32"}, "a cell being typed in leaves the others their hints"
    assert "TS101" in [d.code for d in await editor.diagnostics(book[2])]
    assert not await editor.diagnostics(book[3])
    book.replace(2, "    k = halved(q\n", "    k = halved(q).mean(-1)\n")
    assert (await editor.hints(book[2]))["k"] == ": [B, S, 4] f32"


async def test_cells_that_depend_on_the_one_typed_in_are_asked_for_again(start):
    editor = await start()
    book = Notebook(editor, IMPORTS, "HEADS = 8\n", FIRST, SECOND)
    await editor.hints(book[3])
    editor.client.refreshed.clear()
    book.replace(3, "ts.sofmax(k)", "ts.softmax(k)")
    await editor.hints(book[3])
    assert not editor.client.refreshed, "only the cell that is typed in has changed"
    book.replace(1, "8", "2")
    while lsp.WORKSPACE_INLAY_HINT_REFRESH not in editor.client.refreshed:
        await editor.hints(book[2])
    assert (await editor.hints(book[3]))['note = "𝒮é"; q'] == ": [B, S, 2, D//2] f32"


async def test_findings_are_pushed_cell_by_cell(start):
    editor = await start(pull=False)
    book = Notebook(editor, IMPORTS, FIRST, SECOND)
    (found,) = await editor.pushed(book[2], "TS104")
    assert editor.covered(book[2], found.range) == "ts.sofmax"
    book.close()
    await editor.pushed(book[2])


async def test_a_closed_notebook_is_refused(editor):
    book = Notebook(editor, IMPORTS, FIRST, name="other.ipynb")
    book.close()
    with pytest.raises(Exception, match="not open"):
        await editor.inlay_hints(book[1])


async def test_options_of_the_magic():
    from tessera_lsp.notebook import CellOptions, options

    assert options(" --target sm_90a --dims S=4096,D=64") == CellOptions("sm_90a", {"S": 4096, "D": 64})
    assert options('--dims="B = 8, S=2" --show ir') == CellOptions("", {"B": 8, "S": 2})
    assert options("--target") == options("--dims S=x --profile 'f(x") == CellOptions()
