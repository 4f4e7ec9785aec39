"""Eigenvalues and singular values beside NumPy's, their derivatives beside JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tessera as ts
from tessera import CompileError, Tensor, f64, knobs
from tessera.kernels import eigenvalues

RNG = np.random.default_rng(4)


def symmetric(*shape: int, dtype: Any = np.float64) -> Any:
    a = RNG.standard_normal(shape).astype(dtype)
    return a + a.swapaxes(-1, -2)


def near(found: Any, wanted: Any, times: float = 60) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    unit = np.finfo(found.dtype).eps * max(1, abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=times * unit)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 17])
def test_eigenvalues_and_vectors(n: int, dtype: Any) -> None:
    a = symmetric(2, n, n, dtype=dtype)
    w, v = map(np.asarray, ts.linalg.eigh(a))
    near(w, np.linalg.eigvalsh(a))
    near(a @ v, v * w[:, None])
    near(v.swapaxes(1, 2) @ v, np.broadcast_to(np.eye(n, dtype=dtype), a.shape))
    assert (np.diff(w) >= 0).all()


def with_eigenvalues(w: Any) -> Any:
    q = np.linalg.qr(RNG.standard_normal((len(w), len(w))))[0]
    return (q * w) @ q.T


# Of two sizes: most of the time is their compilation.
SYMMETRIC = {
    "clusters": with_eigenvalues(np.repeat([1.0, 1 + 1e-9, -2, 3], 16)),
    "graded": with_eigenvalues(10.0 ** -np.arange(65)),
    "of rank 2": with_eigenvalues(np.array([5.0, -3] + [0] * 63)),
    "the same everywhere": np.ones((65, 65)),
    "a multiple of 1": 3 * np.eye(65),
    "zeros": np.zeros((65, 65)),
    "no diagonal": np.eye(64, k=1) + np.eye(64, k=-1),
    "pairs": np.kron(np.eye(32), [[0, 1], [1, 0]]),
    "Wilkinson's": np.diag(abs(np.arange(-32.0, 33))) + np.eye(65, k=1) + np.eye(65, k=-1),
    "apart by scales": symmetric(64, 64) * 10.0 ** -np.add.outer(np.arange(64) / 4, np.arange(64) / 4),
    "apart by scales, from the end": symmetric(64, 64) * 10.0 ** np.add.outer(np.arange(64) - 63.0, np.arange(64) - 63),
}  # fmt: skip


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_hard_symmetric_matrices(name: str, dtype: Any, scale: float) -> None:
    a = (SYMMETRIC[name] * scale).astype(dtype)
    w, v = map(np.asarray, ts.linalg.eigh(a))
    exact, unit = a.astype(np.float64), np.finfo(dtype).eps * np.linalg.norm(a.astype(np.float64), 2)
    assert abs(w - np.linalg.eigvalsh(exact)).max() <= 30 * unit and (np.diff(w) >= 0).all()
    assert abs(exact @ v - v.astype(np.float64) * w).max() <= 30 * unit
    assert abs(v.T.astype(np.float64) @ v - np.eye(len(a))).max() <= 30 * np.finfo(dtype).eps
    assert abs(np.asarray(ts.linalg.eigvalsh(a)) - w).max() <= 30 * unit


def small_ones(hard: dict[str, Any], n: int, dtype: Any) -> Any:
    """A batch of parts of the hard matrices, each at three scales; one has a NaN."""
    parts = [(np.resize(a, (n, n)) if min(a.shape) < n else a[-n:, -n:]) for a in hard.values()]
    batch = np.stack([(part * scale).astype(dtype) for part in parts for scale in (1.0, 1e30, 1e-30)])
    batch[7, 0, 0] = np.nan
    return batch


def same_bits(alone: Any, together: Any) -> None:
    for one, some in zip(alone, together, strict=True):
        np.testing.assert_array_equal(np.asarray(one).view(np.uint8), np.asarray(some).view(np.uint8))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_hard_small_symmetric_matrices_in_lanes(n: int, dtype: Any) -> None:
    """Lanes that are done sooner or turn other rows change no bit of a matrix."""
    batch = small_ones(SYMMETRIC, n, dtype)
    batch = np.tril(batch) + np.tril(batch, -1).swapaxes(-1, -2)
    found = [np.asarray(p) for p in ts.linalg.eigh(batch)]
    values = np.asarray(ts.linalg.eigvalsh(batch))
    for i, (a, w, v) in enumerate(zip(batch, *found, strict=True)):
        same_bits(ts.linalg.eigh(a), (w, v))
        if i == 7:
            assert np.isnan(w).all() and np.isnan(v).all()
            continue
        exact, unit = a.astype(np.float64), np.finfo(dtype).eps * np.linalg.norm(a.astype(np.float64), 2)
        assert abs(w - np.linalg.eigvalsh(exact)).max() <= 30 * unit and (np.diff(w) >= 0).all()
        assert abs(exact @ v - v.astype(np.float64) * w).max() <= 30 * unit
        assert abs(v.T.astype(np.float64) @ v - np.eye(n)).max() <= 30 * np.finfo(dtype).eps
        assert abs(values[i] - w).max() <= 30 * unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_hard_small_matrices_in_lanes(n: int, dtype: Any) -> None:
    batch = small_ones(GENERAL, n, dtype)
    found = [np.asarray(p) for p in ts.linalg.svd(batch)]
    values = np.asarray(ts.linalg.svdvals(batch))
    for i, (x, u, s, vt) in enumerate(zip(batch, *found, strict=True)):
        same_bits(ts.linalg.svd(x), (u, s, vt))
        if i == 7:
            assert np.isnan(u).all() and np.isnan(s).all()
            continue
        exact = x.astype(np.float64)
        unit = np.finfo(dtype).eps * np.linalg.norm(exact, 2)
        assert abs(s - np.linalg.svd(exact, compute_uv=False)).max() <= 30 * unit
        assert (np.diff(s) <= 0).all() and s[-1] >= 0
        assert abs(u.astype(np.float64) * s @ vt - exact).max() <= 30 * unit
        for q in (u.T.astype(np.float64) @ u, vt.astype(np.float64) @ vt.T):
            assert abs(q - np.eye(n)).max() <= 30 * np.finfo(dtype).eps
        assert abs(values[i] - s).max() <= 30 * unit


@pytest.mark.parametrize("count", [1, 16, 37])
def test_batches_of_open_length_have_the_same_bits(count: int) -> None:
    @ts.function
    def both(x: Tensor["B", 4, 4, ts.f32]):
        return *ts.linalg.eigh(x), *ts.linalg.svd(x)

    x = symmetric(count, 4, 4, dtype=np.float32)
    same_bits(ts.compile(both)(x), both(x))


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 4, 4)])
def test_nothing_has_no_eigenvalues(shape: tuple[int, ...]) -> None:
    w, v = map(np.asarray, ts.linalg.eigh(np.zeros(shape)))
    assert w.shape == np.asarray(ts.linalg.eigvalsh(np.zeros(shape))).shape == shape[:-1] and v.shape == shape


def test_open_sizes_batches_and_threads_change_no_bit() -> None:
    a = symmetric(3, 70, 70, dtype=np.float32)

    @ts.function
    def vectors(x: Tensor["B", "N", "N", ts.f32]):
        return ts.linalg.eigh(x)

    w, v = map(np.asarray, ts.compile(vectors)(a))
    threads = ts.get_num_threads()
    try:
        for count in (1, 2):
            ts.set_num_threads(count)
            for i in range(3):
                alone = ts.linalg.eigh(a[i])
                assert np.array_equal(alone[0], w[i]) and np.array_equal(alone[1], v[i])
    finally:
        ts.set_num_threads(threads)


def test_programs_that_share_a_matrix_change_no_bit() -> None:
    """They share a few large matrices; each of a larger batch has a program of its own."""
    tiles = [np.pad(a, (0, 200 - len(a)), "wrap") for a in (SYMMETRIC["clusters"], SYMMETRIC["Wilkinson's"])]
    a = np.stack([*tiles, np.diag(np.arange(200.0)), np.zeros((200, 200)), symmetric(200, 200)]).astype(np.float32)
    a = np.tril(a) + np.tril(a, -1).swapaxes(-1, -2)
    for factors in (ts.linalg.eigh, ts.linalg.svd):
        together = [np.asarray(part) for part in factors(a)]
        for i in range(len(a)):
            same_bits(factors(a[i]), [part[i] for part in together])


def test_the_last_step_finishes_alone() -> None:
    """With so few steps that most rotations are left to it."""
    kernel, d, e = eigenvalues.tridiagonal_vectors_step, RNG.standard_normal((1, 40)), RNG.standard_normal((1, 40))
    whole = np.diag(d[0]) + np.diag(e[0, :39], 1) + np.diag(e[0, :39], -1)
    values, z = np.empty((1, 40)), np.empty((1, 1, 40, 64))
    lines, ranges = np.empty((1, 1, 10, 44)), np.empty((1, 3, 2), np.int64)
    for step in range(3):
        kernel(d, e, np.eye(40)[None], values, z, lines, ranges, np.array([step], np.int32), steps=3)
    v = z[0, 0, :, :40].T
    near(np.sort(values[0]), np.linalg.eigvalsh(whole))
    near(whole @ v, v * values)
    near(v.T @ v, np.eye(40))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (5, 2), (2, 5), (9, 9), (12, 7)])
def test_singular_values_and_vectors(shape: tuple[int, int], dtype: Any) -> None:
    x = RNG.standard_normal((3, *shape)).astype(dtype)
    for full in (False, True):
        u, s, vt = map(np.asarray, ts.linalg.svd(x, full_matrices=full))
        wanted = np.linalg.svd(x, full_matrices=full)
        assert [p.shape for p in (u, s, vt)] == [p.shape for p in wanted]
        near(s, wanted[1])
        k = s.shape[-1]
        near(u[..., :k] * s[:, None] @ vt[:, :k], x)
        for q in (u.swapaxes(1, 2) @ u, vt @ vt.swapaxes(1, 2)):
            near(q, np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), q.shape))


def test_small_singular_values_are_exact_beside_the_greatest() -> None:
    x = RNG.standard_normal((6, 4)) * [1, 1e-8, 1e-16, 1e-100]
    near(ts.linalg.svdvals(x), np.linalg.svd(x, compute_uv=False), 10)
    near(ts.linalg.svd(x)[1], np.linalg.svd(x, compute_uv=False), 10)


GENERAL = {
    "no rank": np.zeros((65, 65)),
    "rank 1": np.ones((66, 40)),
    "rank 3": RNG.standard_normal((50, 3)) @ RNG.standard_normal((3, 65)),
    "clusters": np.linalg.qr(RNG.standard_normal((65, 65)))[0] * np.repeat([1.0, 2.0], [32, 33]),
    "orthogonal": np.linalg.qr(RNG.standard_normal((65, 65)))[0],
    "graded columns": RNG.standard_normal((65, 65)) * 10.0 ** -np.arange(65),
    "graded rows": RNG.standard_normal((65, 65)) * 10.0 ** np.arange(-64.0, 1)[:, None],
    "zeros on the diagonal": np.eye(65, k=1) + np.diag(np.arange(65) % 3),
    "nilpotent": np.eye(65, k=1),
    "Kahan's": np.triu(-0.28 * np.ones((65, 65)), 1) * 0.96 ** np.arange(65)[:, None] + np.diag(0.96 ** np.arange(65)),
    "one column": RNG.standard_normal((65, 1)),
}


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GENERAL)
def test_hard_matrices(name: str, dtype: Any, scale: float) -> None:
    x = (GENERAL[name] * scale).astype(dtype)
    exact = x.astype(np.float64)
    unit = np.finfo(dtype).eps * np.linalg.norm(exact, 2)
    u, s, vt = (np.asarray(p).astype(np.float64) for p in ts.linalg.svd(x, full_matrices=False))
    assert abs(s - np.linalg.svd(exact, compute_uv=False)).max() <= 30 * unit and (np.diff(s) <= 0).all() and s[-1] >= 0
    assert abs(u * s @ vt - exact).max() <= 30 * unit
    for q in (u.T @ u, vt @ vt.T):
        assert abs(q - np.eye(len(q))).max() <= 60 * np.finfo(dtype).eps
    assert abs(np.asarray(ts.linalg.svdvals(x)) - s).max() <= 30 * unit


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0, 3), (0, 4, 3)])
def test_nothing_has_no_singular_values(shape: tuple[int, ...]) -> None:
    for full in (False, True):
        wanted = np.linalg.svd(np.zeros(shape), full_matrices=full)
        for found, like in zip(ts.linalg.svd(np.zeros(shape), full_matrices=full), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(found), like)
    assert np.asarray(ts.linalg.svdvals(np.zeros(shape))).shape == wanted[1].shape


def test_sizes_of_which_it_is_not_known_which_is_larger() -> None:
    @ts.function
    def factors(x: Tensor["M", "N", f64]):
        return ts.linalg.svd(x, full_matrices=False)

    compiled = ts.compile(factors)
    for shape in ((5, 3), (3, 5), (40, 40)):
        x = RNG.standard_normal(shape)
        u, s, vt = map(np.asarray, compiled(x))
        near(u * s @ vt, x)
        near(s, np.linalg.svd(x, compute_uv=False))


def test_vectors_beyond_the_first_have_no_derivative() -> None:
    with pytest.raises(CompileError, match="TS353"):
        ts.grad(lambda x: ts.sum(ts.linalg.svd(x)[0] ** 3))(RNG.standard_normal((4, 3)))
    found = ts.grad(lambda x: ts.sum(ts.linalg.svd(x)[1]))(x := RNG.standard_normal((4, 3)))
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    near(found, u @ vt)


def test_vectors_of_the_shorter_side_have_derivatives() -> None:
    """All of them are unique: as many as there are values."""
    for shape, which in (((4, 3), 2), ((3, 4), 0)):
        x, weight = RNG.standard_normal(shape), RNG.standard_normal((3, 3))

        def loss(x: Any, full: bool) -> Any:
            found = ts.linalg.svd(x, full_matrices=full)
            return ts.sum(found[which] * weight) + ts.sum(found[1])  # noqa: B023

        full, reduced = (ts.grad(lambda x, full=full: loss(x, full))(x) for full in (True, False))
        near(full, reduced)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_of_vectors(dtype: Any) -> None:
    """They depend on no rounding where several elements are equally large."""

    def positive(vectors: Any) -> None:
        size = abs(vectors)
        first = np.argmax(size >= 0.7 * size.max(-1, keepdims=True), -1)[..., None]
        assert (np.take_along_axis(vectors, first, -1) > 0).all()

    for a in (symmetric(3, 9, 9), np.kron(np.diag([1.0, 2, 3]), [[2, 1], [1, 2]]), np.eye(5, k=1) + np.eye(5, k=-1)):
        for scale in (1, -1):
            positive(np.asarray(ts.linalg.eigh((scale * a).astype(dtype))[1]).swapaxes(-1, -2))
            positive(np.asarray(ts.linalg.svd((scale * a).astype(dtype))[0]).swapaxes(-1, -2))


def test_matrices_without_full_rank() -> None:
    x = RNG.standard_normal((7, 2)) @ RNG.standard_normal((2, 5))
    u, s, _ = map(np.asarray, ts.linalg.svd(x, full_matrices=False))
    near(u.T @ u, np.eye(5))
    assert int(ts.linalg.matrix_rank(x)) == 2 and s[2] < 1e-14
    near(ts.linalg.pinv(x), np.linalg.pinv(x), 1000)
    b = RNG.standard_normal((7, 3))
    near(ts.linalg.lstsq(x, b), np.linalg.lstsq(x, b, rcond=None)[0], 1000)
    near(ts.linalg.lstsq(x, b[:, 0]), np.linalg.lstsq(x, b[:, 0], rcond=None)[0], 1000)
    for order in (2, -2, "nuc"):
        near(ts.linalg.matrix_norm(x, ord=order), np.linalg.norm(x, ord=order))


def test_zeros_nan_and_large_numbers() -> None:
    assert np.asarray(ts.linalg.eigvalsh(np.zeros((3, 3)))).tolist() == [0, 0, 0]
    assert np.asarray(ts.linalg.svdvals(np.zeros((3, 2)))).tolist() == [0, 0]
    for size in (1e200, 1e-200):
        np.testing.assert_allclose(ts.linalg.eigvalsh(size * np.diag([3.0, 1, 2])), size * np.array([1.0, 2, 3]))
        np.testing.assert_allclose(ts.linalg.svdvals(size * np.diag([3.0, 1, 2])), size * np.array([3.0, 2, 1]))
    a = symmetric(2, 4, 4)
    a[0, 1, 1] = np.nan
    w, v = map(np.asarray, ts.linalg.eigh(a))
    assert np.isnan(w[0]).all() and np.isnan(v[0]).all() and np.isfinite(w[1]).all()
    assert np.isnan(np.asarray(ts.linalg.svdvals(a))[0]).all()


C, B = RNG.standard_normal(5), RNG.standard_normal((5, 5))


def of_eigh(xp: Any, a: Any) -> Any:
    w, v = xp.linalg.eigh(a + a.T)
    return (C * w).sum() + ((v * w**2 @ v.T) * B).sum() + ((v * v) * B).sum()


def of_svd(xp: Any, x: Any) -> Any:
    u, s, vt = xp.linalg.svd(x, full_matrices=False)
    k = s.shape[0]
    signs = ((u * u) * B[: u.shape[0], :k]).sum() + ((vt * vt) * B[:k, : vt.shape[1]]).sum()
    return (s**3 * C[:k]).sum() + signs + ((u @ vt) * B[: x.shape[0], : x.shape[1]]).sum()


def of_pinv(xp: Any, x: Any) -> Any:
    return (xp.linalg.pinv(x) * x.T).sum() + (xp.linalg.pinv(x) ** 2).sum()


CASES = [(of_eigh, (5, 5)), (of_svd, (5, 3)), (of_svd, (3, 5)), (of_svd, (4, 4)), (of_pinv, (4, 3))]


@pytest.mark.parametrize(("function", "shape"), CASES)
def test_derivatives_are_jaxs(function: Any, shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape)
    with jax.enable_x64(True):
        wanted = jax.grad(lambda x: function(jnp, x))(jnp.asarray(x))
        np.testing.assert_allclose(ts.grad(lambda x: function(ts, x))(x), wanted, rtol=1e-9, atol=1e-9)


def test_second_derivatives_are_jaxs() -> None:
    def f(xp: Any, x: Any) -> Any:
        return (xp.linalg.eigvalsh(x + x.T) ** 3 * C[:3]).sum()

    x = RNG.standard_normal((3, 3))
    with jax.enable_x64(True):
        wanted = jax.hessian(lambda x: f(jnp, x))(jnp.asarray(x))
        np.testing.assert_allclose(ts.hessian(lambda x: f(ts, x))(x), wanted, rtol=1e-9, atol=1e-9)


def test_vmap_and_functions() -> None:
    a = symmetric(4, 6, 6)

    @ts.function
    def roots(x: Tensor["B", "N", "N", f64]):
        w, v = ts.linalg.eigh(x @ x.mT)
        return v * ts.sqrt(w)[..., None, :] @ v.mT

    found = np.asarray(roots(a))
    near(found @ found, a @ a.swapaxes(1, 2), 1000)
    assert np.array_equal(ts.vmap(ts.linalg.eigvalsh)(a), ts.linalg.eigvalsh(a))


@pytest.mark.parametrize("n", [5, 17])
def test_generated_for_gpus(n: int) -> None:
    a = symmetric(2, n, n, dtype=np.float32)

    @ts.function
    def both(a):
        return ts.linalg.eigvalsh(a), ts.linalg.svdvals(a)

    with knobs.target.override("emulator:sm_80"):
        found = both(a)
    for x, y in zip(found, both(a), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        ("eigh", np.ones((2, 3)), "eigh takes square matrices"),
        ("eigh", np.eye(3, dtype=np.int64), "f32 or f64 elements, not int64"),
        ("svd", np.eye(3, dtype=np.complex64), "f32 or f64 elements, not complex64"),
        ("svdvals", np.ones(3), "takes matrices"),
        ("pinv", np.ones(3), "takes matrices"),
    ],
)
def test_what_is_refused(name: str, x: Any, message: str) -> None:
    with pytest.raises((CompileError, ValueError), match=message):
        getattr(ts.linalg, name)(x)
