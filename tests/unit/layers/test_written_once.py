"""What is written once for operators that are alike is what each of them would give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.compiler.autodiff.written import WrittenRules
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
