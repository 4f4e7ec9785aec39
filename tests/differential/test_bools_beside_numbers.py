"""Bools beside numbers are 0 and 1, as in NumPy; operators of numbers refuse bools alone."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tessera as ts
from tessera.errors import CompileError

A = np.array([True, False, True])
OPERATORS = [operator.sub, operator.mod, operator.floordiv, operator.pow, operator.add, operator.mul, operator.lshift]


@pytest.mark.parametrize("of", OPERATORS)
@pytest.mark.parametrize("other", [np.array([3, 1, 2], np.int32), 2], ids=["array", "number"])
def test_as_numpy(of, other):
    beside = other if isinstance(other, int) else ts.asarray(other)
    assert np.array_equal(np.asarray(of(ts.asarray(A), beside)), of(A, other))


def test_division_gives_floats():
    assert np.allclose(np.asarray(ts.asarray(A) / ts.asarray(np.array([4, 2, 8], np.int32))), [0.25, 0.0, 0.125])


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_in_functions(target, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", target)

    @ts.function
    def f(x: ts.Tensor["n", ts.int32]):
        found = ts.logical_not(ts.argmin(x))
        return found % (ts.abs(x) % 5 + 1), x // (x > 0)

    x = np.array([3, 1, 7], np.int32)
    rest, whole = f(x)
    assert np.array_equal(rest, (x.argmin() == 0) % (x % 5 + 1)) and np.array_equal(whole, x)


@pytest.mark.parametrize("of", [operator.sub, operator.mod, operator.floordiv, operator.truediv])
def test_bools_alone_are_refused(of):
    with pytest.raises(CompileError, match="TS301"):
        of(ts.asarray(A), ts.asarray(A))
