"""A shape error says which layer of a model does not fit: where layers run, in functions, and in texts."""

from __future__ import annotations

import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler.frontend.incremental import FileAnalysis


class Own(nn.Module):
    def __init__(self, width):
        self.mlp = nn.Sequential(nn.Linear(width, 20, key=0), ts.relu, nn.Linear(30, width, key=1))

    def forward(self, x):
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, width):
        self.blocks = [nn.Linear(width, width, key=0), Own(width)]
        self.head = nn.Linear(width, 3, key=0)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@ts.function
def apply(model, x: Tensor["B", 10]):
    return model(x)


flat = nn.Sequential(nn.Linear(10, 20, key=0), nn.Linear(30, 5, key=1))
norm = nn.Sequential(nn.Linear(10, 20, key=0), nn.LayerNorm(30))
deep = nn.Sequential(nn.Linear(10, 20, key=0), nn.Stack(lambda key: nn.MLP(30, 8, key=key), 2))
net = Net(10)
PLACES = {
    "flat": (flat, "[1]: Linear(30, 5)", 30, 20), "norm": (norm, "[1]: LayerNorm(30)", 30, 20),
    "deep": (deep, "[1][0].up: Linear(30, 8)", 30, 20), "net": (net, ".blocks[1].mlp[2]: Linear(30, 10)", 30, 20),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_where_python_runs_the_layers(name):
    model, place, *_ = PLACES[name]
    with pytest.raises(ts.CompileError) as error:
        model(ts.zeros((2, 10)))
    assert error.value.diagnostics[0].message.startswith(f"model{place}: ")
    assert f"model{place}: " in str(error.value)


@pytest.mark.parametrize("name", PLACES)
def test_in_functions(name):
    model, place, wanted, found = PLACES[name]
    with pytest.raises(ts.CompileError) as error:
        apply(model, ts.zeros((2, 10)))
    assert error.value.diagnostics[0].message == f"model{place} expects {wanted} features, got {found}"


TEXT = """import tessera as ts
from tessera import Tensor, nn

class Own(nn.Module):
    def __init__(self, width):
        self.first = nn.Linear(width, 20)
        self.width = width

    def forward(self, x):
        return {forward}

class Net(nn.Module):
    def __init__(self, width):
        self.blocks = nn.Stack(lambda key: nn.Sequential(Own(width), {second}), 3)

    def forward(self, x):
        return self.blocks(x)

def loss(model, x: Tensor["B", 10], y: Tensor["B", 10]):
    return ((model(x) - y) ** 2).mean()

model = Net(10)
run = ts.train(model, ts.optimizers.AdamW(1e-3), loss, [])
"""


def findings(**parts):
    files = FileAnalysis("/work/model.py")
    files.update(TEXT.format(**parts))
    return files.diagnostics


def test_in_texts():
    (found,) = findings(forward="self.first(x)", second="nn.Linear(30, width)")
    assert found.message == "model.blocks[0][1]: Linear(30, 10) expects 30 features, got 20"
    assert found.span.line == 17
    assert not findings(forward="self.first(x)", second="nn.Linear(20, width)")


def test_an_error_in_a_layer_of_ones_own():
    """Its line is shown, so its message is that of the operator; a note says of which layer it is."""
    (found,) = findings(forward="x + self.first(x)", second="nn.Linear(20, width)")
    assert found.span.line == 10 and "model" not in found.message
    assert "in model.blocks[0][0]: Own" in [n.message for n in found.notes]


class Gate(nn.Module):
    def __init__(self, width):
        self.weight = ts.ones((width, width))

    def forward(self, x):
        return x @ self.weight


class Pair(nn.Module):
    def __init__(self, width, second):
        self.first = nn.Linear(width, width, key=0)
        self.attention = nn.MultiHeadAttention(second, 1, key=0)
        self.gate = Gate(second)

    def forward(self, x):
        return self.attention(self.first(x)[None])


@pytest.mark.parametrize("call", [lambda model, x: model(x), ts.function(lambda model, x: model(x))])
def test_a_layer_by_attributes_and_where_it_is_made(call):
    """Where a layer of Tessera's is made in one of Tessera's, the place is the outer one."""
    with pytest.raises(ts.CompileError) as error:
        call(Pair(8, 6), ts.zeros((2, 8)))
    (found,) = error.value.diagnostics
    assert found.message.startswith("model.attention.query: Linear(6, 6)")
    (made,) = (n.span for n in found.notes if n.message == "model.attention.query is made here")
    assert made.line == Pair.__init__.__code__.co_firstlineno + 2
    with pytest.raises(ts.CompileError) as error:
        call(Pair(8, 6).gate, ts.zeros((2, 8)))
    assert not [n for n in error.value.diagnostics[0].notes if "Gate" in n.message and "called" not in n.message]


class Gates(nn.Module):
    def __init__(self, width):
        self.first, self.second = Gate(width), Gate(width + 1)

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize("call", [lambda model, x: model(x), ts.function(lambda model, x: model(x))])
def test_which_of_the_user_s_layers_it_is(call):
    with pytest.raises(ts.CompileError) as error:
        call(Gates(4), ts.zeros((2, 4)))
    (found,) = error.value.diagnostics
    assert found.span.line == Gate.forward.__code__.co_firstlineno + 1
    notes = {n.message: n.span for n in found.notes}
    assert "in model.second: Gate(5, 5)" in notes
    assert notes["model.second is made here"].col == 48


def test_a_layer_that_the_line_itself_names():
    @ts.function
    def f(layer, x: Tensor["B", 10]):
        return layer(x)

    with pytest.raises(ts.CompileError) as error:
        f(nn.Linear(30, 5, key=0), ts.zeros((2, 10)))
    assert error.value.diagnostics[0].message == "layer: Linear(30, 5) expects 30 features, got 10"
