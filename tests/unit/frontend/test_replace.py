"""Copies of dataclasses with other values of some fields, inside of functions and outside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.incremental import FileAnalysis


@dataclass
class Part:
    weight: Tensor["N"]
    rate: float = 0.5
    act: Callable = ts.relu


@dataclass
class Whole:
    part: Part
    parts: list[Part] = field(default_factory=list)
    count: int = 3

    def __init__(self, part, parts=()):
        self.part, self.parts = part, list(parts)


@dataclass(frozen=True)
class Frozen:
    weight: Tensor["N"]


x = np.array([1.0, -2.0], np.float32)


def test_outside_of_functions():
    whole = Whole(Part(x), [Part(x)])
    other = ts.replace(whole, part=None)
    other.parts[0].rate = 2.0
    assert other.part is None and whole.part is not None and whole.parts[0].rate == 0.5
    assert other.parts[0].weight is x
    assert ts.replace(Frozen(x), weight=None).weight is None
    with pytest.raises(ts.LaunchError, match="Part has no field 'rates'; it has weight, rate, act"):
        ts.replace(Part(x), rates=1)
    with pytest.raises(ts.LaunchError, match="an instance of a dataclass, not list"):
        ts.replace([1])


def test_inside_of_functions():
    @ts.function
    def f(whole: Whole, frozen: Frozen):
        part = ts.replace(whole.part, weight=whole.part.weight * whole.part.rate)
        part.weight = part.weight + 1  # it is the function's own
        return ts.replace(whole, part=part), ts.replace(frozen, weight=-frozen.weight)

    whole = Whole(Part(x), [Part(x, 2.0)])
    before = copy.deepcopy(whole)
    other, frozen = f(whole, Frozen(x))
    assert type(other) is Whole and type(frozen) is Frozen
    assert other.part.weight.tolist() == [1.5, 0] and frozen.weight.tolist() == [-1, 2]
    assert (other.part.rate, other.part.act, other.parts[0].rate) == (0.5, ts.relu, 2.0)
    assert np.array_equal(whole.part.weight, before.part.weight)


def test_what_a_dataclass_holds_is_a_number_after_a_gradient():
    @ts.function
    def f(part: Part):
        def loss(part):
            return ts.sum(ts.square(part.weight)), (ts.replace(part, weight=part.weight + 1), 0.25)

        return ts.value_and_grad(loss, has_aux=True)(part)

    (value, (other, number)), gradient = f(Part(x))
    assert value == 5 and other.rate == 0.5 and isinstance(other.rate, float) and other.weight.tolist() == [2, -1]
    assert number == 0.25 and gradient.weight.tolist() == [2, -4] and gradient.rate == 0.5


@pytest.mark.parametrize(
    "change, said",
    [("part, rates=1", "Part has no field 'rates'"), ("part.weight", "takes an instance of a dataclass")],
)
def test_what_does_not_fit_is_said_while_typing(change, said):
    file = FileAnalysis("model.py")
    file.update(
        "import tessera as ts\nfrom dataclasses import dataclass\n@dataclass\nclass Part:\n    weight: ts.Tensor['N']\n"
        f"    rate: float = 0.5\n@ts.function\ndef f(part: Part):\n    return ts.replace({change})\n"
    )
    (found,) = file.diagnostics
    assert found.code == "TS105" and said in found.message and found.span.line == 9


class Undeclared(ts.nn.Module):
    def __init__(self):
        self.part = ts.nn.Linear(2, 2, key=0)

    def half(self):
        return self.replace(part=self.part.replace(bias=self.part.bias - 1))


def test_what_an_init_sets_without_declaring_it_may_be_replaced():
    made = ts.function(lambda model: model.half())(Undeclared())
    assert made.part.bias.tolist() == Undeclared().half().part.bias.tolist() == [-1, -1]
    file = FileAnalysis("model.py")
    file.update(
        "import tessera as ts\nclass Net(ts.nn.Module):\n    def __init__(self):\n"
        "        self.part = ts.nn.Linear(2, 2, key=0)\n@ts.function\ndef f(net: Net):\n"
        "    return ts.replace(net, part=net.part), ts.replace(net, port=net.part)\nf(Net())\n"
    )
    assert [(d.code, d.message[:23]) for d in file.diagnostics] == [("TS105", "Net has no field 'port'")]
