"""Numbers with defaults: what is shown holds for these, and says so."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """import tessera as ts
from tessera import Const, Tensor


@ts.function
def best(x: Tensor["B", "N"], k: Const = 3, heads: Const["H"] = 4, deep: bool = False):
    values, _ = ts.topk(x, k)
    return values, ts.zeros((B, H))
"""


async def shown(editor, doc) -> list[str]:
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(40, 0))
    found = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(doc, whole))
    lines = TEXT.split("\n")
    return [lines[h.position.line][: h.position.character] + " " + editor.label(h) for h in found or ()]


async def titles(editor, doc) -> list[str]:
    lenses = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(doc))
    found = [await editor.client.code_lens_resolve_async(lens) for lens in lenses or () if lens.command is None]
    return [lens.command.title.partition(":")[0] for lens in found]


async def test_a_default_is_shown_as_one(editor):
    doc = editor.open(TEXT)
    hints = await shown(editor, doc)
    first, second = (h for h in hints if h.endswith("(default)"))
    assert first.endswith("k: Const = 3 (default)") and second.endswith('heads: Const["H"] = 4 (default)')
    assert any(h.endswith(": [B, 3] f32") for h in hints)
    assert await titles(editor, doc) == ["modelled on cpu at B=N=1024, k=3 (default), H=4 (default)"]


async def test_a_size_that_is_given_is_no_default(start):
    editor = await start(options={"dims": {"B": 8, "N": 64, "H": 2}})
    doc = editor.open(TEXT)
    assert sum(h.endswith("(default)") for h in await shown(editor, doc)) == 1
    assert await titles(editor, doc) == ["modelled on cpu at k=3 (default)"]
