"""Special methods of dataclasses in a file that is only read mean what they mean in the compiler."""

from __future__ import annotations

import pytest

from tessera.compiler.frontend.incremental import analyse_file
from tessera.compiler.frontend.result import Analysis

TEXT = """
import dataclasses
import tessera as ts
from tessera import Tensor


@dataclasses.dataclass
class Pair:
    a: object
    b: object

    def __add__(self, other):
        return Pair(self.a + other.a, self.b + other.b)

    def __getitem__(self, i):
        return self.a if i == 0 else self.b

    def __len__(self):
        return 0


@ts.function
def f(x: Tensor["N", "M"]):
    p = Pair(x, x.T) + Pair(x, x.T)
    {last}
"""


def read(last: str) -> Analysis:
    (analysis,) = analyse_file("pairs.py", TEXT.replace("{last}", last))
    return analysis


@pytest.mark.parametrize(
    ("last", "shape"),
    [("return p[1]", "[M, N]"), ("return p.a if p else p.b", "[M, N]"), ("return x * len(p)", "[N, M]")],
)
def test_shapes_come_through(last: str, shape: str) -> None:
    analysis = read(last)
    assert not analysis.diagnostics
    assert shape in str(analysis.expressions[-1].type.pretty())


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("return -p", "- does not take a Pair"),
        ("return p - p", "- does not take a Pair and a Pair"),
        ("p.a.b[0]\n    return x", "has no attribute 'b'"),
    ],
)
def test_what_a_class_has_not_is_refused(last: str, message: str) -> None:
    analysis = read(last)
    assert any(message in d.message for d in analysis.diagnostics), analysis.diagnostics
