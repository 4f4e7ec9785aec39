"""What "Fuse these" makes of launches and of what follows a kernel computes what was computed before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from lsprotocol import types as lsp
from tessera_lsp.document import Document
from tessera_lsp.settings import Settings

from tessera.compiler.frontend.fixes import apply
from tessera.editor.refactor import Selection, fuse_kernel, fuse_launches
from tessera.errors import Fix
from tests.differential.test_extracted_kernels import argument, imported

HEAD = """import tessera as ts
from tessera import Tensor, bf16

BLOCK = 32


@ts.function
def scale(x: Tensor["N", "M"], by: ts.f32):
    return x * by


@ts.function
def act(x: Tensor["R", "N"], b: Tensor["N"]):
    return ts.gelu(x + b)


@ts.kernel
def gemm(A: Tensor["M", "K"], B: Tensor["K", "N"]) -> Tensor["M", "N"]:
    acc = ts.tile.zeros((BLOCK, 64))
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(A[tile_m : tile_m + BLOCK, k : k + 32], B[k : k + 32, tile_n : tile_n + 64])
    return acc


@ts.kernel
def softmax(x: Tensor["...", "N"]) -> Tensor["...", "N"]:
    e = ts.tile.exp(x - ts.tile.max(x, axis=-1, keepdim=True))
    return e / ts.tile.sum(e, axis=-1, keepdim=True)


@ts.kernel
def twice(x: Tensor["N"]) -> Tensor["N"]:
    i = ts.tile.linear_id()
    return x[i] * 2


@ts.kernel
def centred(x: Tensor["M", "N"]) -> Tensor["M", "N"]:
    for m in ts.tile.range(0, M, 16):
        block = x[m : m + 16]
        out = block - ts.tile.row_sum(block)
    return out


"""
TENSORS = {"a": ("S", "D"), "w": ("D", "F"), "b": ("F",), "s": ("S",), "q": ("S", "S"), "v": ("D",), "h": ("S", "F")}
SIZES = {"S": 37, "D": 70, "F": 90}

BEHIND_KERNELS = {
    "bias": "y = gemm(a, w)\n    z = ts.silu(y + b)",
    "column, f64": "y = gemm(a, w)\n    z = (y * s[:, None] + 1e-5).to(ts.f64)",
    "block": "y = gemm(a, w)\n    u = ts.tanh(y)\n    z = u * u + h",
    "argument again": "y = gemm(q, q)\n    z = y + q",
    "row": "y = softmax(a)\n    z = y * v",
    "nothing else": "y = centred(a)\n    z = ts.exp(y) * 3",
    "lanes": "y = twice(v)\n    z = ts.exp(y) * v",
}
LAUNCHES = {
    "two functions": "y = scale(a, 2.0)\n    z = act(y, v)",
    "one in another": "z = act(scale(a, by=0.5), v)",
    "operators too": "y = scale(a, 2.0)\n    y = ts.sqrt(ts.abs(y)) + 1\n    z = act(y, v)",
    "a kernel before": "y = centred(a)\n    x = scale(y, 0.25)\n    z = act(x, v)",
}


def results(folder: Path, lines: str, decorated: bool) -> list[np.ndarray]:
    """Of the function with these lines, before and after they are fused."""
    used = [n for n in TENSORS if any(n == word for word in _words(lines))]
    said = [f"{n}: Tensor[{', '.join(repr(d) for d in TENSORS[n])}]" if decorated else n for n in used]
    head = f"{'@ts.function' if decorated else '# plain'}\ndef f({', '.join(said)}):\n    "
    text = f"{HEAD}{head}{lines}\n    return z\n"
    file = folder / "before.py"
    document = Document(lsp.TextDocumentItem(file.as_uri(), "python", 1, text))
    asyncio.run(document.analyse(document.text))
    row = text[: text.index(lines)].count("\n") + 1
    selection = Selection(
        (row, 5), (row + lines.count("\n"), len(lines.split("\n")[-1]) + (5 if "\n" not in lines else 1))
    )
    if decorated:
        known = document.function_at(row)
        assert known is not None
        offers = list(fuse_kernel.offers(document, known, selection, Settings()))
    else:
        offers = list(fuse_launches.offers(document, selection, Settings()))
    (offer,) = offers
    assert not offer.disabled, offer.disabled
    before, after = imported(file, text), imported(folder / "after.py", apply(text, Fix("", offer.edits)))
    rng = np.random.default_rng(0)
    args = [argument(rng, tuple(SIZES[d] for d in TENSORS[n]), "float32") for n in used]
    return [np.asarray(module.f(*args)) for module in (before, after)]


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text).split()


@pytest.mark.parametrize("lines", BEHIND_KERNELS.values(), ids=BEHIND_KERNELS)
def test_what_follows_a_kernel(tmp_path: Path, lines: str) -> None:
    before, after = results(tmp_path, lines, decorated=True)
    assert before.dtype == after.dtype
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("lines", LAUNCHES.values(), ids=LAUNCHES)
def test_launches(tmp_path: Path, lines: str) -> None:
    before, after = results(tmp_path, lines, decorated=False)
    assert before.dtype == after.dtype
    np.testing.assert_array_equal(before, after)
