"""What is said of operators inside a function is what the schedule does, and a kernel for them launches fewer."""

from __future__ import annotations

import asyncio
import re

import pytest
from lsprotocol import types as lsp
from tessera_lsp.document import Document
from tessera_lsp.settings import Settings

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.levels import schedule
from tessera.editor.refactor import Offer, Selection, fuse
from tessera.errors import Fix

HEAD = "import math\nimport tessera as ts\nfrom tessera import Tensor\n\n\n@ts.function\ndef f("
SIZES = {"S": 1024, "D": 512, "F": 256, "T": 1024, "B": 4}
XW = 'x: Tensor["S", "D"], w: Tensor["D", "F"]'
QKV = 'q: Tensor["S", "F"], k: Tensor["T", "F"], v: Tensor["T", "F"]'


def offered(parameters: str, body: str, sizes: dict[str, int] = SIZES) -> tuple[Offer, str]:
    """What is said of all of a body but its last line, and the text."""
    lines = body.split("; ")
    text = f"{HEAD}{parameters}):\n" + "".join(f"    {line}\n" for line in lines)
    document = Document(lsp.TextDocumentItem("file:///model.py", "python", 1, text))
    asyncio.run(document.analyse(document.text))
    (known,) = document.known
    rows = text.split("\n")
    first = next(n for n, row in enumerate(rows, 1) if row.startswith("    "))
    last = first + len(lines) - 2
    selection = Selection((first, 5), (last, len(rows[last - 1]) + 1))
    (offer,) = fuse.explained(document, known, selection, Settings(target="sm_90a", dims=sizes))
    return offer, text


def launches(text: str, name: str = "f") -> int:
    files = FileAnalysis("model.py")
    files.update(text)
    (analysis,) = (a for a in files.analyses if a.name == name)
    return sum(op.name in fuse.KERNELS for op in schedule(analysis, SIZES, "sm_90a").walk())


@pytest.mark.parametrize(
    "parameters, body, kernels, kept",
    [
        (XW, "y = ts.rms_norm(x); z = y @ w; return z", "2", 2 * 4 * 1024 * 512),
        (XW, "y = x @ w; z = ts.softmax(y); return z", "2", 2 * 4 * 1024 * 256),
        # of the scores themselves, the softmax would be part of attention, which is one kernel already
        (QKV, "s = q @ k.T; p = ts.softmax(s - 1.0); z = p @ v; return z", "3", 2 * 2 * 4 * 1024 * 1024),
        (QKV, "s = q @ k.T; p = ts.softmax(s); z = p @ v; return z, p", "2", 0),
    ],
)
def test_a_kernel_launches_fewer(parameters: str, body: str, kernels: str, kept: int) -> None:
    offer, text = offered(parameters, body)
    if not kept:  # the weights are needed in memory: they are not a kernel's business that has blocks of them only
        assert offer.disabled == "ts.softmax needs whole rows of the product @, which its blocks do not hold"
        return
    assert offer.title.startswith(
        f"Fuse these operators in a kernel: {kernels} kernels become one, which keeps {kept:,} bytes out of memory"
    )
    assert launches(text) - launches(apply(text, Fix("", offer.edits))) == int(kernels) - 1


def test_what_is_too_large_for_a_program_stays_apart() -> None:
    offer, _ = offered(XW, "y = x @ w; z = ts.softmax(y); return z", {**SIZES, "F": 4096})
    assert offer.disabled == "ts.softmax needs whole rows of the product @, which its blocks do not hold"


@pytest.mark.parametrize(
    "body, values",
    [
        ("y = ts.gelu(x + w.T[0, 0]); z = y * 2; return z", 2 + 2),
        ("y = ts.gelu(x + 1); z = y * 2; return y, z", 2 + 1),  # y is written all the same
        ("y = ts.softmax(x); z = ts.layer_norm(y); return z", 2),  # what they are made of is never launched
    ],
)
def test_what_one_kernel_keeps_out_of_memory(body: str, values: int) -> None:
    offer, text = offered(XW, body)
    assert launches(text) == 1
    (kept,) = re.findall(r"which keeps ([\d,]+) bytes", offer.disabled)
    assert int(kept.replace(",", "")) == values * 4 * 1024 * 512


@pytest.mark.parametrize(
    "parameters, body, why",
    [
        (
            'x: Tensor["B", "S", "D"]',
            "y = ts.silu(x); z = y.reshape(B * S, D); u = z * 2; return u",
            "ts.silu and * walk over different sizes: y.reshape stands between them; "
            "what works element by element may stand before it",
        ),
        (XW, "y = ts.softmax(x); z = y[1:] - y[:-1]; return z", "ts.softmax and - walk over different sizes: y["),
        (XW, "y = ts.exp(x); z = ts.exp(w); return y, z", "neither needs the other's result: there is nothing to keep"),
        (
            XW,
            "y = x * 2; z = ts.concatenate([y, x]); return z",
            "ts.concatenate copies into windows, and * is in",
        ),
        (
            'x: Tensor["S", "D"]',
            "y = x / x.sum(0); z = ts.softmax(y); return z",
            "the kernel of x.sum, / and ts.softmax reduce along different axes: one must be complete before the other",
        ),
        (
            'x: Tensor["S", "D"]',
            "y = (x * 2).sum(); z = x / y; return z",
            "/ needs the result of the kernel of *, .sum, a long reduction that all programs compute together",
        ),
        (
            f'{XW}, h: Tensor["S", "D", "F"]',
            "y = ts.cumsum(x, axis=0); z = y @ w; return z, y",
            "@ reads each result of ts.cumsum many times: a product's operands must be in memory first",
        ),
    ],
)
def test_what_stands_between(parameters: str, body: str, why: str) -> None:
    offer, text = offered(parameters, body)
    assert offer.disabled.startswith(why), offer.disabled
    assert launches(text) > 1
