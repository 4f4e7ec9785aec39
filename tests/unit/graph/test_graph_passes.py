"""Passes over Graph IR: what they remove, what they must keep, and that no bit of a result changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import for_, if_, while_
from tessera.compiler.graph.operator import InferError
from tessera.compiler.graph.operators.indexing import subscript
from tessera.compiler.graph.passes.canonicalize import canonicalize
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.graph.passes.eliminate_common import eliminate_common
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.spec import InvalidIR
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.errors import LaunchError
from tessera.language import dims, dtypes
from tests.differential.operator_examples import function

B, S = dims.symbol("B"), dims.symbol("S")
X = TensorType((B, S), dtypes.f32)
f32, bf16, int64 = dtypes.f32, dtypes.bf16, dtypes.int64


def names(func: Op) -> list[str]:
    return [op.name.removeprefix("graph.") for op in func.walk()][1:-1]


def canonical(body: Callable[..., Any], *types: TensorType) -> list[str]:
    func = function(types or (X,), body)
    canonicalize(func)
    eliminate_dead(func)
    verify(func)
    return names(func)


@pytest.mark.parametrize(
    "body",
    [
        lambda g, x: g.mul(x, 1),
        lambda g, x: g.mul(1.0, x),
        lambda g, x: g.mul(g.broadcast_to(g.reshape(g.constant(1.0, f32), (1, 1)), (B, S)), x),
        lambda g, x: g.div(x, 1),
        lambda g, x: g.sub(x, 0),
        lambda g, x: g.pow(x, 1),
        lambda g, x: g.neg(g.neg(x)),
        lambda g, x: g.add(x, -0.0),
        lambda g, x: g.reshape(g.reshape(x, (S, B)), (B, S)),
        lambda g, x: g.transpose(g.transpose(x)),
        lambda g, x: g.cast(x, f32),
        lambda g, x: g.cast(g.cast(x, dtypes.f64), f32),
        lambda g, x: g.broadcast_to(x, (B, S)),
        lambda g, x: subscript(g, x, slice(None)),
        lambda g, x: g.flip(g.flip(x, 1), 1),
        lambda g, x: g.sum(x, axis=()),
        lambda g, x: g.concat([x]),
        lambda g, x: g.concat([x, g.zeros((B, 0))], axis=1),
        lambda g, x: g.pad(x, 0),
        lambda g, x: g.where(g.constant(True, dtypes.bool_), x, g.exp(x)),
    ],
)
def test_what_changes_nothing_goes(body: Callable[..., Any]) -> None:
    assert canonical(body) == []


@pytest.mark.parametrize(
    "body",
    [
        lambda g, x: g.add(x, 0.0),
        lambda g, x: g.sub(x, -0.0),
        lambda g, x: g.mul(x, 0),
        lambda g, x: g.floordiv(x, 1),
        lambda g, x: g.cast(g.cast(x, bf16), f32),
        lambda g, x: g.sub(x, x),
    ],
)
def test_what_may_change_a_bit_stays(body: Callable[..., Any]) -> None:
    assert canonical(body) != []


def test_simpler_spellings() -> None:
    assert canonical(lambda g, x: g.pow(x, 2)) == ["square"]
    assert canonical(lambda g, x: g.transpose(g.transpose(x, (1, 0)), (0, 1))) == ["transpose"]
    assert canonical(
        lambda g, x: subscript(g, subscript(g, x, slice(1, None)), slice(2, None)), TensorType((9, S), f32)
    ) == ["slice"]
    assert canonical(lambda g, x: g.mul(x, g.sqrt(g.constant(4.0, f32)))) == ["constant", "mul"]
    assert canonical(lambda g, x: g.cast(g.cast(x, f32), dtypes.f64), TensorType((B,), bf16)) == ["cast"]


def test_common_subexpressions_and_dead_code() -> None:
    def body(g: GraphBuilder, x: Value) -> Value:
        g.exp(g.sin(x))
        return g.add(g.softmax(x), g.log_softmax(x))

    func = function([X], body)
    before = evaluate(func, [np.ones((2, 3), np.float32)])
    decompose(func)
    eliminate_common(func)
    eliminate_dead(func)
    verify(func)
    assert "sin" not in names(func) and names(func).count("max") == 1 == names(func).count("exp")
    np.testing.assert_allclose(evaluate(func, [np.ones((2, 3), np.float32)])[0], before[0], 1e-6)


def test_constants_that_compare_equal_are_not_the_same() -> None:
    func = function([X], lambda g, x: g.add(g.div(x, g.constant(0.0, f32)), g.div(x, g.constant(-0.0, f32))))
    eliminate_common(func)
    assert names(func).count("constant") == 2
    whole = function(
        [TensorType((), int64)], lambda g, n: g.where(g.constant(True, dtypes.bool_), g.add(n, g.constant(1, int64)), n)
    )
    eliminate_common(whole)
    assert names(whole).count("constant") == 2


def power(g: GraphBuilder, x: Value, n: Value) -> list[Value]:
    zero, one = g.constant(0, int64), g.constant(1, int64)
    return for_(g, zero, n, one, [g.ones_like(x)], lambda i, acc: [g.mul(acc, x)])


def test_control_flow_evaluates() -> None:
    func = function([X, TensorType((), int64)], lambda g, x, n: power(g, x, n))
    verify(func)
    x = np.array([[2, 3]], np.float32)
    assert evaluate(func, [x, np.int64(3)])[0].tolist() == [[8, 27]]
    assert evaluate(func, [x, np.int64(0)])[0].tolist() == [[1, 1]]

    def halve(g: GraphBuilder, x: Value) -> list[Value]:
        return while_(g, [x], lambda v: g.gt(g.max(v), 1.0), lambda v: [g.mul(v, 0.5)])

    func = function([X], halve)
    verify(func)
    assert evaluate(func, [np.array([[12, 3]], np.float32)])[0].tolist() == [[0.75, 0.1875]]

    def absolute(g: GraphBuilder, x: Value) -> list[Value]:
        return if_(g, g.lt(g.sum(x), 0.0), lambda: [g.neg(x)], lambda: [x])

    func = function([X], absolute)
    verify(func)
    assert evaluate(func, [np.array([[-5, 1]], np.float32)])[0].tolist() == [[5, -1]]


def test_passes_reach_into_regions() -> None:
    def body(g: GraphBuilder, x: Value, n: Value) -> list[Value]:
        zero, one = g.constant(0, int64), g.constant(1, int64)
        g.softmax(x)
        return for_(g, zero, n, one, [x], lambda i, acc: [g.mul(g.softmax(g.mul(acc, 1)), g.softmax(acc))])

    func = function([X, TensorType((), int64)], body)
    arrays = [np.array([[1, 2]], np.float32), np.int64(2)]
    before = evaluate(func, arrays)[0]
    for transform in (canonicalize, decompose, canonicalize, eliminate_common, eliminate_dead):
        transform(func)
        verify(func)
    assert names(func).count("exp") == 1 and "softmax" not in names(func)
    np.testing.assert_allclose(evaluate(func, arrays)[0], before, 1e-6)


def test_verifiers_reject_broken_ir() -> None:
    func = function([X], lambda g, x: g.exp(x))
    func.region.block.ops[0].results[0].type = TensorType((S, B), f32)
    with pytest.raises(InvalidIR, match="instead of"):
        verify(func)
    loop = function([X, TensorType((), int64)], lambda g, x, n: power(g, x, n))
    for op in loop.walk():
        if op.name == "graph.for":
            op.results[0].type = X.with_dtype(bf16)
    with pytest.raises(InvalidIR, match="carried types"):
        verify(loop)
    mixed = function([X, TensorType((B, S), bf16)], lambda g, x, y: g.add(x, y))
    op = mixed.region.block.ops[-2]
    op.set_operand(1, mixed.region.block.args[1])
    with pytest.raises(InvalidIR, match="lack their conversion"):
        verify(mixed)


def test_arguments_that_do_not_fit() -> None:
    func = function([X, TensorType((S,), f32)], lambda g, x, y: g.add(x, y))
    x = np.ones((2, 3), np.float32)
    for bad, code in [
        ([x], "TS501"),
        ([x, np.ones(4, np.float32)], "TS502"),
        ([x, np.ones(3)], "TS501"),
        ([x, np.ones((1, 3), np.float32)], "TS501"),
    ]:
        with pytest.raises(LaunchError) as caught:
            evaluate(func, bad)
        assert caught.value.code == code


index = st.one_of(
    st.integers(-3, 2),
    st.none(),
    st.slices(3),
    st.builds(list, st.lists(st.integers(-2, 1), min_size=1, max_size=3)),
    st.just(Ellipsis),
)


@given(st.lists(index, max_size=5))
def test_subscripts_mean_what_they_mean_in_numpy(key: list[Any]) -> None:
    x = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    try:
        theirs = x[tuple(key)]
    except IndexError:  # too many indices, two ellipses, or index lists that do not broadcast
        with pytest.raises(InferError):
            function([TensorType((3, 4, 5), f32)], lambda g, v: subscript(g, v, tuple(key)))
        return
    func = function([TensorType((3, 4, 5), f32)], lambda g, v: subscript(g, v, tuple(key)))
    verify(func)
    np.testing.assert_array_equal(evaluate(func, [x])[0], theirs)
    decompose(func)
    np.testing.assert_array_equal(evaluate(func, [x])[0], theirs)


def test_what_a_loop_carries_for_itself_alone_goes() -> None:
    """A carried value that no result and no condition depends on, through loops within loops and branches too."""

    def body(g: GraphBuilder, x: Value) -> Value:
        start, end, step = (g.constant(i, int64) for i in (0, 5, 1))

        def inner(i: Value, a: Value, b: Value) -> list[Value]:
            return [g.mul(a, 2.0), *if_(g, g.gt(i, 2), lambda: [g.add(b, a)], lambda: [b])]

        def outer(i: Value, a: Value, b: Value, c: Value) -> list[Value]:
            a, b = for_(g, start, end, step, [a, b], inner)
            return [a, b, g.sin(c)]

        return for_(g, start, end, step, [x, x, x], outer)[0]

    func = function([X], body)
    wanted = evaluate(func, [np.full((2, 3), 0.5, np.float32)])
    eliminate_dead(func)
    verify(func)
    assert not {"sin", "add", "if", "gt"} & set(names(func))
    assert [len(op.results) for op in func.walk() if op.name == "graph.for"] == [1, 1]
    np.testing.assert_array_equal(evaluate(func, [np.full((2, 3), 0.5, np.float32)]), wanted)


def test_what_a_condition_reads_is_carried_on() -> None:
    def body(g: GraphBuilder, x: Value) -> Value:
        def goes_on(i: Value, a: Value, b: Value) -> Value:
            return g.lt(i, 5)

        def step(i: Value, a: Value, b: Value) -> list[Value]:
            return [g.add(i, 1), g.mul(a, 2.0), g.sin(b)]

        return while_(g, [g.constant(0, int64), x, x], goes_on, step)[1]

    func = function([X], body)
    eliminate_dead(func)
    verify(func)
    (loop,) = (op for op in func.walk() if op.name == "graph.while")
    assert [str(r.type.dtype) for r in loop.results] == ["int64", "f32"]
