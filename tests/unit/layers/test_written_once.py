"""What is written once for operators that are alike is what each of them would give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.compiler import pipeline
from tessera.compiler.autodiff.written import WrittenRules
from tessera.compiler.frontend.evaluate import calls
from tessera.compiler.frontend.evaluate.alike import calls as alike
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.printer import print_op
from tests.unit.layers.test_equal_layers import normal, unit_of


class Convolutions(nn.Module):
    layers: list

    def __init__(self, *, key: int) -> None:
        self.layers = [nn.Conv2d(4, 4, 3, padding=1, key=k) for k in nn.init.split(key, 4)]

    def __call__(self, x):
        for layer in self.layers:
            x = x + ts.relu(layer(x))
        return x


class Experts(nn.Module):
    inner: nn.MixtureOfExperts

    def __init__(self, *, key: int) -> None:
        self.inner = nn.MixtureOfExperts(16, 32, 4, key=key)

    def __call__(self, x):
        y, balance = self.inner(x)
        return x + y + 0.01 * balance


class Chosen(nn.Module):
    """Elements that are left out have masks of their own in the derivative."""

    layers: list

    def __init__(self, *, key: int) -> None:
        self.layers = [nn.Linear(8, 8, key=k) for k in nn.init.split(key, 3)]

    def __call__(self, x):
        for layer in self.layers:
            x = ts.where(x > 0, ts.sqrt(x), ts.clip(layer(x), -1.0, 1.0)) * x
            x = ts.maximum(x, ts.max(x, axis=-1, keepdims=True) * 0.5) + ts.where(x > 0, ts.sqrt(x), 0.0)
        return x


def block(**options: Any) -> Callable[..., Any]:
    return functools.partial(nn.TransformerBlock, 16, 2, **options)


MODELS = {
    "transformer": (lambda: nn.Stack(block(), 4, key=1), (2, 8, 16)),
    "llama": (lambda: nn.Stack(block(feed_forward="swiglu", positions="rotary", groups=1), 3, key=1), (2, 8, 16)),
    "dropout": (lambda: nn.Stack(block(dropout=0.1), 3, key=1), (2, 8, 16)),
    "experts": (lambda: nn.Stack(Experts, 3, key=1), (2, 8, 16)),
    "convolutions": (lambda: Convolutions(key=1), (2, 4, 9, 9)),
    "chosen": (lambda: Chosen(key=1), (4, 8)),
}


@ts.function
def gradient(model, x):
    return ts.value_and_grad(lambda model: ts.mean(ts.square(model(x))))(model)


@ts.function
def dropped(model, x, key: ts.int64):
    return ts.value_and_grad(lambda model: ts.mean(ts.square(model(x, key))))(model)


@ts.function
def second(model, x):
    return ts.grad(lambda x: ts.sum(ts.square(ts.grad(lambda x: ts.mean(model(x)))(x))))(x)


def told(function: Op) -> Iterator[str]:
    """All of a function: also where its operators come from, the names of values, and in which order they are read."""
    yield print_op(function)
    for op in function.walk():
        values = [(v.hint, [(user.name, i) for user, i in v.uses]) for v in op.results]
        yield f"{op.name} {op.span} {op.origin} {values}"


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_are_those_of_each_operator(name: str, monkeypatch: pytest.MonkeyPatch):
    make, shape = MODELS[name]
    model, x = make(), normal(*shape)
    functions = [(dropped, (model, x, 3))] if name == "dropout" else [(gradient, (model, x))]
    functions += [(second, (model, x))] if name in ("llama", "chosen") else []
    ran: list[str] = []
    first = WrittenRules._first

    def counted(self: WrittenRules, key: Any, *rest: Any) -> Any:
        ran.append(key[1])
        return first(self, key, *rest)

    monkeypatch.setattr(WrittenRules, "_first", counted)
    for function, args in functions:
        ran.clear()
        once, few = [*told(unit_of(function, *args).op)], len(ran)
        with monkeypatch.context() as each:
            each.setattr(WrittenRules, "__init__", lambda self, g: vars(self).update(g=g, known=_Nothing()))
            ran.clear()
            assert [*told(unit_of(function, *args).op)] == once
        assert few < len(ran), "no rule has been copied"


class _Nothing(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def test_values_of_a_copied_rule_are_those_of_numpy():
    """Operands that are one value, and operands that are two, are not alike."""

    @ts.function
    def run(x, y):
        return ts.grad(lambda a: ts.sum(a[0] * a[1] + a[0] * a[0] + a[1] * a[1] + a[1] * a[0]))((x, y))

    x, y = normal(5), normal(5, seed=3)
    found = run(x, y)
    np.testing.assert_allclose(np.asarray(found[0]), 2 * y + 2 * x, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found[1]), 2 * x + 2 * y, rtol=1e-5)


# calls of layers at one place of a text


class Scaled(nn.Module):
    """A number of its own, a function of the user's that Python runs, and a name for what it is given."""

    weight: ts.Tensor["D", "D"]
    scale: float
    log: list

    def __init__(self, scale: float, log: list[float], size: int = 8) -> None:
        self.weight, self.scale, self.log = normal(size, size), scale, log

    def __call__(self, x):
        held = x
        return ts.tanh(held @ self.weight) * noted(self.log, self.scale)


def noted(log: list[float], scale: float) -> float:
    log.append(scale)
    return scale


class Branching(nn.Module):
    """A branch that is decided when the program runs, and an assert."""

    weight: ts.Tensor["D", "D"]

    def __init__(self, *, key: int) -> None:
        self.weight = normal(8, 8, seed=key % 7)

    def __call__(self, x):
        assert x.shape[0] % 2 == 0
        if ts.sum(x) > 0:
            x = x @ self.weight
        return x


@ts.function
def forward(model, x):
    first = model.layers[0](x)
    y = x
    for layer in model.layers:
        y = layer(y)
    return y + first


def told_without(monkeypatch: pytest.MonkeyPatch, function: Any, *args: Any) -> tuple[list[str], int]:
    """What is told of a call whose layers are evaluated one by one, and how many would have been copied."""
    copies: list[Any] = []
    copied = alike._copied
    with monkeypatch.context() as counting:
        counting.setattr(alike, "_copied", lambda *a: copies.append(a) or copied(*a))
        unit_of(function, *args)
    with monkeypatch.context() as each:
        each.setattr(calls, "is_module_call", lambda *_: False)
        return [*told(unit_of(function, *args).op)], len(copies)


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_those_that_are_evaluated_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch):
    make, shape = MODELS[name]
    model, x = make(), normal(*shape)
    functions = [(dropped, (model, x, 3))] if name == "dropout" else [(gradient, (model, x))]
    functions += [(forward, (model, x))] if hasattr(model, "layers") else []
    for function, args in functions:
        once = [*told(unit_of(function, *args).op)]
        each, copies = told_without(monkeypatch, function, *args)
        assert once == each
        assert copies or name == "experts", "no layer has been copied"


@pytest.mark.parametrize("make", [
    lambda log: [Scaled(0.5, log) for _ in range(4)],
    lambda log: [Scaled(scale, log) for scale in (0.5, 0.25, 0.5, 0.125)],
    lambda log: [Branching(key=k) for k in range(4)],
    lambda log: [nn.Dropout(0.1), nn.Linear(8, 8, key=1), nn.Dropout(0.2), nn.Linear(8, 8, key=2), nn.RMSNorm(8)],
])  # fmt: skip
def test_layers_that_are_not_alike(make: Callable[[list[float]], list[Any]], monkeypatch: pytest.MonkeyPatch):
    log: list[float] = []
    model, x = nn.Sequential(*make(log)), normal(4, 8)
    once, ran = [*told(unit_of(forward, model, x).op)], len(log)
    log.clear()
    with monkeypatch.context() as each:
        each.setattr(calls, "is_module_call", lambda *_: False)
        assert [*told(unit_of(forward, model, x).op)] == once
    assert ran == len(log), "functions of the user run as often"


def test_findings_are_said_at_each_call(monkeypatch: pytest.MonkeyPatch):
    layers = [nn.Linear(8, 8, key=1), nn.Linear(8, 8, key=2), nn.Linear(8, 8, key=3), nn.Linear(6, 8, key=4)]
    texts: list[str] = []
    for _ in range(2):
        with pytest.raises(ts.CompileError, match=r"Linear\(6, 8\) expects 6 features") as found:
            forward(nn.Sequential(*layers), normal(4, 8))
        texts.append(str(found.value))
        monkeypatch.setattr(calls, "is_module_call", lambda *_: False)
    assert texts[0] == texts[1]


def test_states_of_layers_are_their_own():
    """Caches of layers: what a call changes is changed in each of them."""
    model = nn.Stack(functools.partial(nn.TransformerBlock, 16, 2), 4, key=1)
    caches = [nn.KVCache(1, 2, 8, 8, dtype=ts.f32) for _ in range(4)]

    @ts.function
    def run(model: nn.Stack, x, caches: list[nn.KVCache]):
        return model(x, caches=caches)

    x = normal(1, 6, 16)
    parts = [np.asarray(run(model, part, caches)) for part in (x[:, :4], x[:, 4:])]
    whole = np.asarray(ts.function(lambda model, x: model(x))(model, x))
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-4, atol=1e-5)
    assert all(int(np.asarray(cache.length)) == 6 for cache in caches)


@pytest.mark.parametrize("rule", [ts.optimizers.AdamW, ts.optimizers.Lion, ts.optimizers.Adafactor])
def test_what_updates_have_in_common_is_computed_once(rule: Any, monkeypatch: pytest.MonkeyPatch):
    """Not for each parameter, until passes find it: they find what they did before, in the same order."""
    model, x = nn.Stack(block(), 3, key=1), normal(2, 8, 16)
    state = ts.optimizers.TrainingState(model, rule(1e-3))

    @ts.function
    def step(state: ts.optimizers.TrainingState, x):
        loss, g = ts.value_and_grad(lambda model: ts.mean(ts.square(model(x))))(state.model)
        state.step(g)
        return loss

    once = unit_of(step, state, x)
    monkeypatch.setattr(calls, "evaluated", lambda ev, node, closure, bound, inline: inline())
    each = unit_of(step, state, x)
    assert [*told(pipeline.to_graph(once))] == [*told(pipeline.to_graph(each))]
    few, many = ([op.name for op in unit.op.walk()].count("graph.constant") for unit in (once, each))
    assert few < many / 2
