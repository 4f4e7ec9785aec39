"""Elementwise values that sums along other axes read are computed again in the kernels of the sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.kernels import logsumexp_safe
from tests.conftest import require
from tests.fuzz import gradients, peers

ROWS, COLUMNS = 130, 70


def norms(x: Any, ct: Any) -> Any:
    normalised = x / ts.sqrt(ts.mean(x * x, axis=1, keepdims=True))
    weighed = normalised * ct
    return ts.sum(weighed, axis=1), ts.sum(weighed, axis=0), ts.sum(ct, axis=0)


def stored(x: Any, ct: Any) -> Any:
    normalised = x / ts.sqrt(ts.mean(x * x, axis=1, keepdims=True))
    weighed = normalised * ct
    return ts.sum(weighed, axis=1), ts.sum(weighed, axis=0), ts.sum(ct, axis=0), weighed


def dear(x: Any, ct: Any) -> Any:
    steep = x - ts.max(x, axis=1, keepdims=True)
    for _ in range(12):
        steep = ts.sin(steep + ct)
    return ts.sum(steep, axis=1), ts.sum(steep, axis=0)


def kernels(f: Any, *arguments: Any) -> list[str]:
    text = ts.compile(ts.function(f), target="cpu", arguments=arguments).ir("schedule")
    return [line for line in text.splitlines() if " = group(" in line]


@pytest.fixture(scope="module")
def arguments() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=(ROWS, COLUMNS)).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


def test_the_sums_of_columns_are_one_kernel_that_reads_what_is_in_memory(arguments: tuple[Any, Any]) -> None:
    rows, columns = kernels(norms, *arguments)
    assert "inner=[1]" in rows and f"[{ROWS}, {COLUMNS}] f32" not in rows.rpartition(":")[0].partition(") : ")[2]
    assert "inner=[0]" in columns and columns.count(f"[{COLUMNS}] f32") == 2


def test_the_bits_are_those_of_values_from_memory(arguments: tuple[Any, Any]) -> None:
    assert len(kernels(stored, *arguments)) == 3
    found, want = ts.function(norms)(*arguments), ts.function(stored)(*arguments)
    assert [np.asarray(a).tobytes() for a in found] == [np.asarray(b).tobytes() for b in want[:3]]
    x, ct = (a.astype(np.float64) for a in arguments)
    weighed = x / np.sqrt((x * x).mean(1, keepdims=True)) * ct
    np.testing.assert_allclose(np.asarray(found[1]), weighed.sum(0), rtol=1e-4, atol=1e-4)


def test_what_is_dear_is_stored(arguments: tuple[Any, Any]) -> None:
    rows, _ = kernels(dear, *arguments)
    assert f"[{ROWS}, {COLUMNS}] f32" in rows.partition(") : ")[2]


def test_a_row_of_one_element() -> None:
    """Its elements are as few as what is kept for a row: nothing is computed again."""
    for x in (np.full(1, 0.5, np.float32), np.full((1, 1), 0.5, np.float32)):
        np.testing.assert_allclose(np.asarray(logsumexp_safe(x)), x[..., 0], rtol=1e-6)


def changed(x: Any, ct: Any) -> Any:
    ct = ct * 2
    normalised = x / ts.sqrt(ts.mean(x * x, axis=1, keepdims=True))
    rows, columns = ts.sum(normalised, axis=1), ts.sum(normalised * ct, axis=0)
    for i in ts.range(2):
        ct = ts.put(ct, i, ct[i + 3])
    return rows, columns, ct


def test_what_a_loop_changes_in_place_is_read_before(arguments: tuple[Any, Any]) -> None:
    x, ct = (a.astype(np.float64) for a in arguments)
    rows, columns, after = map(np.asarray, ts.function(changed)(x, ct))
    normalised = x / np.sqrt((x * x).mean(1, keepdims=True))
    np.testing.assert_allclose(rows, normalised.sum(1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(columns, (normalised * ct * 2).sum(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(after, 2 * ct[[3, 4, *range(2, ROWS)]])


def test_derivatives_of_two_orders_in_one_function() -> None:
    """What a sum's kernel computes itself belongs to a derivative's order, as all of its operators do."""
    p = gradients.program(7800044)
    with knobs.target.override("cpu"):
        assert not gradients.fault(p)


@pytest.mark.filterwarnings("ignore::tessera.TrainingWarning")
def test_an_operator_that_two_sums_read_and_nobody_after_them() -> None:
    """Its group is forgotten by the sums, too."""
    require("torch")
    with knobs.target.override("cpu"):
        assert not peers.fault(peers.program(600771))
