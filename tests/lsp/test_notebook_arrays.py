"""Arrays of a notebook's kernel in hints: their shapes are told, and change or go as the kernel's do."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.conftest import eventually
from tests.lsp.test_notebooks import IMPORTS, Notebook
from tests.lsp.test_settings import set_to

pytestmark = pytest.mark.asyncio(loop_scope="module")

ARRAYS = "import numpy as np\nW = np.load('weights.npy')\nfor bias in W:\n    pass\n"
CELL = """%%tessera
@ts.function
def project(x: Tensor["B", 64]):
    y = x @ W
    z = y + bias
    return z
"""


def told(**arrays) -> dict:
    return {"tessera": {"arrays": {n: {"shape": shape, "dtype": dtype} for n, (shape, dtype) in arrays.items()}}}


def tell(notebook: Notebook, metadata) -> None:
    notebook.version += 1
    identifier = lsp.VersionedNotebookDocumentIdentifier(notebook.version, notebook.uri)
    change = lsp.NotebookDocumentChangeEvent(metadata=metadata)
    notebook.editor.client.notebook_document_did_change(lsp.DidChangeNotebookDocumentParams(identifier, change))


def ran(text: str, number: int, **arrays) -> dict:
    """What a kernel tells after a cell that bound these arrays."""
    found = {n: {"shape": shape, "dtype": "f32", "cell": number, **more} for n, (shape, more) in arrays.items()}
    return {"tessera": {"arrays": found, "cells": {str(number): text}}}


def values(text: str, **more) -> dict:
    return {"elements": {"values": text, "least": "1", "most": "2", "mean": "1.5"}, **more}


MANY = {"first": "[0.1, ...]", "least": "-2", "most": "3", "mean": "0.5", "nan": 1200, "read": 32768}


async def hints(editor, document) -> list[str]:
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(40, 0))
    found = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole))
    return [editor.label(h) for h in found or ()]


async def test_the_shapes_of_arrays_that_a_function_reads(editor):
    notebook = Notebook(editor, IMPORTS, ARRAYS, CELL)
    cell = notebook[2]
    assert await hints(editor, cell) == []
    tell(notebook, told(W=([64, 16], "f32"), bias=([16], "f32"), other=([3], "f32")))
    await eventually(lambda: hints(editor, cell), [": [B, 16] f32", ": [B, 16] f32"])
    tell(notebook, told(W=([64, 32], "f32"), bias=([32], "f32")))
    await eventually(lambda: hints(editor, cell), [": [B, 32] f32", ": [B, 32] f32"])
    tell(notebook, told(W=([64, 32], "bf16"), bias=([16], "f32")))
    found = (await editor.diagnostics(cell))[0]
    assert found.code == "TS202"
    tell(notebook, told())
    await eventually(lambda: hints(editor, cell), [])
    assert not await editor.diagnostics(cell)


async def test_what_is_not_understood_is_passed_over(editor):
    notebook = Notebook(editor, IMPORTS, ARRAYS, CELL)
    tell(notebook, told(W=([64, 16], "f32")))
    for wrong in ({}, {"tessera": 3}, {"tessera": {"arrays": [1]}}, {"tessera": {"arrays": {"W": {"shape": "x"}}}}):
        tell(notebook, wrong)
    await eventually(lambda: hints(editor, notebook[2]), [": [B, 16] f32"])
    tell(notebook, told(W=([64, 16], "S8")))  # a dtype that no function takes
    await eventually(lambda: hints(editor, notebook[2]), [])


async def test_what_the_text_tells_comes_first(editor):
    notebook = Notebook(editor, IMPORTS, "W = 3\n", CELL.replace("@", "*").replace("*ts", "@ts"))
    tell(notebook, told(W=([64, 16], "f32")))
    await eventually(lambda: hints(editor, notebook[2]), [": [B, 64] f32"])


MADE = """import numpy as np
W = np.load('weights.npy')  # größe
a, b = W
c: Tensor["n"] = W
for d in W:
    e = d
c += 1
"""


async def test_values_stand_beside_the_assignments_of_any_cell(editor):
    notebook = Notebook(editor, IMPORTS, MADE, CELL)
    notebook.ran(1, 3)
    few = ([2], values("[1, 2]"))
    tell(notebook, ran(MADE, 3, W=([64, 16], {"elements": MANY}), a=few, b=few, c=few, e=few))
    cell = notebook[1]
    assert await editor.hints(cell) == {
        "W": ": [64, 16] f32",
        "W = np.load('weights.npy')": "in 32,768 of 1,024: min -2, max 3, mean 0.5, 1,200 NaN",
        "a": ": [2] f32", "a, b": ": [2] f32", "a, b = W": "a: [1, 2]; b: [1, 2]", "c += 1": "[1, 2]",
    }  # fmt: skip
    (tip,) = [h.label[0].tooltip for h in await editor.inlay_hints(cell) if not isinstance(h.label, str)][:1]
    assert tip == (
        "W: [64, 16] f32\nin the kernel now, bound by [3]\n[0.1, ...]\nmin -2, max 3, mean 0.5, 1,200 NaN\n"
        "read: 32,768 of 1,024 elements"
    )
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(cell, editor.at(cell, "a, b = |W")))
    assert "W: [64, 16] f32" in hover.contents.value and "bound by [3]" in hover.contents.value
    assert editor.covered(cell, hover.range) == "W"
    project = notebook[2]
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(project, editor.at(project, "x @ |W")))
    assert "W: [64, 16] f32" in hover.contents.value and "min -2" in hover.contents.value
    assert await hints(editor, project) == [": [B, 16] f32"]


async def test_values_of_other_texts_are_not_shown(editor):
    notebook = Notebook(editor, IMPORTS, MADE, CELL, "W = 2 * W\n")
    cell, later = notebook[1], notebook[3]
    few = ([2], values("[1, 2]"))
    notebook.ran(1, 3)
    tell(notebook, ran(MADE, 3, W=few, c=few))
    whole = {"W": ": [2] f32", "W = np.load('weights.npy')": "[1, 2]", "c += 1": "[1, 2]"}
    assert await editor.hints(cell) == whole
    notebook.replace(1, "e = d", "e = d + 1")
    assert await editor.hints(cell) == {k: whole[k] for k in list(whole)[:2]}  # c was bound by lines that are gone
    notebook.replace(1, "e = d + 1", "e = d")
    assert await editor.hints(cell) == whole
    notebook.replace(1, "import numpy as np", "import numpy as np, math")
    assert await editor.hints(cell) == {}
    notebook.replace(1, ", math", "")
    notebook.ran(3, 4)
    told = ran(MADE, 3, c=few)["tessera"]
    again = ran("W = 2 * W\n", 4, W=([2], values("[3, 4]", changed=6)))["tessera"]
    tell(notebook, {"tessera": {key: told[key] | again[key] for key in told}})
    assert await editor.hints(cell) == {"c += 1": "[1, 2]"}
    assert await editor.hints(later) == {"W": ": [2] f32", "W = 2 * W": "since [6]: [3, 4]"}
    tell(notebook, {"tessera": {"arrays": {}, "cells": {}}})
    assert await editor.hints(later) == {} == await editor.hints(cell)


async def test_elements_that_are_not_read_say_why_where_asked(editor):
    notebook = Notebook(editor, IMPORTS, "W = np.load('weights.npy')", CELL)
    notebook.ran(1, 3)
    why = {"elements": {"unread": "they lie on device 0, and reading them `would` wait"}}
    tell(notebook, ran("W = np.load('weights.npy')", 3, W=([64, 16], why)))
    cell = notebook[1]
    assert await editor.hints(cell) == {"W": ": [64, 16] f32"}
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(cell, editor.at(cell, "|W")))
    assert "not read: they lie on device 0" in hover.contents.value


async def test_a_setting_turns_values_off(editor):
    notebook = Notebook(editor, IMPORTS, "W = np.load('weights.npy')", CELL)
    notebook.ran(1, 3)
    tell(notebook, ran("W = np.load('weights.npy')", 3, W=([64, 16], values("[1]"))))
    await set_to(editor, {"inlayHints": {"values": False}})
    await eventually(lambda: editor.hints(notebook[1]), {})
    assert await hints(editor, notebook[2]) == [": [B, 16] f32"]
    await set_to(editor, {})
    await eventually(lambda: hints(editor, notebook[1]), [": [64, 16] f32", "[1]"])


async def test_the_sizes_of_the_last_call_stand_beside_its_text(editor):
    notebook = Notebook(editor, IMPORTS, CELL)
    cell = notebook[1]
    text = "\n".join(CELL.splitlines()[1:])
    call = {"name": "project", "text": text, "sizes": {"B": 32, "K": 64}}
    told = {"tessera": {"arrays": {"W": {"shape": [64, 16], "dtype": "f32"}}, "called": [call]}}
    tell(notebook, told)
    head = 'def project(x: Tensor["B", 64]):'
    assert await editor.hints(cell) == {head: "B=32, K=64 now", "y": ": [B, 16] f32"}
    tips = [p.tooltip for h in await editor.inlay_hints(cell) if not isinstance(h.label, str) for p in h.label]
    assert "B is axis 0 of x\nB=32 now" in tips and "the sizes at the last call of project" in tips
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(cell, editor.at(cell, "|y = x @ W")))
    assert "*B=32 now*" in hover.contents.value
    notebook.replace(1, "return z", "return z + 1")
    assert head not in await editor.hints(cell)
    notebook.replace(1, "return z + 1", "return z")
    assert head in await editor.hints(cell)
    await set_to(editor, {"inlayHints": {"sizes": False}})
    await eventually(lambda: editor.hints(cell), {"y": ": [B, 16] f32"})
    await set_to(editor, {})
    tell(notebook, {"tessera": {**told["tessera"], "called": [{"name": "project"}]}})  # not understood: as it was
    await eventually(lambda: editor.hints(cell), {head: "B=32, K=64 now", "y": ": [B, 16] f32"})
