"""At the name of a function, the values that its code on this target has no registers for."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.conftest import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """import tessera as ts
from tessera import Tensor, f32


@ts.function
def waits(x: Tensor["M", "N"]) -> Tensor["M", "N"]:
    early = ts.gelu(x)
    late = ts.sin(x) * early
    return ts.softmax(early + late, axis=-1)


@ts.function
def few(x: Tensor["M"], y: Tensor["M"]) -> Tensor["M"]:
    return x + y


@ts.function
def opened(x: Tensor["K"]) -> Tensor["K"]:
    return x * 2


def plain(x):
    return x
"""


async def hovered(editor, doc, place: str) -> str:
    params = lsp.HoverParams(doc, editor.at(doc, place))
    found = await editor.client.text_document_hover_async(params)
    return found.contents.value if found is not None else ""


async def test_a_function_s_name_says_what_is_spilled(start):
    editor = await start(options={"target": "cpu", "dims": {"M": 64, "N": 512}})
    doc = editor.open(TEXT)

    async def says(place: str, wanted: str) -> bool:
        return wanted in await hovered(editor, doc, place)

    await eventually(lambda: says("def wa|its", "Static, on cpu, spilled to memory:"))
    found = await hovered(editor, doc, "def wa|its")
    assert "`early: " in found and "B of each thread lie on the stack" in found and "waits(x: Tensor" in found
    assert "f32, line 7: " in found
    editor.replace(doc, "@ts.function\ndef waits", "# above it\n@ts.function\ndef waits")
    await eventually(lambda: says("def wa|its", "f32, line 8: "))
    await eventually(lambda: says("def fe|w", "Static, on cpu"))
    assert "early" not in await hovered(editor, doc, "def fe|w")
    assert "Static" not in await hovered(editor, doc, "def ope|ned"), "its size is not known"
    assert "Static" not in await hovered(editor, doc, "def pla|in")
