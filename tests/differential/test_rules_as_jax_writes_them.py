"""`custom_vjp`, `custom_jvp`, `defvjp`, `defjvp`: the same programs as in JAX, with the same derivatives."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64
from tessera.compiler.frontend.incremental import analyse_file

A, B = np.array([0.5, 1.0]), np.array([2.0, 3.0])
JAX = SimpleNamespace(
    custom_vjp=jax.custom_vjp, custom_jvp=jax.custom_jvp, sin=jnp.sin, cos=jnp.cos, sum=jnp.sum, grad=jax.grad,
    jvp=jax.jvp, hessian=lambda f: jax.jacrev(jax.grad(f)),
)  # fmt: skip


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def scaled_sine(lib: Any) -> Any:
    """Ten times the derivative by y, to be told from the true one."""

    @lib.custom_vjp
    def f(x, y):
        return lib.sin(x) * y

    def forward(x, y):
        return f(x, y), (lib.cos(x), lib.sin(x), y)

    def backward(residuals, g):
        cos_x, sin_x, y = residuals
        return cos_x * g * y, 10 * sin_x * g

    f.defvjp(forward, backward)
    return f


def power(lib: Any) -> Any:
    @functools.partial(lib.custom_jvp, nondiff_argnums=(1,))
    def power(x, n):
        return x**n

    @power.defjvp
    def rule(n, primals, tangents):
        (x,), (t,) = primals, tangents
        return power(x, n), 7 * n * power(x, n - 1) * t if n > 1 else 7 * t

    return power


def applied(lib: Any) -> Any:
    @functools.partial(lib.custom_vjp, nondiff_argnums=(0, 2))
    def applied(f, x, n):
        return f(x) * n

    def forward(f, x, n):
        return applied(f, x, n), x

    def backward(f, n, x, g):
        return (5 * n * x * g,)

    applied.defvjp(forward, backward)
    return applied


@pytest.mark.parametrize("order", ["grad", "jvp", "hessian"])
def test_forward_and_backward(order):
    def derivative(lib: Any) -> Any:
        f = scaled_sine(lib)

        def total(x, y):
            return lib.sum(f(x, y) * f(y, x))

        if order == "jvp":
            if lib is JAX:  # which has no forward mode of such functions: the transpose of its reverse mode
                by = jax.grad(total, argnums=(0, 1))(A, B)
                return sum(np.sum(np.asarray(d) * v) for d, v in zip(by, (B, A), strict=True))
            return lib.jvp(total, (A, B), (B, A))[1]
        return lib.hessian(total)(A, B) if order == "hessian" else lib.grad(total, argnums=(0, 1))(A, B)

    np.testing.assert_allclose(derivative(ts), derivative(JAX), rtol=1e-12)


def test_a_rule_of_tangents_with_an_argument_that_is_a_number():
    def derivatives(lib: Any) -> Any:
        f = power(lib)
        return lib.grad(lambda x: lib.sum(f(x, 3)))(A), lib.jvp(lambda x: f(x, 2), (A,), (B,))[1]

    np.testing.assert_allclose(derivatives(ts), derivatives(JAX), rtol=1e-12)


def test_arguments_without_derivatives_come_first_and_have_no_cotangent():
    def derivative(lib: Any) -> Any:
        f = applied(lib)
        return lib.grad(lambda x: lib.sum(f(lambda v: v * v, x, 3)))(A)

    np.testing.assert_allclose(derivative(ts), derivative(JAX), rtol=1e-12)


def test_no_loop_runs_for_the_gradient_of_a_fixed_point():
    @ts.custom_vjp
    def root(a):
        x = ts.ones_like(a)
        for _ in ts.range(50):
            x = 0.5 * (x + a / x)
        return x

    def forward(a):
        x = root(a)
        return x, x

    root.defvjp(forward, lambda x, g: (g / (2 * x),))

    @ts.function
    def total(a: Tensor["N", f64]):
        return ts.sum(root(a))

    gradient = ts.grad(total)
    np.testing.assert_allclose(gradient(A), 0.5 / np.sqrt(A), rtol=1e-14)
    assert gradient.ir("graph").count("while") == 1
    np.testing.assert_allclose(ts.hessian(total)(A), np.diag(-0.25 * A**-1.5), rtol=1e-12, atol=1e-16)


def test_a_rule_may_call_its_own_function():
    @ts.function
    def grown(x):
        return ts.exp(x)

    @grown.vjp
    def back(result, cotangent, x):
        return cotangent * grown(x)

    def total(x):
        return ts.sum(grown(x))

    np.testing.assert_allclose(ts.grad(total)(A), np.exp(A), rtol=1e-14)
    np.testing.assert_allclose(ts.hessian(total)(A), np.diag(np.exp(A)), rtol=1e-14)


def test_tensors_that_record():
    x, y = (ts.tensor(v).requires_grad_() for v in (A, B))
    ts.sum(scaled_sine(ts)(x, y)).backward()
    np.testing.assert_allclose(y.grad, 10 * np.sin(A), rtol=1e-14)


TEXT = """
import tessera as ts
from tessera import Tensor, f64

@ts.custom_vjp
def f(x, y):
    return ts.sin(x) * y

def forward(x, y):
    return f(x, y), (x, y)

def backward(residuals, g):
    x, y = residuals
    return {returned}

f.defvjp(forward, backward)

@ts.function
def main(x: Tensor["N", f64], y: Tensor["N", f64]):
    return ts.grad(lambda x: ts.sum(f(x, y)))(x)
"""


OF_TANGENTS = """
import tessera as ts
from tessera import Tensor, f64

@ts.custom_jvp
def f(x, y):
    return ts.sin(x) * y

@f.defjvp
def moved(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return f(x, y), {returned}

@ts.function
def main(x: Tensor["N", f64], y: Tensor["N", f64]):
    return ts.jvp(f, (x, y), (x, y))
"""


@pytest.mark.parametrize(("returned", "codes"), [("dx * y", []), ("dx @ y", ["TS357"])])
def test_a_file_is_checked_with_the_rule_of_tangents(returned, codes):
    analyses = analyse_file("ruled.py", OF_TANGENTS.format(returned=returned))
    assert [d.code for a in analyses for d in a.diagnostics] == codes


@pytest.mark.parametrize(
    ("returned", "codes"),
    [("ts.cos(x) * y * g, None", []), ("ts.cos(x) * y * g", ["TS357"]), ("x @ x, None", ["TS357"])],
)
def test_a_file_is_checked_with_the_rule(returned, codes):
    analyses = analyse_file("ruled.py", TEXT.format(returned=returned))
    assert [d.code for a in analyses for d in a.diagnostics] == codes


def test_what_is_no_function_is_refused():
    f = scaled_sine(ts)
    with pytest.raises(ts.CompileError, match="TS105"):
        f.defvjp(3, 4)
    with pytest.raises(ts.CompileError, match="TS105"):
        f.defjvp(np.sin)
