"""What an editor shows of the indices of kernels is what the rule of docs/kernels.md says, applied by hand."""

from __future__ import annotations

import ast

import pytest
from lsprotocol import types as lsp

from tests.unit.kernel.axes_by_hand import BY_HAND

pytestmark = pytest.mark.asyncio(loop_scope="module")


def indices(text: str) -> list[tuple[ast.expr, int, int]]:
    """The indices of subscripts of parameters, in reading order: (index, its place among them, how many there are)."""
    out: list[tuple[ast.expr, int, int]] = []
    for function in (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)):
        names = {a.arg for a in function.args.args}
        for s in function.body:
            for n in ast.walk(s):
                if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id in names:
                    parts = n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice]
                    out += [(p, i, len(parts)) for i, p in enumerate(parts) if ast.unparse(p) != "..."]
    return sorted(out, key=lambda p: (p[0].lineno, p[0].col_offset))


@pytest.mark.parametrize("name", [n for n, k in BY_HAND.items() if k.says])
async def test_editor_shows_the_axis_of_each_index(editor, name: str) -> None:
    text, says = BY_HAND[name].text, BY_HAND[name].says
    doc = editor.open(text, f"{abs(hash(name))}.py")
    hints = {
        (h.position.line + 1, h.position.character): editor.label(h)
        for h in await editor.inlay_hints(doc)
        if h.kind is lsp.InlayHintKind.Parameter
    }
    written = indices(text)
    assert len(written) == len(says)
    for (node, _, _), said in zip(written, says, strict=True):
        axis, label = said.split(" ", 1)
        at = lsp.Position(node.lineno - 1, node.col_offset)
        hover = await editor.client.text_document_hover_async(lsp.HoverParams(doc, at))
        assert hover is not None and f"Index: axis {axis} of " in hover.contents.value, said
        assert f"]: {label}" in hover.contents.value, said
        hint = hints.pop((node.lineno, node.col_offset), None)
        assert hint in (None, f"{label}:"), said
    assert not hints


async def test_indices_beside_dots_get_a_hint(editor) -> None:
    doc = editor.open(BY_HAND["a written ... makes them as many as the axes"].text)
    found = [h for h in await editor.inlay_hints(doc) if h.kind is lsp.InlayHintKind.Parameter]
    assert list(map(editor.label, found)) == ["D by i:", "D by i:"]


async def test_indices_that_are_fewer_than_the_axes_get_a_hint(editor) -> None:
    doc = editor.open(BY_HAND["a number beside what names its dim"].text)
    found = [h for h in await editor.inlay_hints(doc) if h.kind is lsp.InlayHintKind.Parameter]
    assert sorted(map(editor.label, found)) == ["H:", "S by i:", "S by i:"]
    tips = {h.tooltip for h in found}
    assert "axis 2 of x [B, H, S, D]: S by i; one program for each of B" in tips
