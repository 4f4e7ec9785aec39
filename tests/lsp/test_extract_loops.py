"""Kernels with loops, extracted: the exact text, and where the comments of the selection go."""

from __future__ import annotations

import pytest

from tests.lsp.test_extract_kernel import HEAD, extracted

pytestmark = pytest.mark.asyncio(loop_scope="module")


def function(parameters: str, *lines: str) -> str:
    return f"{HEAD}@ts.function\ndef f({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def kernel(text: str) -> str:
    """The body of the kernel, without the indentation."""
    _, _, behind = text.partition("@ts.kernel\n")
    lines = behind.partition("\n\n\n@ts.function")[0].split(":\n", 1)[1].split("\n")
    return "\n".join(line.removeprefix("    ") for line in lines)


async def test_attention_is_one_pass_over_the_keys(editor):
    heads = ", ".join(f'{n}: Tensor["B", "H", "{d}", "D"]' for n, d in (("q", "S"), ("k", "T"), ("v", "T")))
    doc = editor.open(
        function(
            heads,
            'note = "𝒮é"; scores = q @ k.mT / math.sqrt(64)',
            "seen = ts.arange(S)[:, None] >= ts.arange(T)",
            "scores = ts.where(seen, scores, -math.inf)",
            "return ts.softmax(scores) @ v",
        )
    )
    text = await extracted(editor, doc, "; |scores = q", "@ v|\n")
    assert f'def f_kernel(\n    {heads}\n) -> Tensor["B", "H", "S", "D"]:\n' in text
    assert kernel(text) == (
        "q_tile = q[tile_s : tile_s + 64]\n"
        "top = ts.tile.full((64,), -3.4028234663852886e38)  # finite: a block may hold nothing but -inf\n"
        "total = ts.tile.zeros((64,))\n"
        "acc = ts.tile.zeros((64, D))\n"
        "for j in ts.tile.range_k(0, T, 32):\n"
        "    if j >= tile_s + 64:  # all masked from here on\n"
        "        break\n"
        "    scores = ts.tile.mma(q_tile, k[j : j + 32].T) / math.sqrt(64)\n"
        "    scores = ts.tile.causal_mask(scores, tile_s, j)\n"
        "    new_top = ts.tile.maximum(top, ts.tile.row_max(scores))\n"
        "    weights = ts.tile.exp(scores - new_top)\n"
        "    shrink = ts.tile.exp(top - new_top)\n"
        "    total = total * shrink + ts.tile.row_sum(weights)\n"
        "    acc = acc * shrink + ts.tile.mma(weights, v[j : j + 32])\n"
        "    top = new_top\n"
        "return acc / total"
    )
    assert '    note = "𝒮é"; return f_kernel(q, k, v)\n' in text


async def test_comments_go_where_what_they_say_goes(editor):
    doc = editor.open(
        function(
            'x: Tensor["B", "S", "D"], g: Tensor["D"], w: Tensor["D", "F"], b: Tensor["F"]',
            "# of the whole",
            "scale = ts.rsqrt((x * x).mean(-1, keepdim=True) + EPS)  # é: one for each row",
            "# a constant",
            "half = 0.5  # noqa: E1",
            "normed = (",
            "    x",
            "    * scale  # of rows",
            "    * g",
            ")  # of columns",
            "# the product",
            "# in two lines",
            "hidden = normed @ w + b",
            "# last",
            "return ts.silu(hidden) * half  # result",
        )
    )
    text = await extracted(editor, doc, "    |# of the whole", "# result|")
    assert kernel(text) == (
        "total = ts.tile.zeros((32,))\n"
        "for k in ts.tile.range_k(0, D, 32):\n"
        "    x_tile = x[tile_s : tile_s + 32, k : k + 32]\n"
        "    total += ts.tile.row_sum(x_tile * x_tile)\n"
        "scale = ts.tile.rsqrt(total / D + EPS)  # é: one for each row\n"
        "acc = ts.tile.zeros((32, 64))\n"
        "for k in ts.tile.range_k(0, D, 32):\n"
        "    # a constant\n"
        "    # of rows\n"
        "    x_tile = x[tile_s : tile_s + 32, k : k + 32]\n"
        "    normed = x_tile * scale * g[k : k + 32]  # of columns\n"
        "    # the product\n"
        "    # in two lines\n"
        "    acc += ts.tile.mma(normed, w[k : k + 32, tile_f : tile_f + 64])\n"
        "b_tile = b[tile_f : tile_f + 64]\n"
        "hidden = acc + b_tile\n"
        "# last\n"
        "return ts.tile.silu(hidden) * 0.5"
    )
    assert text.endswith("    # of the whole\n    return f_kernel(x, g, w, b)  # result\n")


async def test_columns(editor):
    doc = editor.open(function('x: Tensor["B", "S", "D"]', "y = x.mean(axis=1)", "return y"))
    text = await extracted(editor, doc, "    |y = x")
    assert kernel(text) == (
        "total = ts.tile.zeros((64,))\n"
        "for k in ts.tile.range_k(0, S, 32):\n"
        "    total += ts.tile.col_sum(x[k : k + 32, tile_d : tile_d + 64])\n"
        "return total / S"
    )


async def test_whole_rows_of_a_product(editor):
    doc = editor.open(
        function(
            'x: Tensor["S", "D"], w: Tensor["D", "F"], h: Tensor["S", "F"], g: Tensor["F"], b: Tensor["F"]',
            "y = h + x @ w",
            "return ts.layer_norm(y, g, b)",
        )
    )
    text = await extracted(editor, doc, "    |y = h", "b)|\n")
    assert kernel(text) == (
        "acc = ts.tile.zeros((16, F))\n"
        "for k in ts.tile.range_k(0, D, 32):\n"
        "    acc += ts.tile.mma(x[tile_s : tile_s + 16, k : k + 32], w[k : k + 32])\n"
        "h_tile = h[tile_s : tile_s + 16]\n"
        "y = h_tile + acc\n"
        "shifted = y - ts.tile.mean(y, axis=-1, keepdim=True)\n"
        "row_mean = ts.tile.mean(ts.tile.square(shifted), axis=-1, keepdim=True)\n"
        "return shifted * ts.tile.rsqrt(row_mean + 1e-05) * g + b"
    )


async def test_one_product_feeds_another(editor):
    doc = editor.open(
        function(
            'x: Tensor["S", "D"], up: Tensor["D", "F"], down: Tensor["F", "D"]', "return x + ts.gelu(x @ up) @ down"
        )
    )
    text = await extracted(editor, doc, "    |return")
    assert kernel(text) == (
        "x_tile = x[tile_s : tile_s + 64]\n"
        "acc = ts.tile.zeros((64, D))\n"
        "for k in ts.tile.range_k(0, F, 32):\n"
        "    acc += ts.tile.mma(ts.tile.gelu(ts.tile.mma(x_tile, up[:, k : k + 32])), down[k : k + 32])\n"
        "return x_tile + acc"
    )


async def test_parts_that_are_joined_are_stored_where_they_belong(editor):
    doc = editor.open(
        function(
            'x: Tensor["B", "H", "S", "D"], cos: Tensor["S", "D//2"], sin: Tensor["S", "D//2"]',
            "assert D % 2 == 0",
            "a, b = x[..., : D // 2], x[..., D // 2 :]",
            "# by an angle",
            "rotated = ts.concatenate([a * cos - b * sin, b * cos + a * sin], -1)",
            "return ts.tanh(rotated)",
        )
    )
    text = await extracted(editor, doc, "    |a, b =", "sin], -1)|")
    assert (
        'def f_kernel(\n    x: Tensor["B", "H", "S", "D"],\n'
        '    cos: Tensor["S", "D//2"],\n    sin: Tensor["S", "D//2"],\n'
        '    out: Tensor["B", "H", "S", "D"],\n) -> Tensor["B", "H", "S", "D"]:\n'
    ) in text
    assert kernel(text) == (
        "# by an angle\n"
        "a = x[tile_s : tile_s + 4, : D // 2]\n"
        "cos_tile = cos[tile_s : tile_s + 4]\n"
        "b = x[tile_s : tile_s + 4, D // 2 : 2 * (D // 2)]\n"
        "sin_tile = sin[tile_s : tile_s + 4]\n"
        "out[tile_s : tile_s + 4, : D // 2] = a * cos_tile - b * sin_tile\n"
        "out[tile_s : tile_s + 4, D // 2 : 2 * (D // 2)] = b * cos_tile + a * sin_tile\n"
        "return out"
    )
    assert "    rotated = f_kernel(x, cos, sin, ts.zeros((B, H, S, D)))\n    return ts.tanh(rotated)\n" in text


async def test_a_stencil(editor):
    doc = editor.open(function('u: Tensor["N", "M", bf16]', "return u[1:-1, 2:] - u[1:-1, :-2]"))
    text = await extracted(editor, doc, "    |return")
    assert kernel(text) == (
        "u_tile = u[tile_r + 1 : tile_r + 33, tile_c + 2 : tile_c + 66]\n"
        "u_tile_2 = u[tile_r + 1 : tile_r + 33, tile_c : tile_c + 64]\n"
        "out[tile_r : tile_r + 32, tile_c : tile_c + 64] = u_tile - u_tile_2\n"
        "return out"
    )
    assert "    return f_kernel(u, ts.zeros((N - 2, M - 2), bf16))\n" in text
