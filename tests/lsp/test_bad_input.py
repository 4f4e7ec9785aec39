"""What no client should send and some do: every request is answered or refused, and the server lives on."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
from subprocess import DEVNULL, PIPE
from typing import IO

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tests.browsers import PATIENCE

GOOD = """import tessera as ts
from tessera import Tensor


@ts.function
def f(x: Tensor["B", "D"]):
    s = "𝒮"; y = x.sum(-1)
    return y
"""
NESTED = "import tessera as ts\n"


def deep(kind: str, levels: int = 1_000) -> str:
    if kind == "brackets":
        return NESTED + "x = " + "(" * levels + ")" * levels + "\n"
    if kind == "subscripts":
        return NESTED + f"def f(x: ts.Tensor{'[' * levels}1{']' * levels}):\n    return x\n"
    if kind == "blocks":
        return NESTED + "".join("  " * i + "if x:\n" for i in range(levels)) + "  " * levels + "y = (\n"
    if kind == "functions":
        return NESTED + "".join("  " * i + f"def f{i}():\n" for i in range(levels)) + "  " * levels + "return 1\n"
    if kind == "attributes":
        return NESTED + "@ts.function\ndef f(x: ts.Tensor['N']):\n    return x" + ".T" * levels + "\n"
    return NESTED + "@ts.function\ndef f(x: ts.Tensor['N']):\n    return " + "-" * levels + "x\n"


BINARY = bytes(random.Random(0).randrange(256) for _ in range(4_000)).decode("latin-1") + "tessera"
TEXTS = {
    "binary": BINARY,
    "nulls": "tessera" + "\0" * 3_000,
    "5 MB of code": "# tessera\n" + "x = [1, 2, 3, 4, 5, 6, 7]\n" * 200_000,
    "one line of 5 MB": "# tessera\nx = '" + "a" * 5_000_000 + "'\n",
    "a word of 5 MB": "# tessera\nx." + "a" * 5_000_000 + "(\n",
    "mixed tabs": "import tessera as ts\n@ts.function\ndef f(x: ts.Tensor['N']):\n\ty = x\n        z = y\n\treturn z\n",
    "line ends of every kind": GOOD.replace("\n", "\r", 2).replace("\n", "\r\n", 2),
    "byte order marks": "\ufeff\ufeff" + GOOD + "\ufeff",
    "only surrogate pairs": "# tessera\n" + "𝒮" * 5_000,
    "control characters": "# tessera\n" + "".join(map(chr, range(1, 32))) + "\f\v\x1c\u2028\u2029\x85\n" + GOOD,
    **{f"1000 {kind}": deep(kind) for kind in ("brackets", "subscripts", "blocks", "functions", "attributes", "signs")},
}  # fmt: skip


async def everything(editor, doc, at: lsp.Position) -> None:
    """One request of each kind; a refusal is an answer."""
    client, whole = editor.client, lsp.Range(lsp.Position(0, 0), lsp.Position(2**31 - 1, 2**31 - 1))
    for request in (
        client.text_document_diagnostic_async(lsp.DocumentDiagnosticParams(doc)),
        client.text_document_inlay_hint_async(lsp.InlayHintParams(doc, whole)),
        client.text_document_hover_async(lsp.HoverParams(doc, at)),
        client.text_document_completion_async(lsp.CompletionParams(doc, at)),
        client.text_document_signature_help_async(lsp.SignatureHelpParams(doc, at)),
        client.text_document_definition_async(lsp.DefinitionParams(doc, at)),
        client.text_document_references_async(lsp.ReferenceParams(lsp.ReferenceContext(True), doc, at)),
        client.text_document_document_highlight_async(lsp.DocumentHighlightParams(doc, at)),
        client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc)),
        client.text_document_code_action_async(lsp.CodeActionParams(doc, whole, lsp.CodeActionContext([]))),
        client.text_document_prepare_rename_async(lsp.PrepareRenameParams(doc, at)),
        client.text_document_rename_async(lsp.RenameParams(doc, at, "M")),
    ):
        try:
            await asyncio.wait_for(request, PATIENCE)
        except JsonRpcException as e:
            assert "Internal" not in type(e).__name__, e


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", TEXTS)
async def test_odd_texts(editor, kind):
    doc = editor.open(TEXTS[kind], "odd.py")
    await everything(editor, doc, lsp.Position(1, 5))
    await everything(editor, doc, lsp.Position(1, 4_999_000))
    report = await editor.diagnostics(doc)
    assert not any(d.code == "TS900" for d in report), report
    editor.type(doc, GOOD)
    assert (await editor.hints(doc))['s = "𝒮"; y'] == ": [B] f32"
    assert not await editor.diagnostics(doc)
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(doc))


@pytest.mark.asyncio(loop_scope="module")
async def test_places_that_are_nowhere(editor):
    """Positions far outside, in the middle of a character, ranges the wrong way round, edits there."""
    doc = editor.open(GOOD, "places.py")
    far = 2**31 - 1
    for at in (lsp.Position(far, far), lsp.Position(6, far), lsp.Position(6, 10), lsp.Position(far, 0)):
        await everything(editor, doc, at)
    backwards = lsp.Range(lsp.Position(far, 3), lsp.Position(7, 0))
    editor.change(doc, lsp.TextDocumentContentChangePartial(backwards, "    return y\n"))
    assert (await editor.hints(doc))['s = "𝒮"; y'] == ": [B] f32"
    beyond = lsp.Range(lsp.Position(far, 0), lsp.Position(far, far))
    editor.change(doc, lsp.TextDocumentContentChangePartial(beyond, "# the end\n"))
    assert not await editor.diagnostics(doc)
    inside = lsp.Range(lsp.Position(6, 10), lsp.Position(6, 11))  # one half of a surrogate pair
    editor.change(doc, lsp.TextDocumentContentChangePartial(inside, "x"))
    await everything(editor, doc, lsp.Position(6, 10))
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(doc))


def asked(uri: str, line: object, character: object) -> list[dict]:
    """A request of each kind at a place, numbered."""
    at = {"line": line, "character": character}
    common = {"textDocument": {"uri": uri}, "position": at}
    area = {"textDocument": {"uri": uri}, "range": {"start": at, "end": at}}
    requests = {
        "hover": common, "completion": common, "signatureHelp": common, "definition": common,
        "documentHighlight": common, "prepareRename": common, "rename": common | {"newName": "M"},
        "references": common | {"context": {"includeDeclaration": True}}, "inlayHint": area,
        "codeAction": area | {"context": {"diagnostics": []}}, "selectionRange": common | {"positions": [at]},
    }  # fmt: skip
    return [{"id": i, "method": f"textDocument/{name}", "params": p} for i, (name, p) in enumerate(requests.items(), 2)]


@pytest.mark.parametrize("number", [-1, -(2**31), 2**31, 2**32 - 1, 2**63, "first", None, [1]])
def test_every_request_with_an_odd_number_is_answered(number):
    """Numbers outside of the protocol's are moved inside; what is not a number is refused. Both are answered."""
    requests = asked("file:///m.py", number, number)
    opened = {**OPEN, "params": {"textDocument": {**OPEN["params"]["textDocument"], "text": GOOD}}}
    with subprocess.Popen([sys.executable, "-m", "tessera_lsp"], stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as server:
        silent = threading.Timer(PATIENCE, server.kill)  # then what is read ends
        silent.start()
        server.stdin.write(framed(START, opened, *requests))
        server.stdin.flush()
        answers = answered(server.stdout, {r["id"] for r in requests})
        silent.cancel()
        server.kill()
    if isinstance(number, int):
        assert not [a for a in answers.values() if a.get("error", {}).get("code") in (-32602, -32603)], answers
    else:
        assert {a["error"]["code"] for a in answers.values()} == {-32602}


def answered(out: IO[bytes], numbers: set[int]) -> dict[int, dict]:
    """The answers to these requests."""
    found: dict[int, dict] = {}
    while found.keys() != numbers:
        length = 0
        while header := out.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, f"no answer to {numbers - found.keys()}"
        message = json.loads(out.read(length))
        if message.get("id") in numbers and "method" not in message:
            found[message["id"]] = message
    return found


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_deleted_or_renamed_while_it_is_open(editor, tmp_path):
    """The open text is what counts; what imports the file sees it go only when it is closed."""
    (tmp_path / "layers.py").write_text("N = 3\n")
    texts = {"layers.py": "N = 5\n", "model.py": GOOD.replace("import Tensor", "import Tensor\nfrom layers import N")}
    texts["model.py"] = texts["model.py"].replace('"D"', "N").replace("x.sum(-1)", "x.sum(0)")
    docs = {}
    for name, text in texts.items():
        item = lsp.TextDocumentItem((tmp_path / name).as_uri(), "python", 1, text)
        editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        docs[name] = lsp.TextDocumentIdentifier(item.uri)
        editor.texts[item.uri], editor.versions[item.uri] = text, 1
    assert (await editor.hints(docs["model.py"]))['s = "𝒮"; y'] == ": [5] f32"
    (tmp_path / "layers.py").rename(tmp_path / "renamed.py")
    editor.replace(docs["model.py"], "return y", "return y ")
    assert (await editor.hints(docs["model.py"]))['s = "𝒮"; y'] == ": [5] f32"
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(docs["layers.py"]))
    editor.replace(docs["model.py"], "return y ", "return y")
    assert 's = "𝒮"; y' not in {k for k, v in (await editor.hints(docs["model.py"])).items() if v == ": [5] f32"}
    assert not [d for d in await editor.diagnostics(docs["model.py"]) if d.code == "TS900"]
    editor.replace(docs["model.py"], "from layers", "from renamed")
    assert (await editor.hints(docs["model.py"]))['s = "𝒮"; y'] == ": [3] f32"


def framed(*messages: dict) -> bytes:
    bodies = [json.dumps({"jsonrpc": "2.0", **m}).encode() for m in messages]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(b), b) for b in bodies)


OPEN = {"method": "textDocument/didOpen", "params": {
    "textDocument": {"uri": "file:///m.py", "languageId": "python", "version": 1, "text": GOOD * 200}}}  # fmt: skip
START = {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}}
ABLE = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
ASKED = {**START, "params": {**START["params"], "capabilities": ABLE}}, {"method": "initialized", "params": {}}
ASK = {"id": 2, "method": "textDocument/inlayHint", "params": {"textDocument": {"uri": "file:///m.py"}, "range": {
    "start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}}}  # fmt: skip


@pytest.mark.parametrize(
    "sent",
    [framed(START, OPEN, ASK), framed(START, OPEN, ASK)[:-20], framed(START) + b"Content-Length: 99999\r\n\r\n{",
     b"Content-Length: nothing\r\n\r\n", b"\x00\xff" * 50, b"",
     framed(START, OPEN, ASK, {"id": 3, "method": "shutdown"}, {"method": "exit"}), framed(*ASKED, OPEN)],
    ids=["in a request", "in a message", "before a body", "bad length", "no protocol", "at once", "in order",
         "without an answer"],
)  # fmt: skip
def test_a_client_that_goes_away(sent):
    """The server ends by itself, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "tessera_lsp"], input=sent, capture_output=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert b"Traceback" not in done.stderr, done.stderr.decode()[-2000:]


def test_a_text_that_is_opened_too_early_is_answered():
    """Before `initialized`, as Helix does at times: ruff ends then."""
    with subprocess.Popen(
        [sys.executable, "-m", "tessera_lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin and server.stdout
        server.stdin.write(framed(START, OPEN, {"method": "initialized", "params": {}}, ASK))
        server.stdin.flush()
        answer = {}
        while answer.get("id") != ASK["id"]:
            length = int(server.stdout.readline().partition(b":")[2])
            while server.stdout.readline().strip():
                pass
            answer = json.loads(server.stdout.read(length))
        server.stdin.write(framed({"id": 3, "method": "shutdown"}, {"method": "exit"}))
        server.stdin.close()
    assert answer["result"], answer
