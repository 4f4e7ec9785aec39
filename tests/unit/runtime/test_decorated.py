"""Functions under decorators of the user's own: what the decorator made is what is compiled."""

from __future__ import annotations

import functools

import numpy as np

import tessera as ts
from tessera import Tensor

FACTOR = {"value": 2.0}


def scaled(function):
    @functools.wraps(function)
    def times(*args, **kwargs):
        return FACTOR["value"] * function(*args, **kwargs)

    return times


@ts.function
@scaled
def below(x: Tensor["N"]):
    return x + 1


@scaled
def helper(x):
    return x + 1


@ts.function
def calls(x: Tensor["N"]):
    return helper(x) + below(x)


def test_a_decorator_below_is_compiled_too():
    x = np.ones(2, np.float32)
    assert np.asarray(below(x)).tolist() == [4.0, 4.0]
    assert np.asarray(calls(x)).tolist() == [8.0, 8.0]


def test_what_a_decorator_reads_is_no_stale_code(monkeypatch):
    x = np.ones(2, np.float32)
    calls(x)
    monkeypatch.setitem(FACTOR, "value", 3.0)
    assert np.asarray(calls(x)).tolist() == [12.0, 12.0]
    assert np.asarray(below(x)).tolist() == [6.0, 6.0]
