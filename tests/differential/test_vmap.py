"""`ts.vmap`, held against jax.vmap and against a loop over the elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64
from tessera.compiler.autodiff.batching import batch
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.autodiff.rules import active, smooth
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Block, Builder, Op
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.language import dtypes
from tests.conftest import require
from tests.differential.operator_examples import (
    EXAMPLES,
    HERE,
    Example,
    applied,
    close,
    function,
    symbols,
    unique,
    values,
)

jax = require("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 5))

SIZES = {"B": 3, "S": 4, "D": 2, "E": 4, "K": 5, "H": 2}
COUNT = 3


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_operators(example: Example) -> None:
    """Every operator, with each operand in turn the same for all elements, and with all of them differing."""
    sizes = {s: max(SIZES[s], example.least) * example.multiple.get(s, 1) for s in symbols(example)}
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    chosen = [x.dtypes()[0] for x in flat]
    for differing in [[True] * len(flat), *([j != i for j in range(len(flat))] for i in range(len(flat)))]:
        if not any(differing):
            continue
        rng = np.random.default_rng(0)
        many = [[values(rng, x, d, sizes) for _ in range(COUNT)] for x, d in zip(flat, chosen, strict=True)]
        one = applied(example, chosen, sizes)
        wanted = [
            evaluate(one, [*(m[e if d else 0] for m, d in zip(many, differing, strict=True)), _sizes(sizes)])
            for e in range(COUNT)
        ]
        arrays = [np.stack(m) if d else m[0] for m, d in zip(many, differing, strict=True)]
        found = evaluate(_mapped(one, differing), [*arrays, _sizes(sizes)])
        for i, result in enumerate(found):
            close(result, np.stack([w[i] for w in wanted]), tensor(one.region.block.terminator.operands[i]).dtype, 8)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_no_operator_loses_its_derivative(example: Example) -> None:
    """What depends on the arguments depends on them for many elements, too: `vmap` may decompose an operator into
    others, of which some have no derivative."""
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    sizes = {s: max(SIZES[s], example.least) * example.multiple.get(s, 1) for s in symbols(example)}
    one = applied(example, [x.dtypes()[0] for x in flat], sizes)
    before = _reached(one)
    assert _reached(_mapped(one, [True] * len(flat))) == before


def _reached(func: Op) -> list[bool]:
    """Which results have a derivative by the arguments."""
    block = func.region.block
    live = active(block.ops[:-1], filter(smooth, block.args))
    return [v in live for v in block.terminator.operands]


@pytest.mark.parametrize("example", filter(unique, EXAMPLES), ids=str)
def test_derivatives_are_those_of_each_element(example: Example) -> None:
    """In numbers: `vmap` may decompose an operator into others whose derivatives are not its own."""
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    sizes = {s: max(SIZES[s], example.least) * example.multiple.get(s, 1) for s in symbols(example)}
    chosen = [dtypes.f64 if dtypes.f64 in x.dtypes() else x.dtypes()[0] for x in flat]
    if not any(_reached(applied(example, chosen, sizes))):
        return
    rng = np.random.default_rng(0)
    many = [[values(rng, x, d, sizes) for _ in range(COUNT)] for x, d in zip(flat, chosen, strict=True)]
    one, types = _pulled(applied(example, chosen, sizes))
    cts = [[_normal(rng, t) for _ in range(COUNT)] for t in types]
    wanted = [evaluate(one, [*(m[e] for m in many), _sizes(sizes), *(c[e] for c in cts)]) for e in range(COUNT)]
    all_, _ = _pulled(_mapped(applied(example, chosen, sizes), [True] * len(flat)))
    found = evaluate(all_, [*map(np.stack, many), _sizes(sizes), *map(np.stack, cts)])
    for i, v in enumerate(one.region.block.terminator.operands):
        close(found[i], np.stack([w[i] for w in wanted]), tensor(v).dtype, 8)


def _pulled(func: Op) -> tuple[Op, list[TensorType]]:
    """The cotangents of its arguments, given those of its results as further arguments; the types of those."""
    block = func.region.block
    results = [v for v in block.terminator.operands if smooth(v)]
    block.terminator.erase()
    wanted = [v for v in block.args if smooth(v)]
    cts = [block.add_arg(tensor(v), f"ct{i}") for i, v in enumerate(results)]
    func.attrs["arg_names"] = tuple(a.hint for a in block.args)  # type: ignore[index]
    g = GraphBuilder(Builder(block, span=HERE))
    found = pull_back(g, list(block.ops), wanted, list(zip(results, cts, strict=True)))
    g.builder.op("graph.return", [g.zeros_like(v) if c is None else c for v, c in zip(wanted, found, strict=True)])
    verify(func)
    return func, [tensor(c) for c in cts]


def _normal(rng: np.random.Generator, t: TensorType) -> np.ndarray:
    x = rng.standard_normal(t.shape)
    return (x + 1j * rng.standard_normal(t.shape) if t.dtype.is_complex else x).astype(t.dtype.numpy)


def _sizes(sizes):
    return np.zeros(tuple(sizes.values()), bool)


def _mapped(one: Op, differing: list[bool]) -> Op:
    """The function of one element, done for several."""
    inner = one.region.block
    args = inner.args
    which = [*differing, *(False for _ in args[len(differing) :])]
    types = [
        tensor(a).with_shape((COUNT, *tensor(a).shape)) if d else tensor(a) for a, d in zip(args, which, strict=True)
    ]

    def body(g: GraphBuilder, *given):
        block = Block()
        for op in list(inner.ops[:-1]):
            block.append(op)
        for a, v, d in zip(args, given, which, strict=True):
            if not d:
                a.replace_by(v)
        of = {a: v for a, v, d in zip(args, given, which, strict=True) if d}
        found, differ, _ = batch(g, COUNT, block, of, inner.terminator.operands)
        return [v if d else g.broadcast_to(v, (COUNT, *tensor(v).shape)) for v, d in zip(found, differ, strict=True)]

    made = function(types, body)
    verify(made)
    return made


# as people write it


def test_axes_and_structures():
    def f(p, x, scale=2.0):
        return {"y": x @ p["w"] * scale, "n": (p["b"], ts.sum(x))}

    p, x = {"w": W, "b": RNG.standard_normal(2)}, np.stack([X, -X], 2)  # [4, 3, 2]
    mapped = ts.vmap(f, in_axes=(None, 2), out_axes=-1)
    inside = ts.function(lambda p, x: ts.vmap(f, in_axes=(None, 2), out_axes=-1)(p, x))
    for found in (mapped(p, x), inside(p, x)):
        np.testing.assert_allclose(found["y"], np.stack([2 * X @ W, -2 * X @ W], -1))
        np.testing.assert_array_equal(found["n"][0], np.stack([p["b"]] * 2, -1))
        np.testing.assert_allclose(found["n"][1], [X.sum(), -X.sum()])
    same, own = ts.vmap(lambda x: (ts.sum(ts.ones((3,))), x), out_axes=(None, 0))(X)
    assert float(same) == 3 and np.array_equal(own, X)


@dataclass
class Layer:
    w: Tensor["D", "K", f64]
    b: Tensor["K", f64]

    def __call__(self, x: Tensor["N", "D", f64]):
        return ts.tanh(x @ self.w + self.b)


def test_numbers_of_a_dataclass_are_the_same_for_all_elements():
    """They are configuration, as in what a function returns; numbers beside tensors have one for each element."""
    found, ones = ts.vmap(lambda x: (Scaled(x * 2, 3), 1.0))(X)
    np.testing.assert_array_equal(found.by, X * 2)
    assert found.times == 3 and ones.tolist() == [1.0] * 4


@dataclass
class Scaled:
    by: Tensor["D", f64]
    times: int


def test_ensembles():
    """A model whose arrays have one axis more is as many models."""
    ws, bs = RNG.standard_normal((6, 3, 5)), RNG.standard_normal((6, 5))
    f = ts.function(lambda models, x: ts.vmap(lambda m, x: m(x), in_axes=(0, None))(models, x))
    np.testing.assert_allclose(f(Layer(ws, bs), X), np.tanh(X @ ws + bs[:, None]), rtol=1e-12)


@ts.function
def by_name(x: Tensor["D", "B", f64], y: Tensor["...", "B", "K", f64], w: Tensor["D", "K", f64]):
    return ts.vmap(lambda x, y, w: x @ w * ts.sum(y), in_dims="B")(x, y, w)


def test_axes_by_name():
    y = RNG.standard_normal((2, 4, 5))
    np.testing.assert_allclose(by_name(X.T.copy(), y, W), X @ W * y.sum((0, 2))[:, None], rtol=1e-12)
    assert by_name(np.ones((4, 4)), np.ones((4, 4)), np.ones((4, 4))).shape == (4, 4)  # not by size


def test_nested():
    kernel = lambda x, y: ts.exp(-ts.sum(ts.square(x - y)))  # noqa: E731
    gram = ts.vmap(ts.vmap(kernel, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_allclose(gram(X, X), np.exp(-((X[:, None] - X[None]) ** 2).sum(-1)), rtol=1e-12)


def test_branches_on_what_differs():
    """Both sides are computed; where one has no derivative, it is not chosen."""

    def f(x):
        return ts.sqrt(x) * 2 if x > 0 else x * x

    x = np.array([4.0, -3.0, 0.0, 9.0])
    np.testing.assert_allclose(ts.vmap(f)(x), [4, 9, 0, 6])
    by = ts.grad(lambda x: ts.sum(ts.vmap(f)(x)))
    np.testing.assert_allclose(by(x), [0.5, -6, 0, 1 / 3])
    np.testing.assert_allclose(ts.vmap(ts.grad(f))(x), [0.5, -6, 0, 1 / 3])


def test_branches_on_what_is_the_same():
    def f(flag, x):
        if flag > 0:
            y = x * 2
        else:
            y = ts.zeros_like(x)
        return y

    mapped = ts.vmap(f, in_axes=(None, 0))
    np.testing.assert_array_equal(mapped(np.array(1), X), 2 * X)
    np.testing.assert_array_equal(mapped(np.array(-1), X), 0 * X)


def newton(a):
    x, n = a, 0
    while ts.abs(x * x - a) > 1e-12 * a:
        x, n = 0.5 * (x + a / x), n + 1
    return x, n


def test_loops_of_unequal_length():
    """Each element ends by itself: what comes after its end does not change it."""
    a = np.array([1.0, 2.0, 1e6, 1e-6])
    roots, rounds = ts.vmap(newton)(a)
    alone = [ts.function(newton)(np.array(v)) for v in a]
    np.testing.assert_array_equal(roots, [r for r, _ in alone])
    np.testing.assert_array_equal(rounds, [n for _, n in alone])
    assert rounds[0] == 0 and len(set(rounds.tolist())) > 2
    by = ts.grad(lambda a: ts.sum(ts.vmap(lambda a: newton(a)[0])(a)))(a)
    np.testing.assert_allclose(by, [1, *(0.5 / np.sqrt(a[1:]))], rtol=1e-6)  # of no round the derivative is 1


@ts.function
def powers(x: Tensor[f64], n: ts.int64):
    y = ts.ones_like(x)
    for _ in ts.range(n):
        y = y * x
    return y


def test_counted_loops():
    x, n = np.array([2.0, 3.0, 5.0]), np.array([0, 3, 1])
    np.testing.assert_array_equal(ts.vmap(powers)(x, n), x**n)
    np.testing.assert_array_equal(ts.vmap(powers, in_axes=(0, None))(x, np.array(2)), x**2)
    np.testing.assert_allclose(ts.grad(lambda x: ts.sum(ts.vmap(powers)(x, n)))(x), n * x ** np.maximum(n - 1, 0))


def test_scans():
    def f(x, w):
        return ts.scan(lambda h, v: (ts.tanh(h * w + v), h), 0.0, x)

    def peer(x, w):
        return jax.lax.scan(lambda h, v: (jnp.tanh(h * w + v), h), 0.0, x)

    w = RNG.standard_normal(4)
    for a, b in zip(ts.vmap(f)(X, w), jax.vmap(peer)(X, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    by = ts.vmap(ts.grad(lambda w, x: ts.sum(f(x, w)[1])))(w, X)
    np.testing.assert_allclose(by, jax.vmap(jax.grad(lambda w, x: peer(x, w)[1].sum()))(w, X), rtol=1e-9)


def test_randomness():
    """One key draws the same for all; each of several draws what it draws alone."""
    f = lambda key: ts.uniform(key, (5,))  # noqa: E731
    keys = np.array([3, 7, 3])
    drawn = ts.vmap(f)(keys)
    np.testing.assert_array_equal(drawn, np.stack([ts.function(f)(k) for k in keys]))
    both = ts.vmap(lambda x, key: x + ts.uniform(key, (3,)), in_axes=(0, None))(np.zeros((2, 3), np.float32), 3)
    np.testing.assert_array_equal(both[0], both[1])


def test_rounding_at_random_passes_derivatives_on():
    """With a key for each element, too; and what is excluded has gradient 0."""
    x, keys = RNG.uniform(-3, 3, (4, 3)).astype(np.float32), np.arange(4)
    for dtype in (ts.bf16, ts.fp8_e4m3):
        rounded = lambda x, key: ts.stochastic_cast(x, dtype, key).to(ts.f32)  # noqa: B023, E731
        by = ts.grad(lambda x: ts.sum(ts.vmap(rounded)(x, keys) * x))  # noqa: B023
        drawn = np.stack([ts.function(rounded)(v, k) for v, k in zip(x, keys, strict=True)])
        wanted = x.astype(dtype.numpy).astype(np.float32) + drawn  # a cotangent is rounded to the dtype
        np.testing.assert_array_equal(by(x), wanted)
        roots = lambda x, key: ts.where(x > 0, rounded(ts.sqrt(x), key), 0)  # noqa: B023, E731
        by = ts.grad(lambda x: ts.sum(ts.vmap(roots)(x, keys)))  # noqa: B023
        assert np.isfinite(by(np.zeros((4, 3), np.float32))).all()


def test_derivatives_within_and_around():
    def loss(w, x):
        return ts.sum(ts.square(ts.tanh(x @ w)))

    def peer(w, x):
        return jnp.sum(jnp.square(jnp.tanh(x @ w)))

    per_sample = ts.vmap(ts.grad(loss), in_axes=(None, 0))
    want = jax.vmap(jax.grad(peer), in_axes=(None, 0))
    np.testing.assert_allclose(per_sample(W, X), want(W, X), rtol=1e-10)
    around = ts.grad(lambda w: ts.sum(ts.square(ts.vmap(ts.grad(loss), in_axes=(None, 0))(w, X))))
    np.testing.assert_allclose(around(W), jax.grad(lambda w: jnp.square(want(w, X)).sum())(W), rtol=1e-8)
    hessians = ts.vmap(ts.hessian(loss), in_axes=(None, 0))(W, X)
    np.testing.assert_allclose(hessians, jax.vmap(jax.hessian(peer), in_axes=(None, 0))(W, X), rtol=1e-8, atol=1e-10)


@ts.function
def doubled(x: Tensor["N", f64]):
    return x * 2


@doubled.vjp
def tripled(result, cotangent, x):
    return 3 * cotangent


def test_rules_of_ones_own():
    f = lambda x: ts.sum(doubled(x))  # noqa: E731
    np.testing.assert_array_equal(ts.vmap(ts.grad(f))(X), 3 + 0 * X)
    np.testing.assert_array_equal(ts.grad(lambda x: ts.sum(ts.vmap(f)(x)))(X), 3 + 0 * X)


@ts.kernel
def shifted(x: Tensor["N", f64], y: Tensor["N", f64]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] + 1


def test_kernels_are_called_for_one_element_after_the_other():
    def f(x):
        y = ts.zeros_like(x)
        shifted(x, y)
        return y

    mapped = ts.vmap(f)
    np.testing.assert_array_equal(mapped(X), X + 1)


def test_what_is_the_same_is_computed_once():
    f = ts.vmap(lambda x, w: x @ ts.tanh(w @ w.T), in_axes=(0, None))
    graph = ts.compile(f, arguments=[X, W[:, :3].copy()]).lowered.graph
    assert [tensor(op.result).shape for op in graph.walk() if op.name == "graph.tanh"] == [(3, 3)]


def test_jacobians_take_one_pass():
    f = lambda x: ts.tanh(x @ ts.ones((3, 5), ts.f64))  # noqa: E731
    graph = ts.compile(ts.jacfwd(f), arguments=[X[0]]).lowered.graph
    assert not any(op.regions and op.name != "graph.func" for op in graph.walk())


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda x: ts.vmap(lambda a, b: a)(x, x[1:]), "TS213"),
        (lambda x: ts.vmap(lambda a: a, in_axes=3)(x), "TS204"),
        (lambda x: ts.vmap(lambda a: a, in_axes=(0, 0))(x), "TS105"),
        (lambda x: ts.vmap(lambda a: a, in_axes=0.5)(x), "TS105"),
        (lambda x: ts.vmap(lambda a: a, in_axes=None)(x), "TS105"),
        (lambda x: ts.vmap(lambda a: a, out_axes=2)(x), "TS204"),
        (lambda x: ts.vmap(lambda a: a, out_axes=None)(x), "TS105"),
        (lambda x: ts.vmap(lambda a: a, out_axes=(0, 0))(x), "TS105"),
        (lambda x: ts.vmap(lambda a: a, in_dims="B")(x * 2), "TS105"),
        (lambda x: ts.vmap(lambda a: a, in_dims=0)(x), "TS105"),
        (lambda x: ts.vmap(lambda a: a @ a.T)(x[0]), "TS213"),
        (lambda x: ts.vmap(3)(x), "TS105"),
    ],
)
def test_what_does_not_fit_is_said(wrong, code):
    with pytest.raises(ts.CompileError) as caught:
        ts.function(wrong)(X)
    assert caught.value.code == code


def test_findings_are_about_one_element():
    with pytest.raises(ts.CompileError, match=r"\[3\]"):
        ts.vmap(lambda x: x + ts.ones((2,), ts.f64))(X)
