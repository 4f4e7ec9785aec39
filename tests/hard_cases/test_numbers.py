"""Hard cases 1 and 6 to 10 of derivatives: singular points, indices, dtypes, and nothing at all.

Each is tried in every form of derivative (`forms.check`). More of them, in `tests/differential`:
`test_gradients_hard_cases.py`, `test_derivatives_at_special_points.py` (1, 7, 8, 10), `test_segments_and_order.py` (6).
"""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, knobs, nn
from tests.conftest import require
from tests.hard_cases.forms import check, direction, peer

jax = require("jax")
jnp = jax.numpy
INF = np.inf

# (function, at, its gradient, the second derivatives along `direction`)
AT = direction(np.zeros(4))
ROOTS = np.array([0.0, 1, 4, 9])
SLOPES = np.array([0.0, 0.5, 0.25, 1 / 6])
BENT = np.array([0.0, -0.25, -0.25 / 8, -0.25 / 27])
SINGULAR = {
    "a root beside where": (lambda x: ts.sum(ts.where(x > 0, ts.sqrt(x), 0)), ROOTS, SLOPES, BENT * AT),
    "a norm at 0": (lambda x: ts.norm(x), np.zeros(3), np.zeros(3), np.zeros(3)),
    "hypot at 0": (lambda x: ts.hypot(x[0], x[1]), np.zeros(2), np.zeros(2), np.zeros(2)),
    "atan2 at 0": (lambda x: ts.atan2(x[0], x[1]), np.zeros(2), np.zeros(2), np.zeros(2)),
    "sums of exp(-inf)": (lambda x: ts.logsumexp(x, axis=0), np.full(3, -INF), np.zeros(3), np.zeros(3)),
    "an exponent of a negative base": (
        lambda y: ts.sum(ts.pow(np.array([-2.0, 0.0, 2.0]), y)), [2.0, 2.0, 3.0],
        [0, 0, 8 * np.log(2)], AT[:3] * [0, 0, 8 * np.log(2) ** 2],
    ),
    "xlogy at 0": (lambda x: ts.sum(ts.xlogy(np.array([0.0, 2.0]), x)), [0.0, 2.0], [0, 1], AT[:2] * [0, -0.5]),
    "masks in masks": (
        lambda x: ts.sum(ts.where(x > 1, ts.where(x > 2, ts.log(x - 2), ts.sqrt(x - 1)), ts.where(x > 0, 1 / x, 0))),
        [0.0, 1, 2, 3], [0, -1, 0.5, 1], AT * [0, 2, -0.25, -1],
    ),
    "acos at 1": (lambda x: ts.sum(ts.where(ts.abs(x) < 1, ts.acos(x), 0)), [0.0, 1, -1], [-1, 0, 0], np.zeros(3)),
    "rows of indices": (lambda x: ts.sum(ts.where(x > 0, ts.sqrt(x)[np.arange(4)], 0)), ROOTS, SLOPES, BENT * AT),
    "sorted": (lambda x: ts.sum(ts.where(ts.sort(x) > 0, ts.sort(ts.sqrt(x)), 0)), ROOTS, SLOPES, BENT * AT),
    "running sums": (
        lambda x: ts.sum(ts.where(np.arange(4) < 3, ts.cumsum(ts.sqrt(x), axis=0), 0)), ROOTS[::-1],
        [0.5, 0.5, 0.5, 0], None,
    ),
    "clip": (lambda x: ts.sum(ts.clip(1 / x, -5, 5)), [0.0, 1, 2], [0, -1, -0.25], AT[:3] * [0, 2, 0.25]),
    "the largest": (lambda x: ts.max(ts.sqrt(x)), ROOTS, [0, 0, 0, 1 / 6], AT * [0, 0, 0, BENT[3]]),
    "a triangle": (lambda x: ts.sum(ts.tril(ts.log(x))), [[1.0, 0], [2, 4]], [[1, 0], [0.5, 0.25]], None),
    "dropout": (lambda x: ts.sum(ts.where(x > 9, ts.dropout(ts.sqrt(x), 3), 0)), ROOTS, np.zeros(4), np.zeros(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGULAR)
def test_01_singular_points(name):
    f, x, first, second = SINGULAR[name]
    check(f, x, first=first, second=second)


def test_01_softmax_of_rows_without_anything():
    hidden, rows = np.array([[0.0, 0, -INF], [-INF] * 3]), np.array([[True], [False]])
    x = np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]])
    wanted = peer(jax, lambda x: jnp.sum(jax.nn.softmax(x[0, :2]) * np.array([1.0, 2.0])), x)
    check(lambda x: ts.sum(ts.where(rows, ts.softmax(x + hidden), 0) * np.array([1.0, 2, 3])), x, **wanted)


def test_06_indices():
    """A million of them: repeated, negative, outside of the axis. Linear time, equal bits for any number of threads."""
    few, x = np.array([0, 0, 1, 2, -1, 2, 9]), np.array([0.2, 0.5, 0.9])
    counts = np.array([2.0, 1, 3])
    f = lambda x: ts.sum(ts.square(ts.take(x, few, axis=0)))  # noqa: E731
    check(f, x, first=2 * x * counts, second=2 * counts * direction(x))

    taken = {}
    for n in (100_000, 1_000_000):
        rng = np.random.default_rng(0)
        many, weights = rng.integers(-50, 60, n), rng.standard_normal((n, 4))
        table, inside = np.ones((50, 4)), (many >= -50) & (many < 50)
        wanted = np.zeros((50, 4))
        np.add.at(wanted, many[inside] % 50, weights[inside])
        gradient = ts.grad(lambda x, w, many: ts.sum(ts.take(x, many, axis=0) * w))
        bits = []
        for threads in ("1", "2"):
            with knobs.num_threads.override(threads):
                found = np.asarray(gradient(table, weights, many))
                start = time.process_time()
                bits.append(np.asarray(gradient(table, weights, many)).tobytes())
                taken[n] = time.process_time() - start
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
        assert bits[0] == bits[1] == found.tobytes()
    assert taken[1_000_000] < 60 * max(taken[100_000], 1e-3)  # not a hundred times as long


class Counting(nn.Module):
    inner: nn.Linear
    seen: Tensor[(), ts.int64]
    on: Tensor[(), ts.bool_]
    key: int = 7

    def __call__(self, x):
        return ts.dropout(self.inner(x), self.key) + ts.where(self.on, 1.0, 0.0) * self.seen


def test_07_integers_bools_and_keys():
    model, x = Counting(nn.Linear(3, 2, key=0), np.array(3), np.array(True)), np.ones((2, 3), np.float32)
    found = ts.grad(lambda m: ts.sum(m(x)))(model)
    assert found.seen is None and found.on is None and found.key == 7 and np.any(found.inner.weight)
    opt = ts.optimizers.AdamW(1e-2)
    model, _ = opt.update(model, found, opt.init(model))
    assert int(model.seen) == 3 and bool(model.on)
    for given in (np.arange(3), np.array([True]), 3):
        with pytest.raises(ts.CompileError, match=r"TS351(?s:.)*only floats have a gradient"):
            ts.grad(lambda x: ts.sum(x * 1.0))(given)
    with pytest.raises(ts.CompileError, match="TS351"):
        ts.grad(lambda x, key: ts.sum(ts.dropout(x, key)), argnums=1)(np.ones(3), 3)
    with pytest.raises(ts.LaunchError, match="TS351"):
        ts.Tensor(np.arange(3), requires_grad=True)
    check(lambda x: ts.sum(ts.floor(x) * x), [0.4, 1.6], first=[0, 1], second=[0, 0])


Z = np.array([0.3 + 1j, -1.2 + 0.4j, 0.7 - 0.9j])
COMPLEX = {
    "|z|^2": (lambda z: ts.sum(ts.square(ts.abs(z))), lambda t, z: z.abs().square().sum()),
    "a power": (lambda z: ts.sum(ts.real(z**3)), lambda t, z: (z**3).real.sum()),
    "a product": (lambda z: ts.real(ts.prod(z)), lambda t, z: z.prod().real),
    "a root beside where": (
        lambda z: ts.sum(ts.where(ts.real(z) > 0, ts.real(ts.sqrt(z)), 0)),
        lambda t, z: t.where(z.real > 0, z.sqrt().real, 0).sum(),
    ),
    "running products": (lambda z: ts.sum(ts.abs(ts.cumprod(z, axis=0))), lambda t, z: z.cumprod(0).abs().sum()),
    "a variance": (lambda z: ts.var(z), lambda t, z: z.var(unbiased=False)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_08_complex_numbers(name):
    """Both orders, eagerly and compiled, in the direction of PyTorch."""
    torch = require("torch")
    f, theirs = COMPLEX[name]
    z = torch.tensor(Z, requires_grad=True)
    (first,) = torch.autograd.grad(theirs(torch, z), z, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(Z.conj())).real.sum(), z)
    pair = Z.conj()
    leaf = ts.Tensor(Z, requires_grad=True)
    f(leaf).backward()
    for found in (ts.grad(f)(Z), leaf.grad):
        np.testing.assert_allclose(found, first.detach().resolve_conj(), rtol=1e-10, atol=1e-14)
    twice = ts.grad(lambda z: ts.sum(ts.real(ts.grad(f)(z) * pair)))(Z)
    np.testing.assert_allclose(twice, second.resolve_conj(), rtol=1e-9, atol=1e-13)


def test_08_real_numbers_as_complex_ones():
    x = np.array([0.1, 0.7])
    f = lambda x: ts.sum(ts.real(ts.exp(x.to(ts.complex128) * 1j)))  # noqa: E731
    check(f, x, first=-np.sin(x), second=-np.cos(x) * direction(x))


def test_09_mixtures_of_widths():
    """Cotangents have the dtype of their values. A bias of 10^5 rows is summed in f32, and rounded once."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((100_000, 4)).astype(ml_dtypes.bfloat16)
    weights = rng.standard_normal((100_000, 4)).astype(np.float32)
    bias = np.zeros(4, ml_dtypes.bfloat16)
    found = np.asarray(ts.grad(lambda b, x: ts.sum((x + b).to(f32) * weights))(bias, rows))
    summed = weights.astype(ml_dtypes.bfloat16).sum(0, dtype=np.float64)
    assert found.dtype == bias.dtype
    np.testing.assert_allclose(found.astype(float), summed, rtol=2**-8)
    narrow = rng.standard_normal((4, 4)).astype(ml_dtypes.float8_e4m3fn)
    product = lambda w, x: ts.sum(ts.square((x @ w.to(ts.bf16)).to(f32)))  # noqa: E731
    by_w, by_x = ts.grad(product, argnums=(0, 1))(narrow, rows[:8])
    assert by_w.dtype == narrow.dtype and by_x.dtype == rows.dtype
    with pytest.raises(ts.CompileError, match="TS302"):
        ts.grad(lambda w, x: ts.sum(x @ w))(narrow, rows[:8])


NOTHING = {
    "a variance": lambda x: ts.var(x),
    "softmax": lambda x: ts.sum(ts.square(ts.softmax(x))),
    "a loss": lambda x: ts.cross_entropy(x, ts.zeros((x.shape[0],), ts.int64)),
    "a product": lambda x: ts.sum(ts.square(x @ x.T)),
    "the largest": lambda x: ts.sum(ts.max(x, axis=1)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_10_no_rows(name):
    check(NOTHING[name], np.zeros((0, 3)), first=np.zeros((0, 3)))


def test_10_sizes_that_are_open():
    @ts.function
    def loss(w: Tensor["D", "K"], x: Tensor["B", "D"]):
        return ts.sum(ts.square(ts.tanh(x @ w)))

    compiled = ts.compile(ts.grad(loss), dims={"D": 3, "K": 2})
    w = np.ones((3, 2), np.float32)
    for rows in (0, 1, 5):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(compiled(w, x), ts.grad(loss)(w, x), rtol=1e-6)
    for f in (ts.mean, ts.var):  # of nothing they are NaN, and change with nothing
        value, gradient = ts.value_and_grad(lambda x, f=f: f(x))(np.zeros(0))
        assert np.isnan(value) and gradient.shape == (0,)
