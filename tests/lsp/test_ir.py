"""The levels of a compilation as texts that are linked with their sources."""

from __future__ import annotations

import asyncio

import psutil
import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tests.lsp.conftest import eventually
from tests.lsp.test_notebooks import FIRST, IMPORTS, SECOND, Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = """import os
import tessera as ts
from tessera import Tensor

os.environ["TESSERA_RAN"] = "1"


@ts.function
def norm(x: Tensor["B", "D"]):
    note = "𝒮é"; y = ts.softmax(x)
    return y * 2


@ts.kernel
def double(x: Tensor["N"], y: Tensor["N"]):
    y[tile_n : tile_n + 64] = x[tile_n : tile_n + 64] * 2
"""


async def ask(editor, doc, **params):
    return await editor.client.protocol.send_request_async("tessera/ir", {"textDocument": {"uri": doc.uri}, **params})


def from_line(answer, uri, line):
    """The lines of the text that come from a line of a source."""
    texts = answer.text.splitlines()
    return [t for t, s in zip(texts, answer.lines, strict=True) if s and s.uri == uri and line in s.lines]


async def test_graph_and_schedule(editor):
    doc = editor.open(MODEL)
    line = editor.at(doc, "y = ts.|softmax").line
    at = {"line": line, "character": 3}
    graph = await ask(editor, doc, position=at, level="graph")
    assert (graph.function, graph.level, graph.language) == ("norm", "graph", "tessera-ir")
    assert any("= exp(" in t for t in from_line(graph, doc.uri, line))
    assert any("= mul(" in t for t in from_line(graph, doc.uri, line + 1))
    schedule = await ask(editor, doc, function="norm", level="schedule", dims={"D": 64})
    assert "= group(" in schedule.text and "[B, 64]" in schedule.text


async def test_kernels_start_as_tile_ir(editor):
    doc = editor.open(MODEL)

    async def levels(**where):
        params = {"textDocument": {"uri": doc.uri}, **where}
        found = await editor.client.protocol.send_request_async("tessera/levels", params)
        return found.function, list(found.levels)

    at = editor.at(doc, "y[|tile_n")
    assert await levels(function="norm") == ("norm", ["graph", "schedule", "tile", "target", "assembly"])
    assert await levels(position={"line": at.line, "character": 4}) == ("double", ["tile", "target", "assembly"])
    with pytest.raises(JsonRpcException, match="there is no function or kernel at this place"):
        await levels(position={"line": 0, "character": 0})


async def test_levels_of_a_target_come_from_a_process_that_runs_nothing_of_the_file(editor):
    doc = editor.open(MODEL)
    line = editor.at(doc, "y = ts.|softmax").line
    tile = await ask(editor, doc, function="double", level="tile")
    assert "func double(" in tile.text
    assert from_line(tile, doc.uri, editor.at(doc, "    y[tile_n :| tile_n + 64] =").line)
    llvm = await ask(editor, doc, function="norm", level="target", target="cpu", dims={"B": 8, "D": 64})
    assert (llvm.language, llvm.target) == ("llvm", "cpu") and "define" in llvm.text
    assert from_line(llvm, doc.uri, line)
    cuda = await ask(editor, doc, function="norm", level="target", target="sm_90a")
    assert cuda.language == "cuda-cpp" and "__global__" in cuda.text
    assembly = await ask(editor, doc, function="norm", level="assembly", target="cpu")
    assert assembly.language == "asm" and "ret" in assembly.text


async def test_what_there_is_no_text_of(editor):
    doc = editor.open(MODEL.replace("ts.softmax(x)", "ts.softmax(x) @ x.sofmax()"))
    for params, why in [
        ({"function": "norm"}, "cannot be compiled as it stands.*sofmax"),
        ({"function": "double"}, "starts as Tile IR"),
        ({"function": "nothing"}, "no function or kernel 'nothing' here; there is norm, double"),
        ({"position": {"line": 0, "character": 0}}, "at this place"),
        ({"function": "norm", "level": "machine"}, "level is one of"),
        ({"function": "double", "level": "tile", "target": "cpuu"}, "There is no target 'cpuu'. Did you mean cpu"),
    ]:
        with pytest.raises(JsonRpcException, match=why):
            await ask(editor, doc, **params)


async def test_in_a_notebook_lines_lead_to_their_cells(editor):
    book = Notebook(editor, IMPORTS, FIRST.replace("S=4096,D=64", "S=32,D=64"), SECOND.replace("sofmax", "softmax"))
    graph = await ask(editor, book[2], function="attend")
    assert from_line(graph, book[2].uri, editor.at(book[2], "ts.|softmax").line)
    assert from_line(graph, book[1].uri, editor.at(book[1], "return |é / 2").line), "the helper stands in another cell"


async def test_the_document_behind_the_address(start):
    editor = await start()
    doc = editor.open(MODEL)
    answer = await ask(editor, doc, function="norm", dims={"B": 4})
    assert answer.uri.startswith("tessera:/norm.graph?")
    assert editor.result.capabilities.workspace.text_document_content.schemes == ("tessera",)
    found = await editor.client.workspace_text_document_content_async(lsp.TextDocumentContentParams(answer.uri))
    assert found.text == answer.text and "[4, D]" in found.text
    with pytest.raises(JsonRpcException, match="not an address"):
        await editor.client.workspace_text_document_content_async(lsp.TextDocumentContentParams("tessera:/x"))


async def test_progress_and_cancellation(start):
    others = set(psutil.Process().children())
    editor = await start()
    doc = editor.open(MODEL)
    editor.client.progress_reports["t1"] = []  # the token is the client's own
    sent = editor.client.protocol.send_request_async(
        "tessera/ir",
        {"textDocument": {"uri": doc.uri}, "function": "norm", "level": "target", "workDoneToken": "t1"},
        msg_id="ir-1",
    )
    asked = asyncio.ensure_future(sent)
    (server,) = set(psutil.Process().children()) - others
    await eventually(lambda: len(server.children()), 1)
    editor.client.cancel_request(lsp.CancelParams("ir-1"))
    with pytest.raises(JsonRpcException) as raised:
        await asked
    assert raised.value.code == lsp.LSPErrorCodes.RequestCancelled.value
    await eventually(server.children, [])
    kinds = [p.kind for p in editor.client.progress_reports["t1"]]
    assert kinds == ["begin", "end"]


async def test_lines_of_a_text_that_has_been_edited_meanwhile_are_not_told(start):
    others = set(psutil.Process().children())
    editor = await start()
    doc = editor.open(MODEL)
    asked = asyncio.ensure_future(ask(editor, doc, function="norm", level="target"))
    (server,) = set(psutil.Process().children()) - others
    await eventually(lambda: len(server.children()), 1)
    editor.replace(doc, "import os\n", "import os\n\n")
    with pytest.raises(JsonRpcException) as raised:
        await asked
    assert raised.value.code == lsp.LSPErrorCodes.ContentModified.value
