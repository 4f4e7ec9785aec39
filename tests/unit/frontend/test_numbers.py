"""NumPy's functions of sizes mean what `math` means: known or open, in the compiler and where only a text is read."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.incremental import analyse_file

SOURCE = """import math
import numpy as np
import tessera as ts
from tessera import Tensor


@ts.function
def f(x: Tensor["S", "D", ts.f32], H: ts.Const[int] = 8):
    S, D = x.shape
    y = x * {}
    return y
"""


@ts.function
def by_numpy(x: ts.Tensor["S", "D", ts.f32], H: ts.Const[int] = 8):
    return x * np.sqrt(x.shape[1] // H)


@ts.function
def by_math(x: ts.Tensor["S", "D", ts.f32], H: ts.Const[int] = 8):
    return x * math.sqrt(x.shape[1] // H)


def test_open_sizes_compile_as_with_math() -> None:
    texts = [f.ir("graph", target="reference").replace(f.name, "f").split("#")[0] for f in (by_numpy, by_math)]
    assert texts[0] == texts[1]
    x = np.ones((3, 24), np.float32)
    for f in (by_numpy, by_math):
        np.testing.assert_array_equal(ts.compile(f, target="cpu")(x), x * np.float32(math.sqrt(3)))


@pytest.mark.parametrize(
    "call", ["sqrt(D // H)", "log2(S)", "exp(S / D)", "tanh(D)", "prod(x.shape)", "log10(16)", "sqrt(math.sqrt(S))"]
)
def test_a_text_has_types_behind_them(call: str) -> None:
    (numpy,) = analyse_file("a.py", SOURCE.format(f"np.{call}"))
    (python,) = analyse_file("a.py", SOURCE.format(f"math.{call}"))
    assert [e.text for e in numpy.expressions] == [e.text for e in python.expressions]
    assert any((e.name, e.text) == ("y", "[S, D] f32") for e in numpy.expressions)


def test_known_sizes_have_the_same_bits() -> None:
    def roots(x: ts.Tensor["S", "D", ts.f64]):
        return x * np.log2(D), x * math.log2(D), x * np.prod(x.shape)

    x = np.ones((3, 7))
    a, b, c = ts.function(roots)(x)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(c, x * 21)


def test_what_math_has_no_value_for_is_numpys() -> None:
    def logarithm(x: ts.Tensor["S", ts.f32]):
        return x + np.log(x.shape[0] - 3)

    with np.errstate(divide="ignore"):
        assert np.isneginf(ts.function(logarithm)(np.ones(3, np.float32))).all()
    (found,) = analyse_file("a.py", SOURCE.format("np.log(0)"))
    assert not found.diagnostics


def test_of_a_tensor_ours_is_offered_in_a_text_too() -> None:
    (found,) = analyse_file("a.py", SOURCE.format("np.exp(x)"))
    (said,) = found.diagnostics
    assert said.code == "TS105" and said.message.endswith("use ts.exp")

    @ts.function
    def live(x: ts.Tensor["S", "D", ts.f32]):
        return np.exp(x)

    assert said.message == analyse(live.definition(), None, {}).diagnostics[0].message
