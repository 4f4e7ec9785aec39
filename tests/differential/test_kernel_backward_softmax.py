"""Derived backwards of kernels with a running maximum: against whole scores in operators under ts.grad."""

from __future__ import annotations

import linecache
import math
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import check_backward

rng = np.random.default_rng(7)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def causal(
    q: Tensor["...", "S", "D", ts.f32],
    k: Tensor["...", "T", "D", ts.f32],
    v: Tensor["...", "T", "E", ts.f32],
    scale: ts.f32,
) -> Tensor["...", "S", "E", ts.f32]:
    x = q[tile_s : tile_s + 16, :]
    m = ts.tile.full((16,), -math.inf)
    l = ts.tile.zeros((16,))
    acc = ts.tile.zeros((16, E))
    for j in ts.tile.range_k(0, min(tile_s + 16, T), 32):
        s = x @ k[j : j + 32, :].T * scale
        seen = (tile_s + ts.tile.arange(16))[:, None] >= (j + ts.tile.arange(32))[None, :]
        s = ts.tile.where(seen, s, -math.inf)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = l * alpha + ts.tile.row_sum(p)
        acc = acc * alpha[:, None] + p @ v[j : j + 32, :]
        m = m_new
    return acc / l[:, None]


@ts.kernel
def masked(
    q: Tensor["...", "S", "D", ts.f32], k: Tensor["...", "S", "D", ts.f32], v: Tensor["...", "S", "E", ts.f32]
) -> Tensor["...", "S", "E", ts.f32]:
    top = ts.tile.full((32,), -math.inf)
    total = ts.tile.zeros((32,))
    acc = ts.tile.zeros((32, E))
    for j in ts.tile.range_k(0, min(tile_s + 32, S), 16):
        s = ts.tile.causal_mask(q[tile_s : tile_s + 32, :] @ k[j : j + 16, :].T * 0.5, tile_s, j)
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new[:, None]), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        acc = acc * shrink[:, None] + p @ v[j : j + 16, :]
        top = new
    return acc / total[:, None]


@ts.kernel
def by_identity(
    q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32], v: Tensor["T", "E", ts.f32]
) -> Tensor["S", "E", ts.f32]:
    """Vectors meet scores without None; blocks of queries and of keys are equally long: lengths tell nothing."""
    top = ts.tile.full((16,), -math.inf)
    total = ts.tile.zeros((16,))
    acc = ts.tile.zeros((16, E))
    for j in ts.tile.range_k(0, T, 16):
        s = q[tile_s : tile_s + 16, :] @ k[j : j + 16, :].T * 0.5
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        acc = acc * shrink + p @ v[j : j + 16, :]
        top = new
    return acc / total


@ts.kernel
def masked_by_keys(
    q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32], v: Tensor["T", "E", ts.f32]
) -> Tensor["S", "E", ts.f32]:
    """Scores with a row for each key. Some steps behind the queries add nothing."""
    acc = ts.tile.zeros((16, E))
    for j in ts.tile.range_k(0, min(tile_s + 24, T), 32):
        s = ts.tile.causal_mask(k[j : j + 32, :] @ q[tile_s : tile_s + 16, :].T, tile_s, j, 0.0, transposed=True)
        acc += ts.tile.tanh(s).T @ v[j : j + 32, :]
    return acc


def of_masked_by_keys(q: Any, k: Any, v: Any) -> Any:
    return ts.tril(ts.tanh(q @ k.T)) @ v


@ts.kernel
def scaled(
    q: Tensor["S", "D", ts.f32],
    k: Tensor["T", "D", ts.f32],
    v: Tensor["T", "E", ts.f32],
    keys: Tensor["T", ts.f32],
    scale: ts.f32,
) -> Tensor["S", "E", ts.f32]:
    """Vectors by keys and by queries, a number, and a sum of rows of scores between products."""
    acc = ts.tile.zeros((16, E))
    for j in ts.tile.range_k(0, T, 32):
        s = ts.tile.maximum(q[tile_s : tile_s + 16, :] @ k[j : j + 32, :].T * scale, keys[j : j + 32])
        norm = 1.0 + ts.tile.row_sum(ts.tile.square(s))
        acc += (s / norm[:, None] - keys[j : j + 32][None, :]) @ v[j : j + 32, :]
    return acc


def of_scaled(q: Any, k: Any, v: Any, keys: Any, scale: Any) -> Any:
    total = 0.0
    for j in range(0, k.shape[0], 32):
        s = ts.maximum(q @ k[j : j + 32].T * scale, keys[j : j + 32])
        norm = 1.0 + ts.sum(ts.square(s), -1)
        total = total + (s / norm[:, None] - keys[j : j + 32]) @ v[j : j + 32]
    return total


@ts.kernel
def by_powers_of_two(
    q: Tensor["S", "D", ts.f32],
    k: Tensor["T", "D", ts.f32],
    v: Tensor["T", "E", ts.f32],
    bias: Tensor["S", "T", ts.f32],
) -> Tensor["S", "E", ts.f32]:
    out: Tensor["S", "E", ts.f32]
    for i in ts.tile.range(0, S, 8):
        top = ts.tile.full((8, 1), -math.inf)
        total = ts.tile.zeros((8, 1)) + 1.0
        sums = ts.tile.zeros((8, E))
        for j in ts.tile.range_k(0, T, 16):
            s = (q[i : i + 8, :] @ k[j : j + 16, :].T + bias[i : i + 8, j : j + 16]) * 1.4426950408889634
            before = top
            top = ts.tile.maximum(ts.tile.max(s, axis=1, keepdim=True), top)
            weights = ts.tile.exp2(s - top)
            shrink = ts.tile.exp2(before - top)
            total *= shrink
            total += ts.tile.sum(weights, axis=1, keepdim=True)
            sums = ts.tile.mma(weights, v[j : j + 16, :], sums * shrink)
        out[i : i + 8, :] = sums / total
    return out


@ts.kernel
def guarded(
    q: Tensor["S", "D", ts.f32],
    k: Tensor["T", "D", ts.f32],
    v: Tensor["T", "E", ts.f32],
    seen: Tensor["S", "T", ts.bool_],
) -> Tensor["S", "E", ts.f32]:
    m = ts.tile.full((8,), -math.inf)
    l = ts.tile.zeros((8,))
    acc = ts.tile.zeros((8, E))
    for j in ts.tile.range_k(0, T, 16):
        s = ts.tile.where(
            seen[tile_s : tile_s + 8, j : j + 16], q[tile_s : tile_s + 8, :] @ k[j : j + 16, :].T, -math.inf
        )
        new = ts.tile.maximum(m, ts.tile.row_max(s))
        base = ts.tile.where(new == -math.inf, 0.0, new)
        p, shrink = ts.tile.exp((s - base[:, None]) * 0.5), ts.tile.exp((m - base) * 0.5)
        l = l * shrink + ts.tile.row_sum(p)
        acc = acc * shrink[:, None] + p @ v[j : j + 16, :]
        m = new
    some = ts.tile.where(l == 0, 1.0, l)
    return acc / some[:, None]


@ts.kernel
def rows(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 4):
        m = ts.tile.full((4,), -math.inf)
        for j in ts.tile.range_k(0, N, 16):
            m = ts.tile.maximum(m, ts.tile.row_max(x[i : i + 4, j : j + 16]))
        l = ts.tile.zeros((4,))
        for j in ts.tile.range_k(0, N, 16):
            l += ts.tile.row_sum(ts.tile.exp(x[i : i + 4, j : j + 16] - m[:, None]))
        for j in ts.tile.range_k(0, N, 16):
            y[i : i + 4, j : j + 16] = ts.tile.exp(x[i : i + 4, j : j + 16] - m[:, None]) / l[:, None]
    return y


@ts.kernel
def logarithms(x: Tensor["M", "N", ts.f32], w: Tensor["N", ts.f32]) -> Tensor["M", ts.f32]:
    m = ts.tile.full((4,), -1e30)
    l = ts.tile.zeros((4,))
    for j in ts.tile.range_k(0, N, 16):
        s = x[tile_m : tile_m + 4, j : j + 16] * w[j : j + 16]
        old = m
        m = ts.tile.maximum(m, ts.tile.row_max(s))
        l = ts.tile.row_sum(ts.tile.exp(s - m[:, None])) + ts.tile.exp(old - m) * l
    return m + ts.tile.log(l)


@ts.kernel
def in_two_loops(x: Tensor["M", "N", ts.f32], y: Tensor["M", "K", ts.f32]) -> Tensor["M", ts.f32]:
    m = ts.tile.full((4,), -math.inf)
    l = ts.tile.zeros((4,))
    for j in ts.tile.range_k(0, N, 16):
        s = x[tile_m : tile_m + 4, j : j + 16]
        new = ts.tile.maximum(m, ts.tile.row_max(s))
        l = l * ts.tile.exp(m - new) + ts.tile.row_sum(ts.tile.exp(s - new[:, None]))
        m = new
    for j in ts.tile.range_k(0, K, 16):
        s = y[tile_m : tile_m + 4, j : j + 16] * 2.0
        new = ts.tile.maximum(m, ts.tile.row_max(s))
        l = l * ts.tile.exp(m - new) + ts.tile.row_sum(ts.tile.exp(s - new[:, None]))
        m = new
    return m + ts.tile.log(l)


@ts.kernel
def turned(
    q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32], v: Tensor["T", "E", ts.f32]
) -> Tensor["E", "S", ts.f32]:
    out: Tensor["E", "S", ts.f32]
    for i in ts.tile.range(0, S, 8):
        m = ts.tile.full((8,), -math.inf)
        l = ts.tile.zeros((8,))
        acc = ts.tile.zeros((E, 8))
        for j in ts.tile.range_k(0, T, 16):
            s = k[j : j + 16, :] @ q[i : i + 8, :].T
            new = ts.tile.maximum(m, ts.tile.col_max(s))
            p, shrink = ts.tile.exp(s - new[None, :]), ts.tile.exp(m - new)
            l = l * shrink + ts.tile.col_sum(p)
            acc = acc * shrink[None, :] + v[j : j + 16, :].T @ p
            m = new
        out[:, i : i + 8] = acc / l[None, :]
    return out


@ts.kernel
def inline(
    q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32], v: Tensor["T", "E", ts.f32]
) -> Tensor["S", "E", ts.f32]:
    """The factor of the steps has no name."""
    m, l, acc = ts.tile.full((16,), -math.inf), ts.tile.zeros((16,)), ts.tile.zeros((16, E))
    for j in ts.tile.range_k(0, T, 32):
        s = q[tile_s : tile_s + 16, :] @ k[j : j + 32, :].T
        new = ts.tile.maximum(m, ts.tile.row_max(s))
        p = ts.tile.exp(s - new[:, None])
        l = l * ts.tile.exp(m - new) + ts.tile.row_sum(p)
        acc = acc * ts.tile.exp(m - new)[:, None] + p @ v[j : j + 32, :]
        m = new
    return acc / l[:, None]


@ts.kernel
def in_place(
    q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32], v: Tensor["T", "E", ts.f32]
) -> Tensor["S", "E", ts.f32]:
    """As columns, with one name for the maximum."""
    top, total = ts.tile.full((8, 1), -math.inf), ts.tile.zeros((8, 1))
    sums = ts.tile.zeros((8, E))
    for j in ts.tile.range_k(0, T, 16):
        s = (q[tile_s : tile_s + 8, :] @ k[j : j + 16, :].T) * 1.4426950408889634
        before = top
        top = ts.tile.maximum(ts.tile.max(s, axis=1, keepdim=True), top)
        weights, shrink = ts.tile.exp2(s - top), ts.tile.exp2(before - top)
        total = total * shrink
        total = total + ts.tile.sum(weights, axis=1, keepdim=True)
        sums = ts.tile.mma(weights, v[j : j + 16, :], sums * shrink)
    return sums / total


def attended(scores: Any, v: Any) -> Any:
    return ts.softmax(scores, -1) @ v


def of_causal(q: Any, k: Any, v: Any, scale: Any) -> Any:
    seen = ts.arange(q.shape[-2])[:, None] >= ts.arange(k.shape[-2])[None, :]
    return attended(ts.where(seen, q @ ts.swapaxes(k, -1, -2) * scale, -1e30), v)


def of_guarded(q: Any, k: Any, v: Any, seen: Any) -> Any:
    some = ts.any(seen, -1, keepdims=True)
    return ts.where(some, attended(ts.where(seen, q @ k.T, -1e30) * 0.5, v), 0)


SEEN = rng.random((21, 40)) > 0.4
SEEN[3] = False
ATTENTION = [numbers(21, 8), numbers(40, 8), numbers(40, 12)]
CASES: dict[str, tuple[Any, Any, list[Any], int]] = {
    "causal": (causal, of_causal, [numbers(2, 3, 40, 8), numbers(2, 3, 40, 8), numbers(2, 3, 40, 12), 0.3], 4),
    "masked": (
        masked,
        lambda q, k, v: ts.attention(q, k, v, scale=0.5, causal=True),
        [numbers(2, 40, 8), numbers(2, 40, 8), numbers(2, 40, 12)],
        3,
    ),
    "by_keys": (masked_by_keys, of_masked_by_keys, [numbers(40, 8), numbers(40, 8), numbers(40, 12)], 3),
    "scaled": (scaled, of_scaled, [*ATTENTION, numbers(40), 0.3], 5),
    "powers": (by_powers_of_two, lambda q, k, v, b: attended(q @ k.T + b, v), [*ATTENTION, numbers(21, 40)], 4),
    "guarded": (guarded, of_guarded, [*ATTENTION, SEEN], 3),
    "rows": (rows, lambda x: ts.softmax(x, -1), [numbers(10, 40)], 1),
    "logarithms": (logarithms, lambda x, w: ts.logsumexp(x * w, -1), [numbers(10, 40), numbers(40)], 2),
    "in_two_loops": (
        in_two_loops,
        lambda x, y: ts.logsumexp(ts.concatenate([x, y * 2], 1), -1),
        [numbers(10, 40), numbers(10, 20)],
        2,
    ),
    "by_identity": (by_identity, lambda q, k, v: attended((q @ k.T) * 0.5, v), ATTENTION, 3),
    "inline": (inline, lambda q, k, v: attended(q @ k.T, v), ATTENTION, 3),
    "in_place": (in_place, lambda q, k, v: attended(q @ k.T, v), ATTENTION, 3),
    "turned": (turned, lambda q, k, v: attended(q @ k.T, v).T, ATTENTION, 3),
}


def compare(case: str, target: str) -> None:
    kernel, operators, args, moved = CASES[case]
    check_backward(kernel, operators, args, target, moved)


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_an_online_softmax_is_that_of_whole_scores(case: str) -> None:
    compare(case, "cpu")


@pytest.mark.parametrize("case", ["causal", "masked", "by_keys", "scaled", "rows", "guarded", "inline", "in_place"])
def test_the_reference_has_the_same_gradients_of_online_softmax(case: str) -> None:
    compare(case, "reference")


@pytest.mark.parametrize("case", ["causal", "masked", "by_keys", "scaled", "rows", "guarded", "inline", "in_place"])
def test_the_emulated_machine_has_the_same_gradients_of_online_softmax(case: str) -> None:
    compare(case, "emulator:sm_90a")


@ts.kernel
def stored_and_squared(x: Tensor["M", "N", ts.f32], y: Tensor["M", ts.f32], z: Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        total = ts.tile.zeros((4,))
        for j in ts.tile.range_k(0, N, 16):
            part = x[i : i + 4, j : j + 16]
            total += ts.tile.row_sum(part * part)
        y[i : i + 4] = ts.tile.sqrt(total)
        z[i : i + 4] = ts.tile.tanh(total)


def test_results_that_are_stored_to_parameters_are_read_instead_of_computed_again() -> None:
    rule = stored_and_squared.backward()
    stored_and_squared.vjp(rule)
    assert "y_2 = result[0]" in rule.source and "z_2 = result[1]" in rule.source
    assert rule.source.count("ts.tile.row_sum") == 0

    @ts.function
    def loss(x: Tensor["M", "N", ts.f32], a: Tensor["M", ts.f32], b: Tensor["M", ts.f32]):
        y, z = ts.zeros_like(a), ts.zeros_like(a)
        stored_and_squared(x, y, z)
        return ts.sum(y * a + z * b)

    x, a, b = numbers(10, 40) / 8, numbers(10), numbers(10)
    total = lambda x: ts.sum(ts.square(x), -1)  # noqa: E731
    wanted = ts.grad(lambda x: ts.sum(ts.sqrt(total(x)) * a + ts.tanh(total(x)) * b))(x)
    np.testing.assert_allclose(ts.grad(loss)(x, a, b), wanted, rtol=1e-4, atol=1e-5)


def test_the_text_is_the_same_in_each_process() -> None:
    program = f"import runpy; print(runpy.run_path({__file__!r})['masked'].backward().source)"
    texts = [
        subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True)
        for seed in ("1", "2")
    ]
    assert texts[0].stdout == texts[1].stdout != b""


def test_the_text_is_what_one_would_write() -> None:
    text = causal.backward().source
    first = text[: text.index("def causal_backward_")]
    assert first.count("m_new = ts.tile.maximum(m, ts.tile.row_max(s_2))") == 1  # the online softmax, once
    assert text.count("p = ts.tile.exp(s_2 - m_new[:, None])") == 1  # for d_q
    assert text.count("p = ts.tile.exp(s_2 - m[None, :])") == 1  # for d_k and d_v, which are one kernel
    assert "p @ " not in text and "ratio = out[tile_s:tile_s + 16, :]" in text  # the result is read, not computed again
    assert "d_p = ts.tile.mma(d_ratio, v_tile.T) + d_l_undivided[:, None]" in text
    assert re.search(r"for s_\d in ts.tile.range_k\(tile_t, S, 16\):", text)  # the queries that reach a block of keys
    assert "reduce_across(d_scale_tile)" in text and text.count("reduce_across") == 1


@pytest.mark.parametrize(
    ("kernel", "walks"),
    [(causal, 1), (masked, 1), (guarded, 1), (inline, 1), (in_place, 1), (scaled, 1), (by_powers_of_two, 2),
     (logarithms, 2)],
    ids=lambda k: getattr(k, "name", None),
)  # fmt: skip
def test_queries_walk_the_keys_once_where_the_sum_is_a_factor_of_rows(kernel: Any, walks: int) -> None:
    text = kernel.backward().source
    first = text[: text.index("\n@ts.kernel", 1)]
    assert first.count("    for j in ") == walks


@pytest.mark.parametrize("kernel", [masked, masked_by_keys], ids=lambda k: k.name)
def test_scores_have_a_row_for_each_key_where_products_read_them_turned(
    kernel: Any, golden: Callable[[str, str], None]
) -> None:
    golden(f"{kernel.name}_backward", kernel.backward().source)


@pytest.mark.parametrize("kernel", [by_powers_of_two, guarded, scaled], ids=lambda k: k.name)
def test_scores_keep_their_rows_where_other_tiles_would_be_turned_instead(kernel: Any) -> None:
    text = kernel.backward().source
    assert re.search(r"mma\((weights|p|shifted)\.T, d_(sums|acc)", text) and "mma(q_tile.T, " in text


STEPS = """
new = ts.tile.maximum(m, ts.tile.row_max(s))
p, shrink = ts.tile.exp(s - new[:, None]), ts.tile.exp(m - new)
l = l * shrink + ts.tile.row_sum(p)
acc = acc * shrink[:, None] + p @ v[j : j + 16, :]
m = new
"""


def derived(old: str, new: str) -> str:
    """The backward of a softmax over rows, a part of whose text is another one; or why there is none, and where."""
    text = f"""
import math
import tessera as ts
from tessera import Tensor
@ts.kernel
def softmax(x: Tensor["M", "N", ts.f32], v: Tensor["N", "E", ts.f32]) -> Tensor["M", "E", ts.f32]:
    m = ts.tile.full((4,), -math.inf)
    l = ts.tile.zeros((4,))
    acc = ts.tile.zeros((4, E))
    for j in ts.tile.range_k(0, N, 16):
        s = x[tile_m : tile_m + 4, j : j + 16]
{textwrap.indent(STEPS.strip(), " " * 8)}
    return acc / l[:, None]
"""
    assert text.count(old) == 1, old
    text = text.replace(old, new)
    file = f"<softmax {abs(hash(text)):x}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    made: dict[str, Any] = {"__name__": file}
    exec(compile(text, file, "exec"), made)
    try:
        return made["softmax"].backward().source
    except ts.CompileError as e:
        (found,) = e.diagnostics
        assert found.code == "TS355"
        return f"{text.splitlines()[found.span.line - 1].strip()}: {found.message}"


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("acc / l[:, None]", "acc / (l + 1e-6)[:, None]", "return", "depends on a running maximum"),
        ("acc / l[:, None]", "acc / l[:, None] + m[:, None]", "return", "depends on a running maximum"),
        ("acc / l[:, None]", "acc", "return", "depends on a running maximum"),
        ("acc / l[:, None]", "acc / ts.tile.sum(l)", "return", "depends on a running maximum"),
        ("exp(m - new)", "exp(2 * (m - new))", "l = l", "do not scale l as what is added"),
        ("exp(m - new)", "exp(m - new + 0.5)", "l = l", "by more than exp(old maximum - new one)"),
        ("exp(m - new)", "exp(m - new) * 2.0", "l = l", "by more than exp(old maximum - new one)"),
        ("exp(m - new)", "exp2(m - new)", "l = l", "do not scale l as what is added"),
        ("l = l * shrink + ts.tile.row_sum(p)", "l += ts.tile.row_sum(p)", "return", "depends on a running maximum"),
        ("ts.tile.maximum(m, ts.tile.row_max(s))", "m * 0.5 + ts.tile.row_max(s)", "l = l", "of the steps before"),
        ("ts.tile.row_sum(p)", "ts.tile.row_sum(p * m[:, None])", "l = l", "of the steps before"),
        (
            "        m = new",
            "        m = new\n        x[tile_m : tile_m + 4, j : j + 16] = p",
            "x[",
            "depends on a running",
        ),
        ("zeros((4,))", "full((4,), 1.0)\n    m = ts.tile.zeros((4,))", "l = ts.tile.full", "begins with something"),
        (
            "ts.tile.exp(s - new[:, None]), ts.tile.exp(m - new)",
            "ts.tile.exp((s - new[:, None]) * v[j, 0]), ts.tile.exp((m - new) * v[j, 0])",
            "l = l",
            "is not scaled alike",
        ),
        ("row_sum(p)", "row_sum(p.to(ts.int32).to(ts.f32))", "l = l", "not scaled alike"),
        ("    for j", "    m0 = ts.tile.exp(l)\n    for j", "m0 =", "a loop behind it changes l"),
    ],
)
def test_what_is_no_online_softmax_is_refused_at_its_line(old: str, new: str, line: str, why: str) -> None:
    found = derived(old, new)
    assert found.startswith(line) and why in found, found


def test_what_begins_with_one_before_an_infinite_maximum_is_one() -> None:
    assert "l = ts.tile.full((4,), 1.0)" in derived("zeros((4,))", "full((4,), 1.0)")


@ts.kernel
def early(x: Tensor["M", "K", ts.f32], w: Tensor["K", ts.f32]) -> Tensor["M", ts.f32]:
    total = ts.tile.zeros((8,))
    for k in ts.tile.range_k(0, min(tile_m + 8, K), 8):
        part = x[tile_m : tile_m + 8, k : k + 8] * w[k : k + 8]
        seen = (tile_m + ts.tile.arange(8))[:, None] >= (k + ts.tile.arange(8))[None, :]
        total += ts.tile.row_sum(ts.tile.where(seen, part, 0.0))
    return total


def test_programs_whose_loops_end_at_different_places_share_what_they_read() -> None:
    early.vjp(early.backward())
    x, w, weights = numbers(24, 24), numbers(24), numbers(24)
    found = ts.grad(lambda w: ts.sum(early(x, w) * weights))(w)
    np.testing.assert_allclose(found, np.tril(x).T @ weights, rtol=1e-4, atol=1e-5)
