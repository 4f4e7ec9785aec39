"""Compiling a model of equal layers: each kernel is written once, work grows with the layers and no faster, and what is
not equal is not taken for it."""

from __future__ import annotations

from cProfile import Profile
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler.frontend.evaluate import calls
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.lower import schedule_to_tile
from tessera.compiler.lower.equal_groups import LoweredGroup, RepeatedGroups
from tessera.compiler.targets.cpu.kernel.function import KernelFunction

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)


def transformer(layers: int) -> nn.Stack:
    return nn.Stack(lambda key: nn.TransformerBlock(8, 2, key=key), layers, key=0)


@ts.function
def of_transformer(model: nn.Stack, x: Tensor["B", "S", "D", ts.f32]):  # type: ignore[name-defined]
    return ts.value_and_grad(lambda model: ts.sum(model(x) ** 2))(model)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many kernels were lowered from groups, and how many were written as code."""
    found = {"lowered": 0, "written": 0}

    def counting(owner: Any, name: str, what: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            found[what] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    counting(schedule_to_tile, "contract_kernel", "lowered")
    counting(schedule_to_tile.GroupBody, "of", "lowered")
    counting(KernelFunction, "write", "written")
    return found


def test_layers_more_are_no_kernels_and_no_functions_more(counted: dict[str, int]) -> None:
    seen = []
    for model in [transformer(layers) for layers in (3, 4)]:
        counted.update(lowered=0, written=0)
        compiled = ts.compile(of_transformer, arguments=(model, X), target="cpu")
        functions = compiled.artifact.source.count("\ndefine ")
        kernels = len({launch.code for launch in compiled.built.lowered.program.launches})
        seen.append((dict(counted, functions=functions, kernels=kernels), len(compiled.built.plan.launches)))
    (few, launches), (many, more) = seen
    assert few == many and launches < more, "launches there are for each layer"
    assert few["lowered"] and few["written"]


def test_functions_are_read_once_however_often_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counting(function: Any, *args: Any) -> Any:
        read.append(function.__qualname__)
        return live_definition(function, *args)

    monkeypatch.setattr(calls, "live_definition", counting)
    ts.compile(of_transformer, arguments=(transformer(3), X), target="cpu")
    assert read and len(read) == len(set(read))


def test_work_grows_with_the_layers_and_no_faster() -> None:
    def work(layers: int) -> int:
        model, calls = transformer(layers), Profile()
        with calls:
            ts.compile(of_transformer, arguments=(model, X), target="cpu")
        return sum(entry.callcount for entry in calls.getstats())

    work(1)
    two, five, eight = work(2), work(5), work(8)
    assert eight - five < 1.2 * (five - two)


@ts.function
def unlike(x: Tensor[6, 8, ts.f32], a: Tensor[8, 8, ts.f32], b: Tensor[8, 8, ts.f32], h: Tensor[6, 8, ts.f16],
           s: ts.f32, wide: Tensor[6, 8, ts.f32, ts.accum(ts.f64)]):  # fmt: skip
    """Layers that are equal but for one thing each."""
    made = []
    for number in (0.0, -0.0, 1, True, 1.0, 2.0):  # a constant
        made.append(ts.copysign(x @ a, number) + number)
    for each in (x, h):  # a dtype
        made.append(ts.exp(each * 0.5))
    for axis in (0, 1):  # an axis
        made.append(ts.softmax(x, axis=axis))
    for w in (a, b, a.T):  # a closure's value, and how it lies
        made.append((lambda v, w=w: ts.tanh(v @ w))(x))
    for factor in (s, x[0, 0], 3.0):  # a scalar of the call, one that is computed, one that is known
        made.append((x - 1.5) * factor)
    for each in (x, wide):  # a policy
        made.append(ts.sum(each, axis=1))
    return tuple(made)


def test_the_text_is_the_same_as_when_each_group_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    model, anew = transformer(3), list[str]()

    def written_anew(_: RepeatedGroups, *of: Any) -> LoweredGroup:
        *_, name, write = of
        anew.append(name)
        return write()

    def texts() -> list[str]:
        compiled = [
            ts.compile(of_transformer, arguments=(model, X), target="cpu"),
            ts.compile(unlike, target="cpu"),
            ts.compile(unlike, target="reference"),
        ]
        return [str(c.ir(level)) for c in compiled for level in ("schedule", "tile")]

    once = texts()
    monkeypatch.setattr(RepeatedGroups, "lowered", written_anew)
    assert texts() == once and len(anew) > 100


def test_what_is_unlike_is_computed_as_it_says() -> None:
    rng = np.random.default_rng(1)
    x, a, b = (rng.normal(size=s).astype(np.float32) for s in ((6, 8), (8, 8), (8, 8)))
    h, wide = x.astype(np.float16), x * np.float32(1e3) + x[::-1]
    got = iter(ts.compile(unlike, target="cpu")(x, a, b, h, 0.25, wide))

    def softmax(v: Any, axis: int) -> Any:
        e = np.exp(v - v.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    for number in (0.0, -0.0, 1, True, 1.0, 2.0):
        np.testing.assert_allclose(next(got), np.copysign(x @ a, number) + np.float32(number), rtol=1e-5, atol=1e-6)
    for each in (x, h):
        found = next(got)
        assert found.dtype == each.dtype
        np.testing.assert_allclose(found, np.exp(each * each.dtype.type(0.5)), rtol=3e-3)
    for axis in (0, 1):
        np.testing.assert_allclose(next(got), softmax(x, axis), rtol=1e-5)
    for w in (a, b, a.T):
        np.testing.assert_allclose(next(got), np.tanh(x @ w), rtol=1e-5, atol=1e-6)
    for factor in (0.25, x[0, 0], 3.0):
        np.testing.assert_allclose(next(got), (x - 1.5) * factor, rtol=1e-5)
    np.testing.assert_allclose(next(got), x.sum(1, dtype=np.float32), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(next(got), wide.sum(1, dtype=np.float64).astype(np.float32))
