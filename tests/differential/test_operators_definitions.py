"""Every operator, over random shapes and dtypes: its shape rule, reference, decomposition and cost agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.compiler.graph.operator import REGISTRY, attributes_of, operator_of, split_operands, tensor, types_of
from tessera.compiler.graph.passes.canonicalize import canonicalize
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.graph.passes.eliminate_common import eliminate_common
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.verifier import verify
from tessera.language import dims
from tests.differential.operator_examples import EXAMPLES, Example, applied, close, symbols, values

PRIMITIVE = {"map", "reduce", "contract", "view", "join", "gather", "scatter", "put", "scan", "sort", "random",
             "generate", "spectral", "table"}  # fmt: skip


def draw_arrays(data: st.DataObject, example: Example) -> tuple[list[Any], list[np.ndarray], dict[str, int]]:
    size = st.integers(example.least, 4)
    sizes = {s: data.draw(size, s) * example.multiple.get(s, 1) or example.multiple.get(s, 0) for s in symbols(example)}
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    groups: dict[str, Any] = {}
    for x in flat:  # operands of one group share a dtype: promotion has tests of its own
        groups.setdefault(x.group, data.draw(st.sampled_from(x.dtypes()), x.group))
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    arrays = [values(rng, x, groups[x.group], sizes) for x in flat]
    return [groups[x.group] for x in flat], [*arrays, np.zeros(tuple(sizes.values()), bool)], sizes


def test_every_operator_has_an_example() -> None:
    assert not set(REGISTRY) - {e.name for e in EXAMPLES}


def test_every_operator_is_documented_and_complete() -> None:
    for operator in REGISTRY.values():
        assert operator.doc.strip() and operator.doc.strip()[-1] in ".)", operator.name
        assert (operator.kind in PRIMITIVE) or operator.decompose is not None, operator.name
        if operator.kind == "view":
            assert operator.strided is not None, operator.name
        if operator.kind == "join":
            assert operator.windows is not None, operator.name


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_rule_reference_and_decomposition_agree(example: Example, data: st.DataObject) -> None:
    chosen, arrays, sizes = draw_arrays(data, example)
    func = applied(example, chosen)
    verify(func)
    op = func.region.block.ops[-2]
    whole = evaluate(func, arrays)  # fails where the reference's shape is not the rule's
    for array, result in zip(whole, op.results, strict=True):
        assert array.dtype == tensor(result).dtype.numpy
    cost = operator_of(op).cost(types_of(split_operands(op)), [tensor(r) for r in op.results], **attributes_of(op))
    assert dims.evaluate(cost.flops, sizes) >= 0 and dims.evaluate(cost.bytes, sizes) >= 0
    decompose(func)
    verify(func)
    for inner in func.region.block.ops:
        assert inner.name in ("graph.return", "graph.constant") or operator_of(inner).kind in PRIMITIVE, inner
    parts = evaluate(func, arrays)
    for a, b, result in zip(whole, parts, op.results, strict=True):
        close(a, b, tensor(result).dtype)
    for transform in (canonicalize, eliminate_common, eliminate_dead):
        transform(func)
        verify(func)
    for a, b in zip(parts, evaluate(func, arrays), strict=True):
        assert a.tobytes() == b.tobytes()  # not a bit may change
