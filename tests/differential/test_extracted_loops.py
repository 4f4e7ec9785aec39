"""Kernels extracted around products: norms and softmax before them, one product that feeds another, sums of columns.

They sum block by block, where a function sums in its own order, so the last bits differ: what is allowed is a few units
in the last place of the largest result, most of which come from exponentials of scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.differential.test_extracted_kernels import both

SIZES = {"B": 2, "H": 3, "S": 77, "T": 100, "D": 64, "E": 48, "F": 90, "V": 130}
"""several blocks of rows and of keys, the last ones not full"""
UNITS = 32
HEADS = 'q: Tensor["B", "H", "S", "D"], k: Tensor["B", "H", "T", "D"], v: Tensor["B", "H", "T", "E"]'
NORMED = 'x: Tensor["B", "S", "D"], g: Tensor["D"], w: Tensor["D", "F"]'

CASES = {
    "rms_norm": f"def f({NORMED}):\n"
    "    scale = ts.rsqrt((x * x).mean(-1, keepdim=True) + EPS)\n    return ts.silu((x * scale * g) @ w)",
    "layer_norm": f'def f({NORMED}, b: Tensor["D"], c: Tensor["F"]):\n    return ts.layer_norm(x, g, b) @ w + c',
    "norm and residual": 'def f(x: Tensor["S", "D"], g: Tensor["D"], w: Tensor["D", "D"]):\n'
    "    return x + ts.rms_norm(x, g) @ w",
    "norm and two products": f'def f({NORMED}, u: Tensor["D", "F"]):\n'
    "    h = ts.rms_norm(x, g)\n    return ts.silu(h @ w) * (h @ u)",
    "softmax and product": 'def f(x: Tensor["S", "T"], w: Tensor["T", "F"]):\n    return ts.softmax(x) @ w',
    "attention": f"def f({HEADS}):\n    return ts.softmax(q @ k.mT / math.sqrt(64)) @ v",
    "attention by hand": 'def f(q: Tensor["S", "D"], k: Tensor["T", "D"], v: Tensor["T", "E"], '
    'bias: Tensor["S", "T"]):\n'
    "    s = q @ k.T * 0.125 + bias\n    e = ts.exp(s - s.max(-1, keepdim=True))\n"
    "    return e @ v / e.sum(-1, keepdim=True)",
    "causal attention": f"def f({HEADS}):\n    scores = q @ k.mT * 0.125\n"
    "    i, j = ts.arange(S)[:, None], ts.arange(T)\n"
    "    return ts.softmax(ts.where(i >= j, scores, -math.inf)) @ v",
    "attention in a window": f"def f({HEADS}):\n    scores = q @ k.mT * 0.125\n"
    "    i, j = ts.arange(S)[:, None], ts.arange(T)\n"
    "    return ts.softmax(ts.where((i >= j) & (i - j < 40), scores, -math.inf)) @ v",
    "the operator": f"def f({HEADS}):\n    return ts.attention(q, k, v, causal=True)",
    "heads inside": 'def f(q: Tensor["B", "S", "H", "D"], k: Tensor["B", "T", "H", "D"], '
    'v: Tensor["B", "T", "H", "E"]):\n'
    '    w = ts.softmax(ts.einsum("bshd,bthd->bhst", q, k) * 0.125)\n'
    '    return ts.einsum("bhst,bthd->bshd", w, v)',
    "twelve heads": 'def f(q: Tensor["B", 12, "S", "D"], k: Tensor["B", 12, "T", "D"], v: Tensor["B", 12, "T", "E"]):\n'
    "    return ts.softmax(q @ k.mT * 0.125) @ v",
    "one head": 'def f(q: Tensor["B", 1, "S", "D"], k: Tensor["B", 1, "T", "D"], v: Tensor["B", 1, "T", "E"]):\n'
    "    return ts.softmax(q @ k.mT * 0.125) @ v",
    "without softmax": 'def f(x: Tensor["S", "D"]):\n    return x @ x.T @ x * 0.01',
    "weights and result": 'def f(x: Tensor["S", "T"], w: Tensor["T", "F"]):\n'
    "    e = ts.exp(x - x.max(-1, keepdim=True))\n    return ts.tanh(e) @ w",
    "mlp": 'def f(x: Tensor["S", "D"], w: Tensor["D", "F"], u: Tensor["F", "D"]):\n'
    "    return x + ts.gelu(x @ w) @ u * 0.1",
    "gated mlp": 'def f(x: Tensor["S", "D"], a: Tensor["D", "F"], b: Tensor["D", "F"], u: Tensor["F", "E"]):\n'
    "    return (ts.silu(x @ a) * (x @ b)) @ u * 0.1",
    "logits": 'def f(x: Tensor["S", "D"], w: Tensor["V", "D"]):\n    return ts.logsumexp(x @ w.T, axis=-1)',
    "logits by hand": 'def f(x: Tensor["S", "D"], w: Tensor["V", "D"]):\n    s = x @ w.T\n'
    "    top = s.max(-1)\n    return top + ts.log(ts.exp(s - top[:, None]).sum(-1))",
    "sums of a product": 'def f(x: Tensor["S", "D"], w: Tensor["D", "F"]):\n    return (x @ w).sum(-1)',
    "columns of a product": 'def f(x: Tensor["S", "D"], w: Tensor["D", "F"]):\n    return (x @ w).sum(0)',
    "columns": 'def f(x: Tensor["B", "S", "D"]):\n    return x.mean(1), x.var(axis=1), (x * 0.5).prod(1)',
    "columns of blocks": 'def f(x: Tensor["S", "B", "D"], y: Tensor["S", "D", ts.f64]):\n    return x.sum(0)',
    "columns of what is left": 'def f(x: Tensor["B", "S", "D"]):\n    return x[:, 3:].mean(1)',
    "columns in f64": 'def f(x: Tensor["S", "D", ts.f64]):\n    return ts.logsumexp(x, axis=0), x.std(axis=0)',
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_within_rounding(tmp_path: Path, text: str) -> None:
    before, after, _ = both(tmp_path, text + "\n", SIZES)
    for x, y in zip(before, after, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(y, x, rtol=0, atol=UNITS * np.spacing(np.abs(x).max()))


def test_narrow_operands(tmp_path: Path) -> None:
    """Scores and weights are not rounded to bf16 between the products, as in every kernel."""
    heads = HEADS.replace("]", ", bf16]")
    text = f"def f({heads}):\n    return ts.softmax(q @ k.mT / math.sqrt(64)) @ v\n"
    (x,), (y,), _ = both(tmp_path, text, SIZES)
    assert x.dtype == y.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(y.astype(np.float32), x.astype(np.float32), rtol=0, atol=2**-6)


def test_blocks_in_which_nothing_is_seen(tmp_path: Path) -> None:
    """A row whose first keys are all masked, one that sees one key, one that sees none, and scores of 1e30."""

    def masked(q: Any, k: Any, v: Any, bias: Any) -> tuple[Any, ...]:
        bias[0, :70] = -np.inf
        bias[1, :] = -np.inf
        bias[1, 99] = 3
        bias[2] = -np.inf
        bias[3], bias[4, 50] = 1e30, 1e30
        return q, k, v, bias

    text = CASES["attention by hand"] + "\n"
    (x,), (y,), after = both(tmp_path, text, SIZES, masked)
    assert "shrink" in after
    assert np.isnan(x[2]).all() and not np.isnan(np.delete(x, 2, 0)).any()
    np.testing.assert_allclose(y, x, rtol=0, atol=UNITS * np.spacing(np.nanmax(np.abs(x))))


@pytest.mark.parametrize(
    "name", ["attention", "causal attention", "the operator", "softmax and product", "logits by hand"]
)
def test_one_loop_does_it_all(tmp_path: Path, name: str) -> None:
    _, _, after = both(tmp_path, CASES[name] + "\n", SIZES)
    assert after.count("range_k") == 1


def test_what_is_no_softmax_takes_two_loops(tmp_path: Path) -> None:
    _, _, after = both(tmp_path, CASES["weights and result"] + "\n", SIZES)
    assert after.count("range_k") == 2 and "shrink" not in after
