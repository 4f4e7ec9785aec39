"""Hover, completion and signature help of `ts.tile` show what its one definition says."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tessera.compiler.frontend.kernel.builtins import public

pytestmark = pytest.mark.asyncio(loop_scope="module")

KERNEL = """
import tessera as ts
from tessera import Tensor


@ts.kernel
def total(x: Tensor["M", "N", ts.f32]) -> Tensor["M", ts.f32]:
    rows = ts.tile.row_sum(x[tile_m : tile_m + 8, :], keepdim=False)
    other = ts.tile.sum(rows, dim=0)
    return rows + other
"""


async def test_editors_show_the_definition(editor):
    doc = editor.open(KERNEL)
    client, builtin = editor.client, public()["row_sum"]

    hover = await client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "row_|sum(x")))
    assert f"{builtin.signature}\n" in hover.contents.value and builtin.text in hover.contents.value

    params = lsp.SignatureHelpParams(doc, editor.at(doc, "x[tile_m : tile_m + 8, :], |keepdim"))
    found = await client.text_document_signature_help_async(params)
    assert found.signatures[0].label == "row_sum(x, keepdim=False)" and found.active_parameter == 1
    assert found.signatures[0].documentation.value == builtin.text

    items = await client.text_document_completion_async(lsp.CompletionParams(doc, editor.at(doc, "ts.tile.|row_sum")))
    offered = {i.label: i for i in items.items}
    assert set(offered) == set(public())
    assert offered["row_sum"].detail == builtin.signature
    assert offered["row_sum"].documentation == builtin.doc.partition("\n")[0]


async def test_other_spellings_of_a_parameter_are_known(editor):
    doc = editor.open(KERNEL)
    params = lsp.SignatureHelpParams(doc, editor.at(doc, "rows, dim=|0"))
    found = await editor.client.text_document_signature_help_async(params)
    assert found.signatures[0].label == "sum(x, axis=None, keepdim=False)" and found.active_parameter == 1
