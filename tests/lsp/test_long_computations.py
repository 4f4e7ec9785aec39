"""A document whose analysis takes long: other documents are answered meanwhile, and its requests can be cancelled."""

from __future__ import annotations

import asyncio
import threading

import psutil
import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified
from tessera_lsp.background import Aside, EndedError
from tessera_lsp.document import Document

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.incremental import FileAnalysis
from tests.browsers import PATIENCE
from tests.lsp.conftest import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG = """import tessera as ts


@ts.function
def long(x: ts.Tensor["N"]):
    n = sum([a * b * c for a in range(24) for b in range(24) for c in range(24)])
    m = sum([a * b * c for a in range(24) for b in range(24) for c in range(24)])
    return x * n * m
"""
SHORT = """import tessera as ts


@ts.function
def short(x: ts.Tensor["B", "N"]):
    y = x.sum(0)
    return y
"""


async def test_others_are_answered_while_one_takes_long(editor):
    doc, other = editor.open(LONG, "long.py"), editor.open(SHORT, "short.py")
    server, answered = psutil.Process(editor.client._server.pid), list[asyncio.Future]()
    server.suspend()  # it finds all of them there when it goes on, the long one first
    asked = [asyncio.ensure_future(editor.inlay_hints(d)) for d in (doc, *[other] * 5)]
    for request in asked:
        request.add_done_callback(answered.append)
    await asyncio.sleep(0)
    server.resume()
    await asyncio.gather(*asked)
    assert answered[-1] is asked[0]  # the others are answered while it is under way
    assert not await editor.diagnostics(doc)


async def test_a_request_of_what_takes_long_is_cancelled_at_once(editor):
    """Before the analysis is done: another request, which came before it, still waits for that."""
    doc = editor.open(LONG.replace("range(24)", "range(25)"), "cancelled.py")
    server = psutil.Process(editor.client._server.pid)
    server.suspend()
    patient = asyncio.ensure_future(editor.inlay_hints(doc))
    await asyncio.sleep(0)
    request = lsp.DocumentDiagnosticParams(doc)
    waiting = asyncio.ensure_future(editor.client.text_document_diagnostic_async(request))
    await asyncio.sleep(0)
    number = next(reversed(editor.client.protocol._request_futures))
    editor.client.cancel_request(lsp.CancelParams(number))
    server.resume()
    with pytest.raises(Exception, match="cancel"):
        await waiting
    assert not patient.done()
    await patient
    assert not await editor.diagnostics(doc)


async def test_an_edit_ends_what_takes_long(editor):
    doc = editor.open(LONG.replace("range(24)", "range(23)"), "edited.py")
    await asyncio.sleep(0.15)  # it is at it, or will be: the outcome is the same
    editor.type(doc, SHORT)
    assert (await editor.hints(doc))["y"] == ": [N] f32"


async def test_the_findings_are_those_of_the_compiler():
    """The analysis of a text is the same, in whatever turns it is made."""
    text = LONG.replace("range(24)", "range(120)")
    alone = FileAnalysis("/alone.py")
    alone.update(text)
    document = Document(lsp.TextDocumentItem("file:///alone.py", "python", 1, text))
    document.request_analysis()
    await document.ready()
    assert {d.code for d in alone.diagnostics} == {"TS111"}
    assert [(d.code, d.span, d.message) for d in document.diagnostics] == [
        (d.code, d.span, d.message) for d in alone.diagnostics
    ]


async def test_a_text_that_is_superseded_leaves_no_thread():
    document = Document(lsp.TextDocumentItem("file:///left.py", "python", 1, LONG))
    document.request_analysis()
    first = asyncio.ensure_future(document.ready())
    while not any(t.name == "tessera-lsp aside" for t in threading.enumerate()):
        await asyncio.sleep(0)
    document.edit(2, [lsp.TextDocumentContentChangeWholeDocument(SHORT)])
    with pytest.raises(JsonRpcContentModified):
        await first
    await document.ready()
    assert [k.analysis.name for k in document.known] == ["short"]
    await eventually(lambda: any(t.name == "tessera-lsp aside" for t in threading.enumerate()), False)


async def test_turns():
    """The work and its owner take turns, and never run at once."""
    said: list[str] = []

    def work(aside: Aside) -> None:
        for n in range(3):
            said.append(f"work {n}")
            budget.pause()

    aside = Aside(work)
    while not aside.turn(0):
        said.append("owner")
    assert said == ["work 0", "owner", "work 1", "owner", "work 2", "owner"]

    ended = Aside(lambda aside: [aside.pause() for _ in iter(int, 1)] and None)
    assert not ended.turn(0)
    ended.end()
    assert ended._thread is not None
    ended._thread.join(PATIENCE)
    assert not ended._thread.is_alive()

    def failing(aside: Aside) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Aside(failing).turn(1)
    assert not issubclass(EndedError, Exception)
