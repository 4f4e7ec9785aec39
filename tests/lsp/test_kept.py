"""What is kept for a backward pass: said in hovers and hints, and offered to be computed again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types as lsp
from tessera_lsp.document import Document
from tessera_lsp.features import kept_hints

from tessera.editor import kept
from tests.lsp.test_actions import actions, applied

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """import tessera as ts
from tessera import Tensor, f32


def block(w: Tensor["D", "D", f32], x: Tensor["B", "D", f32]):
    attn = ts.softmax(x @ w)
    return x + ts.exp(attn @ w)


@ts.function
def step(w: Tensor["D", "D", f32], x: Tensor["B", "D", f32]):
    def loss(w):
        hidden = ts.exp(x @ w)
        return ts.mean(ts.square(block(w, hidden)))

    return ts.value_and_grad(loss)(w)
"""
WITHOUT = TEXT.replace("ts.value_and_grad(loss)(w)", "loss(w)")
REMAT = "refactor.rewrite.remat"


def said(hover) -> str:
    return hover.contents.value if hover is not None else ""


async def hovered(editor, doc, place: str) -> str:
    return said(await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, place))))


async def hinted(editor, doc) -> list[str]:
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(40, 0))
    found = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(doc, whole))
    return [h.label for h in found or () if isinstance(h.label, str) and h.label.startswith("kept")]


async def test_hover_says_who_needs_it_and_what_it_would_cost(start):
    editor = await start(options={"dims": {"B": 256, "D": 64}})
    doc = editor.open(TEXT)
    text = await hovered(editor, doc, "        hid|den = ")
    assert (
        "Kept for the backward pass, 64 KiB: there line 6 (contract) and line 7 (add) and line 13 (mul) read it" in text
        and "to compute it again would take" in text
    )
    assert await hinted(editor, doc), "hints say it too"
    assert all(label.endswith("KiB") for label in await hinted(editor, doc))


async def test_what_is_kept_moves_with_the_text(start):
    editor = await start(options={"dims": {"B": 256, "D": 64}})
    doc = editor.open(TEXT)
    first = await hovered(editor, doc, "        hid|den = ")
    hints = await hinted(editor, doc)
    for place in ("@ts.function", "def block", "import tessera"):
        editor.replace(doc, place, f"# a note\n{place}")
        fresh = editor.open(editor.texts[doc.uri], "fresh.py")
        now = await hovered(editor, doc, "        hid|den = ")
        assert "Gradient: " in now and "Kept for" in now and now == await hovered(editor, fresh, "        hid|den = ")
        assert now != first and await hinted(editor, doc) == hints


async def test_sizes_that_nobody_gave_stay_symbolic(editor):
    doc = editor.open(TEXT)
    assert "Kept for the backward pass, 4*B*D B" in await hovered(editor, doc, "        hid|den = ")
    assert not await hinted(editor, doc)


async def test_without_a_gradient_nothing_is_kept(start):
    editor = await start(options={"dims": {"B": 256, "D": 64}})
    doc = editor.open(WITHOUT)
    assert "Kept" not in await hovered(editor, doc, "        hid|den = ")
    assert not await hinted(editor, doc)
    assert not await actions(editor, doc, "ts.square(blo|ck(", kind=REMAT)


async def test_a_call_is_computed_again(start):
    editor = await start(options={"dims": {"B": 256, "D": 64}})
    doc = editor.open(TEXT)
    (title,) = found = await actions(editor, doc, "ts.square(blo|ck(", kind=REMAT)
    assert title.startswith("Compute block again in the backward pass")
    text = await applied(editor, doc, found[title])
    assert "ts.square(ts.remat(block)(w, hidden))" in text
    assert not await editor.diagnostics(doc)


async def test_what_is_known_is_not_found_anew(monkeypatch):
    """The program is scheduled once for each analysis of it and for the sizes: scrolling asks for hints many times."""
    asked: list[object] = []
    schedule = kept.schedule

    def counted(analysis: Any, dims: Any, target: str) -> Any:
        asked.append(analysis)
        return schedule(analysis, dims, target)

    monkeypatch.setattr(kept, "schedule", counted)
    settings = SimpleNamespace(dims={"B": 256, "D": 64}, target="cpu")
    server: Any = SimpleNamespace(is_open=lambda uri: True, settings_for=lambda document: settings)
    document = Document(lsp.TextDocumentItem("file:///work/counted.py", "python", 1, TEXT))
    await document.analyse(document.text)
    first = [h.label for h in kept_hints.of(server, document, range(40))]
    assert first and len(asked) == 1
    assert all([h.label for h in kept_hints.of(server, document, range(40))] == first for _ in range(20))
    assert len(asked) == 1
    settings.dims = {"B": 512, "D": 64}
    assert [h.label for h in kept_hints.of(server, document, range(40))] != first and len(asked) == 2
