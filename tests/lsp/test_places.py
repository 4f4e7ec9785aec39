"""Places that features lead to, and places where there is nothing."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""𝒮"""
import tessera as ts
from tessera import Tensor


@ts.function
def attend(q: Tensor["B*H", "S", "D"], w: Tensor["D", "S"]) -> Tensor["B*H", "S", "S"]:
    é = "𝒮"; scores = q @ w

    return scores


@ts.kernel
def copy(x: Tensor["M", "K"], y: Tensor["M", "K"]):
    y[tile_m : tile_m + 16] = x[tile_m : tile_m + 16]
'''


@pytest.mark.parametrize(
    ("mark", "there"),
    [
        ('-> Tensor["B*|H"', 'attend(q: Tensor["B*|H"'), ('-> Tensor["|B*H"', 'attend(q: Tensor["|B*H"'),
        ('w: Tensor["|D"', '"S", "|D"], w'), ("y[tile_|m : t", 'copy(x: Tensor["|M"'),
    ],
)  # fmt: skip
async def test_a_dim_leads_to_its_letter(editor, mark, there):
    """From where all its places are found again."""
    doc = editor.open(MODEL, "places.py")
    at = editor.at(doc, mark)
    found = await editor.client.text_document_definition_async(lsp.DefinitionParams(doc, at))
    assert found.range.start == editor.at(doc, there) and len(editor.covered(doc, found.range)) == 1
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), doc, found.range.start)
    places = [r.range for r in await editor.client.text_document_references_async(params)]
    assert any(r.start <= at <= r.end for r in places)


async def test_selection_where_nothing_stands(editor):
    doc = editor.open(MODEL, "empty.py")
    for line, inside in ((4, False), (8, True)):
        at = lsp.Position(line, 0)
        (found,) = await editor.client.text_document_selection_range_async(lsp.SelectionRangeParams(doc, [at]))
        assert found.range.start <= at <= found.range.end
        assert editor.covered(doc, found.range).startswith("é = " if inside else "")
    editor.type(doc, "")
    params = lsp.SelectionRangeParams(doc, [lsp.Position(0, 0), lsp.Position(3, 3)])
    assert len(await editor.client.text_document_selection_range_async(params)) == 2


async def test_an_imported_module_leads_to_its_name(editor):
    doc = editor.open(MODEL, "modules.py")
    params = lsp.DefinitionParams(doc, editor.at(doc, "@|ts.function"))
    found = await editor.client.text_document_definition_async(params)
    assert (found.range.start, editor.covered(doc, found.range)) == (editor.at(doc, "tessera as |ts"), "ts")
