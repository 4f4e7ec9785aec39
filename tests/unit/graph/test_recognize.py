"""Attention that is written out is the operator in Graph IR; what means something else stays as it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tessera as ts
from tessera import Tensor, bf16, bool_, f32, f64
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.graph.passes.recognize import recognize
from tessera.compiler.graph.recognize import PRODUCTS
from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.readable import readable
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import to_graph, to_program
from tessera.runtime.code.plan import LaunchPlan

Q = Tensor["S", 16, f32]
K = Tensor["T", 16, f32]


def read(f: Any) -> Op:
    """The Graph IR of a function, at open sizes, in which attention was looked for."""
    graph = clone(analyse(f.definition()).unit().op, {})
    recognize(graph)
    verify(graph)
    return graph


def found(f: Any) -> tuple[int, int]:
    """How many attentions there are, and how many other products."""
    names = [op.name for op in read(f).walk()]
    return names.count("graph.attention_forward"), sum(names.count(n) for n in PRODUCTS)


@ts.function
def causal(q: Tensor["B", "H", "S", 64, f32], k: Tensor["B", "H", "T", 64, f32], v: Tensor["B", "H", "T", 64, f32]):
    i, j = ts.arange(q.shape[-2])[:, None], ts.arange(k.shape[-2])
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = ts.where(j <= i, scores, -math.inf)
    weights = ts.softmax(scores, axis=-1)
    return weights @ v


def test_what_it_becomes(golden: Callable[[str, str], None]) -> None:
    golden("recognized", readable(read(causal)).text)


def test_it_stands_at_all_lines_of_the_text() -> None:
    """Hints, profiles and IR views show these lines."""
    (op,) = [op for op in read(causal).walk() if op.name == "graph.attention_forward"]
    start = causal.definition().span.line
    assert (op.span.line - start, op.span.end_line - start) == (2, 5)
    program = to_program(analyse(causal.definition()).unit(), "cpu").program
    assert program.launches[-1].label == "attention(q, k, v)"
    assert LaunchPlan.of(program).launches[-1].title == f"causal:{start + 2}-{start + 5} attention(q, k, v)"


@ts.function
def narrow(q: Tensor["S", 16, bf16], k: Tensor["T", 16, bf16], x: Tensor["S", 32, f64]):
    return (
        ts.softmax(q @ k.T * 0.25) @ k,
        ts.softmax((q @ k.T * 0.25).to(f32)).to(bf16) @ k,
        ts.softmax(x @ x.T) @ x,
    )


@ts.function
def in_a_loop(x: Q, n: ts.int64):
    for _ in ts.range(n):
        x = ts.softmax(x @ x.T) @ x
    return x


def test_dtypes_and_loops() -> None:
    assert found(narrow) == (3, 0)
    assert found(in_a_loop) == (1, 0)


@ts.function
def read_elsewhere(q: Q, k: K, v: K, key: ts.int64):
    weights, scores = ts.softmax(q @ k.T), q @ k.T
    return (
        weights, weights @ v,
        ts.softmax(scores) @ v, scores.sum(),
        ts.dropout(ts.softmax(q @ k.T), key, 0.5) @ v,
    )  # fmt: skip


@ts.function
def other_functions(
    q: Q, k: K, v: K, mask: Tensor["S", "T", bool_], x: Tensor["S", "T", f32], by: Tensor[f32],
    w: Tensor[16, "T", f32],
):  # fmt: skip
    def scores():
        return q @ k.T

    e, far = ts.exp(scores()), scores()
    other_top = ts.exp(far - (2.0 * far).max(-1, keepdims=True))
    return (
        (e / e.sum(-1, keepdims=True)) @ v,  # overflows where attention does not
        (other_top / other_top.sum(-1, keepdims=True)) @ v,
        ts.softmax(scores(), axis=0) @ v,
        ts.log_softmax(scores()) @ v,
        ts.where(mask, ts.softmax(scores()), 0.0) @ v,
        ts.softmax(ts.where(mask, ts.where(x > 0, scores(), -1e9), -math.inf)) @ v,
        ts.softmax(ts.where(mask, scores() + x, -math.inf)) @ v,
        ts.softmax(ts.where(mask, scores(), -math.inf) + x) @ v,
        ts.softmax(ts.where(mask, scores(), x)) @ v,
        ts.softmax((scores() + x) * 2.0) @ v,
        ts.softmax(scores() * by) @ v,
        ts.softmax(scores() * scores()) @ v,
        ts.softmax(scores()).to(bf16) @ v.to(bf16),
        ts.softmax(q @ w) @ v,  # two layers
    )


@ts.function
def without_a_kernel(q: Tensor["S", "D", f32], k: Tensor["T", "D", f32], wide: Tensor["T", 512, f32]):
    return ts.softmax(q @ k.T) @ k, ts.softmax(q @ k.T) @ wide


@pytest.mark.parametrize(
    ("f", "products"), [(read_elsewhere, 6), (other_functions, 29), (without_a_kernel, 4)], ids=lambda f: str(f)[:20]
)
def test_what_is_left_as_it_is(f: Any, products: int) -> None:
    assert found(f) == (0, products)


@ts.function
def accumulated(q: Tensor["S", 16, f32 @ ts.accum(f64)], k: K):
    return ts.softmax(q @ k.T) @ k


@ts.function
def rounded(q: Tensor["S", 16, f32 @ ts.compute(bf16)], k: K):
    return ts.softmax(q @ k.T) @ k


@ts.function
def held(q: Tensor["S", 16, f32 @ ts.saturate], k: K):
    return ts.softmax(q @ k.T) @ k


@pytest.mark.parametrize("f", [accumulated, rounded, held])
def test_policies_are_kept(f: Any) -> None:
    assert found(f) == (0, 2)


@ts.function
def gradients(q: Q, k: K, v: K):
    def loss(q, k, v):
        return ts.sum(ts.square(ts.softmax(q @ k.T) @ v))

    return ts.grad(loss, argnums=(0, 1, 2))(q, k, v)


def test_gradients_are_those_of_attention() -> None:
    graph = to_graph(analyse(gradients.definition()).unit())
    steps = [op.name for op in graph.walk() if op.name.startswith("graph.attention") or op.name == "graph.contract"]
    assert steps == [f"graph.attention_{n}" for n in ("forward", "backward_queries", "backward_keys")]
