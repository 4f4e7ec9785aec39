"""`ts.linalg` beside NumPy, SciPy, PyTorch and JAX: in functions, outside of them, their derivatives, their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor, f32, f64, knobs
from tessera.errors import CompileError, LaunchError
from tests.conftest import require

SIZES = (0, 1, 2, 3, 7, 17, 33, 64, 65)
RNG = np.random.default_rng(5)


def matrices(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def positive(a: np.ndarray) -> np.ndarray:
    return a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1])


@ts.function
def everything(a: Tensor["B", "N", "N", f64], spd: Tensor["B", "N", "N", f64], b: Tensor["B", "N", "K", f64]):
    low = ts.linalg.cholesky(spd)
    q, r = ts.linalg.qr(a)
    sign, logarithm = ts.linalg.slogdet(a)
    return {
        "cholesky": low, "upper": ts.linalg.cholesky(spd, upper=True), "solve": ts.linalg.solve(a, b),
        "inv": ts.linalg.inv(a), "det": ts.linalg.det(a), "sign": sign, "logarithm": logarithm, "q": q, "r": r,
        "forward": ts.linalg.solve_triangular(low, b, lower=True),
        "back": ts.linalg.solve_triangular(low, b, lower=True, trans="T"),
    }  # fmt: skip


def wanted(a: np.ndarray, spd: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    low = np.linalg.cholesky(spd)
    turned = np.swapaxes(low, -1, -2)
    q, r = np.linalg.qr(a)
    sign, logarithm = np.linalg.slogdet(a)
    return {
        "cholesky": low, "upper": turned, "solve": np.linalg.solve(a, b), "inv": np.linalg.inv(a),
        "det": np.linalg.det(a), "sign": sign, "logarithm": logarithm, "q": q, "r": r,
        "forward": np.linalg.solve(low, b), "back": np.linalg.solve(turned, b),
    }  # fmt: skip


@pytest.fixture(scope="module")
def open_sizes() -> Any:
    return ts.compile(everything)


@pytest.mark.parametrize("n", SIZES)
def test_sizes_that_are_known_at_the_launch(n: int, open_sizes: Any) -> None:
    a, b = matrices(2, n, n), matrices(2, n, 3, seed=1)
    found, want = open_sizes(a, positive(a), b), wanted(a, positive(a), b)
    for name, expected in want.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-7, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(
    ("target", "n"), [("cpu", 200), ("cpu", 256), ("cpu", 333), ("reference", 200), ("emulator:sm_80", 200)]
)
def test_programs_that_share_a_matrix_find_the_factor_of_one_program(target: str, n: int, upper: bool) -> None:
    spd = positive(matrices(n, n)).astype(np.float32)
    spd[np.tril_indices(n, -1) if upper else np.triu_indices(n, 1)] = np.nan  # not read

    @ts.function
    def factor(a):
        return ts.linalg.cholesky(a, upper=upper)

    @ts.function
    def opened(a: Tensor["N", "N", f32]):
        return ts.linalg.cholesky(a, upper=upper)

    with knobs.target.override(target):
        launches = ts.compile(factor, target=target, arguments=[spd]).lowered.program.launches
        assert len(launches) == -(-n // 32)
        found = np.asarray(factor(spd))
        np.testing.assert_array_equal(found, ts.compile(opened, target=target)(spd))
        low = np.linalg.cholesky(np.where(np.isnan(spd), spd.T, spd).astype(np.float64))
        np.testing.assert_allclose(found, low.T if upper else low, rtol=2e-3, atol=2e-3)
        spd[150, 150] = -1
        found = np.asarray(factor(spd))
        assert np.isfinite(found[:100, :100]).all() and np.isnan(found[150, 150])


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (0, 4, 4), (40, 16, 16), (17, 17)])
def test_sizes_that_are_known(shape: tuple[int, ...]) -> None:
    @ts.function
    def program(a, spd, b):
        q, r = ts.linalg.qr(a)
        return {"cholesky": ts.linalg.cholesky(spd), "solve": ts.linalg.solve(a, b), "q": q, "r": r,
                "det": ts.linalg.det(a)}  # fmt: skip

    a, b = matrices(*shape), matrices(*shape[:-1], 2, seed=1)
    found, want = program(a, positive(a), b), wanted(a, positive(a), b)
    for name in found:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def factors() -> Any:
    @ts.function
    def program(x: Tensor["M", "N", f32]):
        return *ts.linalg.qr(x), *ts.linalg.qr(x, mode="complete")

    return ts.compile(program)


def test_qr_of_any_shape(factors: Any) -> None:
    for m, n in ((1, 1), (3, 2), (2, 3), (40, 3), (3, 40), (65, 33), (33, 65), (4, 0), (0, 4)):
        x = matrices(m, n).astype(np.float32)
        want = (*np.linalg.qr(x), *np.linalg.qr(x, mode="complete"))
        for found, expected in zip(factors(x), want, strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, atol=5e-5)
    q, r = ts.linalg.qr(matrices(3, 0))
    assert q.shape == (3, 0) and r.shape == (0, 0)


def test_qr_of_many_small_matrices() -> None:
    """In lanes, with spare ones behind the last."""
    a = matrices(64, 29, 21)
    q, r = (np.asarray(v) for v in ts.linalg.qr(a))
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(q, 1, 2) @ q, np.broadcast_to(np.eye(21), (64, 21, 21)), atol=1e-12)
    assert not np.tril(r, -1).any()


def test_qr_of_columns_of_zeros_and_of_large_numbers(factors: Any) -> None:
    zeros = np.zeros((4, 3), np.float32)
    zeros[:, 1] = 1.0
    q, r, _, _ = factors(zeros)
    np.testing.assert_allclose(q @ r, zeros, atol=1e-6)
    np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-6)
    large = matrices(5, 3).astype(np.float32) * np.float32(1e30)  # the squares of its elements overflow
    q, r, _, _ = factors(large)
    np.testing.assert_allclose(q @ r, large, rtol=1e-4, atol=1e25)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("trans", [0, "T"])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(lower: bool, trans: int | str, unit: bool) -> None:
    for n, k in ((40, None), (70, 40), (6, 2)):
        a, b = matrices(n, n) / n + 2 * np.eye(n), matrices(n, k or 1, seed=1)
        b = b[:, 0] if k is None else b
        want = scipy.linalg.solve_triangular(a, b, lower=lower, trans=trans, unit_diagonal=unit)
        a[np.triu_indices(n, 1) if lower else np.tril_indices(n, -1)] = np.nan  # not read
        found = ts.linalg.solve_triangular(a, b, lower, trans, unit)
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)


def test_right_sides_and_batches() -> None:
    a, b = matrices(2, 1, 6, 6) + 3 * np.eye(6), matrices(4, 6, 2)
    np.testing.assert_allclose(ts.linalg.solve(a, b), np.linalg.solve(a, b))
    np.testing.assert_allclose(ts.linalg.solve(a[0, 0], b), np.linalg.solve(a[0, 0], b))
    np.testing.assert_allclose(ts.linalg.solve(a, b[0, :, 0]), np.linalg.solve(a, b[0, :, :1])[..., 0])
    many = ts.vmap(ts.linalg.solve, in_axes=(None, 0))(a[0, 0], b)
    np.testing.assert_allclose(many, np.linalg.solve(a[0, 0], b))


def test_views_and_libraries() -> None:
    whole = matrices(5, 9, 9) + 4 * np.eye(9)
    view = np.swapaxes(whole[::2, ::-1, ::-1], -1, -2)
    np.testing.assert_allclose(ts.linalg.inv(view), np.linalg.inv(view))
    found = ts.linalg.inv(torch.from_numpy(whole))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, np.linalg.inv(whole))
    assert isinstance(ts.linalg.det(ts.asarray(whole)), ts.Tensor)


def test_hard_matrices() -> None:
    """Errors are those of a backward stable algorithm, whatever the condition."""
    n = 40
    hilbert = scipy.linalg.hilbert(n)
    y = ts.linalg.solve(hilbert, hilbert.sum(1))
    assert np.abs(hilbert @ y - hilbert.sum(1)).max() < 1e-13 * n * np.abs(y).max()
    q, r = ts.linalg.qr(hilbert)
    assert np.abs(q @ r - hilbert).max() < 1e-14 * n and np.abs(q.T @ q - np.eye(n)).max() < 1e-14 * n
    low = ts.linalg.cholesky(hilbert + 1e-10 * np.eye(n))
    assert np.abs(low @ low.T - hilbert - 1e-10 * np.eye(n)).max() < 1e-14 * n
    growing = np.tril(-np.ones((n, n)), -1) + np.eye(
        n
    )  # without rows in another order no pivot is found for the second
    growing[0], growing[:, -1] = 0.0, 1.0
    np.testing.assert_allclose(growing @ ts.linalg.inv(growing), np.eye(n), atol=1e-10)


@pytest.mark.parametrize(("count", "n"), [(5, 7), (64, 12), (20, 17), (15, 31), (64, 32)])
def test_one_size_and_an_open_one_give_the_same_bits(count: int, n: int) -> None:
    """Small matrices of a known size are computed in lanes, others block by block: in the same order."""
    a = matrices(count, n, n).astype(np.float32)
    spd, b = positive(a).astype(np.float32), matrices(count, n, 3).astype(np.float32)

    @ts.function
    def program(a: Tensor["B", "N", "N", f32], spd: Tensor["B", "N", "N", f32], b: Tensor["B", "N", "K", f32]):
        triangles = [
            ts.linalg.solve_triangular(a, b, lower=lower, trans=trans, unit_diagonal=trans)
            for lower in (True, False)
            for trans in (True, False)
        ]
        upper = ts.linalg.cholesky(spd, upper=True)
        return ts.linalg.cholesky(spd), upper, ts.linalg.solve(a, b), ts.linalg.det(a), *triangles

    for x, y in zip(ts.compile(program)(a, spd, b), program(a, spd, b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_programs_that_share_a_matrix_change_no_bit() -> None:
    """They share a few large matrices; each of a larger batch has a program of its own."""
    a, b = matrices(6, 223, 223).astype(np.float32), matrices(6, 223, 3).astype(np.float32)
    a[0, :, 40] = 0  # no pivot
    a[1] = np.eye(223)[::-1]
    together = [np.asarray(part) for part in (ts.linalg.solve(a[1:], b[1:]), *ts.linalg.slogdet(a))]
    for i in range(5):
        alone = [np.asarray(part) for part in ts.linalg.slogdet(a[i])]
        if i:
            alone = [np.asarray(ts.linalg.solve(a[i], b[i])), *alone]
            np.testing.assert_allclose(a[i] @ alone[0], b[i], atol=2e-3)
        wanted = [part[i] for part in together[1:]] if i == 0 else [together[0][i - 1], *(p[i] for p in together[1:])]
        assert [part.tobytes() for part in alone] == [part.tobytes() for part in wanted]
    assert together[1][0] == 0


def test_threads_do_not_change_a_bit(open_sizes: Any) -> None:
    a, b = matrices(6, 70, 70), matrices(6, 70, 130)
    before, found = ts.get_num_threads(), []
    try:
        for threads in (1, 2):
            ts.set_num_threads(threads)
            found.append([np.asarray(v).tobytes() for v in open_sizes(a, positive(a), b).values()])
    finally:
        ts.set_num_threads(before)
    assert found[0] == found[1]


@pytest.mark.parametrize("columns", [33, 64, 65])
def test_right_sides_of_one_matrix_are_shared_by_threads(columns: int) -> None:
    """With the bits of a matrix among several, whose programs take more columns each, and of open sizes."""
    a = (matrices(2, 70, 70) / 70 + 2 * np.eye(70)).astype(np.float32)
    b = matrices(2, 70, columns, seed=1).astype(np.float32)

    @ts.function
    def solve(a: Tensor["B", "N", "N", f32], b: Tensor["B", "N", "K", f32]):
        return ts.linalg.solve_triangular(a, b, lower=True), ts.linalg.solve_triangular(a, b)

    want, before = ts.compile(solve)(a, b), ts.get_num_threads()
    try:
        for threads in (1, 2):
            ts.set_num_threads(threads)
            for one, several, of_open in zip(solve(a[:1], b[:1]), solve(a, b), want, strict=True):
                assert np.asarray(several).tobytes() == np.asarray(of_open).tobytes()
                assert np.asarray(one).tobytes() == np.asarray(of_open[:1]).tobytes()
    finally:
        ts.set_num_threads(before)
    known = ts.compile(solve, arguments=(a[:1], b[:1]))
    assert known.ir("tile").count("with grid=[1, 2],") == 2


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 12), st.integers(0, 1000))
def test_what_factors_are(open_sizes: Any, n: int, seed: int) -> None:
    a = matrices(n, n, seed=seed)
    found = open_sizes(a[None], positive(a)[None], np.eye(n)[None])
    low, q, r = (np.asarray(found[k])[0] for k in ("cholesky", "q", "r"))
    np.testing.assert_allclose(low @ low.T, positive(a), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(q.T @ q, np.eye(n), atol=1e-12)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    assert np.array_equal(np.tril(low), low) and np.array_equal(np.triu(r), r)
    order = np.random.default_rng(seed).permutation(n)
    turned = np.eye(n)[order][None]
    assert open_sizes(turned, positive(turned), turned)["det"][0] == round(np.linalg.det(turned[0]))


# derivatives

LOW, WEIGHT = RNG.normal(size=(5, 5)), RNG.normal(size=(5, 5))
A, B = matrices(5, 5, seed=3), matrices(5, 2, seed=4)
TALL, WIDE = matrices(6, 4, seed=6), matrices(3, 5, seed=7)


def _qr(m, x):
    q, r = m.linalg.qr(x)
    return m.sum(q * WEIGHT[:1, :1]) + m.sum(q**3) + m.sum(r * r * r)


LOSSES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (lambda m, x: m.sum(m.linalg.cholesky(x) * WEIGHT), (positive(A),)),
    "upper": (lambda m, x: m.sum(m.linalg.cholesky(x, upper=True) * WEIGHT), (positive(A),)),
    "solve": (lambda m, x, b: m.sum(m.square(m.linalg.solve(x, b))), (A, B)),
    "inv": (lambda m, x: m.sum(m.linalg.inv(x) * WEIGHT), (A,)),
    "det": (lambda m, x: m.linalg.det(x), (A,)),
    "slogdet": (lambda m, x: m.square(m.linalg.slogdet(x)[1]), (A,)),
    "qr": (_qr, (TALL,)),
    "square qr": (_qr, (A,)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_are_jaxs(name: str) -> None:
    jax = require("jax")
    f, args = LOSSES[name]
    along = tuple(matrices(*a.shape, seed=9) for a in args)
    along = ((along[0] + along[0].T) / 2, *along[1:]) if name in ("cholesky", "upper") else along

    def derivatives(m, grad, jvp):
        """The gradient, a directional derivative, and that of the gradient's squares."""
        loss = lambda *a: f(m, *a)  # noqa: E731
        squares = lambda *a: m.sum(m.square(grad(loss)(*a)))  # noqa: E731
        second = (grad(squares)(*args),) if name in TWICE else ()
        return grad(loss)(*args), jvp(loss, args, along)[1], *second

    with jax.enable_x64(True):
        want = jax.jit(lambda: derivatives(jax.numpy, jax.grad, jax.jvp))()
        for x, y in zip(derivatives(ts, ts.grad, ts.jvp), want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-8)


TWICE = ("cholesky", "solve", "qr")
"""whose second derivatives are compared: those of the others are made of the same operators"""


def test_gradient_of_wide_factors_is_pytorchs() -> None:
    x = torch.tensor(WIDE, requires_grad=True)
    q, r = torch.linalg.qr(x)
    ((q**3).sum() + (r**3).sum()).backward()

    def loss(x):
        q, r = ts.linalg.qr(x)
        return ts.sum(q**3) + ts.sum(r**3)

    np.testing.assert_allclose(ts.grad(loss)(WIDE), x.grad, rtol=1e-9, atol=1e-9)


def test_gradient_of_batches_and_through_backward() -> None:
    spd = positive(matrices(3, 4, 4))
    x = torch.tensor(spd, requires_grad=True)
    (torch.linalg.cholesky(x) ** 3).sum().backward()
    want = x.grad.numpy()
    loss = lambda x: ts.sum(ts.linalg.cholesky(x) ** 3)  # noqa: E731
    np.testing.assert_allclose(ts.grad(loss)(spd), want, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ts.vmap(ts.grad(loss))(spd), want, rtol=1e-9, atol=1e-9)


# what is singular, and what is wrong


def test_singular_matrices() -> None:
    ones = np.ones((2, 3, 3))
    for call, why in (
        (lambda: ts.linalg.inv(ones), "inv: the matrix is singular"),
        (lambda: ts.linalg.solve(ones, np.ones((3, 1))), "solve: the matrix is singular"),
        (lambda: ts.linalg.cholesky(-ones), "cholesky: the matrix is not positive definite"),
        (lambda: ts.linalg.solve_triangular(0 * ones[0], np.ones(3)), "its diagonal has a 0"),
    ):
        with pytest.raises(LaunchError, match=why) as caught:
            call()
        assert caught.value.code == "TS501" and "^^^" in str(caught.value)
    assert np.isnan(ts.linalg.inv(ones * np.nan)).all()  # which NumPy does not refuse either
    low, inverse, det, (sign, logarithm) = ts.function(
        lambda x: (ts.linalg.cholesky(x), ts.linalg.inv(x), ts.linalg.det(x), ts.linalg.slogdet(x))
    )(ones)
    assert np.isnan(low[:, 1, 1]).all() and (low[:, 0, 0] == 1).all() and not np.isfinite(inverse).all()
    assert (det == 0).all() and (sign == 0).all() and (logarithm == -np.inf).all()


WRONG: list[tuple[Callable[[Any], Any], tuple[int, ...], str, str]] = [
    (lambda x: ts.linalg.cholesky(x), (2, 3), "TS213", "takes square matrices, and [2, 3] has 2 rows and 3 columns"),
    (lambda x: ts.linalg.inv(x), (3,), "TS213", "takes matrices, [..., rows, columns], not [3]"),
    (lambda x: ts.linalg.det(x.to(ts.int32)), (3, 3), "TS301", 'takes f32 or f64 elements, not int32; convert it'),
    (lambda x: ts.linalg.qr(x.to(ts.complex64)), (3, 3), "TS301", "complex matrices are not supported"),
    (lambda x: ts.linalg.solve(x, ts.ones((4, 2))), (3, 3), "TS203", "the matrix has 3 rows, the right side 4"),
    (lambda x: ts.linalg.solve(x, ts.ones((5, 3, 1))), (2, 3, 3), "TS202", "batches do not broadcast: 2 meets 5"),
    (lambda x: ts.linalg.solve_triangular(x, x, trans=3), (3, 3), "TS213", 'is 0 or "N", 1 or "T"'),
    (lambda x: ts.linalg.solve_triangular(x, x, upper=True), (3, 3), "TS105", "write lower=True or lower=False"),
    (lambda x: ts.linalg.qr(x, "r"), (3, 3), "TS213", '"reduced" or "complete", not \'r\''),
    (lambda x: ts.linalg.eig(x), (3, 3), "TS104", "outside of functions NumPy and SciPy have it"),
    (lambda x: ts.linalg.choleski(x), (3, 3), "TS104", "did you mean 'cholesky'?"),
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w[3])
def test_mistakes_have_carets(wrong: Any) -> None:
    f, shape, code, message = wrong
    with pytest.raises(CompileError) as caught:
        ts.function(f)(np.ones(shape, np.float32))
    assert caught.value.code == code and message in str(caught.value) and " ^" in str(caught.value)


def test_derivatives_that_there_are_not() -> None:
    complete = ts.grad(lambda x: ts.sum(ts.linalg.qr(x, mode="complete")[0]))
    with pytest.raises(CompileError, match="has no derivative: columns behind the first 4 are not unique") as caught:
        complete(TALL)
    assert caught.value.code == "TS353"

    @ts.function
    def of_any_shape(x: Tensor["M", "N", f64]):
        return ts.grad(lambda x: ts.sum(ts.linalg.qr(x)[1]))(x)

    assert of_any_shape(TALL).shape == TALL.shape  # compiled for these sizes
    with pytest.raises(CompileError, match="has a derivative where it is known which is larger"):
        ts.compile(of_any_shape)


def test_generated_for_gpus() -> None:
    """In the emulator: no races, and the CPU's results."""
    a = matrices(2, 35, 35).astype(np.float32) + 4 * np.eye(35, dtype=np.float32)

    @ts.function
    def factors(a, small):
        q, r = ts.linalg.qr(a)
        spd = a @ a.mT
        return (
            ts.linalg.cholesky(spd),
            ts.linalg.solve(a, spd[..., :3]),
            q,
            r,
            ts.linalg.inv(small),
            ts.linalg.qr(small)[0],
        )

    small = a[:, :5, :5].copy()
    with knobs.target.override("emulator:sm_80"):
        found = factors(a, small)
    for x, y in zip(found, factors(a, small), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def test_batches_are_shared_by_devices() -> None:
    @ts.distributed(ts.mesh(3), over="B")
    @ts.function
    def factors(x: Tensor["B", "N", "N", f64], b: Tensor["B", "N", "K", f64]):
        q, r = ts.linalg.qr(x)
        return ts.linalg.solve(x, b), ts.linalg.cholesky(x @ x.mT), q, r

    a, b = matrices(7, 5, 5), matrices(7, 5, 2)
    for x, y in zip(factors(a, b), factors.single(a, b), strict=True):
        assert np.array_equal(x, y)


A, B, V = matrices(2, 3, 3, seed=5), matrices(2, 3, 4, seed=6), matrices(4, 3, seed=7)
MADE: dict[str, tuple[Any, Any]] = {
    "vector_norm": (
        lambda m, a, b, v: [m.vector_norm(v, axis=-1, ord=p) for p in (0, 1, 2, 2.5, np.inf, -np.inf)],
        lambda a, b, v: [np.linalg.norm(v, axis=-1, ord=p) for p in (0, 1, 2, 2.5, np.inf, -np.inf)],
    ),
    "matrix_norm": (
        lambda m, a, b, v: [m.matrix_norm(b, ord=p, keepdims=p == 1) for p in ("fro", 1, -1, np.inf, -np.inf)],
        lambda a, b, v: [
            np.linalg.norm(b, axis=(-2, -1), ord=p, keepdims=p == 1) for p in ("fro", 1, -1, np.inf, -np.inf)
        ],
    ),
    "norm": (
        lambda m, a, b, v: [
            *(m.norm(v[0], ord=p) for p in (None, 0, 1, 3, np.inf)),
            *(m.norm(v, ord=p) for p in (None, 1, 2, "fro", "nuc", -np.inf)),
            *(m.norm(b, axis=1, ord=p, keepdims=True) for p in (None, 1)),
            *(m.norm(b, axis=axes, ord=1, keepdims=k) for axes in ((0, 2), (2, 0), (-1, -2)) for k in (False, True)),
        ],
        lambda a, b, v: [
            *(np.linalg.norm(v[0], ord=p) for p in (None, 0, 1, 3, np.inf)),
            *(np.linalg.norm(v, ord=p) for p in (None, 1, 2, "fro", "nuc", -np.inf)),
            *(np.linalg.norm(b, axis=1, ord=p, keepdims=True) for p in (None, 1)),
            *(np.linalg.norm(b, axis=a, ord=1, keepdims=k) for a in ((0, 2), (2, 0), (-1, -2)) for k in (False, True)),
        ],
    ),
    "matrix_power": (
        lambda m, a, b, v: [m.matrix_power(a, n) for n in (0, 1, 2, 5, -3)],
        lambda a, b, v: [np.linalg.matrix_power(a, n) for n in (0, 1, 2, 5, -3)],
    ),
    "trace": (
        lambda m, a, b, v: [m.trace(b), m.trace(b, offset=2), m.diagonal(b, offset=-1)],
        lambda a, b, v: [
            np.trace(b, axis1=-2, axis2=-1),
            np.trace(b, 2, axis1=-2, axis2=-1),
            np.diagonal(b, -1, axis1=-2, axis2=-1),
        ],
    ),
    "products": (
        lambda m, a, b, v: [
            m.cross(v, v[::-1]), m.outer(v[0], v[1]), m.vecdot(v, v), m.matmul(a, b), m.matrix_transpose(b),
            m.tensordot(a, b[0], 1), m.tensordot(a, b, ([0, 1], [0, 1])),
        ],
        lambda a, b, v: [
            np.cross(v, v[::-1]), np.outer(v[0], v[1]), (v * v).sum(-1), a @ b, np.swapaxes(b, -2, -1),
            np.tensordot(a, b[0], 1), np.tensordot(a, b, ([0, 1], [0, 1])),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_operators(name: str) -> None:
    """Called outside, and compiled with open sizes as one program."""
    ours, numpys = MADE[name]

    @ts.function
    def program(a: Tensor["B", 3, 3, f64], b: Tensor["B", 3, "K", f64], v: Tensor["N", 3, f64]):
        return ours(ts.linalg, a, b, v)

    for found in (ours(ts.linalg, A, B, V), program(A, B, V)):
        for x, want in zip(found, numpys(A, B, V), strict=True):
            np.testing.assert_allclose(x, want, rtol=1e-12, atol=1e-12)
