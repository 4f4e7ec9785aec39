"""Adjoints and tangents, where operators have them, against central differences of the golden model in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY, attributes_of, flat, operator_of, split_operands, tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Builder, Op, Value
from tessera.compiler.ir.verifier import verify
from tessera.language import dtypes
from tests.differential.operator_examples import (
    EXAMPLES,
    HERE,
    Arg,
    Example,
    applied,
    symbols,
    symmetric,
    unique,
    values,
)

UNSLOPED = ("round", "floor", "ceil", "trunc", "sign", "floordiv", "straight_through", "recalled")
SMOOTH_ENOUGH = [e for e in EXAMPLES if e.name not in UNSLOPED and unique(e)]
SIZES = {"B": 2, "S": 3, "D": 2, "E": 4, "K": 3, "H": 2}


def differentiable(example: Example) -> bool:
    """All its operands can be f64 or are integers, bools or seeds; its result is a float."""
    args = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    floats = [x for x in args if dtypes.f64 in x.dtypes()]
    makes_floats = example.attrs.get("dtype") is None and example.attrs.get("value") != float("-inf")
    return bool(floats) and makes_floats and all(x in floats or x.group in ("bool", "integer", "f32") for x in args)


def chosen(arg: Arg) -> dtypes.DType:
    return dtypes.f64 if dtypes.f64 in arg.dtypes() else arg.dtypes()[0]


def arguments(example: Example) -> list[Arg]:
    return [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]


def setting(example: Example) -> tuple[Op, list[np.ndarray], list[int]]:
    """The example in f64, its arrays, and which of them are floats."""
    args = arguments(example)
    rng = np.random.default_rng(1)
    sizes = {s: SIZES[s] for s in symbols(example)}
    arrays = [values(rng, x, chosen(x), sizes) for x in args]
    arrays.append(np.zeros(tuple(sizes.values()), bool))
    return (
        applied(example, [chosen(x) for x in args]),
        arrays,
        [i for i, x in enumerate(args) if chosen(x) == dtypes.f64],
    )


def with_rule(func: Op, build: Any) -> Op:
    """`func` returning what `build(g, op, further argument)` makes of its operator's op instead."""
    block = func.region.block
    op = block.ops[-2]
    block.terminator.erase()
    g = GraphBuilder(Builder(block, span=HERE))
    g.builder.op("graph.return", build(g, op))
    verify(func)
    return func


WITH_ADJOINT = [e for e in SMOOTH_ENOUGH if REGISTRY[e.name].adjoint is not None and differentiable(e)]
WITH_ADJOINT = [e for e in WITH_ADJOINT if not REGISTRY[e.name].multiple]
WITH_TANGENT = [e for e in SMOOTH_ENOUGH if REGISTRY[e.name].tangent is not None and differentiable(e)]


def slopes(func: Op, arrays: list[np.ndarray], weight: np.ndarray, i: int, only_symmetric: bool = False) -> np.ndarray:
    """d sum(weight * f) / d arrays[i], by central differences."""
    out, h = np.zeros(arrays[i].shape), 1e-6
    for at in np.ndindex(arrays[i].shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[i][at] += sign * h
            moved[i] = symmetric(moved[i]) if only_symmetric else moved[i]
            ends.append(evaluate(func, moved)[0])
        same = ends[0] == ends[1]  # infinities too
        out[at] = np.sum(np.subtract(*ends, where=~same, out=np.zeros(same.shape)) * weight) / (2 * h)
    return out


def test_the_rules_are_exercised() -> None:
    assert len(WITH_ADJOINT) > 60 and len(WITH_TANGENT) > 50


@pytest.mark.parametrize("example", sorted(WITH_ADJOINT, key=str), ids=str)
def test_adjoint(example: Example) -> None:
    func, arrays, floats = setting(example)
    result = func.region.block.ops[-2].results[0]
    if not tensor(result).dtype.is_float:
        return
    (out,) = evaluate(func, arrays)
    weight = np.random.default_rng(2).normal(size=out.shape)
    expected = {i: slopes(func, arrays, weight, i, arguments(example)[i].symmetric) for i in floats}
    ct = func.region.block.add_arg(tensor(result), "ct")
    func.attrs["arg_names"] = (*func.attrs["arg_names"], "ct")  # type: ignore[misc]
    wanted: list[int] = []

    def build(g: GraphBuilder, op: Op) -> list[Value]:
        found = operator_of(op).adjoint(g, op.result, ct, *split_operands(op), **attributes_of(op))  # type: ignore[misc]
        both = [
            pair
            for c, o in zip(found, split_operands(op), strict=True)
            for pair in (zip(o, c, strict=True) if isinstance(o, list) else [(o, c)])
        ]
        kept = [(v, c) for v, c in both if v is not None and c is not None]
        arguments = list(func.region.block.args)
        wanted.extend(arguments.index(v) for v, _ in kept if v in arguments)
        return [c for v, c in kept if v in arguments]

    found = dict(zip(wanted, evaluate(with_rule(func, build), [*arrays, weight]), strict=True))
    for i in set(floats) & set(wanted):
        np.testing.assert_allclose(found[i], expected[i], 1e-5, 1e-6)


@pytest.mark.parametrize("example", sorted(WITH_TANGENT, key=str), ids=str)
def test_tangent(example: Example) -> None:
    func, arrays, floats = setting(example)
    result = func.region.block.ops[-2].results[0]
    if not tensor(result).dtype.is_float:
        return
    rng, h = np.random.default_rng(3), 1e-6
    moves = {i: rng.normal(size=arrays[i].shape) for i in floats}
    moves = {i: symmetric(m) if arguments(example)[i].symmetric else m for i, m in moves.items()}
    ends = [
        evaluate(func, [a + s * h * moves[i] if i in moves else a for i, a in enumerate(arrays)])[0] for s in (1, -1)
    ]
    block = func.region.block
    given = {i: block.add_arg(block.args[i].type, f"d{i}") for i in floats}
    func.attrs["arg_names"] = (*func.attrs["arg_names"], *(f"d{i}" for i in floats))  # type: ignore[misc]
    count = len(floats)

    def build(g: GraphBuilder, op: Op) -> list[Value]:
        arguments = list(block.args)[: len(block.args) - count]
        directions = [given.get(arguments.index(v)) if v in arguments else None for v in flat(split_operands(op))]
        return [operator_of(op).tangent(g, op.result, directions, *split_operands(op), **attributes_of(op))]  # type: ignore[misc]

    (found,) = evaluate(with_rule(func, build), [*arrays, *(moves[i] for i in floats)])
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * h), 1e-5, 1e-6)
