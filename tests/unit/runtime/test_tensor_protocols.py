"""What a Tensor answers to Python's number protocols, to NumPy's functions and to copy."""

from __future__ import annotations

import copy
import math

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.errors import LaunchError
from tessera.runtime.eager.tensor import Tensor

X = np.array([1.0, 2.5, -3.75], np.float32)


def test_numpys_functions_give_tensors():
    t = ts.tensor(X)
    for ours, theirs in (
        (np.sin(t), np.sin(X)), (np.sum(t), np.sum(X)), (np.log1p(abs(t)), np.log1p(abs(X))), (np.cbrt(t), np.cbrt(X)),
        (np.concatenate([t, X]), np.concatenate([X, X])), (np.linalg.norm(t), np.linalg.norm(X)),
        (np.add.reduce(t), np.add.reduce(X)), (np.multiply.outer(t, X), np.multiply.outer(X, X)),
        (np.where(t > 1, t, 0), np.where(X > 1, X, 0)), (np.sort(t), np.sort(X)),
    ):  # fmt: skip
        assert isinstance(ours, Tensor)
        assert ours.numpy().dtype == theirs.dtype
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)
    assert np.shape(t) == (3,)
    assert np.allclose(t, X) is True
    u = np.linalg.svd(ts.ones((2, 2)))
    assert isinstance(u.S, Tensor)


def test_a_ufunc_is_the_operator_on_either_side():
    t, wide = ts.tensor(X), np.ones(3)
    assert (wide + t).dtype == (t + wide).dtype == np.add(wide, t).dtype == ts.f64
    assert np.sin(ts.tensor([1, 2])).dtype == ts.sin(ts.tensor([1, 2])).dtype
    assert np.add(ts.ones((3,), dtype="bf16"), 1).dtype == ts.bf16
    assert np.mean(ts.ones((3,), dtype="bf16")).dtype == ts.bf16
    assert (np.float64(2) * t).dtype == ts.f32
    assert (np.float32(2) * t).dtype == (t * np.float32(2)).dtype == ts.f32


def test_numpys_functions_write_where_they_are_told():
    t, array = ts.tensor(X), np.ones(3)
    out = ts.zeros((3,))
    assert np.add(t, t, out=out) is out
    assert out.tolist() == [2.0, 5.0, -7.5]
    array += t
    assert type(array) is np.ndarray
    assert array.tolist() == [2.0, 3.5, -2.75]
    several = np.divmod(t, 2)
    assert isinstance(several, tuple)
    assert all(isinstance(v, Tensor) for v in several)


def test_numbers_of_python():
    one = ts.tensor(2.5)
    assert (float(one), int(one), complex(one), bool(one), math.sqrt(one)) == (2.5, 2, 2.5 + 0j, True, math.sqrt(2.5))
    assert (round(one).item(), math.floor(one).item(), math.ceil(one).item(), math.trunc(one).item()) == (2, 2, 3, 2)
    assert round(ts.tensor([1.26, 1.24]), 1).tolist() == np.round(np.array([1.26, 1.24], np.float32), 1).tolist()
    quotient, rest = divmod(ts.tensor([7, -7]), 2)
    assert (quotient.tolist(), rest.tolist()) == ([3, -4], [1, 1])
    assert divmod(7, ts.tensor(2))[0].item() == 3
    assert float(ts.tensor([[2.0]])) == 2.0
    for convert in (float, int, complex, bool):
        with pytest.raises(LaunchError, match="TS501"):
            convert(ts.ones((2,)))
    with pytest.raises(LaunchError, match="TS501"):
        float(ts.tensor(1j))


def test_formats():
    assert f"{ts.tensor(2.5):.3f}" == "2.500"
    assert f"{ts.tensor(7):>4d}" == "   7"
    assert f"{ts.tensor([1.0, 2.25]):.1f}" == "[1.0, 2.2]"
    assert f"{ts.ones((), dtype='bf16'):.2f}" == "1.00"
    assert f"{ts.tensor([1.0])}" == str(ts.tensor([1.0]))


def test_copies_are_copies():
    t = ts.tensor(X)
    for made in (copy.copy(t), copy.deepcopy(t), copy.deepcopy({"w": t})["w"]):
        assert isinstance(made, Tensor)
        made[0] = 9
    assert t.tolist() == X.tolist()
    small = ts.ones((2,), dtype="bf16")
    assert copy.deepcopy(small).numpy().dtype == ml_dtypes.bfloat16


def test_what_no_operator_takes_may_answer_itself():
    class Theirs:
        def __radd__(self, other):
            return "mine"

    t = ts.ones((2,))
    assert t + Theirs() == "mine"
    assert (t == None) is False  # noqa: E711
    with pytest.raises(TypeError, match="unsupported operand"):
        t + "a"
    with pytest.raises(TypeError, match="unsupported operand"):
        None * t


def test_subscripts_that_do_not_fit():
    t = ts.ones((2, 3))
    for index in (7, (0, 0, 0), "a", 1.5, [9]):
        with pytest.raises(LaunchError, match="TS207") as caught:
            t[index]
        assert isinstance(caught.value, IndexError)
    with pytest.raises(LaunchError, match="TS207"):
        t[0] = [1, 2, 3, 4]
    for index in (2**64 - 1, [2**64 - 2], 2**63):  # not -1 and -2, as NumPy has it
        with pytest.raises(LaunchError, match="TS207"):
            t[ts.tensor(np.array(index, np.uint64))]
    np.testing.assert_array_equal(t[ts.tensor(np.array([1, 0], np.uint64))], np.asarray(t)[[1, 0]])
    assert 1.0 in t
    assert 5.0 not in t
