"""Derived backwards of kernels: against the same program in operators under ts.grad, and against PyTorch."""

from __future__ import annotations

import ast
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tests.kernel_runner import backward_refusal, check_backward

rng = np.random.default_rng(3)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def gated(x: Tensor["M", "N", ts.f32], gate: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    rows = gate[tile_m : tile_m + 8, :]
    return x[tile_m : tile_m + 8, :] * rows / (1 + ts.tile.exp(-rows))


def gated_operators(x: Any, gate: Any) -> Any:
    return x * gate / (1 + ts.exp(-gate))


@ts.kernel
def saxpy(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], alpha: ts.f32) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + ts.tile.sin(y[i])
    return y


def saxpy_operators(x: Any, y: Any, alpha: Any) -> Any:
    return alpha * x + ts.sin(y)


@ts.kernel
def add_bias(x: Tensor["M", "N", ts.f32], bias: Tensor["N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    block = x[tile_m : tile_m + 8, tile_n : tile_n + 16]
    return ts.tile.gelu(block + bias[tile_n : tile_n + 16])


def add_bias_operators(x: Any, bias: Any) -> Any:
    return ts.gelu(x + bias)


@ts.kernel
def softmax(x: Tensor["...", "N", ts.f32]) -> Tensor["...", "N", ts.f32]:
    e = ts.tile.exp(x - ts.tile.max(x, axis=-1, keepdim=True))
    return e / ts.tile.sum(e, axis=-1, keepdim=True)


def softmax_operators(x: Any) -> Any:
    return ts.softmax(x, -1)


@ts.kernel
def layer_norm(
    x: Tensor["M", "N", ts.f32], w: Tensor["N", ts.f32], b: Tensor["N", ts.f32], eps: ts.f32
) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 8):
        rows = x[i : i + 8, :]
        apart = rows - ts.tile.row_sum(rows) / N
        scale = ts.tile.rsqrt(ts.tile.row_sum(apart * apart) / N + eps)
        y[i : i + 8, :] = apart * scale * w[:] + b[:]
    return y


def layer_norm_operators(x: Any, w: Any, b: Any, eps: Any) -> Any:
    apart = x - ts.mean(x, -1, keepdims=True)
    return apart / ts.sqrt(ts.mean(apart * apart, -1, keepdims=True) + eps) * w + b


@ts.kernel
def rms_norm(x: Tensor["...", "N", ts.f32], w: Tensor["N", ts.f32], eps: ts.f32) -> Tensor["...", "N", ts.f32]:
    return x * ts.tile.rsqrt(ts.tile.mean(x * x, axis=-1, keepdim=True) + eps) * w


def rms_norm_operators(x: Any, w: Any, eps: Any) -> Any:
    return x / ts.sqrt(ts.mean(x * x, -1, keepdims=True) + eps) * w


@ts.kernel
def scaled_by_blocks(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 4):
        total = ts.tile.zeros((4,))
        for k in ts.tile.range_k(0, N, 16):
            part = x[i : i + 4, k : k + 16]
            total += ts.tile.row_sum(part * part)
        scale = 1 / ts.tile.sqrt(total / N + 1)
        for k in ts.tile.range_k(0, N, 16):
            y[i : i + 4, k : k + 16] = x[i : i + 4, k : k + 16] * scale
    return y


def scaled_by_blocks_operators(x: Any) -> Any:
    return x / ts.sqrt(ts.mean(x * x, -1, keepdims=True) + 1)


@ts.kernel
def largest(x: Tensor["M", "N", ts.f32]) -> Tensor["M", ts.f32]:
    for i in ts.tile.range(0, M, 4):
        out = ts.tile.row_max(x[i : i + 4]) * ts.tile.row_sum(x[i : i + 4])
    return out


def largest_operators(x: Any) -> Any:
    return ts.max(x, -1) * ts.sum(x, -1)


@ts.kernel
def squared_error(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]) -> Tensor[1, ts.f32]:
    i = ts.tile.linear_id()
    apart = x[i] - y[i]
    total: Tensor[1, ts.f32]
    total[0] = ts.tile.reduce_across(ts.tile.sum(apart * apart) / n)
    return total


def squared_error_operators(x: Any, y: Any) -> Any:
    return ts.mean((x - y) ** 2, keepdims=True)


@ts.kernel
def branches(x: Tensor["n", ts.f32], t: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    v = x[i]
    if v > 0:
        y = ts.tile.log(v)
    else:
        y = v * t[i]
    if t[i] > 1:
        y = y * y
    return y


def branches_operators(x: Any, t: Any) -> Any:
    y = ts.where(x > 0, ts.log(x), x * t)
    return ts.where(t > 1, y * y, y)


@ts.kernel
def prefixes(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    rows = x[tile_m : tile_m + 4, :]
    return ts.tile.cumsum(rows * rows, axis=1) * ts.tile.maximum(rows, -rows) ** 3


def prefixes_operators(x: Any) -> Any:
    return ts.cumsum(x * x, 1) * ts.maximum(x, -x) ** 3


@ts.kernel
def outer(a: Tensor["M", ts.f32], b: Tensor["N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    return ts.tile.tanh(a[tile_m : tile_m + 8][:, None] * b[tile_n : tile_n + 8][None, :])


def outer_operators(a: Any, b: Any) -> Any:
    return ts.tanh(a[:, None] * b[None, :])


@ts.kernel
def in_parts(
    x: Tensor["...", "S", "3*D", ts.f32],
) -> tuple[Tensor["...", "S", "D", ts.f32], Tensor["...", "S", ts.f32]]:
    mixed: Tensor["...", "S", "D", ts.f32]
    total: Tensor["...", "S", ts.f32]
    for i in ts.tile.range(0, S, 8):
        q, k = x[i : i + 8, 0:D], x[i : i + 8, D : 2 * D]
        mixed[i : i + 8, :] = q * k
        mixed[i : i + 8, 0:1] = x[i : i + 8, 2 * D : 2 * D + 1]
        total[i : i + 8] = ts.tile.row_sum(q * q)
    return mixed, total


@ts.kernel
def dense(x: Tensor["M", 24, ts.f32], w: Tensor[24, 16, ts.f32], b: Tensor[16, ts.f32]) -> Tensor["M", 16, ts.f32]:
    y: Tensor["M", 16, ts.f32]
    for i in ts.tile.range(0, M, 8):
        y[i : i + 8, :] = ts.tile.relu(ts.tile.mma(x[i : i + 8, :], w[:, :]) + b[:])
    return y


def dense_operators(x: Any, w: Any, b: Any) -> Any:
    return ts.relu(x @ w + b)


@ts.tile.helper
def swished(v: Any, sharpness: Any = 1.0) -> Any:
    w = v * sharpness
    w = w + 0.5
    return w * ts.tile.sigmoid(w)


def doubled(v: Any) -> Any:
    return swished(v, 2.0) + v


@ts.kernel
def of_helpers(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    w = y[i]
    if w > 0:
        w = swished(w)
    return doubled(x[i]) * swished(w, sharpness=3.0)


def of_helpers_operators(x: Any, y: Any) -> Any:
    def swish(v: Any, sharpness: float) -> Any:
        return (v * sharpness + 0.5) * ts.sigmoid(v * sharpness + 0.5)

    return (swish(x, 2.0) + x) * swish(ts.where(y > 0, swish(y, 1.0), y), 3.0)


CASES: list[tuple[Any, Any, list[Any]]] = [
    (gated, gated_operators, [numbers(10, 7), numbers(10, 7)]),
    (saxpy, saxpy_operators, [numbers(1100), numbers(1100), 1.5]),
    (add_bias, add_bias_operators, [numbers(20, 37), numbers(37)]),
    (softmax, softmax_operators, [numbers(2, 5, 7)]),
    (layer_norm, layer_norm_operators, [numbers(10, 12), numbers(12), numbers(12), 0.1]),
    (rms_norm, rms_norm_operators, [numbers(3, 6, 5), numbers(5), 0.1]),
    (scaled_by_blocks, scaled_by_blocks_operators, [numbers(6, 40)]),
    (largest, largest_operators, [numbers(6, 9)]),
    (squared_error, squared_error_operators, [numbers(1100), numbers(1100)]),
    (branches, branches_operators, [numbers(60), numbers(60)]),
    (prefixes, prefixes_operators, [numbers(6, 9)]),
    (dense, dense_operators, [numbers(20, 24), numbers(24, 16), numbers(16)]),
    (of_helpers, of_helpers_operators, [numbers(60), numbers(60)]),
    (outer, outer_operators, [numbers(10), numbers(19)]),
]


@pytest.fixture(autouse=True, scope="module")
def _bound() -> None:
    for kernel, _, _ in CASES:
        kernel.vjp(kernel.backward())


def loss_of(f: Any, count: int) -> Any:
    if count == 1:
        return ts.function(lambda weights, a: ts.sum(f(a) * weights))
    if count == 2:
        return ts.function(lambda weights, a, b: ts.sum(f(a, b) * weights))
    if count == 3:
        return ts.function(lambda weights, a, b, c: ts.sum(f(a, b, c) * weights))
    return ts.function(lambda weights, a, b, c, d: ts.sum(f(a, b, c, d) * weights))


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].name)
def test_a_derived_backward_is_the_gradient_of_the_same_operators(case: Any, target: str) -> None:
    kernel, operators, args = case
    weights = numbers(*np.shape(ts.function(operators)(*args)))
    numbered = tuple(range(1, len(args) + 1))
    with knobs.target.override(target):
        found = ts.grad(loss_of(kernel, len(args)), argnums=numbered)(weights, *args)
        wanted = ts.grad(loss_of(operators, len(args)), argnums=numbered)(weights, *args)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_what_is_stored_goes_back_to_what_was_read_and_to_what_is_left() -> None:
    @ts.kernel
    def roots(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if x[i] > 0:
            y[i] = ts.tile.sqrt(x[i])

    roots.vjp(roots.backward())

    @ts.function
    def loss(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
        kept = y * 2
        roots(x, kept)
        return ts.sum(kept)

    by_x, by_y = ts.grad(loss, argnums=(0, 1))(np.array([4, 0, -1], np.float32), np.zeros(3, np.float32))
    assert by_x.tolist() == [0.25, 0, 0]  # nothing comes back through the root of a number that it does not take
    assert by_y.tolist() == [0, 2, 2]


@pytest.mark.parametrize("case", [CASES[2], CASES[6]], ids=lambda c: c[0].name)
def test_the_emulated_machine_has_the_same_gradients(case: Any) -> None:
    kernel, operators, args = case
    weights = numbers(*np.shape(ts.function(operators)(*args)))
    numbered = tuple(range(1, len(args) + 1))
    wanted = ts.grad(loss_of(operators, len(args)), argnums=numbered)(weights, *args)
    with knobs.target.override("emulator:sm_90a"):
        found = ts.grad(loss_of(kernel, len(args)), argnums=numbered)(weights, *args)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_what_is_stored_last_counts() -> None:
    in_parts.vjp(in_parts.backward())

    @ts.function
    def loss(x: Tensor["A", "S", "W", ts.f32], a: Tensor["A", "S", "D", ts.f32], b: Tensor["A", "S", ts.f32]):
        mixed, total = in_parts(x)
        return ts.sum(mixed * a) + ts.sum(total * b)

    x, a, b = numbers(2, 10, 12), numbers(2, 10, 4), numbers(2, 10)
    found = ts.grad(loss)(x, a, b)
    q, k, wanted = x[..., :4], x[..., 4:8], np.zeros_like(x)
    wanted[..., :4] = 2 * q * b[..., None]
    wanted[..., 1:4] += (a * k)[..., 1:]
    wanted[..., 5:8] = (a * q)[..., 1:]
    wanted[..., 8] = a[..., 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_what_is_added_to_a_place_that_has_been_stored_to() -> None:
    @ts.kernel
    def twice(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], z: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
        out: Tensor["n", ts.f32]
        i = ts.tile.linear_id()
        out[i] = x[i] * y[i]
        if y[i] > 0:
            out[i] -= x[i] * z[i]
        out[i] += x[i] * 3
        return out

    args = [numbers(9), numbers(9), numbers(9)]
    check_backward(twice, lambda x, y, z: x * y - ts.where(y > 0, x * z, 0) + x * 3, args, "cpu")


def test_sums_of_small_floats_are_made_in_f32() -> None:
    @ts.kernel
    def rectified(x: Tensor["M", "N", ts.bf16], b: Tensor["N", ts.bf16]) -> Tensor["M", "N", ts.bf16]:
        return ts.tile.relu(x[tile_m : tile_m + 8, tile_n : tile_n + 8] + b[tile_n : tile_n + 8])

    rectified.vjp(rectified.backward())

    @ts.function
    def loss(x: Tensor["M", "N", ts.bf16], b: Tensor["N", ts.bf16]):
        return ts.sum(rectified(x, b).to(ts.f32))

    x = np.abs(numbers(1001, 3)).astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(1)
    by_x, by_b = ts.grad(loss, argnums=(0, 1))(x, np.zeros(3, ml_dtypes.bfloat16))
    assert by_x.dtype == by_b.dtype == ml_dtypes.bfloat16
    assert by_b.astype(np.float32).tolist() == [1000.0] * 3  # 1001, rounded once; sums of bf16 stop at 256


def test_arguments_by_name_and_defaults() -> None:
    @ts.kernel
    def powered(x: Tensor["n", ts.f32], by: ts.f32 = 2.0, plus: ts.f32 = 0.0) -> Tensor["n", ts.f32]:
        i = ts.tile.linear_id()
        return by * x[i] * x[i] + plus

    powered.vjp(powered.backward())
    x = np.arange(4, dtype=np.float32)
    assert ts.grad(lambda x: ts.sum(powered(x)))(x).tolist() == [0, 4, 8, 12]
    assert ts.grad(lambda x, p: ts.sum(powered(x, plus=p)), argnums=(0, 1))(x, 1.0)[1] == 4


def test_a_scalar_of_another_dtype_gets_a_gradient_of_its_own() -> None:
    @ts.kernel
    def scaled(x: Tensor["n", ts.f64], by: ts.f64) -> Tensor["n", ts.f64]:
        return by * x[tile_n : tile_n + 32]

    scaled.vjp(scaled.backward())

    @ts.function
    def loss(x: Tensor["n", ts.f64], by: ts.f32):
        return ts.sum(scaled(x, by)) + ts.sum(scaled(x, by=by))

    by_x, by = ts.grad(loss, argnums=(0, 1))(np.arange(5.0), 1.5)
    assert by_x.tolist() == [3.0] * 5 and (by.dtype, by) == (np.float32, 20.0)


def test_pytorch_has_the_same_gradients_of_a_norm() -> None:
    torch = pytest.importorskip("torch")
    x, w, b, weights = numbers(10, 12), numbers(12), numbers(12), numbers(10, 12)
    found = ts.grad(loss_of(layer_norm, 4), argnums=(1, 2, 3))(weights, x, w, b, 1e-5)
    given = [torch.tensor(v, requires_grad=True) for v in (x, w, b)]
    y = torch.nn.functional.layer_norm(given[0], (12,), given[1], given[2], 1e-5)
    (y * torch.tensor(weights)).sum().backward()
    for mine, other in zip(found, given, strict=True):
        np.testing.assert_allclose(mine, other.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_the_text_is_a_kernel_with_the_names_of_its_author() -> None:
    text = add_bias.backward().source
    assert "@ts.kernel\ndef add_bias_backward(" in text and "@ts.function\ndef add_bias_vjp(" in text
    assert "block = x[tile_m:tile_m + 8, tile_n:tile_n + 16]" in text
    assert "d_bias[tile_n:tile_n + 16] = ts.tile.reduce_across(" in text


class Untouchable:
    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("not a part of the tree")


@pytest.fixture
def parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """What IPython's tracebacks leave: each node's parent hangs on it, also on nodes that all trees share."""
    for node in ast.walk(ast.parse("a[-b] = c * d + e < (not f)")):
        if not node._fields:
            monkeypatch.setattr(node, "parent", Untouchable(), raising=False)


def test_a_number_that_fills_a_tile_has_a_gradient() -> None:
    @ts.kernel
    def shifted(x: Tensor["M", "N", ts.f32], a: ts.f32) -> Tensor["M", "N", ts.f32]:
        start = ts.tile.full((8, 16), ts.tile.exp(a))
        return x[tile_m : tile_m + 8, tile_n : tile_n + 16] * start

    check_backward(shifted, lambda x, a: x * ts.exp(a), [numbers(8, 32), 0.3], "cpu")


@pytest.mark.parametrize("kernel", [k for k, *_ in CASES], ids=lambda k: k.name)
def test_trees_are_copied_without_what_libraries_hang_on_their_nodes(kernel: Any, parents: None) -> None:
    assert kernel.backward().source


def test_functions_are_mapped_without_what_libraries_hang_on_their_nodes(parents: None) -> None:
    def doubled(row: Tensor["n", ts.f32]):
        return row * 2

    x = numbers(3, 4)
    np.testing.assert_array_equal(ts.vmap(doubled)(x), x * 2)


def test_what_is_not_derived_is_refused_at_its_line() -> None:
    @ts.kernel
    def after(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], z: Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = x[i] * 2
        z[i] = y[i] * 3

    @ts.kernel
    def last(x: Tensor["n", "m", ts.f32], y: Tensor["n", ts.f32]):
        for i in ts.tile.range(0, n, 8):
            for k in ts.tile.range_k(0, m, 4):
                y[i : i + 8] = ts.tile.row_sum(x[i : i + 8, k : k + 4])

    @ts.kernel
    def running(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
        carry = ts.tile.zeros((N,))
        for i in ts.tile.range(0, M, 8):
            y[i : i + 8] = x[i : i + 8] * carry
            carry = carry + ts.tile.col_sum(x[i : i + 8])

    @ts.kernel
    def multiplied(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        v = x[i]
        for _ in ts.tile.range_k(0, 4):
            v = v * v
        y[i] = v

    @ts.kernel
    def implicit(x: Tensor["M", "K", ts.f32], y: Tensor["M", ts.f32]):
        y[tile_m : tile_m + 4] += ts.tile.row_sum(x[tile_m : tile_m + 4, tile_k : tile_k + 4])

    def early(v: Any) -> Any:
        if v > 0:
            return v
        return v * v

    @ts.kernel
    def of_a_function(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
        i = ts.tile.linear_id()
        return early(x[i])

    assert backward_refusal(of_a_function).startswith("3: ") and "does not look into early" in backward_refusal(
        of_a_function
    )
    assert backward_refusal(implicit).startswith("2: ") and "write it with range_k" in backward_refusal(implicit)
    assert backward_refusal(after).startswith("4: ") and "which it has stored to" in backward_refusal(after)
    assert backward_refusal(last).startswith("4: ") and "and only the last one counts" in backward_refusal(last)
    assert backward_refusal(running).startswith("4: ") and "carries" in backward_refusal(running)
    assert backward_refusal(multiplied).startswith("5: ") and "neither as a sum" in backward_refusal(multiplied)
