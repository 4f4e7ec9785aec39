"""Dataclasses of arrays: passed by what they hold, read by methods, given back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32

rng = np.random.default_rng(3)
X = rng.standard_normal((3, 4)).astype(np.float32)


@dataclass
class Linear:
    weight: Tensor["I", "O", f32]
    bias: Tensor["O", f32] | None
    FACTOR: ClassVar[float] = 2.0

    def __call__(self, x: Tensor["...", "I", f32]) -> Tensor["...", "O", f32]:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias * self.FACTOR

    @property
    def total(self):
        return self.weight.sum()

    @property
    def doubled(self):
        return 2


@dataclass(frozen=True)
class Network:
    first: Linear
    rest: list[Linear]
    act: Callable = ts.relu
    scale: float = 0.5
    table: dict[str, Linear] = field(default_factory=dict)

    def __call__(self, x):
        h = self.act(self.first(x)) * self.scale
        for layer in self.rest:
            h = layer(h)
        return self.last(h)

    def last(self, h):
        return self.table["out"](h) * self.first.doubled + self.first.total


@dataclass(slots=True)
class Slotted:
    a: Tensor["N", f32]
    n: int = 3


@dataclass
class Loop:
    a: object
    me: object = None


def linear(i, o, bias=True):
    return Linear(rng.standard_normal((i, o)).astype(np.float32), np.ones(o, np.float32) if bias else None)


def network(width=5):
    return Network(linear(4, width), [linear(width, width, False), linear(width, 6)], table={"out": linear(6, 2)})


def plain(layer, x):
    return x @ layer.weight + (0 if layer.bias is None else layer.bias * 2)


def wanted(net, x):
    h = np.maximum(plain(net.first, x), 0) * net.scale
    for layer in net.rest:
        h = plain(layer, h)
    return plain(net.table["out"], h) * 2 + net.first.weight.sum()


@ts.function
def forward(net: Network, x: Tensor["B", "D", f32]):
    return net(x)


@ts.function
def smaller(net: Network):
    rest = [Linear(r.weight * 0.5, r.bias) for r in net.rest]
    return Network(Linear(net.first.weight * 0.5, net.first.bias), rest, net.act, net.scale, net.table)


@pytest.fixture(params=["cpu", "reference"])
def target(request, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", request.param)


def test_methods_read_what_it_holds(target):
    net = network()
    assert np.allclose(forward(net, X), wanted(net, X), 1e-4, 1e-4)


def test_another_instance_needs_no_new_code():
    nets = [network(), network()]
    for net in nets:
        assert np.allclose(forward(net, X), wanted(net, X), 1e-4, 1e-4)
    built = forward.launcher.last.key
    nets[0].first.weight = rng.standard_normal((4, 5)).astype(np.float32)  # another array
    nets[1].first.weight[:] = 1  # the same one with other elements
    for net in nets:
        assert np.allclose(forward(net, X), wanted(net, X), 1e-4, 1e-4)
    assert forward.launcher.last.key == built
    other = network(7)
    assert np.allclose(forward(other, X), wanted(other, X), 1e-4, 1e-4)


def test_what_is_no_array_is_known_at_compile_time():
    net = network()
    before = forward(net, X)
    changed = Network(net.first, net.rest, ts.abs, 2.0, net.table)
    h = abs(plain(net.first, X)) * 2
    for layer in net.rest:
        h = plain(layer, h)
    assert np.allclose(forward(changed, X), plain(net.table["out"], h) * 2 + net.first.weight.sum(), 1e-4, 1e-4)
    assert np.array_equal(forward(net, X), before)
    without = Network(Linear(net.first.weight, None), *list(vars(net).values())[1:])
    assert np.allclose(forward(without, X), wanted(without, X), 1e-4, 1e-4)


def test_it_is_given_back(target):
    net = network()
    for _ in range(2):  # the second is given what the first gave
        found = smaller(net)
        assert type(found) is Network and type(found.rest) is list and type(found.rest[1]) is Linear
        assert found.act is ts.relu and found.scale == 0.5 and found.rest[0].bias is None
        assert np.array_equal(found.first.weight, net.first.weight * np.float32(0.5))
        assert np.array_equal(found.table["out"].bias, net.table["out"].bias)
        net = found


def test_slots_and_frozen():
    @ts.function
    def f(s: Slotted):
        return Slotted(s.a * s.n, s.n)

    found = f(Slotted(np.ones(3, np.float32), 4))
    assert found.a.tolist() == [4.0] * 3 and found.n == 4
    assert f(found).a.tolist() == [16.0] * 3
    with pytest.raises(AttributeError):
        smaller(network()).scale = 3.0  # still frozen


def test_the_disk_knows_it(tmp_path):
    text = """
import sys, json
from dataclasses import dataclass
import numpy as np
import tessera as ts
from tessera.runtime.code.why_recompiled import why_recompiled

@dataclass
class Parts:
    w: object
    act: object
    label: str = "a"
    def __call__(self, x):
        return self.act(x * self.w FACTOR)

@ts.function
def f(p, x):
    return Parts(p(x), p.act, p.label), p

one, same = f(Parts(np.full(2, 3, np.float32), ts.neg), np.ones(2, np.float32))
print(json.dumps([one.w.tolist(), one.label, one.act is ts.neg, same.w.tolist(), f.launcher.last.origin]))
"""
    script = tmp_path / "program.py"
    env = {**os.environ, "TESSERA_CACHE_DIR": str(tmp_path / "cache")}
    found = []
    for factor in ("* 1", "* 1", "* 2"):
        script.write_text(text.replace("FACTOR", factor))
        done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert [f[0][0] for f in found] == [-3.0, -3.0, -6.0]
    assert [f[-1] for f in found] == ["miss", "disk", "miss"]
    assert all(f[1:4] == ["a", True, [3.0, 3.0]] for f in found)


def test_objects_that_hold_each_other_are_no_tree():
    loop = Loop(2.0)
    loop.me = loop

    @ts.function
    def f(x: Tensor["N", f32], held: Loop):
        return x * held.a

    assert f(np.ones(2, np.float32), loop).tolist() == [2.0, 2.0]


def test_objects_without_arrays():
    @ts.function
    def f(x: Tensor["N", f32]):
        return Loop(x, np.linalg), Loop(None)

    found, nothing = f(np.ones(2, np.float32))
    assert found.a.tolist() == [1.0, 1.0] and found.me is np.linalg and nothing.a is None


def test_a_wrong_shape_is_said_where_it_is():
    net = network()
    net.rest[0] = linear(9, 5)
    with pytest.raises(ts.CompileError, match="TS20"):
        forward(net, X)


def test_compile_and_explain():
    net = network()
    compiled = ts.compile(forward, arguments=(net, X))
    assert np.array_equal(compiled(net, X), forward(net, X))
    assert "net.first.weight" in str(compiled.explain())
    with pytest.raises(ts.LaunchError, match="arguments="):
        ts.compile(forward, net, X)


def test_the_tuner_and_distribution():
    mesh = ts.dist.Mesh(axes=["dp"], devices=["cpu", "cpu"])

    @ts.distributed(mesh, over="B")
    @ts.function
    def f(net: Network, x: Tensor["B", "D", f32]):
        return net(x)

    net, x = network(), np.concatenate([X, X, X, X])[:4]
    assert np.allclose(f(net, x), wanted(net, x), 1e-4, 1e-4)


@dataclass
class Derived:
    a: object
    factors: list = field(default_factory=lambda: [2.0, 3.0])
    b: object = None

    def __post_init__(self):
        self.b = self.a * self.factors[1]

    def moved(self, x):
        self.a = self.a + x
        return self


@dataclass(init=False)
class OwnInit:
    a: object
    b: object

    def __init__(self, b, scale=2.0):
        self.a, self.b = b * scale, b


def test_instances_are_made_as_python_makes_them(target):
    @ts.function
    def f(x: Tensor["N", f32]):
        return Derived(x), OwnInit(x, scale=4.0), Derived(x, [0.0, 5.0]).moved(x)

    one, other, third = f(np.ones(2, np.float32))
    assert one.b.tolist() == [3.0, 3.0] and one.factors == [2.0, 3.0]
    assert other.a.tolist() == [4.0, 4.0] and other.b.tolist() == [1.0, 1.0]
    assert third.a.tolist() == [2.0, 2.0] and third.b.tolist() == [5.0, 5.0]


def test_a_layer_is_made_in_a_function():
    @ts.function
    def f(x: Tensor["B", 3, f32]):
        layer = ts.nn.Linear(3, 4, key=1)
        return layer(x), layer

    x = np.ones((2, 3), np.float32)
    y, layer = f(x)
    assert np.array_equal(y, ts.nn.Linear(3, 4, key=1)(x)) and type(layer) is ts.nn.Linear


@pytest.mark.parametrize("change", ["set", "method", "delete"])
def test_what_the_caller_holds_is_not_changed(change):
    @ts.function
    def f(p: Derived, x: Tensor["N", f32]):
        if change == "set":
            p.a = x
        elif change == "delete":
            del p.a
        else:
            p = p.moved(x)
        return p

    with pytest.raises(ts.CompileError, match="TS102"):
        f(Derived(np.ones(2, np.float32)), np.ones(2, np.float32))


class Keeping(ts.nn.Module):
    """Its forward pass keeps something, as hooks and running averages of PyTorch's models do."""

    def __init__(self, how):
        self.w, self.average, self.how = np.ones(2, np.float32), np.zeros(2, np.float32), how
        self.seen, self.last, self.layers = [], {}, [np.ones(2, np.float32)]

    def forward(self, x):
        if self.how == "attribute":
            self.average = 0.9 * self.average + 0.1 * x
        elif self.how == "append":
            self.seen.append(x)
        elif self.how == "item":
            self.last["x"] = x
        else:
            self.layers[0] = x
        return self.w * x


@pytest.mark.parametrize("how", ["attribute", "append", "item", "layer"])
@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: ts.function(lambda m, x: m(x))(m, x),
        lambda m, x: ts.function(lambda x: m(x))(x),
        lambda m, x: ts.grad(lambda m: ts.sum(m(x)))(m),
        lambda m, x: ts.jvp(lambda m: m(x), (m,), (m,)),
        lambda m, x: ts.vmap(lambda m, x: m(x), in_axes=(None, 0))(m, x[None]),
        lambda m, x: ts.train(m, ts.optimizers.SGD(0.1), lambda m, x: ts.sum(m(x)), [x], steps=1),
    ],
    ids=["argument", "global", "grad", "jvp", "vmap", "train"],
)
def test_what_a_model_keeps_is_refused_and_not_lost(run, how):
    model, x = Keeping(how), np.ones(2, np.float32)
    with pytest.raises(ts.CompileError, match=r"(?s)TS102.*no side effects.*outside cannot be"):
        run(model, x)
    assert model.seen == [] and model.last == {} and not model.average.any() and model.layers[0] is not x


def test_arguments_that_are_lists_and_dicts_are_copies():
    @ts.function
    def f(params, more, x):
        params["w"] = params["w"] * 2
        more.append(x)
        more[0] += 1
        return params, ts.sum(more[1]) * more[0]

    params, more, x = {"w": np.ones(2, np.float32)}, [1], np.ones(2, np.float32)
    for _ in range(2):  # compiled, and then called again
        changed, total = f(params, more, x)
        assert changed["w"].tolist() == [2, 2] and total == 4
        assert params["w"].tolist() == [1, 1] and more == [1]


def test_a_gradient_may_be_changed():
    @ts.function
    def f(layer: ts.nn.Linear, x: Tensor["B", "D", f32]):
        gradient = ts.grad(lambda layer: ts.sum(layer(x)))(layer)
        gradient.weight = gradient.weight * 3
        return gradient

    assert f(ts.nn.Linear(2, 1, key=0), np.ones((1, 2), np.float32)).weight.tolist() == [[3], [3]]


class Wrapped(ts.nn.Module):
    inner: ts.nn.Linear

    def __call__(self, x):
        return self.inner(x)


@pytest.mark.parametrize("wrapped", [False, True])
def test_layers_that_are_globals_are_read_anew(wrapped):
    layer = ts.nn.Linear(2, 3, key=0)
    model = Wrapped(layer) if wrapped else layer

    @ts.function
    def f(x: Tensor["B", 2, f32]):
        return model(x)

    x = np.ones((1, 2), np.float32)
    f(x)
    layer.weight = np.full((2, 3), 2, np.float32)
    assert f(x).tolist() == [[4.0] * 3]
    layer.bias = ts.ones((3,))
    assert f(x).tolist() == [[5.0] * 3]
    layer.bias = None
    assert f(x).tolist() == [[4.0] * 3]
