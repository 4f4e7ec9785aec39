"""Files that import each other, in the real server: open texts come before the disk, and changes reach who depends."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp
from tessera_lsp.features import watched

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYERS = """HEADS = 4


def heads(x):
    B, S, D = x.shape
    return x.reshape(B, S, HEADS, D // HEADS)
"""

MODEL = """import tessera as ts
from tessera import Tensor
from layers import HEADS, heads


@ts.function
def split(x: Tensor["B", "S", 64]):
    y = heads(x)
    return y
"""


async def test_an_edit_shows_where_it_is_imported(editor):
    layers = editor.open(LAYERS, "layers.py")
    model = editor.open(MODEL, "model.py")
    assert await editor.hints(model) == {"y": ": [B, S, 4, 16] f32"}
    editor.replace(layers, "HEADS = 4", "HEADS = 8")
    assert await editor.hints(model) == {"y": ": [B, S, 8, 8] f32"}
    editor.replace(layers, "HEADS = 8", "HEADS = (8")
    assert await editor.hints(model) == {"y": ": [B, S, 8, 8] f32"}
    assert not await editor.diagnostics(model)
    editor.replace(layers, "HEADS = (8", "HEADS = 7")
    (found,) = await editor.diagnostics(model)
    assert "[B, S, 7, 9]" in found.message and editor.covered(model, found.range) == "heads(x)"
    (place,) = [r for r in found.related_information if r.message == "found in heads"]
    assert place.location.uri == layers.uri
    assert editor.covered(layers, place.location.range) == "x.reshape(B, S, HEADS, D // HEADS)"


async def test_cycles_and_deleted_files(editor, tmp_path):
    one = "import tessera as ts\nfrom {0} import f, N\nM = N\ndef g(x):\n    return x.sum(0)\n"
    uses = "@ts.function\ndef h(x: ts.Tensor['B', 'D']):\n    y = g(x)\n    return y\n"
    a = editor.open(one.format("cycle_b") + uses, "cycle_a.py")
    b = editor.open(one.format("cycle_a") + uses, "cycle_b.py")
    for _ in range(3):
        editor.replace(a, "x.sum(0)", "x.sum(0, keepdim=True)")
        assert (await editor.hints(a))["y"] == ": [1, D] f32"
        editor.replace(a, "x.sum(0, keepdim=True)", "x.sum(0)")
        assert (await editor.hints(b))["y"] == ": [D] f32"
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(b))
    editor.replace(a, "M = N", "M = N + 1")
    assert (await editor.hints(a))["y"] == ": [D] f32"


async def test_pushed_findings_follow_an_import(start):
    editor = await start(pull=False)
    layers = editor.open(LAYERS, "layers.py")
    model = editor.open(MODEL, "model.py")
    await editor.hints(model)
    editor.replace(layers, "HEADS = 4", "HEADS = 7")
    (found,) = await editor.pushed(model, "TS205")
    assert found.source == "tessera" and "7" in found.message


@pytest.mark.parametrize("start_text", [None, LAYERS])
async def test_a_file_that_others_change(start, tmp_path, start_text):
    """Written on the disk, by a generator say: the client tells, and who imports it is analysed again."""
    editor = await start(pull=False, folders=[tmp_path])
    other, model = tmp_path / "layers.py", tmp_path / "model.py"
    if start_text is not None:
        other.write_text(start_text)
    text = MODEL.replace("    y = heads(x)", "    y = heads(x)\n    z = y @ y")
    item = lsp.TextDocumentItem(model.as_uri(), "python", 1, text)
    editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    await editor.pushed(item, *([] if start_text is None else ["TS203"]))

    def tell(kind):
        event = lsp.FileEvent(other.as_uri(), kind)
        editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([event]))

    other.write_text(LAYERS + "\n\n")
    tell(lsp.FileChangeType.Created)
    await editor.pushed(item, "TS203")
    other.write_text(LAYERS.replace("HEADS = 4", "HEADS = 8"))
    tell(lsp.FileChangeType.Changed)
    await editor.pushed(item)
    other.write_text(LAYERS.replace("HEADS = 4", "HEADS = 2"))
    tell(lsp.FileChangeType.Changed)
    await editor.pushed(item, "TS203")
    other.unlink()
    tell(lsp.FileChangeType.Deleted)
    await editor.pushed(item)


async def test_clients_that_can_be_asked_to_watch_are():
    able = lsp.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
    (asked,) = watched.registrations(
        lsp.ClientCapabilities(workspace=lsp.WorkspaceClientCapabilities(did_change_watched_files=able))
    )
    assert asked.method == "workspace/didChangeWatchedFiles"
    assert [w.glob_pattern for w in asked.register_options.watchers] == ["**/*.{py,tess}"]
    assert watched.registrations(lsp.ClientCapabilities()) == []
