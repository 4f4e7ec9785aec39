"""Asserts on sizes that let a GPU move whole vectors: a fix while a kernel is typed, and of any function on request."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.test_actions import actions, applied
from tests.lsp.test_features import apply

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""𝒮"""
import tessera as ts
from tessera import Tensor, bf16


@ts.kernel
def double(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    """Twice."""
    é = "𝒮é"; y[tile_m : tile_m + 16, tile_n : tile_n + 32] = x[tile_m : tile_m + 16, tile_n : tile_n + 32] * 2


@ts.function
def product(a: Tensor["M", "K", bf16], b: Tensor["K", "N", bf16]):
    return a @ b


@ts.function
def rows(x: Tensor["M", 64]):
    return ts.softmax(x)
'''
CALLER = """

@ts.function
def caller(x: Tensor["M", 30], y: Tensor["M", 30]):
    double(x, y)
    return y
"""


async def test_a_kernel_for_a_gpu_is_told_while_it_is_typed(start):
    editor = await start(options={"target": "sm_90a"})
    doc = editor.open(MODEL)
    (found,) = await editor.diagnostics(doc)
    assert (found.code, found.severity) == ("TS417", lsp.DiagnosticSeverity.Information)
    assert editor.covered(doc, found.range) == "x[tile_m : tile_m + 16, tile_n : tile_n + 32]"
    assert found.range.start == editor.at(doc, "= |x[tile_m")
    assert found.message.endswith("Say so at the top, if it is: assert N % 4 == 0")
    offered = await actions(editor, doc, "= |x[tile_m", trigger=lsp.CodeActionTriggerKind.Automatic)
    assert not offered["Insert assert N % 4 == 0"].is_preferred, "nothing is wrong without it"
    text = await applied(editor, doc, offered["Insert assert N % 4 == 0"])
    assert text == MODEL.replace('    é = "𝒮é"', '    assert N % 4 == 0\n    é = "𝒮é"')


async def test_one_for_no_gpu_is_not(start):
    editor = await start(options={"target": "cpu"})
    assert not await editor.diagnostics(editor.open(MODEL))


@pytest.mark.parametrize(
    "name, line, said",
    [
        ("double", '    é = "𝒮é"', "assert N % 4 == 0"),
        ("product", "    return a @ b", "assert K % 8 == 0 and N % 8 == 0"),
    ],
)
async def test_functions_and_kernels_are_looked_at_on_request(editor, name, line, said):
    doc = editor.open(MODEL)
    title = f"Insert {said}: a GPU then moves whole vectors"
    found = await actions(editor, doc, f"def {name[:2]}|{name[2:]}", kind="refactor.rewrite.assert")
    assert list(found) == [title]
    text = apply(editor, doc, found[title].edit)
    assert text == MODEL.replace(line, f"    {said}\n{line}")
    editor.type(doc, text)
    assert not await actions(editor, doc, f"def {name[:2]}|{name[2:]}", kind="refactor.rewrite.assert")


async def test_nothing_is_offered_where_all_is_known_already(editor):
    doc = editor.open(MODEL)
    assert not await actions(editor, doc, "def ro|ws", kind="refactor.rewrite.assert")


async def test_a_caller_with_other_sizes_is_the_reason_against_it(editor):
    doc = editor.open(MODEL + CALLER)
    (offer,) = (await actions(editor, doc, "def dou|ble", kind="refactor.rewrite.assert")).values()
    assert offer.edit is None
    assert offer.disabled.reason == "in caller: double with these arguments: assert N % 4 == 0 is false (N = 30)"
