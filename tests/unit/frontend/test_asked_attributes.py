"""What the compiler asks of objects that a function reads: attributes that there are, whoever gives them."""

from __future__ import annotations

import pytest

import tessera as ts
from tessera import nn
from tessera.compiler.frontend.names.live import asked, run_by


class Plain(nn.Module):
    weight: ts.Tensor["D"]
    path = "of the class"

    @property
    def name(self):
        return "a property"


class Asked(Plain):
    def __getattr__(self, name):
        if name == "shape":
            return (3,)
        raise KeyError(name)


class Counted(Plain):
    def __getattribute__(self, name):
        return "asked" if name == "shape" else super().__getattribute__(name)


@pytest.mark.parametrize("made", [Plain, Asked, Counted])
def test_attributes_that_there_are(made):
    module = made(ts.zeros(2))
    assert asked(module, "weight") is module.weight
    assert (asked(module, "path"), asked(module, "name")) == ("of the class", "a property")
    assert asked(module, "dtype") is None
    assert run_by(module) is module


def test_a_class_that_gives_them_when_they_are_asked_for():
    held = [made(ts.zeros(2)) for made in (Plain, Asked, Counted)]
    assert [asked(module, "shape") for module in held] == [None, (3,), "asked"]


def test_an_optimizer_has_no_others():
    assert asked(ts.optimizers.SGD(0.1), "path") is None
