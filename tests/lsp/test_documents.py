"""Texts in every state: encodings, line ends, broken, superseded, too much for the analysis."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tests.browsers import PATIENCE, free_port
from tests.lsp.conftest import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = """import tessera as ts
from tessera import Tensor

@ts.function
def first(x: Tensor["B", "S"], w: Tensor["S", "D"]):
    s = "𝒮"; a = x @ w
    b = a.sum(-1)
    c = b * 2
    return c

@ts.function
def second(x: Tensor["N", "N"]):
    p = x @ x
    q = p.mean(0)
    return q
"""


async def test_utf16_is_the_default_and_utf8_is_taken_when_offered(editor, start):
    assert editor.result.capabilities.position_encoding == "utf-16"
    other = await start(encodings=["utf-8", "utf-16"])
    assert other.result.capabilities.position_encoding == "utf-8"
    doc = other.open(TWO)
    hint = next(h for h in await other.inlay_hints(doc) if h.position.line == 5)
    assert hint.position == lsp.Position(5, len('    s = "𝒮"; a'.encode()))


async def test_findings_are_pushed_to_clients_that_do_not_pull(start):
    editor = await start(pull=False)
    doc = editor.open(TWO.replace("p = x @ x", "p = x @ x.sofmax()"))
    (found,) = await editor.pushed(doc, "TS104")
    assert editor.covered(doc, found.range) == "x.sofmax"
    editor.replace(doc, ".sofmax()", "")
    await editor.pushed(doc)


async def test_crlf_and_byte_order_mark(editor):
    plain = editor.open(TWO)
    other = editor.open("\ufeff" + TWO.replace("\n", "\r\n"), "windows.py")
    expected = [(h.position, editor.label(h)) for h in await editor.inlay_hints(plain)]
    assert [(h.position, editor.label(h)) for h in await editor.inlay_hints(other)] == expected
    assert len(expected) == 5


async def test_hints_on_the_first_line_after_a_byte_order_mark(editor):
    text = "import tessera as ts; S = 3; ts.function(lambda: 0)\nx = ts.f(\n"
    doc = editor.open("\ufeff" + text, "mark.tess")
    (found,) = await editor.diagnostics(doc)
    assert found.code == "TS101" and found.range.start.line == 1


async def test_while_the_text_is_broken_hints_stay(editor):
    doc = editor.open(TWO)
    before = await editor.hints(doc)
    editor.replace(doc, "    c = b * 2\n", "    c = b * (\n\n\n")
    assert [d.code for d in await editor.diagnostics(doc)] == ["TS101"]
    now = await editor.hints(doc)
    assert now == {k: v for k, v in before.items() if k != "c"}, "all but those from the changed line on"
    lines = {editor.label(h): h.position.line for h in await editor.inlay_hints(doc)}
    assert lines[": [N, N] f32"] == 14, "moved with its function"
    editor.replace(doc, "    c = b * (\n\n\n", "    c = b * 2\n")
    assert await editor.hints(doc) == before


async def test_functions_between_two_broken_places_keep_their_hints(editor):
    doc = editor.open(TWO + "\n@ts.function\ndef third(y: Tensor['K']):\n    z = y + 1\n    return z\n")
    before = await editor.hints(doc)
    editor.replace(doc, "b = a.sum(-1)", "b = a.sum(")
    editor.replace(doc, "z = y + 1", "z = y + (")
    now = await editor.hints(doc)
    assert now["p"] == before["p"] and now["q"] == before["q"] and "z" not in now and "b" not in now


async def test_hover_and_definition_follow_a_moved_function(editor):
    doc = editor.open(TWO)
    await editor.hints(doc)
    editor.replace(doc, "c = b * 2\n", "c = b * (\n\n\n")
    found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "q = |p.mean")))
    assert "p: [N, N] f32" in found.contents.value
    place = await editor.client.text_document_definition_async(lsp.DefinitionParams(doc, editor.at(doc, "q = |p.mean")))
    assert editor.covered(doc, place.range) == "p"
    symbols = await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc))
    assert [editor.covered(doc, s.selection_range) for s in symbols] == ["first", "second"]
    with pytest.raises(JsonRpcException, match="does not parse"):
        params = lsp.RenameParams(text_document=doc, position=editor.at(doc, 'Tensor["|N", "N"]'), new_name="M")
        await editor.client.text_document_rename_async(params)


async def test_a_superseded_request_is_told_so():
    from tessera_lsp.document import Document

    document = Document(lsp.TextDocumentItem("file:///a.py", "python", 1, TWO))
    document.request_analysis()
    asked = asyncio.ensure_future(document.ready())
    await asyncio.sleep(0)  # the request waits for the analysis
    document.edit(2, [lsp.TextDocumentContentChangeWholeDocument(TWO + "\n")])
    with pytest.raises(JsonRpcException) as raised:
        await asked
    assert raised.value.code == lsp.LSPErrorCodes.ContentModified.value
    await document.ready()
    assert document.known


async def test_ranges_of_an_edit_count_utf16(editor):
    doc = editor.open(TWO)
    editor.replace(doc, "; a = x @ w", "; a = w.T @ x.T")
    assert (await editor.hints(doc))['s = "𝒮"; a'] == ": [D, B] f32"
    editor.replace(doc, '"𝒮"', '"𝒮𝒮é"')
    editor.replace(doc, "w.T @ x.T", "x @ w")
    assert (await editor.hints(doc))['s = "𝒮𝒮é"; a'] == ": [B, D] f32"


async def test_files_without_tessera_are_not_ours(editor):
    doc = editor.open("def f(:\n    print 'old'\n", "plain.py")
    assert not await editor.diagnostics(doc)


@pytest.mark.parametrize(
    "text",
    ["", "\ufeff", "\x00\x01tessera\x00", "# tessera\n" + "(" * 3000, "# tessera\n" + "x = " + "-" * 5000 + "1",
     "import tessera as ts\r@ts.function\rdef f(x: ts.Tensor['N']):\r\ty = x\r        return y\r", "tessera 𝒮\ud83d"],
)  # fmt: skip
async def test_any_text_is_answered(editor, text):
    try:
        doc = editor.open(text, "odd.tess")
    except UnicodeEncodeError:
        pytest.skip("this client cannot send half a surrogate pair")
    at = lsp.Position(99_999, 99_999)
    await editor.diagnostics(doc)
    await editor.inlay_hints(doc)
    assert await editor.client.text_document_hover_async(lsp.HoverParams(doc, at)) is None
    await editor.client.text_document_completion_async(lsp.CompletionParams(doc, at))
    await editor.client.text_document_signature_help_async(lsp.SignatureHelpParams(doc, at))
    await editor.client.text_document_definition_async(lsp.DefinitionParams(doc, at))
    await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc))


async def test_a_text_too_long_to_be_a_program_is_left_alone(editor):
    doc = editor.open("# tessera\nx = (\n" + "1,\n" * 1_000_000, "data.tess")
    assert not await editor.diagnostics(doc)
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(doc))


async def test_a_document_that_is_not_open_is_refused(editor):
    with pytest.raises(JsonRpcException, match="not open"):
        await editor.inlay_hints(lsp.TextDocumentIdentifier("file:///nowhere.py"))
    ghost = lsp.VersionedTextDocumentIdentifier(2, "file:///nowhere.py")
    editor.client.text_document_did_change(lsp.DidChangeTextDocumentParams(ghost, []))
    doc = editor.open(TWO)
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(doc))
    with pytest.raises(JsonRpcException, match="not open"):
        await editor.inlay_hints(doc)


async def test_a_fault_of_the_analysis_stays_in_its_document(monkeypatch, caplog):
    from tessera_lsp.document import Document

    from tessera.compiler.frontend import incremental

    def fail(definition):
        raise ZeroDivisionError(definition.name)

    document = Document(lsp.TextDocumentItem("file:///a.py", "python", 1, TWO))
    with monkeypatch.context() as patch:
        patch.setattr(incremental, "analyse", fail)
        document.request_analysis()
        await document.ready()
    assert [d.code for d in document.diagnostics] == ["TS900"] and "ZeroDivisionError" in caplog.text
    document.edit(2, [lsp.TextDocumentContentChangeWholeDocument(TWO + "\n")])
    await document.ready()
    assert [k.analysis.name for k in document.known] == ["first", "second"] and not document.diagnostics


async def test_findings_that_cannot_be_sent_hold_nothing_up(caplog):
    from tessera_lsp.document import Document

    def broken_pipe(document):
        raise BrokenPipeError(document.uri)

    document = Document(lsp.TextDocumentItem("file:///a.py", "python", 1, TWO), analysed=broken_pipe)
    for version in (2, 3):
        document.edit(version, [lsp.TextDocumentContentChangeWholeDocument(TWO + "\n" * version)])
        await document.ready()
        assert len(document.known) == 2
        await asyncio.sleep(0)
    assert "BrokenPipeError" in caplog.text


async def test_tcp_listens_on_loopback(start):
    port = free_port()
    command = (sys.executable, "-m", "tessera_lsp", "--tcp", str(port))
    server = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        await connected(lambda: turned_away(port))
        editor = await start(port=port)
        assert (await editor.hints(editor.open(TWO)))["p"] == ": [N, N] f32"
        await turned_away(port)
        assert (await editor.hints(editor.open(TWO)))["p"] == ": [N, N] f32", "the client is still served"
        await asyncio.wait_for(editor.client.shutdown_session(), PATIENCE)
        _, said = await asyncio.wait_for(server.communicate(), PATIENCE)
        assert said.count(b"WARNING tessera_lsp.sockets: a connection was closed") == 6
    finally:
        if server.returncode is None:
            server.kill()


async def turned_away(port):
    """What a page in a browser can send, and what is no message at all: closed without an answer."""
    message = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}'
    inner = b"Content-Length: %d\r\n\r\n%s" % (len(message), message)
    post = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" % (len(inner), inner)
    for data in (post, b"\r\n" + inner, b"x" * 100_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            writer.write(data)
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
