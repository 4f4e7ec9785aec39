"""Fusing launches into a function, and what follows a kernel's call into the kernel: exact texts, and why not."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.lsp.conftest import _start as connected
from tests.lsp.test_actions import actions, applied

pytestmark = pytest.mark.asyncio(loop_scope="module")
KIND = "refactor.rewrite.fuse"
LAUNCHES = "Fuse these launches"
OPERATORS = "Fuse these operators"

HEAD = '''"""𝒮"""
import numpy as np

import tessera as ts
from tessera import Tensor, bf16

BLOCK = 32


@ts.function
def scale(x: Tensor["N", "M"], by: ts.f32):
    return x * by


@ts.function
def act(x: Tensor["R", "N"], b: Tensor["N"]):
    return ts.gelu(x + b)


@ts.function
def norm(x: Tensor["R", "N"]):
    return ts.softmax(x)


@ts.kernel
def gemm(A: Tensor["M", "K"], B: Tensor["K", "N"]) -> Tensor["M", "N"]:
    acc = ts.tile.zeros((BLOCK, 64))
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(A[tile_m : tile_m + BLOCK, k : k + 32], B[k : k + 32, tile_n : tile_n + 64])
    return acc


@ts.kernel
def add_to(x: Tensor["N"], y: Tensor["N"]):
    i = ts.tile.linear_id()
    y[i] = x[i] + y[i]
    return y


'''
DIMS = {"N": 1024, "M": 4096, "R": 1024, "S": 1024, "D": 64, "F": 128}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sized():
    editor = await connected(options={"target": "sm_90a", "dims": DIMS})
    yield editor
    await editor.client.shutdown_session()


async def one(editor, text, start, end):
    doc = editor.open(HEAD + text)
    found = await actions(editor, doc, start, end, kind=KIND)
    (action,) = (a for a in found.values() if not a.title.endswith("@ts.function"))
    return doc, action


async def test_launches_in_a_plain_function(sized):
    text = 'def main(a, b):\n    note = "𝒮é"; y = scale(a, 2.0)\n    z = act(y, b)\n    return np.sum(z)\n'
    doc, action = await one(sized, text, "; |y =", "(y, b)|")
    kept = 2 * 4 * 1024 * 4096  # y is written and read
    assert action.title.startswith(f"{LAUNCHES}: 2 kernels become one, which keeps {kept:,} bytes out of memory and ")
    assert action.title.endswith(" µs at most (modelled)")
    after = await applied(sized, doc, action)
    assert after == HEAD + (
        '@ts.function\ndef scale_act(a: Tensor["N", "M"], b: Tensor["M"]):\n    y = scale(a, 2.0)\n    z = act(y, b)\n'
        "    return z\n\n\n"
        'def main(a, b):\n    note = "𝒮é"; z = scale_act(a, b)\n    return np.sum(z)\n'
    )


async def test_launches_of_a_script(sized):
    text = (
        "a = np.ones((3, 4), np.float32)\nb = np.ones(4, np.float32)\ny = scale(a, by=0.5)\nz = act(y, b)\nprint(y)\n"
    )
    doc, action = await one(sized, text, "|y = scale", "(y, b)|")
    after = await applied(sized, doc, action)
    assert after.endswith(
        'b = np.ones(4, np.float32)\n\n\n@ts.function\ndef scale_act(a: Tensor["N", "M"], b: Tensor["M"]):\n'
        "    y = scale(a, by=0.5)\n    z = act(y, b)\n    return y, z\n\n\ny, z = scale_act(a, b)\nprint(y)\n"
    )


async def test_a_call_within_a_call_in_a_loop(sized):
    text = "def main(a, b):\n    for i in range(3):\n        a = norm(act(scale(a, 2.0), b))\n    return a\n"
    doc, action = await one(sized, text, "        |a = norm", "2.0), b))|")
    kept = 2 * 4 * 1024 * 4096  # what scale gives; what act gives is read by two operators of norm
    assert f"{LAUNCHES}: 3 kernels become one, which keeps {kept + 4 * 1024 * 4096 * 3:,} bytes" in action.title
    after = await applied(sized, doc, action)
    assert "    for i in range(3):\n        a = norm_act_scale(a, b)\n" in after or "scale_act_norm(a, b)\n" in after


async def test_sizes_that_have_nothing_to_do_with_each_other_stay_apart(sized):
    text = "def main(a, b, c):\n    y = norm(scale(a, 1.0))\n    z = act(norm(b), c) + y\n    return z\n"
    _, action = await one(sized, text, "    |y = norm", "c) + y|")
    assert "N and" in action.disabled.reason or "do not broadcast" in action.disabled.reason


@pytest.mark.parametrize(
    "lines, why",
    [
        ("y = scale(a, 1.0)\nprint(y)\nz = norm(y)", "print is called between them, and runs in Python"),
        ("y = scale(a, 1.0)\nif flag: pass\nz = norm(y)", "`if flag:` stands between them, and runs in Python"),
        ("y = ts.exp(a)\nz = ts.sqrt(y)", "the type of a is unknown: no function that takes it annotates it"),
        ("y = gemm(a, b)\nz = gemm(y, c)", "gemm and gemm are kernels: any program of gemm may read"),
        ("y = gemm(a, b)\nz = norm(y)", "gemm is a kernel, which has stored its results before what reads them begins"),
        ("y = norm(a)\nz = gemm(y, b)", "gemm is a kernel, which begins when what it reads is in memory"),
        ("y = add_to(a, b)\nz = add_to(y, b)", "add_to changes its arguments: inside a function, arrays outside"),
        ("y[0] = scale(a, 1.0)\nz = norm(a)", "`y[0] = scale(a, 1.0)` changes an array in place"),
    ],
)
async def test_launches_that_stay_as_they_are_say_why(sized, lines, why):
    body = "\n".join(f"    {line}" for line in lines.split("\n"))
    start, end = lines.split("\n")[0], lines.split("\n")[-1]
    _, action = await one(sized, f"def main(a, b, c, y, flag):\n{body}\n    return z\n", f"    |{start}", f"{end}|\n")
    assert action.disabled.reason.startswith(why), action.disabled.reason


async def test_what_follows_a_kernel_becomes_its_end(sized):
    text = (
        '@ts.function\ndef f(a: Tensor["S", "D"], w: Tensor["D", "F"], b: Tensor["F"], s: Tensor["S"]):\n'
        '    note = "𝒮é"; y = gemm(a, w)\n    z = ts.silu(y + b) * s[:, None]\n    return z * 2\n'
    )
    doc, action = await one(sized, text, "; |y = gemm", "None]|")
    kept = 2 * 4 * 1024 * 128
    assert action.title.startswith(f"{OPERATORS} in gemm, which keeps {kept:,} bytes out of memory and saves ")
    after = await applied(sized, doc, action)
    assert 'def gemm(A: Tensor["M", "K"], B: Tensor["K", "N"], b: Tensor["N"], s: Tensor["M"]) -> Tensor' in after
    assert (
        "64])\n    b_tile = b[tile_n : tile_n + 64]\n    s_tile = s[tile_m : tile_m + BLOCK]\n"
        "    return ts.tile.silu(acc + b_tile) * s_tile\n"
    ) in after
    assert '    note = "𝒮é"; z = gemm(a, w, b, s)\n    return z * 2\n' in after


async def test_a_kernel_that_others_call_is_copied(sized):
    text = (
        '@ts.function\ndef f(a: Tensor["S", "D"], w: Tensor["D", "F"]):\n'
        "    y = gemm(a, w)\n    return ts.relu(y).to(bf16)\n\n\n"
        '@ts.function\ndef g(a: Tensor["S", "D"], w: Tensor["D", "F"]):\n    return gemm(a, w)\n'
    )
    doc, action = await one(sized, text, "    |y = gemm", "to(bf16)|")
    after = await applied(sized, doc, action)
    assert after.startswith(HEAD)
    assert after.endswith(
        '@ts.kernel\ndef gemm_f(A: Tensor["M", "K"], B: Tensor["K", "N"]) -> Tensor["M", "N", bf16]:\n'
        "    acc = ts.tile.zeros((BLOCK, 64))\n    for k in ts.tile.range_k(0, K, 32):\n"
        "        acc += ts.tile.mma(A[tile_m : tile_m + BLOCK, k : k + 32], B[k : k + 32, tile_n : tile_n + 64])\n"
        "    return ts.tile.relu(acc)\n\n\n"
        '@ts.function\ndef f(a: Tensor["S", "D"], w: Tensor["D", "F"]):\n    return gemm_f(a, w)\n\n\n'
        '@ts.function\ndef g(a: Tensor["S", "D"], w: Tensor["D", "F"]):\n    return gemm(a, w)\n'
    )


@pytest.mark.parametrize(
    "lines, why",
    [
        ("y = gemm(a, w)\nz = ts.softmax(y)", "ts.softmax needs more of y than one program of gemm has"),
        ("y = gemm(a, w)\nz = y @ w.T", "@ needs more of y than one program of gemm has"),
        ("y = gemm(a, w)\nz = y.T", "its result does not lie as y does, which is where gemm stores"),
        ("y = gemm(a, w)\nz = ts.exp(w)", "the rest of the function does not compute one result from y"),
        ("y = add_to(b, b + 1)\nz = ts.exp(y)", "add_to stores to a parameter, or gives several results"),
        (
            "y = gemm(a, w)\nz = ts.relu(y)\nz = z + w[1, 0]",
            "it takes parts or numbers elements: the text of gemm",
        ),
    ],
)
async def test_what_cannot_be_a_kernels_end_says_why(sized, lines, why):
    body = "\n".join(f"    {line}" for line in lines.split("\n"))
    start, end = lines.split("\n")[0], lines.split("\n")[-1]
    head = '@ts.function\ndef f(a: Tensor["S", "D"], w: Tensor["D", "F"], b: Tensor["F"]):\n'
    _, action = await one(sized, f"{head}{body}\n    return z\n", f"    |{start}", f"{end}|\n")
    assert action.title == OPERATORS
    assert action.disabled.reason.startswith(why), action.disabled.reason


async def test_a_result_that_is_needed_later_stays_in_memory(sized):
    text = (
        '@ts.function\ndef f(a: Tensor["S", "D"], w: Tensor["D", "F"]):\n'
        "    y = gemm(a, w)\n    z = ts.relu(y)\n    return z * y\n"
    )
    _, action = await one(sized, text, "    |y = gemm", "relu(y)|")
    assert action.disabled.reason == "y is also needed after the selection, so it must be in memory"


async def test_functions_that_are_called_are_one_kernel_already(sized):
    text = '@ts.function\ndef f(a: Tensor["S", "D"]):\n    y = scale(a, 2.0)\n    z = norm(y)\n    return z\n'
    _, action = await one(sized, text, "    |y = scale", "norm(y)|")
    assert action.disabled.reason.startswith("they are one kernel already (*, ts.softmax), which keeps ")


async def test_operators_around_a_kernel(sized):
    text = '@ts.function\ndef f(a: Tensor["S", "D"], w: Tensor["D", "F"]):\n'
    text += "    h = a * 2\n    y = gemm(h, w)\n    return y\n"
    _, action = await one(sized, text, "    |h = a", "gemm(h, w)|")
    assert action.disabled.reason == "gemm is a kernel, which begins when what it reads is in memory"
