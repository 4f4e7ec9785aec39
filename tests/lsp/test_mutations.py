"""Mistakes as they are made while typing: what is known stays known, and of every text that parses an edited document
says what an analysis from scratch says; the server answers each request."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from lsprotocol import types as lsp
from tessera_lsp.document import Document
from tessera_lsp.features.inlay_hints import shown

from benchmarks.mutations.run import run
from benchmarks.mutations.scratch import Scratch
from benchmarks.mutations.texts import NAMES, right
from benchmarks.mutations.texts import mutations as mutations_of
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.syntax.reparse import parsed

MODEL = '''"""A block of a transformer, and a kernel."""

from __future__ import annotations

import tessera as ts
from tessera import Tensor

HEADS = 4
EPS = 1e-5


def scaled(q, k):
    return q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)


@ts.function
def layer_norm(x: Tensor["B", "S", "D"], gain: Tensor["D"], bias: Tensor["D"]) -> Tensor["B", "S", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    var = x.var(axis=-1, keepdim=True)
    return (x - mean) / ts.sqrt(var + EPS) * gain + bias


@ts.function
def attend(x: Tensor["B", "S", "D"], wqkv: Tensor["3*D", "D"], wo: Tensor["D", "D"]) -> Tensor["B", "S", "D"]:
    assert D % HEADS == 0
    qkv = x @ wqkv.T
    q, k, v = ts.split(qkv, 3, axis=-1)
    q = q.reshape(B, S, HEADS, D // HEADS).transpose(1, 2)
    k = k.reshape(B, S, HEADS, D // HEADS).transpose(1, 2)
    v = v.reshape(B, S, HEADS, D // HEADS).transpose(1, 2)
    weights = ts.softmax(scaled(q, k), axis=-1)
    mixed = (weights @ v).transpose(1, 2).reshape(B, S, D)
    return mixed @ wo


@ts.function
def feed(x: Tensor["B", "S", "D"], w1: Tensor["D", "F"], w2: Tensor["F", "D"], steps: int = 2) -> Tensor["B", "S", "D"]:
    for i in range(steps):
        h = ts.gelu(x @ w1)
        x = x + h @ w2 if i else h @ w2
    return x


@ts.kernel
def gemm(a: Tensor["M", "K", ts.f16], b: Tensor["K", "N", ts.f16], c: Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(a[tile_m : tile_m + 64, k : k + 32], b[k : k + 32, tile_n : tile_n + 64])
    c[tile_m : tile_m + 64, tile_n : tile_n + 64] = acc
'''


def mutations() -> Iterator[tuple[int, str]]:
    """(line of the deleted token, text without it)"""
    starts = [0, *(i + 1 for i, c in enumerate(MODEL) if c == "\n")]
    for token in tokenize.generate_tokens(io.StringIO(MODEL).readline):
        start, end = (starts[line - 1] + col for line, col in (token.start, token.end))
        if end > start:
            yield token.start[0], MODEL[:start] + MODEL[end:]


def open_document(text: str) -> Document:
    return Document(lsp.TextDocumentItem("file:///model.py", "python", 1, text))


async def analysed(document: Document, text: str) -> Document:
    document.edit(document.version + 1, [lsp.TextDocumentContentChangeWholeDocument(text)])
    await document.ready()
    return document


def findings(document: Document) -> Any:
    return [(d.code, d.message, d.span) for d in document.diagnostics]


def hints(document: Document) -> dict[str, list[tuple[int, str, str]]]:
    """By function: line, name, type."""
    return {k.analysis.name: [(e.span.line, e.name, e.text) for e in shown(k)] for k in document.known}


def test_small_mistakes_in_realistic_models():
    """A sample of what `python -m benchmarks mutations` tries wholly."""
    score = run(sample=150, seed=3)
    assert not score.faults and not score.promises
    assert 140 < score.texts.total() < score.of / 100 and score.broken.total() > 100
    assert score.kept.total() > 0.98 * score.there.total()


def test_what_the_score_compares_findings_with():
    """It reads less than an analysis from scratch does, and finds the same."""
    for name in NAMES:
        text, broken = right(name).text, 0
        scratch = Scratch(text, name)
        for mutation in mutations_of(name)[7::1501]:
            found = parsed(mutation.of(text), name).problems
            assert scratch.problems(mutation.of(text)) == (found, not found), mutation
            broken += bool(found)
        assert broken > 3


@pytest.mark.asyncio(loop_scope="module")
async def test_from_one_broken_text_to_the_next():
    """A walk without ever going back to the right text: brackets and quotes put in, lines cut off, indents
    taken away, dims renamed in one place."""
    document = await analysed(open_document(""), MODEL)
    texts = [text for _, text in list(mutations())[3::23]]
    for i, (at, added) in enumerate(zip(range(150, len(MODEL), 61), cycle("()[]{}\"'"), strict=False)):
        texts.insert(2 * i, MODEL[:at] + added + MODEL[at:])
    lines = MODEL.splitlines(keepends=True)
    for i in range(4, len(lines), 7):
        texts.append("".join([*lines[:i], lines[i][: len(lines[i]) // 2] + "\n", *lines[i + 1 :]]))
        texts.append("".join([*lines[:i], lines[i].removeprefix("    "), *lines[i + 1 :]]))
    for i, dim in enumerate(list(re.finditer(r"\b[BSDFMNK]\b", MODEL))[::4]):
        texts.insert(5 * i, MODEL[: dim.start()] + "X" + MODEL[dim.end() :])
    parsed = 0
    for text in texts:
        await analysed(document, text)
        assert not any(d.code == "TS900" for d in document.diagnostics), text
        if document.parses:
            parsed += 1
            fresh = await analysed(open_document(""), text)
            assert findings(document) == findings(fresh), text
            assert hints(document) == hints(fresh), text
    assert 10 < parsed < len(texts) - 10


@pytest.mark.asyncio(loop_scope="module")
async def test_deleted_tokens_at_the_server(editor):
    """The same over the wire, every seventh token: each request is answered, and the server sees what we see."""
    doc = editor.open(MODEL)
    whole = await editor.hints(doc)
    for line, text in list(mutations())[::7]:
        editor.type(doc, text)
        report = await editor.diagnostics(doc)
        here = FileAnalysis("/work shop/model.py")
        here.update(text)
        found = [d.code for d in report]
        if here.syntax_errors:
            assert found[0] == "TS101"
        else:
            assert sorted(found) == sorted(d.code for d in here.diagnostics)
        at = lsp.Position(line - 1, 12)
        await editor.inlay_hints(doc)
        await editor.client.text_document_hover_async(lsp.HoverParams(doc, at))
        await editor.client.text_document_completion_async(lsp.CompletionParams(doc, at))
        await editor.client.text_document_signature_help_async(lsp.SignatureHelpParams(doc, at))
        await editor.client.text_document_definition_async(lsp.DefinitionParams(doc, at))
        references = lsp.ReferenceParams(lsp.ReferenceContext(True), doc, at)
        await editor.client.text_document_references_async(references)
        await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc))
        actions = lsp.CodeActionParams(doc, lsp.Range(at, at), lsp.CodeActionContext([]))
        await editor.client.text_document_code_action_async(actions)
    editor.type(doc, MODEL)
    assert await editor.hints(doc) == whole


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_analysis_from_scratch_is_the_reference():
    """`Document` adds nothing to what `tessera check` prints."""
    text = MODEL.replace("@ w1", "@ w2")
    document = await analysed(open_document(""), text)
    files = FileAnalysis(document.file)
    files.update(text)
    assert document.diagnostics == files.diagnostics and document.diagnostics
