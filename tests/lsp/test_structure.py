"""Features that know a file's structure: tokens, folds, selections, symbols of the workspace, who calls whom."""

from __future__ import annotations

from itertools import pairwise

import pytest
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""Of 𝒮."""
import tessera as ts
from tessera import Tensor, f32

HEADS = 4
# one comment
# and another


@ts.function
def inner(größe: Tensor["B", "D", f32], scale=2.0) -> Tensor["B", "D", f32]:
    """Two
    lines."""
    note = "𝒮é"; mean = größe.mean(
        axis=-1,
        keepdim=True,
    )
    if HEADS:
        mean = ts.exp(mean)
    return größe - mean * D


@ts.function
def outer(x: Tensor["B", "D", f32]) -> Tensor["B", "D", f32]:
    return inner(inner(x)) + x


@ts.kernel
def copy(x: Tensor["M", "K", ts.f16], y: Tensor["M", "K", ts.f16]):
    y[tile_m:tile_m + 16] = x[tile_m:tile_m + 16]
'''


def decoded(editor, doc, legend, data):
    """(text, type, modifiers) of every token, in order."""
    out, line, start = [], 0, 0
    for i in range(0, len(data), 5):
        down, right, length, kind, bits = data[i : i + 5]
        line, start = line + down, right if down else start + right
        area = lsp.Range(lsp.Position(line, start), lsp.Position(line, start + length))
        modifiers = [m for n, m in enumerate(legend.token_modifiers) if bits >> n & 1]
        out.append((editor.covered(doc, area), legend.token_types[kind], *modifiers))
    return out


async def test_semantic_tokens(editor):
    doc = editor.open(MODEL)
    legend = editor.result.capabilities.semantic_tokens_provider.legend
    found = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(doc))
    tokens = decoded(editor, doc, legend, found.data)
    assert tokens[:13] == [
        ("ts", "namespace", "defaultLibrary"),
        ("function", "function", "defaultLibrary"),
        ("inner", "function", "declaration"),
        ("größe", "parameter", "declaration"),
        ("Tensor", "type", "defaultLibrary"),
        ("B", "typeParameter"),
        ("D", "typeParameter"),
        ("f32", "type", "defaultLibrary"),
        ("scale", "parameter", "declaration"),
        ("Tensor", "type", "defaultLibrary"),
        ("B", "typeParameter"),
        ("D", "typeParameter"),
        ("f32", "type", "defaultLibrary"),
    ]
    assert ("mean", "variable", "declaration") in tokens
    assert ("mean", "method", "defaultLibrary") in tokens
    assert ("HEADS", "variable", "readonly") in tokens
    assert ("ts", "namespace", "defaultLibrary") in tokens
    assert ("exp", "function", "defaultLibrary") in tokens
    assert ("inner", "function") in tokens
    assert tokens.count(("tile_m", "typeParameter", "readonly")) == 4
    assert tokens[-1] == ("tile_m", "typeParameter", "readonly")


async def test_semantic_tokens_of_a_range_and_their_changes(editor):
    doc = editor.open(MODEL, "delta.py")
    legend = editor.result.capabilities.semantic_tokens_provider.legend
    area = lsp.Range(editor.at(doc, "    return |inner(inner"), editor.at(doc, "inner(inner(x)) + x|"))
    part = await editor.client.text_document_semantic_tokens_range_async(lsp.SemanticTokensRangeParams(doc, area))
    assert [t[:2] for t in decoded(editor, doc, legend, part.data)] == [
        ("inner", "function"),
        ("inner", "function"),
        ("x", "parameter"),
        ("x", "parameter"),
    ]
    whole = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(doc))
    editor.replace(doc, "inner(inner(x)) + x", "inner(inner(x)) + ts.exp(x)")
    changed = await editor.client.text_document_semantic_tokens_full_delta_async(
        lsp.SemanticTokensDeltaParams(doc, whole.result_id)
    )
    data = list(whole.data)
    for edit in changed.edits:
        data[edit.start : edit.start + edit.delete_count] = edit.data or []
    again = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(doc))
    assert tuple(data) == tuple(again.data) != tuple(whole.data)
    unknown = await editor.client.text_document_semantic_tokens_full_delta_async(
        lsp.SemanticTokensDeltaParams(doc, "another")
    )
    assert unknown.data == again.data


async def test_folding(editor):
    doc = editor.open(MODEL, "folds.py")
    found = await editor.client.text_document_folding_range_async(lsp.FoldingRangeParams(doc))
    lines = MODEL.split("\n")
    folds = [(lines[f.start_line].strip(), lines[f.end_line].strip(), f.kind) for f in found]
    assert ("import tessera as ts", "from tessera import Tensor, f32", lsp.FoldingRangeKind.Imports) in folds
    assert ("# one comment", "# and another", lsp.FoldingRangeKind.Comment) in folds
    head = 'def inner(größe: Tensor["B", "D", f32], scale=2.0) -> Tensor["B", "D", f32]:'
    assert (head, "return größe - mean * D", None) in folds
    assert ('"""Two', 'lines."""', None) in folds
    assert ('note = "𝒮é"; mean = größe.mean(', "keepdim=True,", None) in folds
    assert ("if HEADS:", "mean = ts.exp(mean)", None) in folds


async def test_selection_grows(editor):
    doc = editor.open(MODEL, "grow.py")
    params = lsp.SelectionRangeParams(doc, [editor.at(doc, "axis=-1,\n        keep|dim=True")])
    (found,) = await editor.client.text_document_selection_range_async(params)
    texts = []
    while found is not None:
        texts.append(editor.covered(doc, found.range))
        found = found.parent
    assert texts[0] == "keepdim=True"
    assert texts[1].startswith("größe.mean(") and texts[2].startswith("mean = größe.mean(")
    assert texts[3].startswith('"""Two') and texts[3].endswith("mean * D")
    assert texts[4].startswith("def inner") and texts[5].startswith("@ts.function\ndef inner")
    assert all(inner in outer for inner, outer in pairwise(texts))


async def test_symbols_of_the_workspace(start, tmp_path):
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers/norm.py").write_text(MODEL)
    (tmp_path / "other.py").write_text("def layer_norm(x): ...\n")
    (tmp_path / "broken.py").write_text("import tessera\ndef (")
    (tmp_path / "data.py").write_bytes(b"\xff\xfe\x00tessera")
    editor = await start(folders=[tmp_path])
    found = await editor.client.workspace_symbol_async(lsp.WorkspaceSymbolParams("nnr"))
    assert [(s.name, s.container_name) for s in found] == [("inner", "function")]
    assert found[0].location.uri == (tmp_path / "layers/norm.py").as_uri()
    line = found[0].location.range.start
    assert (line.line, line.character) == (10, 4)
    editor.open(MODEL.replace("def outer", "def outermost"), "open.py")
    found = await editor.client.workspace_symbol_async(lsp.WorkspaceSymbolParams("out"))
    assert [s.name for s in found] == ["outer", "outermost"]


async def test_call_hierarchy(editor):
    doc = editor.open(MODEL, "calls.py")
    at = lsp.CallHierarchyPrepareParams(doc, editor.at(doc, "return |inner(inner"))
    (inner,) = await editor.client.text_document_prepare_call_hierarchy_async(at)
    assert (inner.name, editor.covered(doc, inner.selection_range)) == ("inner", "inner")
    (caller,) = await editor.client.call_hierarchy_incoming_calls_async(lsp.CallHierarchyIncomingCallsParams(inner))
    assert caller.from_.name == "outer"
    assert [editor.covered(doc, r) for r in caller.from_ranges] == ["inner", "inner"]
    (called,) = await editor.client.call_hierarchy_outgoing_calls_async(
        lsp.CallHierarchyOutgoingCallsParams(caller.from_)
    )
    assert called.to.name == "inner" and len(called.from_ranges) == 2


async def test_semantic_tokens_of_the_dialect(editor):
    head = 'import tessera as ts\n@ts.function\ndef f[B](x: ts.Tensor["B", dtype=bf16, @accum(f32)]):\n'
    text = head + "    é = x * B\n    return é\n"
    doc = editor.open(text, "dialect.tess")
    legend = editor.result.capabilities.semantic_tokens_provider.legend
    found = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(doc))
    dims = [t[0] for t in decoded(editor, doc, legend, found.data) if t[1] == "typeParameter"]
    assert dims == ["B", "B", "B"]
