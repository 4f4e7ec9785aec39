"""Lines at the top of a file that are edited: what is said below is what the file opened anew would say."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""𝒮"""
import math
import tessera as ts
from tessera import exp, Tensor


@ts.function
def scaled(x: ts.Tensor["N"]):
    é = exp(ts.sum(x)) * math.pi
    return é


@ts.function
def shifted(x: Tensor["N", "K"]):
    y = x + max(1, 2)
    return y.sum(-1)


@ts.kernel
def copy(x: Tensor["N"], y: Tensor["N"]):
    i = ts.tile.linear_id()
    y[i] = x[i]
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import exp,", "import log as exp,"), ("from tessera import exp, Tensor\n", ""), ("exp, Tensor", "exp"),
        ("import math\n", "import math as m\n"), ("import math\n", "import cmath as math\n"),
        ("import tessera as ts", "import tessera as t"), ("import tessera as ts", "import numpy as ts"),
        ("import tessera as ts", "import tessera as ts, math as mathematics"),
        ("import math\n", "import math\ndef max(a, b): return b\n"), ("import math\n", "import math\nmax = 4\n"),
        ("import math\n", "import math\nfrom tessera import log as exp\n"),
        ("Tensor\n", "Tensor, log as exp\n"), ("Tensor\n", "Tensor as exp\n"),
    ],
)  # fmt: skip
async def test_an_edited_import_reaches_the_functions_that_read_it(editor, old, new):
    doc = editor.open(MODEL, "edited.py")
    before = await editor.hints(doc)
    assert before["é"] == ": [] f32" and before["y"] == ": [N, K] f32"
    editor.replace(doc, old, new)
    fresh = editor.open(editor.texts[doc.uri], "fresh.py")
    assert await editor.hints(doc) == await editor.hints(fresh)
    assert await said(editor, doc) == await said(editor, fresh)
    editor.replace(doc, new, old)
    assert not await editor.diagnostics(doc)


async def said(editor, doc):
    return [(d.code, d.range, d.message) for d in await editor.diagnostics(doc)]
