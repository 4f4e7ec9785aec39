"""Names through the files of a workspace: open ones, those on the disk, and notebooks."""

from __future__ import annotations

import asyncio
import re

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tests.lsp.test_features import apply

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYERS = '''"""𝒮"""
import tessera as ts
from tessera import Tensor

HEADS = 4


@ts.function
def norm(x: Tensor["B", "D"], scale=1.0):
    note = "𝒮é"; return x / x.sum(-1, keepdim=True) * scale


class Model:
    def norm(self, x):
        return self.run(x)

    def run(self, x):
        return norm(x, scale=2.0)
'''
PACKAGE = """from layers import norm as rescale
"""
MODEL = '''"""𝒮"""
import tessera as ts
from tessera import Tensor
import layers as L
from layers import HEADS as heads
from package import rescale


@ts.function
def block(x: Tensor["B", "D"]):
    note = "𝒮é"; y = rescale(x, scale=3.0) * heads
    return L.norm(y)


@ts.function
def other(x: Tensor["B", "D"]):
    norm = x.sum(-1)
    return norm


print(L.norm(None))
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "package").mkdir()
    for name, text in (("layers.py", LAYERS), ("package/__init__.py", PACKAGE), ("model.py", MODEL)):
        (tmp_path / name).write_text(text)
    return tmp_path


class Files:
    """A window on a folder in which only `layers.py` is open."""

    def __init__(self, editor, folder):
        self.editor, self.folder = editor, folder
        self.texts = {p.as_uri(): p.read_text() for p in folder.rglob("*.py")}
        self.layers = self.open("layers.py")

    def open(self, name):
        uri = (self.folder / name).as_uri()
        self.editor.texts[uri], self.editor.versions[uri] = self.texts[uri], 1
        item = lsp.TextDocumentItem(uri, "python", 1, self.texts[uri])
        self.editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return lsp.TextDocumentIdentifier(uri)

    def at(self, doc, mark):
        return self.editor.at(doc, mark)

    def shown(self, uri, area):
        """The file's name, its line, and the text of a range."""
        text = self.texts[uri]
        start, end = (self.editor.offset(text, p) for p in (area.start, area.end))
        return uri.rpartition("/")[2], text.split("\n")[area.start.line].strip(), text[start:end]


async def references(files, doc, mark, declared=True):
    params = lsp.ReferenceParams(lsp.ReferenceContext(declared), doc, files.at(doc, mark))
    found = await files.editor.client.text_document_references_async(params)
    return [files.shown(r.uri, r.range) for r in found]


EVERYWHERE = [
    ("layers.py", 'def norm(x: Tensor["B", "D"], scale=1.0):', "norm"),
    ("layers.py", "return norm(x, scale=2.0)", "norm"),
    ("model.py", 'note = "𝒮é"; y = rescale(x, scale=3.0) * heads', "rescale"),
    ("model.py", "from package import rescale", "rescale"),
    ("model.py", "print(L.norm(None))", "norm"),
    ("model.py", "return L.norm(y)", "norm"),
    ("__init__.py", "from layers import norm as rescale", "norm"),
]


async def test_references_in_files_that_are_not_open(start, folder):
    files = Files(await start(folders=[folder]), folder)
    found = await references(files, files.layers, "def |norm(x: T")
    assert found[:2] == EVERYWHERE[:2] and sorted(found) == sorted(EVERYWHERE)
    assert sorted(await references(files, files.layers, "def |norm(x: T", declared=False)) == sorted(EVERYWHERE[1:])
    model = files.open("model.py")
    assert sorted(await references(files, model, "y = |rescale")) == sorted(EVERYWHERE)


async def test_declarations_are_left_out_where_they_are_not_wanted(start, folder):
    files = Files(await start(folders=[folder]), folder)
    model = files.open("model.py")
    assert len(await references(files, model, "|y = rescale")) == 2
    assert await references(files, model, "|y = rescale", declared=False) == [("model.py", "return L.norm(y)", "y")]
    dims = await references(files, files.layers, 'Tensor["B", "|D"]', declared=False)
    assert dims == []
    assert len(await references(files, files.layers, 'Tensor["B", "|D"]')) == 1
    heads = await references(files, files.layers, "|HEADS = 4", declared=False)
    assert [h[2] for h in heads] == ["HEADS", "heads"]


async def test_calls_in_other_files(start, folder):
    files = Files(await start(folders=[folder]), folder)
    client = files.editor.client
    at = lsp.CallHierarchyPrepareParams(files.layers, files.at(files.layers, "return no|rm(x, scale"))
    (norm,) = await client.text_document_prepare_call_hierarchy_async(at)
    assert files.shown(norm.uri, norm.selection_range)[1].startswith("def norm(x: Tensor")
    found = await client.call_hierarchy_incoming_calls_async(lsp.CallHierarchyIncomingCallsParams(norm))
    calls = {c.from_.name: [files.shown(c.from_.uri, r) for r in c.from_ranges] for c in found}
    assert set(calls.pop("block")) == {
        ("model.py", 'note = "𝒮é"; y = rescale(x, scale=3.0) * heads', "rescale"),
        ("model.py", "return L.norm(y)", "norm"),
    }
    assert calls == {
        "run": [("layers.py", "return norm(x, scale=2.0)", "norm")],
        "model.py": [("model.py", "print(L.norm(None))", "norm")],
    }
    block = next(c.from_ for c in found if c.from_.name == "block")
    (called,) = await client.call_hierarchy_outgoing_calls_async(lsp.CallHierarchyOutgoingCallsParams(block))
    assert called.to == norm
    assert [files.shown(block.uri, r)[2] for r in called.from_ranges] == ["rescale", "norm"]
    run = next(c.from_ for c in found if c.from_.name == "run")
    (caller,) = await client.call_hierarchy_incoming_calls_async(lsp.CallHierarchyIncomingCallsParams(run))
    assert (caller.from_.name, caller.from_.range.start.line) == ("norm", 13), "the method, and not the function"
    assert [files.shown(run.uri, r)[2] for r in caller.from_ranges] == ["run"]


async def test_calls_between_cells(editor):
    uri = "file:///work%20shop/calls.ipynb"
    texts = [
        '%%tessera\n@ts.function\ndef half(x: ts.Tensor["N"]):\n    é = "𝒮"; return x / 2',
        "import tessera as ts\n",
        '%%tessera\n@ts.function\ndef quarter(x: ts.Tensor["N"]):\n    é = "𝒮"; return half(half(x))',
        "half(x)",
    ]
    items = [lsp.TextDocumentItem(f"{uri}#c{i}", "python", 1, t) for i, t in enumerate(texts)]
    cells = [lsp.NotebookCell(lsp.NotebookCellKind.Code, i.uri) for i in items]
    notebook = lsp.NotebookDocument(uri, "jupyter-notebook", 1, cells)
    editor.client.notebook_document_did_open(lsp.DidOpenNotebookDocumentParams(notebook, items))
    for item in items:
        editor.texts[item.uri] = item.text
    first = lsp.TextDocumentIdentifier(items[0].uri)
    at = lsp.CallHierarchyPrepareParams(first, editor.at(first, "def ha|lf"))
    (half,) = await editor.client.text_document_prepare_call_hierarchy_async(at)
    found = await editor.client.call_hierarchy_incoming_calls_async(lsp.CallHierarchyIncomingCallsParams(half))
    places = {
        c.from_.uri.rpartition("#")[2]: [
            editor.covered(lsp.TextDocumentIdentifier(c.from_.uri), r) for r in c.from_ranges
        ]
        for c in found
    }
    assert places == {"c2": ["half", "half"], "c3": ["half"]}
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), first, editor.at(first, "def |half"))
    references = await editor.client.text_document_references_async(params)
    assert [r.uri.rpartition("#")[2] for r in references] == ["c0", "c2", "c2", "c3"]
    edit = await editor.client.text_document_rename_async(
        lsp.RenameParams(first, editor.at(first, "def |half"), "moiety")
    )
    assert {d.text_document.uri.rpartition("#")[2]: len(d.edits) for d in edit.document_changes} == {
        "c0": 1, "c2": 2, "c3": 1,
    }  # fmt: skip
    editor.client.notebook_document_did_close(
        lsp.DidCloseNotebookDocumentParams(
            lsp.NotebookDocumentIdentifier(uri), [lsp.TextDocumentIdentifier(i.uri) for i in items]
        )
    )


def changed(files, edit):
    """The texts after a workspace edit, by the file's name."""
    out = {}
    for change in edit.document_changes:
        uri = change.text_document.uri
        text = files.texts[uri]
        for e in sorted(change.edits, key=lambda e: (e.range.start.line, e.range.start.character))[::-1]:
            start, end = (files.editor.offset(text, p) for p in (e.range.start, e.range.end))
            text = text[:start] + e.new_text + text[end:]
        out[uri.rpartition("/")[2]] = text
    return out


async def rename(files, doc, mark, new):
    return await files.editor.client.text_document_rename_async(lsp.RenameParams(doc, files.at(doc, mark), new))


async def test_a_function_is_renamed_in_every_file(start, folder):
    files = Files(await start(folders=[folder]), folder)
    edit = await rename(files, files.layers, "return no|rm(x, scale", "standardise")
    versions = {c.text_document.uri.rpartition("/")[2]: c.text_document.version for c in edit.document_changes}
    assert versions == {"layers.py": 1, "model.py": None, "__init__.py": None}
    texts = changed(files, edit)
    assert texts["__init__.py"] == "from layers import standardise as rescale\n"
    assert texts["model.py"] == MODEL.replace("L.norm", "L.standardise")
    assert "def standardise(x: T" in texts["layers.py"] and "    def norm(self, x)" in texts["layers.py"]
    assert "return standardise(x, scale=2.0)" in texts["layers.py"]
    for taken in ("heads", "rescale"):
        with pytest.raises(JsonRpcException, match="written in"):
            await rename(files, files.layers, "return no|rm(x, scale", taken)


async def test_a_parameter_is_renamed_where_callers_name_it(start, folder):
    files = Files(await start(folders=[folder]), folder)
    texts = changed(files, await rename(files, files.layers, "|scale=1.0", "factor"))
    assert texts["layers.py"] == LAYERS.replace("scale", "factor")
    assert texts["model.py"] == MODEL.replace("scale=", "factor=")


async def test_a_variable_is_renamed_alone(start, folder):
    files = Files(await start(folders=[folder]), folder)
    model = files.open("model.py")
    texts = changed(files, await rename(files, model, "|norm = x.sum", "total"))
    assert texts == {"model.py": MODEL.replace("norm = x", "total = x").replace("return norm\n", "return total\n")}
    with pytest.raises(JsonRpcException, match="has a dim or variable x already"):
        await rename(files, model, "|norm = x.sum", "x")
    for mark in (
        "import |tessera as",
        "from |tessera import",
        "import Ten|sor",
        "y = res|cale(x",
        "* hea|ds",
        "x.s|um(-1)",
    ):
        params = lsp.PrepareRenameParams(model, files.at(model, mark))
        assert await files.editor.client.text_document_prepare_rename_async(params) is None, mark


async def test_highlights_say_what_is_written(start, folder):
    files = Files(await start(folders=[folder]), folder)
    model = files.open("model.py")
    for mark, expected in (
        ("|y = rescale", [("y", "Write"), ("y", "Read")]),
        ("|L.norm(y)", [("L", "Write"), ("L", "Read"), ("L", "Read")]),
        ("y = res|cale(x", [("rescale", "Read"), ("rescale", "Read"), ("norm", "Read"), ("norm", "Read")]),
        ("return L.no|rm(y)", [("norm", "Read"), ("norm", "Read")]),
    ):
        params = lsp.DocumentHighlightParams(model, files.at(model, mark))
        found = await files.editor.client.text_document_document_highlight_async(params)
        assert [(files.shown(model.uri, h.range)[2], h.kind.name) for h in found] == expected, mark


async def test_best_symbols_come_first(start, tmp_path):
    names = ("attend", "scaled_attend", "a_thing_to_end", "attend_twice", "unrelated")
    text = "import tessera as ts\n" + "".join(f"@ts.function\ndef {n}(x: ts.Tensor['N']): return x\n" for n in names)
    (tmp_path / "model.py").write_text(text)
    editor = await start(folders=[tmp_path])

    async def asked(query):
        return [s.name for s in await editor.client.workspace_symbol_async(lsp.WorkspaceSymbolParams(query))]

    assert await asked("attend") == ["attend", "attend_twice", "scaled_attend", "a_thing_to_end"]
    assert (await asked("sa"))[0] == "scaled_attend"
    assert await asked("att tw") == ["attend_twice"]
    assert sorted(await asked("")) == sorted(names)
    (tmp_path / "model.py").unlink()
    assert await asked("attend") == []


async def test_other_requests_are_answered_while_the_disk_is_read(start, tmp_path):
    for n in range(1_500):
        (tmp_path / f"model_{n}.py").write_text(LAYERS + "\n" * n)
    editor = await start(folders=[tmp_path])
    doc = editor.open(MODEL, "here.py")
    await editor.hints(doc)
    symbols = asyncio.ensure_future(editor.client.workspace_symbol_async(lsp.WorkspaceSymbolParams("norm")))
    at = lsp.HoverParams(doc, editor.at(doc, "|y = rescale"))
    hover = asyncio.ensure_future(editor.client.text_document_hover_async(at))
    answered = []
    for request in (symbols, hover):
        request.add_done_callback(answered.append)
    await asyncio.gather(symbols, hover)
    assert answered == [hover, symbols]
    assert len([s for s in symbols.result() if s.name == "norm"]) == 1_500


async def test_each_word_of_an_import(start, folder):
    files = Files(await start(folders=[folder]), folder)
    model = files.open("model.py")
    for mark, expected in (
        ("import |tessera as ts", []),
        ("import tessera |as ts", []),
        ("import tessera as |ts", ["ts"] * 3),
        ("import |HEADS as heads", ["HEADS", "heads"]),
        ("import HEADS as |heads", ["HEADS", "heads"]),
        ("import |layers as L", []),
    ):
        params = lsp.DocumentHighlightParams(model, files.at(model, mark))
        found = await files.editor.client.text_document_document_highlight_async(params) or []
        assert [files.shown(model.uri, h.range)[2] for h in found] == expected, mark


SHARED = """import tessera as ts
from dataclasses import dataclass


@dataclass
class Layer:
    weight: ts.Tensor["D", "E"]


@ts.function
def decode(x: ts.Tensor["B", "D"], layer: Layer):
    return x @ layer.weight
"""


async def test_a_rename_that_would_break_is_refused(editor):
    doc = editor.open(SHARED, "shared.py")
    assert not await editor.diagnostics(doc)
    edit = await editor.client.text_document_rename_async(
        lsp.RenameParams(doc, editor.at(doc, 'x: ts.Tensor["|B"'), "R")
    )
    assert len(edit.document_changes[0].edits) == 1
    with pytest.raises(JsonRpcException, match="would not fit together any more"):
        await editor.client.text_document_rename_async(lsp.RenameParams(doc, editor.at(doc, '"B", "|D"]'), "R"))


async def test_decorators_that_name_a_dim(editor):
    text = 'import tessera as ts\n\n\n@ts.distributed(2, over="D")\n'
    text += 'def scale(x: ts.Tensor["B", "D"]):\n    return x * 2\n'
    doc = editor.open(text, "spread.py")
    assert not await editor.diagnostics(doc)
    params = lsp.RenameParams(doc, editor.at(doc, 'ts.Tensor["B", "|D"]'), "R")
    changed = apply(editor, doc, await editor.client.text_document_rename_async(params))
    assert changed == text.replace('"D"', '"R"')
    editor.type(doc, changed)
    assert not await editor.diagnostics(doc)


BOXES = '''"""𝒮"""
import tessera as ts
__all__ = ["COUNT", "Box"]
COUNT = 1


class Box:
    def more(self, é: "Box", x: ts.Tensor["N"]) -> "Box":
        global COUNT
        COUNT = COUNT + 1
        return Box()

    @ts.function
    def grow(self, x: ts.Tensor["N"], by=2.0):
        return x * by

    def grown(self, x):
        return self.grow(x, by=3.0)


def make(x):
    @ts.function
    def inner(x: ts.Tensor["N"], to=1.0):
        return x * to

    return inner(x, to=2.0)
'''


@pytest.mark.parametrize(
    ("mark", "old", "new"),
    [
        ("|COUNT = 1", "COUNT", "TOTAL"),
        ("class |Box", "Box", "Crate"),
        ("|by=2.0", "by", "factor"),
        ("|to=1.0", "to", "factor"),
    ],
)
async def test_names_in_quotes_global_ones_and_keywords_of_inner_functions(start, tmp_path, mark, old, new):
    (tmp_path / "layers.py").write_text(BOXES)
    files = Files(await start(folders=[tmp_path]), tmp_path)
    expected = re.sub(rf"\b{old}\b", new, BOXES)
    assert changed(files, await rename(files, files.layers, mark, new)) == {"layers.py": expected}


async def test_nothing_is_renamed_where_a_file_that_imports_it_does_not_parse(start, folder):
    (folder / "broken.py").write_text("import layers\n\nprint(layers.norm(1, scale=2)\n")
    (folder / "unrelated.py").write_text("print(norm(1)\n")
    files = Files(await start(folders=[folder]), folder)
    for mark in ("return no|rm(x, scale", "|scale=1.0"):
        with pytest.raises(JsonRpcException, match=r"broken\.py does not parse, so not every place of norm is known"):
            await rename(files, files.layers, mark, "rescaled")
    (folder / "broken.py").write_text("import layers\n\nprint(layers.norm(1, scale=2))\n")
    edit = await rename(files, files.layers, "return no|rm(x, scale", "rescaled")
    assert "broken.py" in {c.text_document.uri.rpartition("/")[2] for c in edit.document_changes}
