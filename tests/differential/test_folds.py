"""`ts.tile.reduce` and `associative_scan`: against NumPy, with the same bits on every target."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.language.order import pairs
from tests.conftest import require
from tests.kernel_runner import check, codes, run
from tests.unit.kernel.test_builtins import loaded

TARGETS = ("reference", "cpu", "emulator:sm_80")


def everywhere(kernel: Callable[..., Any], *given: Any, results: int, emulated: bool = True) -> list[Any]:
    """The last `results` arguments after a run on each target, which all leave the same bits."""
    if emulated:
        require("g++")
    found: list[list[Any]] = []
    for target in TARGETS if emulated else TARGETS[:2]:
        arrays = [np.array(a) if isinstance(a, np.ndarray) else a for a in given]
        run(kernel, *arrays, target=target)
        found.append([a for a in arrays if isinstance(a, np.ndarray)][-results:])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return found[0]


# The order is a function of places alone


@given(st.integers(1, 200), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_pairs_keep_the_order_of_elements(n: int, more: int) -> None:
    """Every combination is of neighbours, and what stands behind an element changes nothing of it."""
    total, prefix, longer = ([(i, i + 1) for i in range(size)] for size in (n, n, n + more))
    tree: list[Any] = list(range(n))
    for first, apart, count in pairs(n, False):
        for left in range(first, first + 2 * apart * count, 2 * apart):
            assert total[left][1] == total[left + apart][0]
            total[left] = (total[left][0], total[left + apart][1])
            tree[left] = (tree[left], tree[left + apart])
    assert total[0] == (0, n)
    for line in (prefix, longer):
        for first, apart, count in pairs(len(line), True):
            for left in range(first, first + 2 * apart * count, 2 * apart):
                assert line[left][1] == line[left + apart][0]
                line[left + apart] = (line[left][0], line[left + apart][1])
    assert prefix == [(0, i + 1) for i in range(n)] == longer[:n]


# What people write


def welford(mean_a, square_a, n_a, mean_b, square_b, n_b):  # type: ignore[no-untyped-def]
    n = n_a + n_b
    apart = mean_b - mean_a
    return mean_a + apart * n_b / n, square_a + square_b + apart * apart * n_a * n_b / n, n


def variance(x: ts.Tensor["M", "N", ts.f32], mean: ts.Tensor["M", ts.f32], var: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 8):
        m, square, n = ts.tile.reduce((x[i : i + 8, 0:32], 0.0, 1.0), welford, axis=1)
        mean[i : i + 8] = m
        var[i : i + 8] = square / n


def test_welford_over_ragged_rows_and_columns() -> None:
    x = np.random.default_rng(0).standard_normal((19, 29)).astype(np.float32) + 100
    mean, var = everywhere(variance, x, np.zeros(19, np.float32), np.zeros(19, np.float32), results=2)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-6)
    np.testing.assert_allclose(var, x.astype(np.float64).var(1), rtol=1e-5)


def last_largest(a, b):  # type: ignore[no-untyped-def]
    later = b[0] >= a[0]
    return ts.tile.where(later, b[0], a[0]), ts.tile.where(later, b[1], a[1])


def last_argmax(x: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["N", ts.int32]):
    for j in ts.tile.range(0, N, 16):
        places = ts.tile.cast(ts.tile.arange(16), ts.int32)[:, None]
        _, found = ts.tile.reduce((x[0:16, j : j + 16], places), last_largest, axis=0)
        at[j : j + 16] = found


def test_argmax_with_a_tie_rule_of_its_own() -> None:
    x = np.round(np.random.default_rng(1).standard_normal((11, 29))).astype(np.float32)
    (at,) = everywhere(last_argmax, x, np.zeros(29, np.int32), results=1)
    np.testing.assert_array_equal(at, 10 - x[::-1].argmax(0))


def recurrence(
    a: ts.Tensor["M", "N", ts.f32], b: ts.Tensor["M", "N", ts.f32],
    h: ts.Tensor["M", "N", ts.f32], back: ts.Tensor["M", "N", ts.f32],
):  # fmt: skip
    after = lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1])  # noqa: E731
    for i in ts.tile.range(0, M, 4):
        both = a[i : i + 4, 0:64], b[i : i + 4, 0:64]
        _, h[i : i + 4, 0:64] = ts.tile.associative_scan(both, after)
        _, back[i : i + 4, 0:64] = ts.tile.associative_scan(both, after, axis=1, reverse=True)


def test_a_linear_recurrence_both_ways() -> None:
    """h[i] = a[i] * h[i - 1] + b[i]."""
    a = np.linspace(-1, 1, 350, dtype=np.float32).reshape(7, 50)
    b = a * 3 + 1
    h, back = everywhere(recurrence, a, b, np.zeros_like(a), np.zeros_like(a), results=2)

    def wanted(order: Any) -> Any:
        out, carry = np.zeros(a.shape), np.zeros(7)
        for i in order:
            carry = a[:, i].astype(np.float64) * carry + b[:, i]
            out[:, i] = carry
        return out

    np.testing.assert_allclose(h, wanted(range(50)), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(back, wanted(reversed(range(50))), rtol=2e-5, atol=1e-5)


# Shapes, axes, dtypes, conditions


def affine(f, g):  # type: ignore[no-untyped-def]
    """Composition: associative, not commutative."""
    return (f[0] * g[0]) % 97, (f[1] * g[0] + g[1]) % 97


def _affine(f: tuple[int, int], g: tuple[int, int]) -> tuple[int, int]:
    return f[0] * g[0] % 97, (f[1] * g[0] + g[1]) % 97


def composed(
    a: ts.Tensor["P", "Q", "R", ts.int32], first: ts.Tensor["Q", "R", ts.int32], middle: ts.Tensor["P", "R", ts.int32],
    outer: ts.Tensor["Q", ts.int32], every: ts.Tensor["k", ts.int32], kept: ts.Tensor["P", "Q", "R", ts.int32],
):  # fmt: skip
    t = a[0:4, 0:8, 0:8]
    both = t, t + 1
    first[0:8, 0:8] = ts.tile.reduce(both, affine, axis=0)[1]
    middle[0:4, 0:8] = ts.tile.reduce(both, affine, axis=-2)[1]
    outer[0:8] = ts.tile.reduce(both, affine, axis=(0, 2))[1]
    every[0:1] = ts.tile.reduce(both, affine)[1]
    kept[0:4, 0:8, 0:8] = t * 0 + ts.tile.reduce(both, affine, axis=1, keepdim=True)[1]


def test_every_axis_in_the_order_of_its_elements() -> None:
    a = np.random.default_rng(2).integers(1, 90, (3, 7, 5)).astype(np.int32)
    shapes = ((7, 5), (3, 5), (7,), (1,), (3, 7, 5))
    found = everywhere(composed, a, *(np.zeros(s, np.int32) for s in shapes), results=5)

    def of(line: Any) -> int:
        return functools.reduce(_affine, [(int(v), int(v) + 1) for v in np.ravel(line)])[1]

    first = np.array([[of(a[:, q, r]) for r in range(5)] for q in range(7)])
    middle = np.array([[of(a[p, :, r]) for r in range(5)] for p in range(3)])
    outer = np.array([of(a[:, q, :]) for q in range(7)])
    kept = np.broadcast_to(middle[:, None, :], (3, 7, 5))
    for got, wanted in zip(found, (first, middle, outer, [of(a)], kept), strict=True):
        np.testing.assert_array_equal(got, wanted)


def chosen(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], low: ts.f32):
    def nearer(a, b):  # type: ignore[no-untyped-def]
        best = a
        if abs(b - low) < abs(a - low):
            best = b
        return best

    def capped(a, b):  # type: ignore[no-untyped-def]
        return a if a > b else b

    y[0:1] = ts.tile.reduce(x[0:32], nearer)
    y[1:2] = ts.tile.reduce(ts.tile.load(x[0:32], mask=x[0:32] < low), capped, identity=-9)
    y[2:3] = ts.tile.reduce(ts.tile.load(x[0:32], mask=x[0:32] > 100), capped, identity=-9)
    y[3:4] = ts.tile.reduce(ts.tile.load(x[0:32], mask=x[0:32] > 100), capped)
    t = x[0:32]
    y[4:5] = ts.tile.reduce(t[1:2], capped) + ts.tile.max(ts.tile.associative_scan(t[1:2], capped))
    y[5:6] = ts.tile.reduce(t, ts.tile.minimum)


def test_conditions_choose_and_what_is_masked_is_left_out() -> None:
    x = np.random.default_rng(3).standard_normal(27).astype(np.float32)
    (y,) = everywhere(chosen, x, np.zeros(27, np.float32), 0.25, results=1)
    low = np.float32(0.25)
    wanted = [x[abs(x - low).argmin()], x[x < low].max(), -9, 0, 2 * x[1], x.min()]
    np.testing.assert_array_equal(y[:6], np.array(wanted, np.float32))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 31, 32])
def test_masks_between_elements(n: int) -> None:
    def kernel(x: ts.Tensor["n", ts.int32], y: ts.Tensor["n", ts.int32], z: ts.Tensor["n", ts.int32]):
        t = ts.tile.load(x[0:32], mask=x[0:32] % 3 != 0)
        both = ts.tile.associative_scan((t, t + 1), affine)
        y[0:32] = ts.tile.where(x[0:32] % 3 != 0, both[1], -1)
        both = ts.tile.associative_scan((t, t + 1), affine, identity=(1, 0))
        z[0:32] = both[1]

    x = np.random.default_rng(n).integers(1, 90, n).astype(np.int32)
    y, z = everywhere(kernel, x, np.zeros_like(x), np.zeros_like(x), results=2, emulated=n == 31)
    there = [(int(v), int(v) + 1) for v in x if v % 3]
    running = itertools.accumulate(there, _affine)
    np.testing.assert_array_equal(y, [next(running)[1] if v % 3 else -1 for v in x])
    whole = itertools.accumulate([(int(v), int(v) + 1) if v % 3 else (1, 0) for v in x], _affine)
    np.testing.assert_array_equal(z, [v[1] for v in whole])


KINDS = ("f64", "f16", "int8", "uint32", "bool_", "complex64")


def test_dtypes(tmp_path: Any) -> None:
    given = ", ".join(f'{n}_{k}: Tensor["n", ts.{k}]' for k in KINDS for n in "xyz")
    text = [f"def kernel({given}):"]
    for k in KINDS:
        text.append(f"    y_{k}[0:16] = ts.tile.associative_scan(x_{k}[0:16], lambda a, b: b)")
        text.append(f"    z_{k}[0:1] = ts.tile.reduce(x_{k}[0:16], lambda a, b: a)")
    kernel = loaded("\n".join(text), tmp_path)["kernel"]
    arrays = []
    for k in KINDS:
        x = (np.arange(13) % 5 - (k not in ("uint32", "bool_"))).astype(getattr(ts, k).numpy)
        arrays += [x, np.zeros_like(x), np.zeros_like(x)]
    found = everywhere(kernel, *arrays, results=len(arrays))
    for x, y, z in zip(*(found[i::3] for i in range(3)), strict=True):
        np.testing.assert_array_equal(y, x)
        assert z[0] == x[0]


def sums(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32], z: ts.Tensor["M", "N", ts.f32]):
    t = x[0:5, 0 : ts.tile.context().WIDTH]
    y[0:5] = ts.tile.reduce(t, lambda a, b: a + b, axis=1)
    z[0:5, 0 : ts.tile.context().WIDTH] = ts.tile.associative_scan(t, lambda a, b: a + b)


def test_a_wider_tile_changes_no_bit() -> None:
    """What does not exist stands behind the elements."""
    x = np.random.default_rng(4).standard_normal((5, 21)).astype(np.float32)
    found = []
    for width in (21, 32, 64):
        y, z = np.zeros(5, np.float32), np.zeros_like(x)
        run(sums, x, y, z, target="cpu", WIDTH=width)
        np.testing.assert_allclose(z, x.cumsum(1), rtol=1e-4, atol=1e-5)
        found.append(np.column_stack([y, z]).tobytes())
    assert len(set(found)) == 1


# What is refused

x2 = np.zeros((8, 8), np.float32)


def refused(combine: Any, **options: Any) -> list[str]:
    def kernel(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
        t = x[0:8, 0:8]
        y[0:8] = ts.tile.reduce(t, combine, axis=1, **options)

    return codes(kernel, x2, np.zeros(8, np.float32))


def test_what_combine_gives_is_checked() -> None:
    assert refused(lambda a, b: a + b) == []
    assert refused(lambda a, b: (a, b)) == ["TS402"]
    assert refused(lambda a, b: a < b) == ["TS302"]
    assert refused(lambda a, b: ts.tile.cast(a, ts.f64)) == ["TS302"]
    assert refused(lambda a, b: ts.tile.zeros((8,))) == ["TS402"]
    assert refused(lambda a: a) == ["TS105"]
    assert refused(3) == ["TS105"]
    assert refused(lambda a, b: ts.tile.sum(a[None])) == ["TS102"]
    assert refused(lambda a, b: a + b, identity=(0, 0)) == ["TS105"]
    assert refused(lambda a, b: a + b, identity="0") == ["TS105"]


def test_no_elements_need_an_identity() -> None:
    def kernel(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
        y[0:8] = ts.tile.reduce(x[0:8, :], lambda a, b: a * b, axis=1, identity=1)

    def without(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
        y[0:8] = ts.tile.reduce(x[0:8, :], lambda a, b: a * b, axis=1)

    empty = np.zeros((8, 0), np.float32)
    (y,) = everywhere(kernel, empty, np.zeros(8, np.float32), results=1)
    assert (y == 1).all()
    assert codes(without, empty, np.zeros(8, np.float32)) == ["TS402"]


def test_an_editor_knows_the_types_without_sizes() -> None:
    analysis = check(variance)
    assert not [d for d in analysis.diagnostics if d.severity == "error"]
