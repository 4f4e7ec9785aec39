"""Blocks of attention's kernels: as many rows as there are where products take any number."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.graph.operators.attention import steps
from tessera.compiler.pipeline import to_program


@ts.function
def attend(q: ts.Tensor["B", "H", "S", 16, ts.f32], k: ts.Tensor["B", "H", "T", 16, ts.f32]):
    return ts.attention(q, k, k)


def rows(target: str, queries: int) -> int:
    """How many rows the first product of the kernel has."""
    unit = analyse(attend.definition(), None, {"B": 1, "H": 1, "S": queries, "T": 96}).unit()
    (launch,) = to_program(unit, target).program.launches
    product = next(op for op in launch.kernel.walk() if op.name == "tile.mma")
    return product.operands[0].type.shape[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("queries", "cpu", "gpu"), [(1, 1, 16), (5, 5, 16), (64, 64, 64), (65, 65, 64), (100, 50, 64), (197, 29, 64)]
)
def test_no_row_is_computed_for_a_query_that_is_not_there(queries: int, cpu: int, gpu: int) -> None:
    assert (rows("cpu", queries), rows("sm_80", queries)) == (cpu, gpu)


@pytest.mark.parametrize("queries", [1, 5, 65])
def test_bits_do_not_depend_on_the_rows_of_a_block(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((2, 3, n, 16)).astype(np.float32) for n in (queries, 96))

    def gradients(q, k):
        return ts.value_and_grad(lambda q, k: ts.sum(ts.square(ts.attention(q, k, k))), argnums=(0, 1))(q, k)

    found = ts.function(gradients)(q, k)
    monkeypatch.setattr(steps, "_rows", lambda count: 64)
    padded = ts.function(lambda q, k: gradients(q, k))(q, k)
    for one, other in zip((found[0], *found[1]), (padded[0], *padded[1]), strict=True):
        np.testing.assert_array_equal(one, other)
