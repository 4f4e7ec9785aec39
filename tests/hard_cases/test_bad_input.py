"""What cannot be differentiated or trained: a code, at the line that caused it, and what was there is intact.

Others: NaN in the loss, losses that are no numbers and parameters that are not reached in
`tests/unit/training/test_training_faults.py`, gradients and states of other models in
`tests/unit/optimizers`, memory in `tests/unit/runtime/test_out_of_memory.py`, mutation in `test_control.py` (4).
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64
from tessera.compiler.graph import operator
from tessera.compiler.graph.operator import Infer, Operator
from tessera.compiler.ir.types import TensorType

X = np.linspace(-1, 1, 3)


@pytest.fixture
def running() -> Iterator[Any]:
    """An operator from outside that says neither what its derivative is nor what it is made of."""
    tables: tuple[Any, ...] = (operator.REGISTRY, operator.FUNCTIONS, operator.METHODS, operator.SPECS)

    class Running(Operator):
        """A scan of its own."""

        kind = "scan"

        def infer(self, t: Infer, x: TensorType, axis: int = 0) -> TensorType:
            t.canonical(axis=t.axis(x, axis))
            return x

        def reference(self, x: Any, axis: int) -> Any:
            return np.cumsum(x, axis=axis)

    yield Running
    for table in tables:  # others may have been registered meanwhile: families of operators are imported when needed
        for name in ("running", "graph.running"):
            table.pop(name, None)


@ts.function
def through(x: Tensor["N", f64]):
    y = x * 2
    z = ts.running(y)  # nothing says how this changes with y
    return ts.sum(z)


@pytest.mark.parametrize("by", [
    ts.grad, ts.hessian, lambda f: lambda x: ts.jvp(f, (x,), (x,)), lambda f: lambda x: ts.vmap(ts.grad(f))(x[None])
], ids=["grad", "hessian", "jvp", "vmap"])  # fmt: skip
def test_an_operator_without_a_rule(running: Any, by: Any) -> None:
    with pytest.raises(ts.CompileError, match="running has no derivative here") as caught:
        by(through)(X)
    (d,) = caught.value.diagnostics
    assert d.code == "TS353" and "ts.running(y)" in linecache.getline(__file__, d.span.line) and d.span.file == __file__


def test_an_operator_of_a_kind_whose_operators_are_known(running: Any) -> None:
    @ts.function
    def run(x: Tensor["N", f64]):
        return ts.running(x * 2)  # no target has code for it

    with pytest.raises(ts.errors.TargetError, match="no target computes running") as caught:
        run(X)
    (d,) = caught.value.diagnostics
    assert d.code == "TS602" and "ts.running(x * 2)" in linecache.getline(__file__, d.span.line)


def test_arguments_of_transforms() -> None:
    refused = {
        "TS352": [lambda: ts.grad(lambda x: x * 2)(X), lambda: ts.grad(lambda x: (ts.sum(x), x))(X)],
        "TS351": [lambda: ts.grad(lambda n: n * 1.0)(3), lambda: ts.jvp(lambda x: x * 1.0, (np.arange(3),), (X,))],
        "TS105": [
            lambda: ts.grad(lambda x: ts.sum(x), argnums=(0, 0))(X),
            lambda: ts.grad(lambda x: ts.sum(x), argnums=2)(X),
        ],
        "TS357": [lambda: ts.vjp(lambda x: x * 2, X)[1](np.ones(4)), lambda: ts.jvp(lambda x: x, (X,), (X[:2],))],
    }
    for code, calls in refused.items():
        for call in calls:
            with pytest.raises(ts.TesseraError) as caught:
                call()
            assert caught.value.code == code, caught.value


def test_memory_that_is_not_there() -> None:
    @ts.function
    def outer(x: Tensor["N", ts.f32]):
        return ts.sum(ts.square(ts.sin(x)[:, None] * ts.cos(x)[None, :] @ ts.ones((x.shape[0], x.shape[0]))))

    gradient, x = ts.grad(outer), np.ones(3, np.float32)
    before = gradient(x)
    with pytest.raises(ts.LaunchError, match=r"TS505(?s:.)*TiB"):
        gradient(np.ones(3_000_000, np.float32))
    np.testing.assert_array_equal(gradient(x), before)
