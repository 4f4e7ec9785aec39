"""Names followed through files, classes and functions inside functions."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp
from pygls.workspace import Workspace
from tessera_lsp.features import create_server

from tests.lsp.test_features import apply, rename

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYERS = '''"""𝒮"""
import tessera as ts
from tessera import Tensor

HEADS = 4

@ts.function
def norm(x: Tensor["B", "D"]):
    return x / x.sum(-1, keepdim=True)
'''
MODEL = '''"""𝒮"""
import tessera as ts
from tessera import Tensor
import layers as L
from layers import norm, HEADS as heads

@ts.function
def block(x: Tensor["B", "D"]):
    note = "𝒮é"; y = norm(x) * heads
    return L.norm(y)
'''
NESTED = """import tessera as ts
from tessera import Tensor

class Model:
    @ts.function
    def one(self, x: Tensor["B", "D"]):
        note = "𝒮é"; y = x.reshape(B * D)
        return y

    @ts.kernel
    def two(x: Tensor["B", "N"], y: Tensor["B", "N"]):
        y[tile_b : tile_b + 4] = x[tile_b : tile_b + 4]

def outer(n):
    @ts.function
    def inner(é: Tensor["B", "D"], w: Tensor["D", 4]):
        z: Tensor["B", 4] = é @ w
        return z.reshape(B * 4)
    return inner
"""


async def goes_to(editor, doc, mark):
    params = lsp.DefinitionParams(doc, editor.at(doc, mark))
    return await editor.client.text_document_definition_async(params)


async def test_definitions_in_other_files(editor):
    layers, model = editor.open(LAYERS, "layers.py"), editor.open(MODEL)
    found = await goes_to(editor, model, "y = no|rm(x)")
    assert (found.uri, found.range.start) == (layers.uri, editor.at(layers, "def |norm"))
    found = await goes_to(editor, model, "* hea|ds")
    assert (found.uri, found.range.start) == (layers.uri, editor.at(layers, "|HEADS = 4"))
    found = await goes_to(editor, model, "return L.no|rm(y)")
    assert (found.uri, found.range.start) == (layers.uri, editor.at(layers, "def |norm"))


async def test_imports_in_a_circle_end(editor):
    editor.open("from second import f\n", "first.py")
    editor.open("from first import f\n", "second.py")
    text = "import tessera as ts\nfrom first import f\n@ts.function\ndef g(x: ts.Tensor['N']):\n    return f(x)\n"
    model = editor.open(text, "third.py")
    found = await goes_to(editor, model, "return |f(x)")
    assert found.uri.endswith(("first.py", "second.py"))


async def test_references_in_files_that_import(editor):
    layers, model = editor.open(LAYERS, "layers.py"), editor.open(MODEL)
    await editor.hints(layers)
    await editor.hints(model)
    editor.change(model, lsp.TextDocumentContentChangePartial(lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)), "\n"))
    editor.texts[model.uri] = "\n" + MODEL  # typed a moment ago
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), layers, editor.at(layers, "def |norm"))
    found = await editor.client.text_document_references_async(params)
    places = [(r.uri, r.range.start) for r in found]
    assert places == [
        (layers.uri, editor.at(layers, "def |norm")),
        (model.uri, editor.at(model, "import |norm, HEADS")),
        (model.uri, editor.at(model, "y = |norm(x)")),
        (model.uri, editor.at(model, "return L.|norm(y)")),
    ]
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), model, editor.at(model, "* |heads"))
    found = await editor.client.text_document_references_async(params)
    assert [(r.uri, r.range.start) for r in found] == [
        (layers.uri, editor.at(layers, "|HEADS = 4")),
        (model.uri, editor.at(model, "norm, |HEADS as")),
        (model.uri, editor.at(model, "* |heads")),
    ]


async def test_references_wait_for_files_that_are_still_being_read():
    server = create_server()
    server.protocol._workspace = Workspace(None)
    server.protocol.server_capabilities, server.protocol.client_capabilities = (
        lsp.ServerCapabilities(),
        lsp.ClientCapabilities(
            text_document=lsp.TextDocumentClientCapabilities(diagnostic=lsp.DiagnosticClientCapabilities())
        ),
    )
    for name, text in (("layers.py", LAYERS), ("model.py", MODEL)):
        server.open(lsp.TextDocumentItem(f"file:///work/{name}", "python", 1, text))
    layers, model = server.documents.values()
    await layers.ready()
    await model.ready()
    model.edit(2, [lsp.TextDocumentContentChangeWholeDocument("\n" + MODEL)])
    at = layers.text.position(LAYERS.index("def norm") + 4)
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), lsp.TextDocumentIdentifier(layers.uri), at)
    found = await server.protocol.fm.features[lsp.TEXT_DOCUMENT_REFERENCES](params)
    line = ("\n" + MODEL).split("\n").index(next(n for n in MODEL.split("\n") if "y = norm(x)" in n))
    assert line in [r.range.start.line for r in found if r.uri == model.uri]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ('one(self, x: Tensor["|B"', ['one(self, x: Tensor["R", "D"])', "x.reshape(R * D)"]),
        ('two(x: Tensor["|B"', ['x: Tensor["R", "N"], y: Tensor["R", "N"]', "y[tile_r : tile_r + 4] = x[tile_r"]),
        ("z.reshape(|B * 4)", ['inner(é: Tensor["R", "D"]', 'z: Tensor["R", 4] = é @ w', "z.reshape(R * 4)"]),
    ],
)
async def test_dims_are_renamed_in_classes_kernels_and_inner_functions(editor, mark, expected):
    doc = editor.open(NESTED)
    edit = await editor.client.text_document_rename_async(rename(doc, editor.at(doc, mark), "R"))
    text = apply(editor, doc, edit)
    assert all(part in text for part in expected), text
    assert text.count('"B"') + text.count('"R"') == NESTED.count('"B"'), "the dims of other functions stay"
