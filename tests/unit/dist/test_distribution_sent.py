"""Functions that go on after their parts have sent each other something: what is sent, and what comes of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.graph.sharding import stages
from tests.unit.dist.test_distribution import RNG, C, W, X, made, same

GAIN = np.linspace(1, 2, 16, dtype=np.float32)


def batch_norm(x: Tensor["B", "D"], bias: Tensor["D"], eps: ts.f32):
    far = x - x.mean(axis=0)
    return far / ts.sqrt(ts.var(x, axis=0) + eps) * GAIN + bias


def columns(x: Tensor["B", "D"]):
    return ts.softmax(x, axis=0), ts.logsumexp(x, axis=0), x / B, x.sum(axis=0)[None] * 2


def dense(x: Tensor["B", "D"], w: Tensor["D", "H"], c: Tensor["H"]):
    return ts.gelu(x @ w + c)


BIAS = RNG.standard_normal(16).astype(np.float32)
CASES = [(batch_norm, "B", (X, BIAS, 1e-3)), (columns, "B", (X,)), (dense, "D", (X, W, C)), (dense, "H", (X, W, C))]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("body, over, args", CASES, ids=lambda v: getattr(v, "__name__", str(v)[:5]))
def test_the_function_goes_on_with_what_is_whole(body: Any, over: str, args: Any, n: int) -> None:
    program = ts.distributed(ts.mesh(n), over=over)(body)
    found, want = program(*args), program.single(*args)
    for a, b in zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    again = ts.distributed(ts.mesh(["cpu"] * n), over=over)(body)(*args)
    for a, b in zip(found, again, strict=True) if isinstance(want, tuple) else [(found, again)]:
        same(a, b)


@pytest.mark.parametrize("library", ["torch", "jax", "tensor", "interface"])
def test_results_belong_to_the_library_of_the_arguments(library: str) -> None:
    program = ts.distributed(3, over="D")(dense)
    args = [made(library, a) for a in (X, W, C)]
    found, want = program(*args), program.single(*args)
    assert type(found) is type(want)
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-5, atol=1e-6)


def test_parts_that_do_not_lie_together() -> None:
    """A part of D is every row's piece, which the code reads as a copy."""
    x = np.asfortranarray(X)
    program = ts.distributed(3, over="D")(dense)
    np.testing.assert_allclose(program(x, W, C), program.single(X, W, C), rtol=1e-5, atol=1e-6)


def test_what_is_sent_is_said() -> None:
    plan = ts.distributed(3, over="D")(dense).plan()
    assert [c.sent() for c in plan.communication] == ["all-reduce (sum) of [B, H] f32, 4*B*H bytes"]
    assert plan.communication[0].sent({"B": 10, "H": 1000}) == "all-reduce (sum) of [B, H] f32, 40.0 kB"
    assert plan.communication[0].operator == "matmul"
    assert "the first part's, as all give the same" in str(plan)


def test_there_is_one_launch_of_each_part_between_two_sends() -> None:
    plan = ts.distributed(3)(batch_norm).plan(X, BIAS, 1e-3)
    assert [c.operator for c in plan.communication] == ["mean", "var", "var"]
    assert len(stages(plan.partition)) == 3, "both means meet at once"
    apart = ts.distributed(3, over="D")(columns).plan(X)
    assert not apart.partition.staged and not apart.communication


def test_what_is_made_from_nothing_is_made_where_it_is_used() -> None:
    def f(x: Tensor["B", "D"]):
        ones = ts.ones((D,))
        x = x + ones
        return x - x.sum(axis=0) * ones, ones * 3

    program = ts.distributed(2)(f)
    found, ones = program(X)
    want, _ = program.single(X)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    same(ones, np.full(16, 3, np.float32))


def test_loops_before_and_after() -> None:
    def f(x: Tensor["B", "D"], n: ts.int64):
        for _ in ts.range(3):
            x = x * 0.5
        m = x.max(axis=0)
        if n > 0:
            x = x - m
        return x

    program = ts.distributed(3)(f)
    for n in (0, 1):
        same(program(X, n), program.single(X, n))


def test_of_no_elements_it_is_what_the_function_is() -> None:
    empty = np.zeros((0, 16), np.float32)
    same(ts.distributed(3)(batch_norm)(empty, BIAS, 1e-3), empty)

    @ts.distributed(3)
    def top(x: Tensor["B", "D"]):
        return x - x.max(axis=0)

    with pytest.raises(ts.CompileError, match="max of no elements"):
        top(empty)


def test_narrow_floats() -> None:
    x = X.astype(ml_dtypes.bfloat16)

    def f(x: Tensor["B", "D", ts.bf16]):
        return x - x.max(axis=0)

    program = ts.distributed(4)(f)
    same(program(x), program.single(x))


def test_a_changed_array_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    program = ts.distributed(2)(batch_norm)
    program(X, BIAS, 1e-3)
    monkeypatch.setitem(globals(), "GAIN", np.zeros(16, np.float32))
    np.testing.assert_array_equal(program(X, BIAS, 1e-3), np.broadcast_to(BIAS, X.shape))
    monkeypatch.setitem(globals(), "GAIN", np.ones(16, np.float32))
    GAIN[:] = 0
    np.testing.assert_array_equal(program(X, BIAS, 1e-3), np.broadcast_to(BIAS, X.shape))
