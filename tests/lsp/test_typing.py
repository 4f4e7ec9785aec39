"""Typing faster than a large file can be analysed, in the real server process."""

from __future__ import annotations

import asyncio

import psutil
import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from tessera_lsp.document import Document
from tessera_lsp.features.completion import _completion, at_once

from benchmarks.frontend import program
from tessera.compiler.frontend.incremental import FileAnalysis

STALE = {lsp.LSPErrorCodes.ContentModified.value, lsp.LSPErrorCodes.ServerCancelled.value}


@pytest.mark.asyncio(loop_scope="module")
async def test_fast_typing_supersedes(editor):
    """Of many edits in a row only those are answered for which there was time; the last one always is."""
    doc = editor.open(program(10_000), "long.py")
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(20_000, 0))

    async def ask() -> object:
        try:
            return await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(doc, whole))
        except JsonRpcException as e:
            return e.code

    server = psutil.Process(editor.client._server.pid)
    server.suspend()  # however slow this client is, it types faster than the server reads
    asked = [asyncio.ensure_future(ask())]
    for n in range(30):  # now lines in the middle, which move what stands below, now a blank
        line = "def feed_forward_50(x:"
        editor.replace(doc, line, f"def helper_{n}(): pass\n\n\n@ts.function\n{line}" if n % 3 == 0 else line + " ")
        asked.append(asyncio.ensure_future(ask()))
        await asyncio.sleep(0)
    server.resume()
    *earlier, last = await asyncio.gather(*asked)
    assert last and not isinstance(last, int)
    stale = [a for a in earlier if isinstance(a, int)]
    assert set(stale) <= STALE
    assert len(stale) > len(earlier) // 2
    fresh = editor.open(editor.texts[doc.uri], "fresh.py")
    expected = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(fresh, whole))
    assert [(h.position, editor.label(h)) for h in last] == [(h.position, editor.label(h)) for h in expected]


ATTEND = """import tessera as ts
import numpy as np

@ts.function
def attend(x: ts.Tensor["B", "S"]):
    y = x * 2
    return y
"""


@pytest.mark.parametrize(
    ("line", "label", "other"),
    [
        ("    ts.", "softmax", ""), ("    z = ts.tile.", "mma", ""), ("    ts.soft", "softmax", ""),
        ("    y.", None, ""), ("    x.T.", None, ""), ("    # ts.", None, ""), ("    note = 'ts.", None, ""),
        ("    ts.", None, "    ts = x\n"), ("    ts.", None, "    import layers as ts\n"),
    ],
)  # fmt: skip
async def test_members_of_a_module_wait_for_no_analysis(line, label, other):
    """As soon as another thing may have the name, or the owner is a value, the analysis is waited for."""
    document = Document(lsp.TextDocumentItem("file:///work/model.py", "python", 1, ATTEND))
    end = lsp.Position(6, len(line))
    assert at_once(document, end) is None, "nothing is known yet"
    await document.analyse(document.text)
    change = lsp.TextDocumentContentChangePartial(lsp.Range(lsp.Position(6, 0), lsp.Position(6, 0)), f"{line}\n{other}")
    document.text = document.text.changed(change)  # which nobody has analysed
    found = at_once(document, end)
    assert (found is None) == (label is None)
    if found is not None:
        assert label in {item.label for item in found}
        await document.analyse(document.text)
        assert at_once(document, end) == found


def test_an_analysis_that_is_given_up_moves_nothing_twice():
    text = program(400)
    longer = text.replace("EPS = 1e-5\n", "EPS = 1e-5\n\n\n")
    first = FileAnalysis("a.py")
    first.update(text)
    parsed = next(n for n, _ in enumerate(first.steps(longer), 1) if first.text == longer)
    for stop in (1, 3, 10, parsed, parsed + 3, parsed + 10):
        kept = FileAnalysis("a.py")
        kept.update(text)
        steps = kept.steps(longer)
        for _ in range(stop):
            next(steps)
        steps.close()
        kept.update(longer + "\n")
        fresh = FileAnalysis("a.py")
        fresh.update(longer + "\n")
        assert [places(a) for a in kept.analyses] == [places(a) for a in fresh.analyses]


def places(analysis):
    ops = [op.span for op in analysis.op.walk()] if analysis.op is not None else []
    return analysis.name, [(e.span, e.text) for e in analysis.expressions], ops, analysis.diagnostics


def test_reading_a_text_gives_way_before_its_first_function():
    """A bracket at the top makes everything below be read anew; of that a keystroke must not have to wait."""
    text = program(2_000)
    kept = FileAnalysis("a.py")
    kept.update(text)
    broken = text.replace("EPS = 1e-5\n", 'EPS = 1e-5\n"""\n')
    steps = kept.steps(broken)
    for _ in range(20):
        next(steps)
    assert kept.text == text, "nothing has been analysed yet, and the old text is still whole"
    steps.close()
    kept.update(text + "\n")
    fresh = FileAnalysis("a.py")
    fresh.update(text + "\n")
    assert [places(a) for a in kept.analyses] == [places(a) for a in fresh.analyses]


LATER = """import tessera as ts

@ts.function
def other(q: ts.Tensor["Q"]):
    return q

@ts.function
def attend(x: ts.Tensor["B", "S"], w: ts.Tensor["S", "D"]):
    weights = x @ w
    return weights
"""


@pytest.mark.parametrize(
    ("after", "typed", "expected", "missing"),
    [
        ("weights = x @ w\n", "    weights.", {"softmax", "sum", "T"}, {"weights"}),
        ("weights = x @ w\n", "    we", {"weights", "B", "D", "x"}, {"Q", "q"}),
        ("weights = x @ w\n", '    z: ts.Tensor["', {"B", "S", "D"}, {"Q", "weights"}),
        ("return weights\n", "    w", {"weights", "B", "x"}, {"Q", "q"}),
        ('def other(q: ts.Tensor["Q"]):\n', "    ", {"Q", "q", "attend"}, {"B", "weights"}),
    ],
)
async def test_completions_from_what_was_known_last(after, typed, expected, missing):
    """Also while lines above are typed, and the trees of the functions below have moved to where they stand now."""
    document = Document(lsp.TextDocumentItem("file:///work/model.py", "python", 1, LATER))
    await document.analyse(document.text)
    for above in ("", "A = 1\n\n", "# 𝒮\n"):
        text = LATER.replace(after, f"{after}{typed}\n").replace("\n\n", f"\n{above}\n", 1)
        document.text = document.text.changed(lsp.TextDocumentContentChangeWholeDocument(text))
        steps = document._files.steps(document.text.plain)
        for taken in range(4):  # nothing has been read yet, some of it has
            assert not document.newest
            at = document.text.position(text.index(after) + len(after) + len(typed))
            found = {i.label for i in _completion(document, at)}
            assert expected <= found and not missing & found, (above, taken)
            next(steps, None)
        steps.close()
        await document.analyse(document.text)
        assert document.newest


@pytest.mark.asyncio(loop_scope="module")
async def test_a_long_file_is_completed_at_once(editor):
    """What is sent may be incomplete then, which is said; a little later it is not."""
    doc = editor.open(program(3_000), "longer.py")
    await editor.inlay_hints(doc)
    mark = "    hidden = x @ up\n"
    text = editor.texts[doc.uri]
    line = text[: text.rindex(mark)].count("\n") + 1
    editor.change(
        doc, lsp.TextDocumentContentChangePartial(lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0)), "    hid\n")
    )
    params = lsp.CompletionParams(doc, lsp.Position(line, 7))
    hints = asyncio.ensure_future(editor.inlay_hints(doc))
    found = asyncio.ensure_future(editor.client.text_document_completion_async(params))
    answered = []
    for request in (hints, found):
        request.add_done_callback(answered.append)
    await asyncio.gather(hints, found)
    assert answered == [found, hints]
    assert "hidden" in {i.label for i in found.result().items} and found.result().is_incomplete
