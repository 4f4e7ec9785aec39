"""`isinstance` and `hasattr` of modules and dataclasses in functions: as in Python, and in editors as when compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.compiler.frontend.incremental import FileAnalysis

TEXT = """
import tessera as ts
from tessera import Tensor, nn


class Scaled(nn.Linear):
    pass


class Net(nn.Module):
    first: Scaled
    drop: nn.Dropout
    last: nn.Linear

    def __call__(self, x):
        for layer in (self.first, self.drop, self.last):
            if isinstance(layer, nn.Dropout) or not isinstance(layer, (int, nn.Module)):
                continue
            x = layer(x)
            if isinstance(layer, Scaled) and hasattr(layer, "weight") and not hasattr(layer, "p"):
                x = ts.concat([x, x], axis=1)
        return x


@ts.function
def out(net: Net, x: Tensor["B", 4]):
    y = net(x)
    return y


net = Net(Scaled(4, 3, key=0), nn.Dropout(0.5), nn.Linear(6, 2, key=1))
result = out(net, ts.ones((5, 4)))
"""


def test_what_runs_is_what_python_would_run(tmp_path, monkeypatch):
    (tmp_path / "classes_of_layers.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    import classes_of_layers as made  # type: ignore[import-not-found]

    plain = made.net(np.ones((5, 4), np.float32))
    assert made.result.shape == plain.shape == (5, 2)
    np.testing.assert_allclose(made.result, plain, rtol=1e-6)


NAMES = """
import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    last: nn.Linear

    def __call__(self, x):
        name, other = type(self).__name__, self.last.__class__.__name__
        if not hasattr(nn, "NoSuchLayer") and hasattr(ts, "relu") and (name, other) == ("Net", "Linear"):
            return ts.concat([self.last(x), x], axis=1)
        return x


@ts.function
def out(net: Net, x: Tensor["B", 4]):
    y = net(x)
    return y


net = Net(nn.Linear(4, 2, key=0))
result = out(net, ts.ones((5, 4)))
"""


def test_names_of_classes_and_what_modules_have(tmp_path, monkeypatch):
    (tmp_path / "names_of_classes.py").write_text(NAMES)
    monkeypatch.syspath_prepend(tmp_path)
    import names_of_classes as made  # type: ignore[import-not-found]

    (analysis,) = (a for a in FileAnalysis("names.py").update(NAMES) if a.name == "out")
    assert made.result.shape == (5, 6) and not analysis.diagnostics
    assert [e.text for e in analysis.expressions if e.kind == "assign"][-1] == "[B, H+4] f32"


class Holder(nn.Module):
    layers: list[nn.Linear]

    def __call__(self, x):
        last = self.layers[-1]
        return x * getattr(last, "gain", 3.0) + bool(self.layers) + bool(last) + getattr(last, "bias", 1.0)


def test_what_may_be_absent_and_what_is_true():
    holder, x = Holder([nn.Linear(2, 2, key=0)]), np.ones((3, 2), np.float32)
    np.testing.assert_allclose(ts.function(lambda holder, x: holder(x))(holder, x), holder(x))
    with pytest.raises(ts.TesseraError, match="a Linear does not convert to one f32"):
        ts.function(lambda holder: float(holder.layers[0]))(holder)


OF_A_TEXT = """
import tessera as ts
from dataclasses import dataclass
from tessera import Tensor, nn


class Head(nn.Module):
    scale: float

    def __call__(self, x):
        return x * self.scale


class Wide(Head):
    def __call__(self, x):
        return ts.concat([x, x], axis=1)


@ts.function
def out(x: Tensor["B", 4]):
    for head in (Head(2.0), Wide(3.0)):
        if isinstance(head, Wide) and isinstance(head, Head) and hasattr(head, "scale"):
            x = head(x)
        if isinstance(head, (nn.Dropout, int)) or hasattr(head, "p"):
            x = x[:, :1]
    y = x + 1
    return y
"""


def test_editors_know_it_too():
    (analysis,) = (a for a in FileAnalysis("classes.py").update(OF_A_TEXT) if a.name == "out")
    assert [e.text for e in analysis.expressions if e.kind == "assign"][-1] == "[B, 8] f32" and not analysis.diagnostics


WITH_DROPOUT = """
import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    first: nn.Linear
    drop: nn.Dropout
    last: nn.Linear

    def __call__(self, x, key):
        return self.last(self.drop(ts.relu(self.first(x)), key))


@ts.function
def step(net: Net, x: Tensor["B", 4], key: ts.int64):
    y = net(x, key)
    loss, gradient = ts.value_and_grad(lambda net: ts.mean(net(x, key)))(net)
    return loss, gradient
"""


def test_a_part_without_tensors_leaves_the_model_known():
    (analysis,) = (a for a in FileAnalysis("dropout.py").update(WITH_DROPOUT) if a.name == "step")
    assert [e.text for e in analysis.expressions if e.kind == "assign"] == ["[B, H] f32", "[] f32"]
    assert not analysis.diagnostics
