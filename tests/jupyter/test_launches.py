"""A kernel in one cell, and a function that calls it in another."""

from __future__ import annotations

import html
import re

import numpy as np

KERNEL = """%%tessera
@ts.kernel
def scaled(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    return x * 2.0
"""
FUNCTION = """%%tessera --target sm_90a --dims "B=8,N=32"
@ts.function
def shifted(x: Tensor["B", "N", ts.f32]) -> Tensor["B", "N", ts.f32]:
    y = scaled(x)
    return y + 1
"""


def test_a_kernel_of_another_cell(nb, monkeypatch):
    nb.run(KERNEL)
    ran = nb.run(FUNCTION)
    assert ran.error is None
    assert "[8, 32] f32" in ran.html
    for side in ("graph", "schedule"):
        (pre,) = re.findall(rf'<pre[^>]*data-side="?{side}.*?</pre>', ran.html, re.DOTALL)
        assert "y = launch(x) : [8, 32] f32" in html.unescape(re.sub("<[^>]+>", "", pre))
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    x = np.ones((3, 5), np.float32)
    assert (nb["shifted"](x) == 3).all()
    nb.run(KERNEL.replace("2.0", "5.0"))
    assert (nb["shifted"](x) == 6).all(), "the cell of the function has not run again, and knows of it"
    ran = nb.run(FUNCTION.replace("scaled(x)", "scaled(x[0])"))
    (found,) = ran.error.diagnostics
    assert found.code == "TS209" and "x of scaled is" in ran.text
