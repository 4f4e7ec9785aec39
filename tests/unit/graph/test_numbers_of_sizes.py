"""Numbers that Python computes from sizes, such as `1 / math.sqrt(D)`: with sizes that are symbols the program does."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f16
from tessera.compiler.frontend.incremental import FileAnalysis

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@ts.function
def scores(x: Tensor["B", "D"]):
    return x @ x.mT / D**0.5


@ts.function
def narrow(x: Tensor["B", "D", f16]):
    return x * (1 / math.sqrt(D // 2)) - math.sqrt(2.0 / (B + D))


@ts.function
def chosen(x: Tensor["B", "D"]):
    y = ts.where(x > -(D**-0.5), x, 1 / math.sqrt(D))
    return y, D**0.5 * y.sum()


@ts.function
def carried(x: Tensor["B", "D"]):
    scale = math.sqrt(D // 4)
    for _ in ts.range(3):
        x = ts.maximum(x / scale, -(B**0.25))
    return x


@pytest.mark.parametrize("program", [scores, narrow, chosen, carried], ids=lambda f: f.__name__)
def test_the_program_computes_what_python_does(program: ts.Function) -> None:
    x = X.astype(np.float16) if program is narrow else X
    known, symbolic = program(x), ts.compile(program, target="cpu")(x)
    for want, got in zip(*(v if isinstance(v, tuple) else (v,) for v in (known, symbolic)), strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("number, why", [("math.log(D)", "log(D)"), ("round(D / 3)", "round(D / 3)")])
def test_what_only_python_computes_must_be_known(number: str, why: str) -> None:
    file = FileAnalysis("model.py")
    file.update(
        "import math\nimport tessera as ts\n"
        f"@ts.function\ndef f(x: ts.Tensor['B', 'D']):\n    return x * {number}, x / D**0.5\n"
    )
    (a,) = file.analyses
    assert not a.diagnostics and a.op is None
    assert [d.message for d in a.undecided] == [f"{why} must be known"]
