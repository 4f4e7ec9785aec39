"""Functions that call kernels: on every target what the same text computes on NumPy, whatever the kernel is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts

TARGETS = ("reference", "cpu", "emulator:sm_80")
f32 = ts.f32


@ts.kernel
def damped(x: ts.Tensor["M", "N", f32], a: float) -> ts.Tensor["M", "N", f32]:
    return ts.tile.exp(x) * a


@ts.kernel
def saxpy(x: ts.Tensor["K", f32], y: ts.Tensor["K", f32], a: float):
    i = ts.tile.linear_id()
    y[i] = a * x[i] + y[i]


@ts.kernel
def halves(x: ts.Tensor["M", "N", f32]) -> tuple[ts.Tensor["M", "N", f32], ts.Tensor["M", f32]]:
    t = ts.tile.load(x)
    return t * 0.5, ts.tile.row_sum(t)


@ts.kernel
def added(x: ts.Tensor["K", f32], y: ts.Tensor["K", f32]) -> ts.Tensor["K", f32]:
    i = ts.tile.linear_id()
    y[i] = x[i] + y[i]
    return y


@ts.kernel
def doubled(x: ts.Tensor[..., "N", f32]) -> ts.Tensor[..., "N", f32]:
    return x * 2.0


@ts.kernel
def heads(q: ts.Tensor["B*H", "S", f32]) -> ts.Tensor["B*H", "S", f32]:
    return q + 1.0


@ts.kernel
def times_size(x: ts.Tensor["K", f32], n: ts.Const["K"]) -> ts.Tensor["K", f32]:
    i = ts.tile.linear_id()
    return x[i] * n


@ts.kernel
def optional(x: ts.Tensor["K", f32], b: ts.Tensor["K", f32] | None = None, n: int = 3) -> ts.Tensor["K", f32]:
    i = ts.tile.linear_id()
    v = x[i] * n
    if b is not None:
        v = v + b[i]
    return v


@ts.kernel
def matmul(A: ts.Tensor["M", "K", f32], B: ts.Tensor["K", "N", f32]) -> ts.Tensor["M", "N", f32]:
    acc = ts.tile.zeros((32, 32), f32)
    for k in ts.tile.range(0, K, 16):
        acc += ts.tile.mma(A[tile_m : tile_m + 32, k : k + 16], B[k : k + 16, tile_n : tile_n + 32])
    return acc


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def check(f: Any, want: Any, *args: Any) -> None:
    """`f` gives `want` on every target, and changes none of its arguments."""
    program = ts.function(f)
    several = isinstance(want, tuple)
    before = [np.array(a) for a in args]
    for target in TARGETS:
        found = ts.compile(program, target=target, arguments=args)(*args)
        for a, b in zip(found if several else (found,), want if several else (want,), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=2e-5, atol=2e-5, err_msg=target)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], Callable[..., Any]]] = []


def case(*args: Any) -> Callable[[Any], Any]:
    """The last argument says on NumPy what the function computes for the others."""

    def add(f: Any) -> Any:
        CASES.append((f, args[:-1], args[-1]))
        return f

    return add


X2, X1 = normal(6, 4), normal(6)


# what a kernel is given lies in memory in one piece, whatever it is a view of


@case(X2, lambda x: np.exp(x.T) * 0.5)
def transposed(x: ts.Tensor["B", "N", f32]):
    return damped(x.T, 0.5)


@case(X2, lambda x: np.exp(x[1:4]) * 0.5)
def rows_of_it(x: ts.Tensor["B", "N", f32]):
    return damped(x[1:4], 0.5)


@case(X2, lambda x: np.exp(x[:, 1:3]) * 0.5)
def columns_of_it(x: ts.Tensor["B", "N", f32]):
    return damped(x[:, 1:3], 0.5)


@case(X1, lambda x: np.exp(np.broadcast_to(x, (3, 6))) * 0.5)
def repeated(x: ts.Tensor["N", f32]):
    return damped(ts.broadcast_to(x, (3, 6)), 0.5)


@case(X2, lambda x: np.full((3, 5), np.exp(1) * 0.5, np.float32))
def generated(x: ts.Tensor["B", "N", f32]):
    return damped(ts.ones((3, 5)), 0.5)


@case(X2, lambda x: np.exp(x + x[0]) * 0.5 * x.sum(0))
def between_operators(x: ts.Tensor["B", "N", f32]):
    return damped(x + x[0], 0.5) * x.sum(0)


# scalars


@case(X1, 3.0, lambda x, a: np.exp(x[None]) * a)
def scalar_argument(x: ts.Tensor["N", f32], a: float):
    return damped(x[None, :], a)


@case(X1, 3.0, lambda x, a: np.exp(x[None]) * (a * 2 + 1))
def scalar_of_scalars(x: ts.Tensor["N", f32], a: float):
    return damped(x.reshape(1, 6), a * 2 + 1)


@case(X1, lambda x: np.exp(x[None]) * x.mean())
def scalar_of_tensors(x: ts.Tensor["N", f32]):
    return damped(x.reshape(1, 6), x.mean())


@case(X1, lambda x: np.exp(x[None]) * 6)
def scalar_of_sizes(x: ts.Tensor["N", f32]):
    return damped(x.reshape(1, 6), x.shape[0])


@case(X1, 3, lambda x, n: np.exp(x[None]) * n)
def scalar_of_integers(x: ts.Tensor["N", f32], n: ts.int32):
    return damped(x.reshape(1, 6), n)


@case(X1, lambda x: x * 6)
def size_at_compile_time(x: ts.Tensor["N", f32]):
    return times_size(x, x.shape[0])


@case(X1, 5, lambda x, n: x * 3 + (x * n + x))
def defaults_and_absent_tensors(x: ts.Tensor["N", f32], n: int):
    return optional(x) + optional(n=n, b=x, x=x)


# results


@case(X2, lambda x: (x * 0.5 + x.sum(1, keepdims=True), x.sum(1)))
def several_results(x: ts.Tensor["B", "N", f32]):
    h, s = halves(x)
    return h + s[:, None], s


@case(normal(2, 3, 4), lambda x: x * 2)
def any_rank(x: ts.Tensor["A", "B", "C", f32]):
    return doubled(x)


@case(normal(6, 4), normal(2, 3, 4), lambda x, y: (x + 1, (y + 1).reshape(6, 4)))
def sizes_that_are_products(x: ts.Tensor["P*Q", "S", f32], y: ts.Tensor["P", "Q", "S", f32]):
    return heads(x), heads(y.reshape(6, 4))


@case(normal(50, 40), lambda a: (a @ a.T) @ (a @ a.T) / 100)
def a_kernel_after_itself(a: ts.Tensor["I", "J", f32]):
    g = matmul(a, a.T)
    return matmul(g, g) / 100


# what a kernel stores to


@case(X1, lambda x: (x * 2, x, x))
def the_variable_holds_it(x: ts.Tensor["N", f32]):
    kept, y = x, x
    added(x, y)
    return y, x, kept


@case(X1, lambda x: x + (x + 1))
def the_result_holds_it(x: ts.Tensor["N", f32]):
    return added(x, x + 1)


@case(X1, lambda x: (x * 4, x))
def one_tensor_twice(x: ts.Tensor["N", f32]):
    y = x + 0
    saxpy(y, y, 3.0)
    return y, x


@case(X2, lambda x: (x[2] + 2 * x[0], x))
def part_of_a_tensor(x: ts.Tensor["B", "N", f32]):
    row = x[2]
    saxpy(x[0], row, 2.0)
    return row, x


def helper(x: Any, y: Any) -> Any:
    saxpy(x, y, 2.0)
    return y


@case(X1, lambda x: (x * 7, x * 3))
def in_an_inlined_function(x: ts.Tensor["N", f32]):
    z = x * 3
    return helper(x * 2, z), z


# control flow


@case(X1, lambda x: x * 3 + 2 * x if x.sum() > 0 else x * 3)
def on_one_path(x: ts.Tensor["N", f32]):
    y = x * 3
    if x.sum() > 0:
        saxpy(x, y, 2.0)
    return y


@case(X1, lambda x: np.exp(x[None]) * (2 if x.sum() < 0 else 3))
def on_both_paths(x: ts.Tensor["N", f32]):
    if x.sum() < 0:
        r = damped(x[None], 2.0)
    else:
        r = damped(x[None], 3.0)
    return r


@case(X1, lambda x: x + 2 * x * 4)
def in_a_loop(x: ts.Tensor["N", f32]):
    y = x
    for _ in ts.range(4):
        saxpy(x, y, 2.0)
    return y


@case(X1, lambda x: x + 2 * x * 3)
def in_an_unrolled_loop(x: ts.Tensor["N", f32]):
    y = x
    for _ in range(3):
        saxpy(x, y, 2.0)
    return y


def _grown(x: Any) -> Any:
    y = abs(x) + np.float32(0.1)
    while y.sum() < 100:
        y = y + 2 * abs(y)
    return y


@case(X1, _grown)
def while_it_grows(x: ts.Tensor["N", f32]):
    y = x.abs() + 0.1
    while y.sum() < 100:
        saxpy(y.abs(), y, 2.0)
    return y


@pytest.mark.parametrize(("f", "args", "numpy"), CASES, ids=[f.__name__ for f, _, _ in CASES])
def test_as_on_numpy(f: Any, args: tuple[Any, ...], numpy: Any) -> None:
    check(f, numpy(*args), *args)


@ts.function
def mixed(x: ts.Tensor["B", "N", f32], w: ts.Tensor["N", "E", f32], rate: float):
    y = matmul(x, w) + 1
    total = y.sum(0)
    kept = total
    saxpy(y[0], total, rate)
    h, s = halves(y * total)
    return h - kept, s, damped(y.T / 8, total.max() / 100)


def on_numpy(x: Any, w: Any, rate: float) -> tuple[Any, ...]:
    y = x @ w + 1
    kept = y.sum(0)
    total = rate * y[0] + kept
    return y * total / 2 - kept, (y * total).sum(1), np.exp(y.T / 8) * (total.max() / 100)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70), st.floats(-2, 2, width=32))
def test_any_sizes(b: int, n: int, e: int, rate: float) -> None:
    x, w = normal(b, n), normal(n, e)
    for target in ("reference", "cpu"):
        found = ts.compile(mixed, target, arguments=(x, w, rate))(x, w, rate)
        for a, want in zip(found, on_numpy(x, w, rate), strict=True):
            np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-3 * max(1, abs(want).max()))


@pytest.mark.parametrize("target", ["emulator:sm_75", "emulator:sm_90a"])
def test_other_devices(target: str) -> None:
    x, w = normal(33, 20), normal(20, 40)
    found = ts.compile(mixed, target, arguments=(x, w, 0.5))(x, w, 0.5)
    for a, want in zip(found, on_numpy(x, w, 0.5), strict=True):
        np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-3 * abs(want).max())


@ts.kernel
def clipped(x: ts.Tensor["M", "N", f32]) -> ts.Tensor["M", "N", f32]:
    return ts.tile.maximum(x[tile_m : tile_m + 8, tile_n : tile_n + 16], 0.0)


@ts.function
def open_sizes(x: ts.Tensor["B", "S", f32], w: ts.Tensor["B*S", f32]):
    v = clipped(x).reshape(x.shape[0] * x.shape[1])
    saxpy(w, v, 2.0)
    return v, clipped(x.T)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_are_known_at_launch(target: str) -> None:
    """Compiled once for all of them."""
    compiled = ts.compile(open_sizes, target)
    for shape in ((3, 5), (17, 33), (1, 1)):
        x, w = normal(*shape), normal(shape[0] * shape[1])
        v, t = compiled(x, w)
        np.testing.assert_allclose(v, np.maximum(x, 0).reshape(-1) + 2 * w, rtol=1e-6)
        np.testing.assert_array_equal(t, np.maximum(x.T, 0))


def test_sizes_that_are_products_of_unknown_ones() -> None:
    """The same of a kernel that is called by itself."""
    np.testing.assert_array_equal(heads(np.zeros((6, 4), np.float32)), 1)


@ts.kernel
def beyond(x: ts.Tensor["K", f32], at: ts.Tensor["K", ts.int32]) -> ts.Tensor["K", f32]:
    i = ts.tile.linear_id()
    return x[at[i]]


@ts.function
def looks_up(x: ts.Tensor["N", f32], at: ts.Tensor["N", ts.int32]):
    return beyond(x * 2, at)


def test_debug_mode_checks_the_kernel(debug_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TARGET", debug_target)
    monkeypatch.setenv("TESSERA_DEBUG", "1")
    x, at = normal(5), np.array([0, 1, 2, 3, 4], np.int32)
    np.testing.assert_array_equal(looks_up(x, at), x * 2)
    at[3] = 9
    with pytest.raises(ts.DebugCheckError, match="9") as e:
        looks_up(x, at)
    (found,) = e.value.diagnostics
    assert found.span.line == beyond.definition().span.line + 2


def test_launches_that_follow_one_another_read_one_copy() -> None:
    """What a kernel stores to is a copy of its own; and so is what a later launch reads."""

    @ts.function
    def shared(x: ts.Tensor["M", "N", f32], w: ts.Tensor["M", "M", f32]):
        first, second = damped(x.T, 2.0), halves(x.T)[0]
        moved = added(x.T.reshape(-1), second.reshape(-1))
        return first + second, moved, damped((first @ w).T, 1.0), doubled(x.T)

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (6, 6)))
    compiled = ts.compile(shared, target="cpu", arguments=(x, w))
    found = shared(x, w)
    want = 2 * np.exp(x.T), x.T / 2
    for a, b in zip(found, (want[0] + want[1], (x.T * 1.5).reshape(-1), np.exp((want[0] @ w).T), 2 * x.T), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5)
    labels = [launch.label for launch in compiled.lowered.program.launches]
    assert labels[:3] == ["copy", "damped", "halves"]
    assert labels.count("copy") == 5, "one for the first two, two for `added`, one each for the others"
