"""Calls with arguments that are alike are evaluated once, and the program is the one that evaluating each gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler import pipeline
from tessera.compiler.frontend.evaluate import calls
from tessera.compiler.ir.printer import print_op
from tessera.optimizers import SGD, AdamW, Group, Muon, TrainingState

X = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)


class _Found(Exception):
    pass


def graph_of(function: Any, *args: Any, once: bool) -> tuple[str, int]:
    """The Graph IR of a call behind its passes, and how many calls of functions that ask for it were evaluated."""
    evaluated, count = calls.evaluated, [0]

    def caught(unit: Any, *_: Any) -> Any:
        raise _Found(print_op(pipeline.to_graph(unit)))

    def counted(ev: Any, node: Any, closure: Any, bound: Any, inline: Any) -> Any:
        def run() -> Any:
            count[0] += "alike" in closure.definition.options
            return inline()

        return evaluated(ev, node, closure, bound, run) if once else run()

    with pytest.MonkeyPatch.context() as patch, pytest.raises(_Found) as found:
        patch.setattr(pipeline, "lower", caught)
        patch.setattr(calls, "evaluated", counted)
        function(*args)
    return str(found.value), count[0]


@ts.function
def step(state: TrainingState, x: Tensor["B", "D"]):
    loss, slope = ts.value_and_grad(lambda layers: ts.mean(ts.square(sum(layer(x) for layer in layers))))(state.model)
    state.step(slope)
    return loss


@pytest.mark.parametrize(
    ("rule", "most"),
    [
        (AdamW(1e-3, clip=1.0, groups=(Group(lambda name, p: len(p.shape) < 2, lr_scale=0.5, weight_decay=0.0),)), 12),
        (SGD(lambda t: 0.1 / (1 + t), momentum=0.9, loss_scale="dynamic"), 12),
        (Muon(1e-3), 12),
    ],
    ids=["groups", "schedule", "matrices"],
)
def test_updates_of_parameters(rule: Any, most: int) -> None:
    def found(once: bool) -> tuple[str, int]:
        return graph_of(step, TrainingState([nn.MLP(16, 16, key=k) for k in range(6)], rule), X, once=once)

    text, count = found(once=True)
    whole, all_of_them = found(once=False)
    assert text == whole
    assert all_of_them == 2 * 24 and count <= most


@ts.function
def scaled(a, factor):
    return [a * factor, a]


scaled.options["alike"] = True


@ts.function
def named(a):
    b = a
    return b + 1


named.options["alike"] = True


def test_what_differs_is_evaluated() -> None:
    """Numbers, types, and which arguments are the same. Names are given again."""

    @ts.function
    def run(x: Tensor["M"], y: Tensor["M"], z: Tensor["K"]):
        numbers = [scaled(x, 2), scaled(y, 2), scaled(x, 3), scaled(x, 2.0), scaled(z, 2), scaled(x, x), scaled(x, y)]
        return numbers, named(x * 2), named(y * 2), scaled(y, x)

    x, y, z = (np.arange(n, dtype=np.float32) + n for n in (3, 3, 5))
    (text, count), (whole, _) = (graph_of(run, x, y, z, once=once) for once in (True, False))
    assert text == whole and count == 7
    numbers, *rest = run(x, y, z)
    wanted = [x * 2, y * 2, x * 3, x * 2, z * 2, x * x, x * y]
    for (found, _), want in zip([*numbers, rest[-1]], [*wanted, y * x], strict=True):
        np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(rest[0], x * 2 + 1)
    np.testing.assert_array_equal(rest[1], y * 2 + 1)
