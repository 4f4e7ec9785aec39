"""Functions that call kernels of another file or another cell: types, findings and places, as for any function."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.test_notebooks import Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

KERNELS = """import tessera as ts
from tessera import Tensor, f32

SCALE = 2.0


@ts.kernel
def scaled(x: Tensor["M", "N", f32], by: Tensor["N", f32]) -> Tensor["M", "N", f32]:
    \"\"\"Every row times `by`.\"\"\"
    return x * by * SCALE
"""
MODEL = """import tessera as ts
from tessera import Tensor, f32
from kernels import scaled


@ts.function
def model(x: Tensor["B", "D", f32], w: Tensor["D", f32]):
    y = scaled(x, w)
    return y.sum(1)
"""


async def test_a_kernel_of_another_file(editor):
    kernels = editor.open(KERNELS, "kernels.py")
    model = editor.open(MODEL, "model.py")
    assert await editor.hints(model) == {"y": ": [B, D] f32"}
    assert not await editor.diagnostics(model)
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(model, editor.at(model, "= sca|led(x")))
    said = 'scaled(x: Tensor["M", "N", f32], by: Tensor["N", f32]) -> Tensor["M", "N", f32]'
    assert said in hover.contents.value and "Every row times" in hover.contents.value
    place = await editor.client.text_document_definition_async(
        lsp.DefinitionParams(model, editor.at(model, "= sca|led(x"))
    )
    assert place.uri == kernels.uri and editor.covered(kernels, place.range) == "scaled"
    editor.replace(kernels, '-> Tensor["M", "N", f32]', '-> Tensor["N", f32]')
    editor.replace(kernels, "x * by * SCALE", "by[tile_n : tile_n + 16]")
    assert await editor.hints(model) == {"y": ": [D] f32"}
    (found,) = await editor.diagnostics(model)
    assert found.code == "TS204" and editor.covered(model, found.range) == "y.sum(1)"


async def test_wrong_arguments(editor):
    kernels = editor.open(KERNELS, "kernels.py")
    model = editor.open(MODEL.replace("scaled(x, w)", "scaled(x, by=x[0, 1:])"), "model.py")
    (found,) = await editor.diagnostics(model)
    assert found.code == "TS208" and editor.covered(model, found.range) == "x[0, 1:]"
    assert "N is D (axis 1 of x) and D-1 (axis 0 of by)" in found.message
    places = {editor.covered(lsp.TextDocumentIdentifier(r.location.uri), r.location.range): r.message
              for r in found.related_information}  # fmt: skip
    assert places["x"].startswith("N was bound here") and places['"N"'] == "declared here"
    assert not await editor.diagnostics(kernels)


async def test_a_kernels_own_mistake_is_said_once(editor):
    """Where it stands, and nowhere else: what the kernel says it returns is enough to go on with."""
    kernels = editor.open(KERNELS.replace("by * SCALE", "by * SCAEL"), "kernels.py")
    model = editor.open(MODEL, "model.py")
    (found,) = await editor.diagnostics(kernels)
    assert found.code == "TS103"
    assert not await editor.diagnostics(model)
    assert await editor.hints(model) == {"y": ": [B, D] f32"}
    editor.replace(kernels, "SCAEL", "SCALE")
    editor.replace(model, "y.sum(1)", "y.sum(2)")
    (found,) = await editor.diagnostics(model)
    assert found.code == "TS204"


async def test_what_only_this_call_does_wrong_is_said_at_the_call(editor):
    text = KERNELS.replace("    return", "    assert N % 8 == 0\n    return")
    kernels = editor.open(text, "kernels.py")
    model = editor.open(MODEL.replace('"D"', "12"), "model.py")
    (found,) = await editor.diagnostics(model)
    assert found.code == "TS106" and editor.covered(model, found.range) == "scaled(x, w)"
    assert not await editor.diagnostics(kernels)


async def test_a_kernel_of_another_cell(editor):
    start = "import tessera as ts\nfrom tessera import Tensor, f32\nSCALE = 2.0\n%load_ext tessera_jupyter\n"
    kernel = "%%tessera\n" + KERNELS[KERNELS.index("@ts") :]
    function = "%%tessera\n" + MODEL[MODEL.index("@ts") :]
    book = Notebook(editor, start, kernel, function)
    assert await editor.hints(book[2]) == {"y": ": [B, D] f32"}
    book.replace(2, "scaled(x, w)", "scaled(w, w)")
    (found,) = await editor.diagnostics(book[2])
    assert found.code == "TS209" and found.range.start == editor.at(book[2], "scaled(|w, w)")
    assert not await editor.diagnostics(book[1])
    book.close()
