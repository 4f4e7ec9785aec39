"""Where derivatives go wrong elsewhere: at 0 and infinity, of nothing, of complex numbers, of what is not a float."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32

X = np.linspace(0.1, 1, 3)
SINGULAR = {
    "norm at 0": (lambda x: ts.norm(x), np.zeros(3), np.zeros(3)),
    "logsumexp of -inf": (lambda x: ts.logsumexp(x, axis=0), np.full(3, -np.inf), np.zeros(3)),
    "a power by its base": (lambda x: ts.sum(ts.pow(x, 2.0)), np.array([-2.0]), [-4.0]),
    "x log x at 0": (lambda x: ts.sum(ts.where(x == 0, 0, x * ts.log(x))), np.zeros(2), [0, 0]),
    "an infinity": (lambda x: ts.sum(ts.where(ts.isinf(x), 0.0, x * x)), np.array([np.inf, 2.0]), [0, 4.0]),
    "no row taken": (lambda x: ts.sum(ts.where(x < 0, ts.softmax(ts.where(x < 0, x, -np.inf)), 0)), X, np.zeros(3)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_at_singular_points(name):
    f, x, expected = SINGULAR[name]
    np.testing.assert_array_equal(ts.grad(f)(x), expected)


NOTHING = {
    "a sum": lambda x: ts.sum(x * 2),
    "a mean": lambda x: ts.mean(x),
    "rows": lambda x: ts.sum(ts.max(x, axis=1)),
    "a product": lambda x: ts.sum(x @ x.T),
    "a loop": lambda x: ts.sum(doubled_in_a_loop(x)),
}


def doubled_in_a_loop(x):
    for _ in ts.range(3):
        x = x * 2
    return x


@pytest.mark.parametrize("name", NOTHING)
def test_of_nothing(name):
    assert ts.grad(NOTHING[name])(np.zeros((0, 3))).shape == (0, 3)


def test_of_one_element():
    np.testing.assert_array_equal(ts.grad(lambda x: ts.var(x))(np.ones(1)), [0])


def test_an_index_that_repeats_and_one_that_is_outside():
    indices = np.array([0, 0, -1, 7, 0])
    found = ts.grad(lambda x: ts.sum(ts.take(x, indices, axis=0)))(X)
    np.testing.assert_array_equal(found, [3, 0, 1])


COMPLEX = {
    "square of the absolute value": lambda m, z: m.sum(m.square(m.abs(z))),
    "holomorphic": lambda m, z: m.sum(m.real(z * z * z * (1 + 2j))),
    "parts": lambda m, z: m.sum(m.real(z) * m.imag(z)),
    "exponential": lambda m, z: m.sum(m.abs(m.exp(z * (0.5 - 1j)))),
    "quotient": lambda m, z: m.sum(m.imag(z / (z * z + 1))),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_point_as_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    z = np.array([0.3 + 1j, -1.2 + 0.4j, 0.7 - 0.9j])
    tz = torch.tensor(z, requires_grad=True)
    COMPLEX[name](torch, tz).backward()
    np.testing.assert_allclose(ts.grad(lambda z: COMPLEX[name](ts, z))(z), tz.grad, rtol=1e-12)
    move = np.array([1j, 2.0, -1 + 1j])
    _, tangent = ts.jvp(lambda z: COMPLEX[name](ts, z), (z,), (move,))
    np.testing.assert_allclose(tangent, np.sum(np.real(np.conj(tz.grad.numpy()) * move)), rtol=1e-11)


def test_a_cotangent_of_a_complex_result_as_pytorch_takes_it():
    torch = pytest.importorskip("torch")
    z, ct = np.array([0.3 + 1j, -1.2 + 0.4j]), np.array([1 - 2j, 0.5j])
    tz = torch.tensor(z, requires_grad=True)
    (tz * tz * (2 - 1j)).backward(torch.tensor(ct))
    _, pullback = ts.vjp(lambda z: z * z * (2 - 1j), z)
    np.testing.assert_allclose(pullback(ct)[0], tz.grad, rtol=1e-12)


def test_real_numbers_through_complex_ones():
    found = ts.grad(lambda x: ts.sum(ts.real(ts.exp(x.to(ts.complex128) * 1j))))(X)
    np.testing.assert_allclose(found, -np.sin(X), rtol=1e-12)


@dataclass
class Layer:
    w: object
    b: object


def test_a_dataclass_has_a_gradient_of_its_kind():
    found = ts.grad(lambda p: ts.sum(p.w * p.b))(Layer(X, 2 * X))
    assert isinstance(found, Layer)
    np.testing.assert_array_equal(found.w, 2 * X)


@pytest.mark.parametrize("other", [np.array([1, 2]), 3, "name", np.array([True])])
def test_what_is_no_float_is_refused_by_name(other):
    with pytest.raises(ts.CompileError, match=r"(?s)TS351.*p\['n'\]"):
        ts.grad(lambda p: ts.sum(p["w"]))({"w": X, "n": other})


@pytest.mark.parametrize("number", [3, True, 2.5, 1 - 2j, "a size"])
def test_a_number_among_the_results_does_not_change(number):
    """Its tangent is 0, and no Jacobian of an integer is made up."""

    def f(x):
        return x * x, x.shape[0] if number == "a size" else number

    (_, value), (_, tangent) = ts.jvp(f, (X,), (X,))
    assert value == (3 if number == "a size" else number) and tangent == 0 and tangent.dtype == value.dtype
    assert ts.linearize(f, X)[1](X)[1] == 0
    if isinstance(number, float):
        assert ts.jacobian(f)(X)[1].tolist() == [0.0] * 3
    else:
        with pytest.raises(ts.CompileError, match="only floats have derivatives"):
            ts.jacobian(f)(X)


def test_narrow_floats_keep_their_dtype_on_the_way():
    @ts.function
    def f(x: Tensor["N", f32]):
        return ts.sum((x.to(ts.bf16) * x.to(ts.bf16)).to(f32))

    x = np.array([1.0, 1.00390625, 3.0], np.float32)
    found = ts.grad(f)(x)
    assert found.dtype == np.float32
    rounded = np.array([1.0, 1.0, 3.0], np.float32)  # what bf16 holds of it
    np.testing.assert_array_equal(found, 2 * rounded)


def test_arrays_of_other_libraries_and_targets():
    torch = pytest.importorskip("torch")
    assert isinstance(ts.grad(lambda x: ts.sum(x * x))(torch.tensor(X)), torch.Tensor)
    compiled = ts.compile(ts.grad(typed), target="reference", dims={"N": 3})
    np.testing.assert_array_equal(compiled(X.astype(np.float32)), 2 * X.astype(np.float32))


@ts.function
def typed(x: Tensor["N", f32]):
    return ts.sum(x * x)


def test_the_emulated_gpu_gives_the_gradient():
    from tessera import knobs

    @ts.function
    def f(x: Tensor["N", f32], w: Tensor["N", f32]):
        return ts.sum(ts.where(x > 0.2, ts.sin(x) * w, x / w))

    x = X.astype(np.float32)
    expected = ts.grad(f)(x, x)
    with knobs.target.override("emulator:sm_80"):
        np.testing.assert_allclose(ts.grad(f)(x, x), expected, rtol=1e-5)
