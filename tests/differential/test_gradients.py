"""`ts.grad` and its relatives on programs, against PyTorch, JAX and what is known by heart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@ts.function
def mlp_loss(w: Tensor["D", "K"], b: Tensor["K"], x: Tensor["B", "D"], y: Tensor["B", "K"]):
    z = ts.gelu(x @ w + b)
    return ((z - y) ** 2).mean()


def test_an_mlp_as_pytorch():
    torch = pytest.importorskip("torch")
    w, b, x, y = normal(3, 4), normal(4), normal(5, 3), normal(5, 4)
    value, (gw, gb) = ts.value_and_grad(mlp_loss, argnums=(0, "b"))(w, b, x, y)
    tw, tb = (torch.tensor(v, requires_grad=True) for v in (w, b))
    loss = ((torch.nn.functional.gelu(torch.tensor(x) @ tw + tb) - torch.tensor(y)) ** 2).mean()
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-6)
    np.testing.assert_allclose(gw, tw.grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gb, tb.grad, rtol=1e-5, atol=1e-6)


def test_keywords_and_names():
    x = normal(4)
    f = ts.grad(lambda a, *, scale: ts.sum(a * a * scale), argnums="scale")
    np.testing.assert_allclose(f(x, scale=np.float32(2)), np.sum(x * x), rtol=1e-6)


def test_the_gradient_has_the_structure_of_the_argument():
    params = {"w": normal(3, 2), "layers": [normal(2), (normal(2),)]}

    def loss(p, x):
        return ts.sum((x @ p["w"] + p["layers"][0]) * p["layers"][1][0])

    x = normal(5, 3)
    found = ts.grad(loss)(params, x)
    assert set(found) == {"w", "layers"} and isinstance(found["layers"], tuple)
    c = params["layers"][1][0]
    np.testing.assert_allclose(found["w"], np.outer(x.sum(0), c), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["layers"][0], 5 * c, rtol=1e-6)


def test_has_aux_passes_something_on():
    x = normal(4)
    gradient, aux = ts.grad(lambda x: (ts.sum(x * x), {"norm": ts.sum(x)}), has_aux=True)(x)
    np.testing.assert_allclose(gradient, 2 * x, rtol=1e-6)
    np.testing.assert_allclose(aux["norm"], x.sum(), rtol=1e-6)
    (_, aux), gradient = ts.value_and_grad(lambda x: (ts.sum(x * x), x), has_aux=True)(x)
    np.testing.assert_array_equal(aux, x)


def test_a_step_is_one_function():
    @ts.function
    def step(w: Tensor["D", "K"], b: Tensor["K"], x: Tensor["B", "D"], y: Tensor["B", "K"]):
        loss, (gw, gb) = ts.value_and_grad(mlp_loss, argnums=(0, 1))(w, b, x, y)
        return loss, w - 0.1 * gw, b - 0.1 * gb

    w, b, x, y = normal(3, 4), normal(4), normal(5, 3), normal(5, 4)
    _, new, _ = step(w, b, x, y)
    np.testing.assert_array_equal(new, w - np.float32(0.1) * ts.grad(mlp_loss)(w, b, x, y))


cube = ts.grad(lambda x: x * x * x)


def test_gradients_of_gradients():
    x = np.float64(2.0)
    found = [cube]
    for _ in range(3):
        found.append(ts.grad(found[-1]))
    assert [float(f(np.array(x))) for f in found] == [12.0, 12.0, 6.0, 0.0]

    @ts.function
    def inside(x: Tensor[ts.f64]):
        return ts.grad(lambda y: y * cube(y))(x)

    assert float(inside(np.array(x))) == 9 * 4.0


def test_perturbations_are_not_confused():
    """d/dx (x * d/dy (x + y)) is 1: the inner derivative is by y alone, though both have the same value."""
    f = ts.grad(lambda x: x * ts.grad(lambda y: x + y)(x))
    assert float(f(np.array(3.0))) == 1.0


def test_an_argument_used_twice_and_tied_values():
    x = normal(3)
    double = ts.grad(lambda a, b: ts.sum(a * b), argnums=[0, 1])  # as in JAX, a list too
    a, b = double(x, x)
    np.testing.assert_array_equal(a, x)
    np.testing.assert_array_equal(b, x)
    ts.check_grad(lambda a, b: ts.sum(a * b), x, x, argnums=[0, 1])
    tied = ts.grad(lambda p: ts.sum(p["a"] * p["a"]))
    np.testing.assert_array_equal(tied({"a": x})["a"], 2 * x)


FACTOR = normal(3)


def test_what_is_closed_over_is_constant():
    x, y = normal(3), normal(3)
    found = ts.grad(lambda x: ts.sum(x * y * FACTOR))(x)
    np.testing.assert_allclose(found, y * FACTOR, rtol=1e-6)


def test_stop_gradient_cuts():
    x = normal(3)
    np.testing.assert_array_equal(ts.grad(lambda x: ts.sum(x * ts.stop_gradient(x)))(x), x)
    np.testing.assert_array_equal(ts.grad(lambda x: ts.sum(x * x.detach()))(x), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cotangents_have_the_dtype_of_their_values(dtype):
    x = normal(4, dtype=dtype)
    found = ts.grad(lambda x: ts.sum(x.to(ts.f64) * 3).to(f32))(x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, 3)


STRONG = {
    "sqrt": (lambda x: ts.sum(ts.where(x > 0, ts.sqrt(x), 0)), [0.0, 4.0], [0.0, 0.25]),
    "chained": (lambda x: ts.sum(ts.where(x > 0, ts.log(x) * x / x, 0.0)), [0.0, 2.0], [0.0, 0.5]),
    "stretched": (lambda s: ts.sum(ts.where(ZERO_ONE > 0, s * ts.log(ZERO_ONE), 0)), [3.0], [np.log(2)]),
    "nested": (lambda x: ts.sum(ts.where(x > 0, ts.where(x < 9, 1 / ts.sqrt(x * (9 - x)), 0), 0)), [0.0, 9.0], [0, 0]),
    "reduced": (lambda x: ts.where(ts.sum(x) > 0, ts.log(ts.sum(x)), 0.0), [0.0, 0.0], [0, 0]),
    "relu": (lambda x: ts.sum(ts.relu(ts.sqrt(x) - 1)), [0.0, 4.0], [0.0, 0.25]),
    "filled": (lambda x: ts.sum(ts.masked_fill(1 / x, x == 0, 0)), [0.0, 2.0], [0, -0.25]),
}
ZERO_ONE = np.array([0.0, 2.0])


@pytest.mark.parametrize("name", STRONG)
def test_what_a_mask_excludes_has_gradient_0(name):
    f, at, expected = STRONG[name]
    np.testing.assert_allclose(ts.grad(f)(np.array(at)), expected, rtol=1e-12)


def test_a_mask_is_no_matter_of_values():
    """A cotangent that happens to be 0 still has derivatives: d/dx d/dy x sqrt(y) at x = 0."""
    f = ts.grad(lambda x, y: ts.grad(lambda y: x * ts.sqrt(y))(y), argnums=0)
    assert float(f(np.array(0.0), np.array(4.0))) == 0.25


def test_gradients_are_explained_and_carry_the_forward_line():
    w, b, x, y = normal(3, 4), normal(4), normal(5, 3), normal(5, 4)
    g = ts.grad(mlp_loss)
    g(w, b, x, y)
    text = g.ir()
    line = mlp_loss.__wrapped__.__code__.co_firstlineno + 2
    assert text.startswith("func grad_mlp_loss(") and f".py:{line}" in text.splitlines()[-3]
    assert "grad_mlp_loss" in str(g.explain())


def test_hints_show_the_gradient():
    from tessera.compiler.frontend.incremental import FileAnalysis

    text = """import tessera as ts
from tessera import Tensor

@ts.function
def loss(w: Tensor["D", "K"], x: Tensor["B", "D"]):
    return ts.sum(x @ w)

gradient = ts.grad(loss)

@ts.function
def step(w: Tensor["D", "K"], x: Tensor["B", "D"]):
    value, g = ts.value_and_grad(loss)(w, x)
    h = gradient(w, x)
    return w - g - h
"""
    file = FileAnalysis("hints.py")
    file.update(text)
    assert not file.diagnostics
    step = next(a for a in file.analyses if a.name == "step")
    shown = {e.name: e.text for e in step.expressions if e.kind == "assign"}
    assert shown["g"] == "[D, K] f32" and shown["value"] == "[] f32" and shown["h"] == "[D, K] f32"


@dataclass
class WithNumbers:
    w: Tensor["I", "O"]
    b: Tensor["O"] | None
    steps: object
    act: object = ts.relu
    scale: float = 0.5
    times: int = 3


def test_numbers_functions_and_integers_of_a_dataclass_stay():
    """They are not arguments to differentiate by; integers have no gradient, which is None."""
    held = WithNumbers(np.ones((2, 3), np.float32), None, np.array(3))
    found = ts.grad(lambda m, x: ts.sum(m.act(x @ m.w) * m.scale * m.times))(held, np.ones((4, 2), np.float32))
    assert type(found) is WithNumbers and np.array_equal(found.w, np.full((2, 3), 6))
    assert found.b is None and found.steps is None and found.act is ts.relu and (found.scale, found.times) == (0.5, 3)
    with pytest.raises(ts.CompileError, match="TS351"):
        ts.grad(lambda m, x: ts.sum(x) * m.times)(WithNumbers(None, None, None), np.ones(3))


def test_editors_show_how_gradients_are_called():
    import ast

    from tessera.compiler.frontend.module import TextScope
    from tessera.editor.signatures import of_value, resolve

    text = "import tessera as ts\ndef loss(w, x): return ts.sum(w * x)\ngradient = ts.grad(loss)\n"
    scope = TextScope("a.py", text, ast.parse(text))
    shown = of_value(resolve(scope, "ts.grad"))
    assert shown is not None and shown.text == "grad(function, argnums=0, has_aux=False)" and "argnums" in shown.doc
    shown = of_value(resolve(scope, "gradient"))
    assert shown is not None and shown.text == "grad(loss)(w, x)"


def test_a_loss_of_second_derivatives_as_pytorch():
    """The residual of the heat equation: derivatives by parameters of derivatives by time and place."""
    torch = pytest.importorskip("torch")

    def u(p, t, x):
        return ts.sum(ts.tanh(t * p["w"][0] + x * p["w"][1] + p["b"]) * p["v"])

    def residual(p, t, x):
        by_t = ts.grad(u, argnums=1)(p, t, x)
        by_xx = ts.grad(ts.grad(u, argnums=2), argnums=2)(p, t, x)
        return (by_t - 0.1 * by_xx) ** 2

    params = {"w": normal(2, 8, dtype=np.float64), "b": normal(8, dtype=np.float64), "v": normal(8, dtype=np.float64)}
    value, found = ts.value_and_grad(residual)(params, np.array(0.3), np.array(0.7))
    p = {k: torch.tensor(a, requires_grad=True) for k, a in params.items()}
    t, x = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.3, 0.7))
    out = torch.sum(torch.tanh(t * p["w"][0] + x * p["w"][1] + p["b"]) * p["v"])
    by_t, by_x = torch.autograd.grad(out, (t, x), create_graph=True)
    (by_xx,) = torch.autograd.grad(by_x, x, create_graph=True)
    loss = (by_t - 0.1 * by_xx) ** 2
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-12)
    for name in params:
        np.testing.assert_allclose(found[name], p[name].grad, rtol=1e-10, atol=1e-12)
