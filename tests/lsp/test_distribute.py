"""A function for several devices: offered for the dims that allow it, with what is sent; else the reason why not."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.test_actions import actions, applied
from tests.lsp.test_notebooks import IMPORTS, Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYER = """import tessera as ts
from tessera import Tensor


@ts.function
def layer(x: Tensor["B", "D"], w: Tensor["D", "H"], é: Tensor["H"]):
    note = "𝒮é"; h = ts.gelu(x @ w + é)
    return ts.softmax(h, axis=-1)


@ts.function
def caller(x: Tensor["N", 8], w: Tensor[8, 4], b: Tensor[4]):
    return layer(x, w, b) * 2
"""
DISTRIBUTE = "refactor.rewrite.distribute"
OVER_B = "Distribute layer over B: no communication"


async def test_distributing_over_an_axis(editor):
    doc = editor.open(LAYER)
    before = await editor.hints(doc)
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    sums = "Distribute layer over D: all-reduce (sum) of [B, H] f32, 4*B*H bytes"
    rows = (
        "Distribute layer over H: all-reduce (max) of [B, 1] f32, 4*B bytes; all-reduce (sum) of [B, 1] f32, 4*B bytes"
    )
    assert list(found) == [OVER_B, sums, rows]
    text = await applied(editor, doc, found[OVER_B])
    assert '\n\n@ts.distributed(over="B")\n@ts.function\ndef layer(x' in text
    assert await editor.hints(doc) == before
    lenses = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(doc))
    rows = [i for i, line in enumerate(text.split("\n")) if line.startswith("def ")]
    assert sorted({lens.range.start.line for lens in lenses}) == rows, "both functions have theirs"
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "; |h = ")))
    assert "[B, H] f32" in hover.contents.value
    assert not await actions(editor, doc, "def lay|er", kind=DISTRIBUTE), "it is distributed already"


async def test_what_needs_the_whole_axis_says_so(editor):
    text = LAYER.replace("ts.softmax(h, axis=-1)", "ts.cumsum(h, axis=-1)")
    doc = editor.open(text)
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    over_h = found["Distribute layer over H"]
    assert over_h.edit is None
    assert over_h.disabled.reason == "cumsum in line 8 needs the whole of H, for it runs along H"
    head = "@ts.function\ndef layer"
    editor.type(doc, text.replace(head, f'@ts.distributed(ts.mesh(4), over="H")\n{head}'))
    (error,) = await editor.diagnostics(doc)
    assert error.code == "TS801" and editor.covered(doc, error.range) == "ts.cumsum(h, axis=-1)"


async def test_what_is_sent_between_the_parts(start):
    editor = await start(options={"dims": {"H": 1000}})
    doc = editor.open(LAYER.replace("ts.softmax(h, axis=-1)", "h.sum(axis=0)"))
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    title = "Distribute layer over B: all-reduce (sum) of [H] f32, 4.0 kB"
    assert title in found
    await applied(editor, doc, found[title])


async def test_what_is_sent_often_is_counted(start):
    editor = await start(options={"dims": {"H": 1000}})
    norm = "(h - h.mean(axis=0)) / ts.sqrt(ts.var(h, axis=0) + 1e-5)"
    doc = editor.open(LAYER.replace("ts.softmax(h, axis=-1)", norm))
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    assert "Distribute layer over B: 3 all-reduces, 12.0 kB in all" in found


async def test_distributing_by_the_name_that_was_imported(editor):
    text = LAYER.replace("from tessera import Tensor", "from tessera import Tensor, distributed as shared")
    doc = editor.open(text.replace("import tessera as ts\n", "import tessera\nts = tessera\n"))
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    assert '\n@tessera.distributed(over="B")\n@ts.function\ndef layer' in await applied(editor, doc, found[OVER_B])
    editor.type(doc, text.replace("distributed as shared", "distributed"))
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    assert '\n@distributed(over="B")\n@ts.function\ndef layer' in await applied(editor, doc, found[OVER_B])


async def test_distributing_a_method(editor):
    lines = LAYER.split("\n\n\n")[1].split("\n")
    head = "import tessera as ts\nfrom tessera import Tensor\n\n\nclass Layers:\n"
    doc = editor.open(head + "".join(f"    {line}\n" for line in lines))
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    text = await applied(editor, doc, found[OVER_B])
    assert '\n    @ts.distributed(over="B")\n    @ts.function\n    def layer' in text


async def test_distributing_in_the_dialect(editor):
    doc = editor.open(LAYER.replace('w: Tensor["D", "H"]', 'w: Tensor["D", "H", dtype=ts.f32]'), "layer.tess")
    found = await actions(editor, doc, "def lay|er", kind=DISTRIBUTE)
    assert '\n@ts.distributed(over="B")\n@ts.function\ndef layer' in await applied(editor, doc, found[OVER_B])


async def test_distributing_in_a_cell(editor):
    cell = "%%tessera\n@ts.function\ndef f(é: Tensor['B', 'D']):\n    n = '𝒮'; y = é.sum(-1)\n    return y\n"
    book = Notebook(editor, IMPORTS, cell)
    found = await actions(editor, book[1], "def |f(", kind=DISTRIBUTE)
    (change,) = found["Distribute f over B: no communication"].edit.document_changes
    assert change.text_document.uri == book[1].uri
    (edit,) = change.edits
    assert (edit.range.start, edit.new_text) == (editor.at(book[1], "\n|@ts.function"), '@ts.distributed(over="B")\n')


async def test_what_says_it_is_explained_and_completed(editor):
    doc = editor.open(LAYER.replace("@ts.function\ndef layer", "@ts.distributed(ts.mesh(4))\ndef layer"))
    for mark, said in (("ts.me|sh(4)", "A mesh of devices"), ("@ts.distri|buted", "on several devices")):
        hover = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, mark)))
        assert said in hover.contents.value
    editor.replace(doc, "@ts.distributed(ts.mesh(4))", "@ts.dis")
    place = lsp.CompletionParams(doc, editor.at(doc, "@ts.dis|\n"))
    found = await editor.client.text_document_completion_async(place)
    assert "distributed" in {i.label for i in getattr(found, "items", found)}


async def test_one_inside_a_function(editor):
    doc = editor.open(LAYER.replace("    return layer", "    m = ts.mesh(4)\n    return layer"))
    (error,) = await editor.diagnostics(doc)
    assert error.code == "TS401" and editor.covered(doc, error.range) == "ts.mesh(4)"
