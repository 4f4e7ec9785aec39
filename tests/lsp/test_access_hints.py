"""Hints of accesses that touch more of a GPU's memory than they need."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.conftest import require
from tests.lsp.conftest import eventually
from tests.lsp.test_notebooks import Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """import tessera as ts
from tessera import Tensor, f32

open('planted', 'w').write('a file was run')


@ts.kernel
def column(x: Tensor["N", 256, f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        first = x[i, 0]
        y[i] = first * 2


@ts.kernel
def opened(x: Tensor["M", 256, f32], y: Tensor["M", f32]):
    i = ts.tile.linear_id()
    if i < M:
        y[i] = x[i, 0] * 2
"""


async def hinted(editor, doc) -> list[tuple[int, str]]:
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(40, 0))
    found = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(doc, whole))
    return [(h.position.line, h.label) for h in found or () if "sectors" in str(h.label)]


async def test_an_access_of_a_column_says_what_it_touches(start, tmp_path):
    """A column of 256 numbers: each of 32 lanes has a sector of its own, where 4 would do. Where a size is open nothing
    is known; an edit above moves the hint, one of the access takes it away."""
    require("cuda.bindings")
    editor = await start(options={"target": "a100", "dims": {"N": 1024}})
    doc = editor.open(TEXT)
    assert await hinted(editor, doc) == [], "nobody waits for them"
    line = editor.at(doc, "        fir|st = ").line
    wanted = [(line, "32 sectors a request, 4 at best")]
    await eventually(lambda: hinted(editor, doc), wanted)
    editor.replace(doc, "open('planted'", "\nopen('planted'")
    await eventually(lambda: hinted(editor, doc), [(line + 1, wanted[0][1])])
    editor.replace(doc, "first = x[i, 0]", "first = y[i]")
    await eventually(lambda: hinted(editor, doc), [])
    assert not (tmp_path / "planted").exists()


async def test_a_cell_that_names_a_gpu(start):
    require("cuda.bindings")
    editor = await start()
    cell = TEXT[TEXT.index("@ts.kernel") : TEXT.index("\n\n@ts.kernel\ndef opened")]
    notebook = Notebook(
        editor,
        "import tessera as ts\nfrom tessera import Tensor, f32\n",
        f"%%tessera --target sm_80 --dims N=1024\n{cell}",
    )
    line = editor.at(notebook[1], "        fir|st = ").line
    await eventually(lambda: hinted(editor, notebook[1]), [(line, "32 sectors a request, 4 at best")])
    found = await editor.client.text_document_inlay_hint_async(
        lsp.InlayHintParams(notebook[1], lsp.Range(lsp.Position(line, 0), lsp.Position(line + 1, 0)))
    )
    (hint,) = (h for h in found if "sectors" in str(h.label))
    assert hint.position.character == len("        first = x[i, 0]")
    assert "load of x (f32)" in str(hint.tooltip)


async def test_a_cpu_has_none(start):
    editor = await start(options={"target": "cpu", "dims": {"N": 1024}})
    assert await hinted(editor, editor.open(TEXT)) == []
