"""A function called by another means what it means when it is called itself, on every target: values and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.errors import CompileError, LaunchError, TesseraError

TARGETS = ("reference", "cpu", "emulator:sm_80")


@ts.function
def scaled(x: ts.Tensor[..., "N"], a: ts.f32):
    return x * a


@ts.function
def shifted(x: ts.Tensor["N"], n: ts.int8):
    return x + n


@ts.function
def powers(x: ts.Tensor["N"], a: ts.f64 = 0.1, on: ts.bool_ = True, z: ts.f32 | None = None):
    y = ts.where(on, x * a, x)
    return y if z is None else y + z


@ts.function
def static(x: ts.Tensor["N"], n: int, p: ts.Const[float] = 2.0):
    return x**n * p


@ts.kernel
def times(v, a: ts.f32):
    return v * a


def plain(x, eps: float = 1e-6):
    return x + eps


def same(outer: Callable[..., Any], inner: Callable[[], Any], *args: Any) -> None:
    """`outer` gives the bits and the dtype that `inner`, which calls the same function directly, gives."""
    want = np.asarray(inner())
    for target in TARGETS:
        got = np.asarray(ts.compile(ts.function(outer), target=target, arguments=args)(*args))
        assert got.dtype == want.dtype, target
        np.testing.assert_array_equal(got, want, err_msg=target)


def narrow(n: int = 6) -> np.ndarray:
    return np.linspace(-2, 2, n).astype(np.float16)


@pytest.mark.parametrize("a", [3, 0.1, True, 1e-9])
def test_numbers_are_of_the_annotated_dtype(a: Any) -> None:
    x = narrow()
    same(lambda x: scaled(x, a), lambda: scaled(x, a), x)
    assert np.asarray(ts.function(lambda x: scaled(x, a))(x)).dtype == np.float32


def test_integers_defaults_bools_and_none() -> None:
    x = np.arange(-3, 4, dtype=np.int32)
    same(lambda x: shifted(x, 7), lambda: shifted(x, 7), x)
    same(lambda x: shifted(x, 7.0), lambda: shifted(x, 7.0), x)
    f = narrow()
    same(lambda x: powers(x), lambda: powers(f), f)
    same(lambda x: powers(x, on=False), lambda: powers(f, on=False), f)
    same(lambda x: powers(x, z=0.25), lambda: powers(f, z=0.25), f)
    same(lambda x: static(x, 3), lambda: static(f, 3), f)


def test_sizes_and_computed_scalars_are_converted() -> None:
    x = narrow()
    same(lambda x: scaled(x, x.shape[0]), lambda: scaled(x, 6), x)
    top = float(x.max())
    same(lambda x: scaled(x, x.max()), lambda: scaled(x, top), x)


def test_a_scalar_given_on_is_the_callers() -> None:
    x = narrow()

    @ts.function
    def outer(x: ts.Tensor["N"], a: ts.f16):
        return scaled(x, a)

    assert np.asarray(outer(x, 0.1)).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(outer(x, 0.1)), x.astype(np.float32) * np.float32(np.float16(0.1)))


def test_kernels_called_by_kernels() -> None:
    @ts.kernel
    def outer(x: ts.Tensor["N", ts.f16], y: ts.Tensor["N", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = times(x[i], 0.1) + times(x[i], x[i])

    x, y = narrow(), np.zeros(6, np.float32)
    for target in TARGETS:
        ts.compile(outer, target=target, arguments=(x, y))(x, y)
        wide = x.astype(np.float32)
        np.testing.assert_allclose(y, wide * np.float32(0.1) + wide * wide, rtol=1e-6, err_msg=target)


def test_annotations_of_plain_functions_are_pythons() -> None:
    assert np.asarray(ts.function(lambda x: plain(x))(narrow())).dtype == np.float16


@pytest.mark.parametrize(
    "outer, code, words",
    [
        (lambda x: shifted(x, 300), "TS304", "n of shifted is a number of int8, which cannot hold 300"),
        (lambda x: shifted(x, 1.5), "TS304", "cannot hold 1.5"),
        (lambda x: scaled(x, 10**400), "TS304", "cannot hold 1000"),
        (lambda x: scaled(x, 1j), "TS304", "cannot hold 1j"),
        (lambda x: shifted(x, x.max()), "TS304", "one of f32 is given"),
        (lambda x: shifted(x, x.argmax()), "TS304", r"may not fit; write .to\(int8\)"),
        (lambda x: scaled(x, x), "TS105", r"a number of f32, a tensor \[4\] f32 is given"),
        (lambda x: scaled(x, None), "TS105", "a number of f32, None is given"),
    ],
)
def test_what_is_no_such_number_is_refused(outer: Callable[..., Any], code: str, words: str) -> None:
    with pytest.raises(CompileError, match=words) as caught:
        ts.function(outer)(np.ones(4, np.float32))
    (d,) = caught.value.diagnostics
    assert d.code == code and any(n.message == "declared here" for n in d.notes)


@pytest.mark.parametrize("n", [300, 1.5])
def test_a_launch_refuses_the_same(n: Any) -> None:
    with pytest.raises(LaunchError) as caught:
        shifted(np.ones(4, np.float32), n)
    assert isinstance(caught.value, TesseraError) and caught.value.diagnostics[0].code == "TS304"
