"""Loops that lanes leave one by one: `while` on a tile of bools, `break` under a condition over lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, int32
from tests.conftest import require
from tests.differential.test_folds import everywhere
from tests.kernel_runner import check, codes, run

rng = np.random.default_rng(0)
SIZE = 45
RE, IM = (rng.uniform(-2, 1, SIZE).astype(np.float32), rng.uniform(-1.2, 1.2, SIZE).astype(np.float32))
MOST = 30


def escape(re: Any, im: Any) -> int:
    x = y = np.float32(0)
    for n in range(MOST):
        if x * x + y * y > 4:
            return n
        x, y = x * x - y * y + re, 2 * x * y + im
    return MOST


ESCAPES = [escape(a, b) for a, b in zip(RE, IM, strict=True)]


def mandelbrot(re: Tensor["n", f32], im: Tensor["n", f32], count: Tensor["n", int32]):
    i = ts.tile.linear_id()
    a, b = re[i], im[i]
    x, y, steps = a * 0, b * 0, ts.tile.cast(a * 0, int32)
    while (x * x + y * y <= 4) & (steps < 30):
        x, y = x * x - y * y + a, 2 * x * y + b
        steps += 1
    count[i] = steps


def mandelbrot_for(re: Tensor["n", f32], im: Tensor["n", f32], count: Tensor["n", int32]):
    i = ts.tile.linear_id()
    if i < n:
        a, b = re[i], im[i]
        x, y, steps = a * 0, b * 0, ts.tile.cast(a * 0, int32)
        for _ in ts.tile.range_k(0, 30):
            if x * x + y * y > 4:
                break
            x, y = x * x - y * y + a, 2 * x * y + b
            steps += 1
        count[i] = steps


def mandelbrot_matrix(re: Tensor["n", f32], im: Tensor["n", f32], count: Tensor["n", int32]):
    """Of a matrix, where the condition has other axes than what is carried beside it."""
    for i in ts.tile.range(0, n, 16):
        a, b = re[i : i + 16], im[i : i + 16]
        x, y, steps = a * 0, b * 0, ts.tile.cast(a * 0, int32)
        while x * x + y * y <= 4:
            steps += 1
            if steps > 30:
                steps = ts.tile.cast(a * 0, int32) + 30
                break
            x, y = x * x - y * y + a, 2 * x * y + b
            if x * x + y * y > 4:
                continue
            count[i : i + 16] = steps * 0 - 1  # of lanes that go on, overwritten below
        count[i : i + 16] = steps


@pytest.mark.parametrize("kernel", [mandelbrot, mandelbrot_for, mandelbrot_matrix], ids=lambda f: f.__name__)
def test_lanes_that_have_left_keep_their_values(kernel: Callable[..., Any]) -> None:
    (count,) = everywhere(kernel, RE, IM, np.zeros(SIZE, np.int32), results=1)
    np.testing.assert_array_equal(count, ESCAPES)


def newton(a: Tensor["n", f32], root: Tensor["n", f32], steps: Tensor["n", int32]):
    i = ts.tile.linear_id()
    v = a[i]
    x, k = v, ts.tile.cast(v * 0, int32)
    while True:
        after = (x + v / x) / 2
        k += 1
        if abs(after - x) <= 1e-6 * x:
            break
        x = after
    root[i] = x
    steps[i] = k


def late_newton(a: Tensor["n", f32], root: Tensor["n", f32], steps: Tensor["n", int32]):
    i = ts.tile.linear_id()
    x, count = a[i], ts.tile.cast(a[i] * 0, int32)
    for _ in ts.tile.range_k(0, 40):
        count += 1
        if count == 2:
            count += 10
            continue
        following = (x + a[i] / x) / 2
        if abs(following - x) <= 1e-5 * x:
            break
        x = following
    root[i], steps[i] = x, count


def test_lanes_that_skip_what_is_loaded_keep_what_they_have_done() -> None:
    def one(a: np.float32) -> tuple[float, int]:
        x, count = a, 0
        for _ in range(40):
            count += 1
            if count == 2:
                count += 10
                continue
            following = (x + a / x) / 2
            if abs(following - x) <= np.float32(1e-5) * x:
                break
            x = following
        return float(x), count

    a = np.array([1, 2, 9, 1e6, 0.01, 5, 77], np.float32)
    root, steps = everywhere(late_newton, a, np.zeros(7, np.float32), np.zeros(7, np.int32), results=2)
    np.testing.assert_allclose(root, [one(v)[0] for v in a], rtol=1e-5)
    assert steps.tolist() == [one(v)[1] for v in a]


def test_a_loop_without_a_condition() -> None:
    a = rng.uniform(0.1, 100, SIZE).astype(np.float32)
    root, steps = everywhere(newton, a, np.zeros_like(a), np.zeros(SIZE, np.int32), results=2)
    np.testing.assert_allclose(root, np.sqrt(a), rtol=1e-5)
    for v, n in zip(a, steps, strict=True):
        x, k = v, 0
        while True:
            after, k = (x + v / x) / np.float32(2), k + 1
            if abs(after - x) <= np.float32(1e-6) * x:
                break
            x = after
        assert n == k


def trace(x: Tensor["n", int32], y: Tensor["n", int32], left: Tensor["n", int32]):
    """Stores, nested loops, both sides of a condition, and a break that all lanes take together."""
    i = ts.tile.linear_id()
    v, rounds = x[i], x[i] * 0
    for k in ts.tile.range_k(0, 20):
        if k == 6:
            break
        if v % 2 == 0:
            v = v // 2
        else:
            if v == 1:
                left[i] = rounds * 0 + k
                break
            v = 3 * v + 1
        while v % 5 == 0:
            v = v // 5
        rounds += 1
    y[i] = v * 100 + rounds


def traced(v: int) -> tuple[int, int]:
    rounds = left = 0
    for k in range(6):
        if v % 2 == 0:
            v //= 2
        else:
            if v == 1:
                left = k
                break
            v = 3 * v + 1
        while v % 5 == 0:
            v //= 5
        rounds += 1
    return v * 100 + rounds, left


def test_nested_loops_and_breaks_for_all() -> None:
    x = np.arange(1, SIZE + 1, dtype=np.int32)
    y, left = everywhere(trace, x, np.zeros_like(x), np.zeros_like(x), results=2)
    wanted = [traced(int(v)) for v in x]
    np.testing.assert_array_equal(y, [w[0] for w in wanted])
    np.testing.assert_array_equal(left, [w[1] for w in wanted])


def masked_off(x: Tensor["n", f32], y: Tensor["n", f32]):
    """Lanes that the condition around leaves out would never end."""
    i = ts.tile.linear_id()
    v = x[i]
    if v > 0:
        while v < 10:
            v = v * 2
    y[i] = v


def test_lanes_that_a_condition_around_leaves_out_do_not_count() -> None:
    x = np.linspace(-3, 7, SIZE, dtype=np.float32)
    (y,) = everywhere(masked_off, x, np.zeros_like(x), results=1)
    wanted = x.copy()
    while ((wanted > 0) & (wanted < 10)).any():
        wanted = np.where((wanted > 0) & (wanted < 10), wanted * 2, wanted)
    np.testing.assert_array_equal(y, wanted)


def test_the_loop_ends_when_no_lane_goes_on() -> None:
    """Not after all of a counted loop's steps."""

    def kernel(x: Tensor["n", f32], y: Tensor["n", f32]):
        t = x[0:4]
        for _ in ts.tile.range_k(0, 1 << 40):
            if t > 3:
                break
            t = t + 1
        y[0:4] = t

    for target in ("reference", "cpu"):
        y = np.zeros(4, np.float32)
        run(kernel, np.arange(4, dtype=np.float32), y, target=target)
        np.testing.assert_array_equal(y, 4)


def test_blocks_change_no_bit() -> None:
    require("g++")
    found = []
    for block in (4, 16, 64):
        count = np.zeros(SIZE, np.int32)
        run(mandelbrot, RE, IM, count, target="cpu", BLOCK=block)
        found.append(count.tobytes())
    assert len(set(found)) == 1


# What is refused


def refused(body: str) -> list[str]:
    from tessera.errors import register_source

    text = f"""def kernel(x: Tensor["n", f32], y: Tensor["n", f32]):
    i = ts.tile.linear_id()
    v = x[i]
{body}
    y[i] = v
"""
    register_source(f"lanes {body}", text)
    names = dict(globals())
    exec(compile(text, f"lanes {body}", "exec"), names)
    given = np.zeros(8, np.float32), np.zeros(8, np.float32)
    found = codes(names["kernel"], *given)
    shown = [d.code for d in check(names["kernel"]).diagnostics if d.severity == "error"]
    assert found == shown
    return found


def test_what_is_refused() -> None:
    assert refused("    while v < 3:\n        v += 1") == []
    assert refused("    while v < 3:\n        pass") == ["TS102"]
    assert refused("    while v < 3:\n        if v > 1:\n            return\n        v += 1") == ["TS102"]
    assert refused("    for k in range(4):\n        if v > 1:\n            break\n        v += 1") == ["TS102"]
    assert refused("    while ts.tile.sum(v) < 3:\n        if v > 1:\n            break\n        v += 1") == []
    assert refused("    w = x[0:4]\n    while w < 3:\n        w = w[:, None] + v[None, :]") == ["TS212"]
