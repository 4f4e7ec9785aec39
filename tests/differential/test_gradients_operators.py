"""Gradients of every operator, by its rule, its decomposition or the transpose of its rule.

Reverse mode against central differences in f64, forward mode against reverse mode: <J v, w> = <v, J' w>, also for the
derivative of the derivative.
"""

from __future__ import annotations

import numpy as np
import pytest

from tessera.compiler.autodiff.forward import push_forward
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY, tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Builder, Op, Value
from tessera.compiler.ir.verifier import verify
from tests.differential.operator_examples import HERE, Example
from tests.differential.test_operators_derivatives import SMOOTH_ENOUGH, arguments, differentiable, setting, slopes


def results_of(func: Op) -> list[Value]:
    return [r for r in func.region.block.terminator.operands if tensor(r).dtype.is_float]


DIFFERENTIABLE = [e for e in SMOOTH_ENOUGH if differentiable(e) and REGISTRY[e.name].differentiable]
DIFFERENTIABLE = [e for e in DIFFERENTIABLE if results_of(setting(e)[0])]
ONE_RESULT = [e for e in DIFFERENTIABLE if len(results_of(setting(e)[0])) == 1]


def extended(func: Op, further: list[tuple[str, Value]], build) -> Op:
    """`func` with further arguments, of the types of these values, that returns what `build(g, *further)` gives."""
    block = func.region.block
    given = [block.add_arg(v.type, f"{name}{i}") for i, (name, v) in enumerate(further)]
    func.attrs["arg_names"] = (*func.attrs["arg_names"], *(v.hint for v in given))
    block.terminator.erase()
    g = GraphBuilder(Builder(block, span=HERE))
    g.builder.op("graph.return", build(g, *given))
    verify(func)
    return func


def backward(example: Example):
    """(the function that returns the cotangents of its floats, the example's arrays, which are floats)"""
    func, arrays, floats = setting(example)
    block = func.region.block
    ops, results = list(block.ops[:-1]), results_of(func)
    wanted = [block.args[i] for i in floats]

    def build(g, *cts):
        found = pull_back(g, ops, wanted, list(zip(results, cts, strict=True)))
        return [g.zeros_like(x) if v is None else v for x, v in zip(wanted, found, strict=True)]

    return extended(func, [("ct", r) for r in results], build), arrays, floats


def weights(rng, func: Op, arrays) -> list[np.ndarray]:
    floats = [v for v in evaluate(func, arrays) if v.dtype.kind == "f"]
    return [rng.normal(size=v.shape) for v in floats]


@pytest.mark.parametrize("example", sorted(ONE_RESULT, key=str), ids=str)
def test_reverse_mode_is_the_slope(example: Example) -> None:
    func, arrays, floats = setting(example)
    (weight,) = weights(np.random.default_rng(2), func, arrays)
    expected = [slopes(func, arrays, weight, i, arguments(example)[i].symmetric) for i in floats]
    back, _, _ = backward(example)
    found = evaluate(back, [*arrays, weight])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize("example", sorted(DIFFERENTIABLE, key=str), ids=str)
def test_forward_and_reverse_mode_are_transposes(example: Example) -> None:
    rng = np.random.default_rng(3)
    func, arrays, floats = setting(example)
    block = func.region.block
    ops, results = list(block.ops[:-1]), results_of(func)
    cts = weights(rng, func, arrays)
    moves = [rng.normal(size=arrays[i].shape) for i in floats]

    def build(g, *tangents):
        given = dict(zip([block.args[i] for i in floats], tangents, strict=True))
        found = push_forward(g, ops, given, results)
        return [g.zeros_like(r) if v is None else v for r, v in zip(results, found, strict=True)]

    ahead = extended(func, [("t", block.args[i]) for i in floats], build)
    outs = evaluate(ahead, [*arrays, *moves])
    back, _, _ = backward(example)
    ins = evaluate(back, [*arrays, *cts])
    left = sum(np.sum(a * b) for a, b in zip(outs, cts, strict=True))
    right = sum(np.sum(a * b) for a, b in zip(ins, moves, strict=True))
    np.testing.assert_allclose(left, right, 1e-8, 1e-9)


def test_nothing_is_left_out() -> None:
    assert len(DIFFERENTIABLE) > 120
