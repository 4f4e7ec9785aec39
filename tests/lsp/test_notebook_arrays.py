"""Arrays of a notebook's kernel in hints: their shapes are told, and change or go as the kernel's do."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.conftest import eventually
from tests.lsp.test_notebooks import IMPORTS, Notebook

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
