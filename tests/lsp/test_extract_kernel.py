"""Extracting kernels and helpers: the exact text, and why where there is none."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.test_actions import actions, applied
from tests.lsp.test_notebooks import IMPORTS, Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")
KIND = "refactor.extract.kernel"

HEAD = '''"""𝒮"""
import math

import tessera as ts
from tessera import Tensor, bf16

EPS = 1e-5


'''

MODEL = (
    HEAD
    + """@ts.function
def block(
    x: Tensor["B", "S", "D"], gain: Tensor["D"], w: Tensor["D", "F"], bias: Tensor["F"], weight: Tensor["B", "S"]
):
    note = "𝒮é"; scale = ts.rsqrt((x * x).mean(axis=-1, keepdim=True) + EPS)
    normed = x * scale * gain
    hidden = ts.silu(normed @ w + bias) / math.sqrt(64)
    mixed = ts.softmax(hidden * weight[:, :, None])
    total = mixed.sum(axis=1)
    for i in range(2):
        total = total * 0.5
    return mixed * 2, total
"""
)


async def one(editor, doc, start, end=None):
    (action,) = (await actions(editor, doc, start, end, kind=KIND)).values()
    return action


async def extracted(editor, doc, start, end=None):
    action = await one(editor, doc, start, end)
    assert action.disabled is None, action.disabled
    return await applied(editor, doc, action)


async def test_rows(editor):
    doc = editor.open(MODEL)
    text = await extracted(editor, doc, "; |scale =", "scale * gain|")
    assert (
        '\n\n\n@ts.kernel\ndef block_kernel(x: Tensor["B", "S", "D"], gain: Tensor["D"]) -> Tensor["B", "S", "D"]:\n'
        "    scale = ts.tile.rsqrt(ts.tile.mean(x * x, axis=-1, keepdim=True) + EPS)\n"
        "    return x * scale * gain\n\n\n@ts.function\ndef block(\n"
    ) in text
    assert '    note = "𝒮é"; normed = block_kernel(x, gain)\n    hidden =' in text
    assert (await editor.hints(doc))['note = "𝒮é"; normed'] == ": [B, S, D] f32"


async def test_a_product_with_what_follows_it(editor):
    doc = editor.open(MODEL)
    text = await extracted(editor, doc, "    hidden| = ts.silu")  # the statement under the cursor
    assert (
        "@ts.kernel\ndef block_kernel(\n"
        '    w: Tensor["D", "F"], bias: Tensor["F"], normed: Tensor["B", "S", "D"]\n'
        ') -> Tensor["B", "S", "F"]:\n'
        "    acc = ts.tile.zeros((32, 64))\n"
        "    for k in ts.tile.range_k(0, D, 32):\n"
        "        left = normed[tile_s : tile_s + 32, k : k + 32]\n"
        "        right = w[k : k + 32, tile_f : tile_f + 64]\n"
        "        acc += ts.tile.mma(left, right)\n"
        "    bias_tile = bias[tile_f : tile_f + 64]\n"
        "    return ts.tile.silu(acc + bias_tile) / math.sqrt(64)\n\n\n"
    ) in text, text
    assert "    hidden = block_kernel(w, bias, normed)\n" in text


async def test_an_expression_with_a_column(editor):
    doc = editor.open(MODEL)
    text = await extracted(editor, doc, "(|hidden * w", ":, None]|)\n")
    assert (
        '@ts.kernel\ndef block_kernel(weight: Tensor["B", "S"], hidden: Tensor["B", "S", "F"]) -> '
        'Tensor["B", "S", "F"]:\n'
        "    hidden_tile = hidden[tile_s : tile_s + 32, tile_f : tile_f + 64]\n"
        "    weight_tile = weight[tile_s : tile_s + 32]\n"
        "    return hidden_tile * weight_tile\n\n\n"
    ) in text, text
    assert "    mixed = ts.softmax(block_kernel(weight, hidden))\n" in text


async def test_several_results_and_a_number(editor):
    doc = editor.open(
        HEAD
        + '@ts.function\ndef step(x: Tensor["N"], y: Tensor["N"], rate: ts.f32):\n'
        + "    half = 0.5\n    moved = x - rate * y\n    kept = moved * half\n    return moved, kept + 1\n"
    )
    text = await extracted(editor, doc, "    |moved =", "* half|\n")
    assert (
        '@ts.kernel\ndef step_kernel(\n    x: Tensor["N"], y: Tensor["N"], rate: ts.f32, half: ts.f32\n'
        ') -> tuple[Tensor["N"], Tensor["N"]]:\n'
        "    i = ts.tile.linear_id()\n"
        "    moved = x[i] - rate * y[i]\n"
        "    kept = moved * half\n"
        "    return moved, kept\n\n\n"
    ) in text, text
    assert "    half = 0.5\n    moved, kept = step_kernel(x, y, rate, half)\n    return moved, kept + 1\n" in text


async def test_sizes_without_a_name_get_one(editor):
    doc = editor.open(
        HEAD
        + '@ts.function\ndef f(x: Tensor["D//2", 64, bf16], y: Tensor["D//2"]):\n    return ts.exp(x) + y[:, None]\n'
    )
    text = await extracted(editor, doc, "    |return", "None]|")
    assert (
        '@ts.kernel\ndef f_kernel(x: Tensor["M", "N", bf16], y: Tensor["M"]) -> Tensor["M", "N"]:\n'
        "    x_tile = x[tile_m : tile_m + 32, tile_n : tile_n + 64]\n"
        "    y_tile = y[tile_m : tile_m + 32]\n"
        "    return ts.tile.exp(x_tile) + y_tile\n\n\n"
    ) in text, text
    assert "    return f_kernel(x, y)\n" in text


async def test_names_of_the_file(editor):
    doc = editor.open(
        "import tessera as tes\nfrom tessera import function, kernel\n\nf_kernel = 1\n\n\n"
        '@function\ndef f(x: tes.Tensor["N"]):\n    return tes.exp(x)\n'
    )
    text = await extracted(editor, doc, "tes.|exp")
    assert (
        '@kernel\ndef f_kernel_2(x: tes.Tensor["N"]) -> tes.Tensor["N"]:\n'
        "    i = tes.tile.linear_id()\n    return tes.tile.exp(x[i])\n\n\n@function\n"
    ) in text
    assert "    return f_kernel_2(x)\n" in text


@pytest.mark.parametrize(
    "start, end, why",
    [
        ("    |mixed =", "axis=1)|", "it reduces along F and along S: a program reduces along one axis"),
        ("    |hidden =", "axis=1)|", "mixed.sum goes over S, of which the programs of a product have blocks only"),
    ],
)
async def test_why_not(editor, start, end, why):
    action = await one(editor, editor.open(MODEL), start, end)
    assert action.edit is None
    assert action.disabled.reason.startswith(why), action.disabled.reason


@pytest.mark.parametrize(
    "body, why",
    [
        ("return x.reshape(2, -1)", "it re-cuts [N, M] into [2, (M*N)//2]: a tile is a block of one shape"),
        (
            "return ts.concatenate([x, x])",
            "it joins tensors along axis 0; a program stores pieces of the last axis only",
        ),
        ("return ts.concatenate([x, x], 1) * 2", "it computes with tensors that it has joined: their pieces lie in"),
        ("return x[::2] * 2", "it takes elements with gaps between them, which is not a block of an argument"),
        ("return x[:-1].sum(0)", "it sums over a part of an argument that ends early: a block would read past its end"),
        ("return x @ x.T @ x @ x.T", "three products feed each other: only two are one kernel"),
        ("return x @ (x.T @ x)", "one product would be computed anew for each block of rows of the other"),
        (
            "return ts.cumsum(x @ x.T, axis=0)",
            "ts.cumsum goes over N, of which the programs of a product have",
        ),
        ("return (x @ x.T).argmax(-1)", ".argmax needs whole rows, and the programs of a product hold blocks of them"),
        (
            "return x @ ts.zeros((M, 4000)) * x.T.max()",
            "x.T.max of [M, N] goes over the axes 0, 1; a program reduces",
        ),
        ("return s + s.T", "an argument meets its own transpose: a program would need two blocks of it"),
        ("return x.sum()", "x.sum of [N, M] goes over the axes 0, 1; a program reduces along one"),
        ("return x * K", "it computes with the size K, which is not an axis of what the kernel reads"),
        ("return (x * 2)[1:] * 2", "it takes a part of a computed value, and a program has only a block of that"),
        ("return ts.flip(x, 0)", "ts.flip has no tile form"),
        ("i = ts.arange(N)\n    return x * i[:, None], v * i", "it numbers elements of tiles that have different axes"),
        ("return x * n", "the type of n must be known"),
    ],
)
async def test_what_has_no_kernel_says_why(editor, body, why):
    parameters = 'x: Tensor["N", "M"], s: Tensor["K", "K"], v: Tensor["N"], n: int'
    doc = editor.open(f"{HEAD}@ts.function\ndef f({parameters}):\n    {body}\n")
    action = await one(editor, doc, f"    |{body}", f"{body[-8:]}|\n")
    assert action.disabled.reason.startswith(why), action.disabled.reason


async def test_columns_of_a_product_that_are_too_many_for_a_program(editor):
    doc = editor.open(
        f'{HEAD}@ts.function\ndef f(x: Tensor["N", 64], w: Tensor[64, 4096]):\n    return ts.softmax(x @ w)\n'
    )
    action = await one(editor, doc, "    |return", "w)|\n")
    assert action.disabled.reason == "each program would hold all 4096 of an axis of a product, of which 1024 may fit"


async def test_loops_left(editor):
    doc = editor.open(MODEL.replace("total * 0.5\n", "total * 0.5\n        break\n"))
    action = await one(editor, doc, "        |total = total", "        break|")
    assert action.disabled.reason == "a loop is left, or a function defined, inside the selection"


async def test_in_a_cell(editor):
    cell = "%%tessera\n@ts.function\ndef f(é: Tensor['B', 'D']):\n    n = '𝒮'; y = é.sum(-1)\n    return y\n"
    book = Notebook(editor, IMPORTS, cell)
    (action,) = (await actions(editor, book[1], "; |y = é", kind=KIND)).values()
    (change,) = action.edit.document_changes
    assert change.text_document.uri == book[1].uri
    definition, call = sorted(change.edits, key=lambda e: e.range.start.line)
    assert definition.range.start == editor.at(book[1], "|@ts.function")
    assert definition.new_text == (
        '@ts.kernel\ndef f_kernel(é: Tensor["B", "D"]) -> Tensor["B"]:\n    return ts.tile.sum(é, axis=-1)\n\n\n'
    )
    assert (call.range.start, call.new_text) == (editor.at(book[1], "; |y = é"), "y = f_kernel(é)")


async def test_in_a_tess_file(editor):
    doc = editor.open(
        "import tessera as ts\nfrom tessera import Tensor, bf16\n\n\n@ts.function\n"
        'def f[N](x: Tensor["N", dtype=bf16]):\n    y = ts.tanh(x) * 2\n    return y\n',
        "model.tess",
    )
    text = await extracted(editor, doc, "ts.|tanh")
    assert (
        '@ts.kernel\ndef f_kernel(x: Tensor["N", bf16]) -> Tensor["N", bf16]:\n    i = ts.tile.linear_id()\n'
        "    return ts.tile.tanh(x[i]) * 2\n\n\n@ts.function\n"
    ) in text


KERNEL = (
    HEAD
    + """@ts.kernel
def softmax(x: Tensor["M", "N"], out: Tensor["M", "N"]):
    rows = x[tile_m : tile_m + 4, :]
    note = "𝒮é"; e = ts.tile.exp(rows - ts.tile.row_max(rows))
    total = ts.tile.row_sum(e) / N
    out[tile_m : tile_m + 4, :] = e / total
"""
)


async def test_a_helper_of_a_kernel(editor):
    doc = editor.open(KERNEL)
    (action,) = (await actions(editor, doc, "; |e = ", "(e) / N|", kind="refactor.extract")).values()
    text = await applied(editor, doc, action)
    assert '    note = "𝒮é"; e, total = extracted(rows, N)\n' in text
    assert (
        "= e / total\n\n\ndef extracted(rows, N):\n    e = ts.tile.exp(rows - ts.tile.row_max(rows))\n"
        "    total = ts.tile.row_sum(e) / N\n    return e, total\n"
    ) in text
    assert (await editor.hints(doc))['note = "𝒮é"; e, total'] == ": [4] f32"


async def test_a_load_becomes_a_helper_where_its_coordinate_stays_in_use(editor):
    doc = editor.open(KERNEL)
    (action,) = (await actions(editor, doc, "    |rows =", "4, :]|\n    note", kind="refactor.extract")).values()
    text = await applied(editor, doc, action)
    assert "    rows = extracted(x)\n" in text
    assert "def extracted(x):\n    rows = x[tile_m : tile_m + 4, :]\n    return rows\n" in text
    doc = editor.open(KERNEL.replace("out[tile_m : tile_m + 4, :]", "out[:]"))
    (action,) = (await actions(editor, doc, "    |rows =", "4, :]|\n    note", kind="refactor.extract")).values()
    assert action.disabled.reason.startswith("'tile_m' is not defined")


async def test_an_expression_of_a_kernel(editor):
    doc = editor.open(KERNEL)
    (action,) = (await actions(editor, doc, "exp(|rows", "(rows)|)", kind="refactor.extract")).values()
    text = await applied(editor, doc, action)
    assert "e = ts.tile.exp(extracted(rows))\n" in text
    assert "def extracted(rows):\n    return rows - ts.tile.row_max(rows)\n" in text


async def test_an_expression_of_a_function(editor):
    doc = editor.open(MODEL)
    found = await actions(editor, doc, "silu(|normed", "+ bias|)", kind="refactor.extract.function")
    text = await applied(editor, doc, found["Extract function"])
    assert "    hidden = ts.silu(extracted(normed, w, bias)) / math.sqrt(64)\n" in text
    assert (
        '@ts.function\ndef extracted(normed: Tensor["B", "S", "D"], w: Tensor["D", "F"], bias: Tensor["F"]):\n'
        "    return normed @ w + bias\n"
    ) in text


async def test_moving_the_cursor_offers_no_kernel(editor):
    doc = editor.open(MODEL)
    automatic = lsp.CodeActionTriggerKind.Automatic
    assert not [t for t in await actions(editor, doc, "; |scale =", trigger=automatic) if "kernel" in t]


async def test_what_calls_a_kernel_is_no_kernel(editor):
    text = (
        HEAD
        + """@ts.kernel
def twice(x: Tensor["M"]) -> Tensor["M"]:
    i = ts.tile.linear_id()
    return x[i] * 2


@ts.function
def calm(x: Tensor["M"]):
    note = "𝒮é"; y = ts.tanh(twice(x))
    return y
"""
    )
    doc = editor.open(text)
    found = await actions(editor, doc, "; y| = ts.tanh", kind=KIND)
    assert found["Extract kernel"].disabled.reason == "twice is a kernel already, which no other kernel can call"
