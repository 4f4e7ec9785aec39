"""What is said to go by parts does: every operator, and random functions, on parts of a dim and on all of it."""

from __future__ import annotations

import linecache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate, run
from tessera.compiler.graph.sharding import Partition, Placement, partition, stages
from tessera.dist.arrays import combined
from tessera.errors import CompileError
from tessera.language import dims
from tests.differential.operator_examples import EXAMPLES, Example, applied, close, symbols
from tests.differential.test_operators_definitions import draw_arrays


def pieces(place: Placement, array: Any, dim: str, sizes: dict[str, int], bounds: list[int]) -> list[Any]:
    """The parts of an array; the array for each of them where it is not cut."""
    if place.axis is None:
        return [array for _ in bounds[1:]]
    each = dims.floordiv(place.type.shape[place.axis], dims.symbol(dim))
    k = dims.evaluate(each, sizes)
    return [array.take(range(a * k, b * k), place.axis) for a, b in pairwise(bounds)]


def by_parts(
    found: Partition, arguments: list[list[Any]], sizes: dict[str, int], lengths: list[int]
) -> list[list[Any]]:
    """What each part gives, by the golden model, stage by stage; shares meet between them."""
    args, dim = found.func.region.block.args, found.dim
    known = [dict(zip(args, given, strict=True)) for given in arguments]
    for stage in stages(found):
        for mine, n in zip(known, lengths, strict=True):
            env = {a: mine[v] for a, v in zip(stage.func.region.block.args, stage.takes, strict=True)}
            given = run(stage.func.region.block, env, {**sizes, dim: n, found.total: sum(lengths)})
            mine.update(zip(stage.gives, given, strict=True))
        for v in (v for v in stage.gives if v in found.shares):
            whole = combined([mine[v] for mine in known], found.shares[v], lengths, tensor(v).dtype, "cpu")
            for mine in known:
                mine[v] = whole
    return [[mine[v] for v in found.func.region.block.terminator.operands] for mine in known]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_an_operator_does_to_parts_what_its_rule_says(example: Example, data: st.DataObject) -> None:
    chosen, arrays, sizes = draw_arrays(data, example)
    func = applied(example, chosen)
    for dim in symbols(example):
        found = partition(func, dim)
        if not found.ok or sizes[dim] < 2 or example.least * 2 > sizes[dim] or example.multiple.get(dim):
            continue
        middle = data.draw(st.integers(max(example.least, 1), sizes[dim] - max(example.least, 1)), "middle")
        bounds = [0, middle, sizes[dim]]
        cut = [pieces(p, a, dim, sizes, bounds) for p, a in zip(found.arguments, arrays, strict=True)]
        parts = by_parts(found, [list(c) for c in zip(*cut, strict=True)], sizes, [middle, sizes[dim] - middle])
        whole = evaluate(func, arrays)
        alone = by_parts(found, [list(arrays)], sizes, [sizes[dim]])[0]
        sent = bool(found.collectives)
        for i, place in enumerate(found.results):
            got, dtype = [p[i] for p in parts], place.type.dtype
            if place.axis is not None:
                close(np.concatenate(got, place.axis), whole[i], dtype, 8 if sent else 1)
                continue
            assert got[0].tobytes() == got[1].tobytes(), (place, dim)
            close(got[0], whole[i], dtype, 8)
            if (
                not sent
            ):  # an operator whose reference is not its decomposition may differ from the whole in last digits
                assert np.array_equal(got[0], alone[i], equal_nan=dtype.is_float), (place, dim)


# Random functions of x [B, S, D], y [B, D], w [D, D] and c [D]; each step gives a tensor of x's shape.

APART = (
    "{v} + c", "{v} * 0.5 - {u}", "ts.gelu({v})", "{v} @ w * 0.1", "ts.softmax({v}, axis=-1)",
    "ts.softmax({v}, axis=1)", "ts.layer_norm({v}, c)", "ts.rms_norm({v})", "{v}.transpose(1, 0).transpose(1, 0)",
    "{v} + y.unsqueeze(1)", "({v}.reshape(B * S, D) @ w).reshape(B, S, D) * 0.1", "ts.where({v} > {u}, {v}, {u})",
    "{v} * y.mean(axis=-1)[:, None, None]", "ts.concat([{v}[:, 1:], {u}[:, :1]], axis=1)", "ts.flip({v}, 1)",
    "ts.cumsum({v}, axis=1) * 0.1", "{v} - {v}.max(axis=1, keepdims=True)", "ts.tril({v})",
    "ts.einsum('bsd,btd->bst', {v}, {u}) @ {u} * 0.01",
)  # fmt: skip
"""steps that leave B alone"""
SENT = (
    "{v} - {v}.mean(axis=0)", "ts.softmax({v}, axis=0)", "{v} / B", "{v} / ts.sqrt(ts.var({v}, axis=0) + 1)",
    "{v} @ (y.T @ y) * 0.1", "{v} * {v}.max()", "{v} + ts.logsumexp({u}, axis=0) * 0.1",
    "{v} - {v}[:, :1].sum(axis=(0, 2))[None]", "ts.where(({v} > {u}).any(axis=0), {v}, {u})",
    "{v} + ts.ones((S, D)) * {v}.min(axis=0)",
)  # fmt: skip
"""steps for which the parts send each other something"""
WHOLE = ("ts.flip({v}, 0)", "{v}[::-1]", "ts.cumsum({v}, axis=0)")
"""steps that need all of B"""
ENDS = (
    "{v}.sum(axis=0)", "{v}.mean(axis=(0, 1))", "{v}.max()", "{v}.min(axis=0)", "{v}.sum(axis=1)",
    "({v} > 0).all(axis=0)", "y.T @ y", "{v}.sum(axis=(0, 2))",
)  # fmt: skip


@st.composite
def functions(draw: st.DrawFn) -> tuple[str, str]:
    """The text of a function, and "apart", "sent" or "whole", as its steps are."""
    lines = ["def f(x: ts.Tensor['B', 'S', 'D'], y: ts.Tensor['B', 'D'], w: ts.Tensor['D', 'D'], c: ts.Tensor['D']):"]
    names, kind = ["x"], "apart"
    for i in range(draw(st.integers(1, 5))):
        step = draw(st.sampled_from(draw(st.sampled_from([APART, APART, SENT, SENT, WHOLE] if i else [APART, SENT]))))
        kind = "whole" if step in WHOLE or kind == "whole" else "sent" if step in SENT else kind
        lines.append(f"    v{i} = {step.format(v=draw(st.sampled_from(names)), u=draw(st.sampled_from(names)))}")
        names.append(f"v{i}")
    end = draw(st.sampled_from(ENDS)).format(v=names[-1])
    return "\n".join([*lines, f"    return {names[-1]}, {end}, c * 2"]) + "\n", kind


@given(functions(), st.integers(1, 9), st.integers(1, 7), st.integers(1, 5), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_functions_give_the_same_bits_by_parts(
    case: tuple[str, str], b: int, n: int, s: int, d: int, seed: int
) -> None:
    text, kind = case
    file = f"<distributed {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"ts": ts}
    exec(compile(text, file, "exec"), names)
    rng = np.random.default_rng(seed)
    args = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((b, s, d), (b, d), (d, d), (d,))]
    program = ts.distributed(ts.mesh(n))(names["f"])
    whole = program.single(*args)
    try:
        parts = program(*args)
    except CompileError as e:
        assert kind == "whole" and {x.code for x in e.diagnostics} == {"TS801"}, str(e)
        return
    if kind == "apart":
        assert not program.plan(*args).partition.staged or n == 1
        assert parts[0].tobytes() == whole[0].tobytes(), "joined results have the same bits"
    for got, want in zip(parts, whole, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    assert parts[2].tobytes() == whole[2].tobytes()
    for got, again in zip(parts, program(*args), strict=True):
        assert got.tobytes() == again.tobytes()


def test_many_operators_go_by_parts() -> None:
    """So that the tests above do not hold because nothing is ever said to."""
    ok: set[str] = set()
    for example in EXAMPLES:
        flat = [a for x in example.args if x is not None for a in (x if isinstance(x, list) else [x])]
        func = applied(example, [a.dtypes()[0] for a in flat])
        own = {str(d) for v in func.region.block.args[: len(flat)] for d in tensor(v).shape}
        if any(partition(func, dim).ok for dim in own & set(symbols(example))):
            ok.add(example.name)
    assert len(ok) > 100, sorted(ok)
