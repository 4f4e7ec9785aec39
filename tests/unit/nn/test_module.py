"""Modules: names, counts, state, copies, texts."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tests.conftest import require


class Counted(nn.Module):
    """Holds what is not a parameter, too."""

    layers: list[nn.Linear]
    table: dict[str, nn.Linear]
    mean: Tensor["D"] = nn.buffer()
    seen: Tensor[ts.int32] | None = None
    act: Callable = ts.relu

    def __call__(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return self.table["out"](x - self.mean)


def counted():
    layers = [nn.Linear(3, 4, key=0), nn.Linear(4, 4, key=1, bias=False)]
    return Counted(layers, {"out": nn.Linear(4, 2, key=2)}, np.ones(4, np.float32), np.array(7, np.int32))


def test_names_counts_and_text():
    model = counted()
    names = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "table.out.weight", "table.out.bias"]
    assert list(model.named_parameters()) == names and len(model.parameters()) == 5
    assert list(model.state_dict()) == [*names, "mean", "seen"]
    assert model.count == 12 + 4 + 16 + 8 + 2
    assert repr(model) == (
        "Counted(\n  layers: [\n    0: Linear(weight: [3, 4] f32, bias: [4] f32)\n"
        "    1: Linear(weight: [4, 4] f32, bias: None)\n  ]\n"
        "  table: {\n    'out': Linear(weight: [4, 2] f32, bias: [2] f32)\n  }\n"
        "  mean: [4] f32\n  seen: [] int32\n  act: relu\n)"
    )


class Forward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, key=0)

    def forward(self, x, scale=1.0):
        return self.layer(x) * scale


def test_a_call_is_forward_as_in_pytorch():
    model, x = Forward(3), np.ones((2, 3), np.float32)
    assert np.array_equal(model(x, scale=2.0).numpy(), 2 * model.layer(x).numpy())
    gradient = ts.grad(lambda model, x: ts.sum(model(x, scale=2.0)))(model, x)
    assert gradient.layer.weight.tolist() == [[4.0] * 3] * 3


class Wrapped(nn.Module):
    attend: nn.MultiHeadAttention

    def forward(self, x):
        return self.attend(x, causal=True)


def test_a_call_that_does_not_fit_names_the_layers():
    """Not `__call__`; and an argument that the constructor takes is given there."""
    model = Wrapped(nn.MultiHeadAttention(4, 2, key=0))

    @ts.function
    def run(model, x):
        return model(x)

    with pytest.raises(ts.CompileError) as raised:
        run(model, np.ones((1, 2, 4), np.float32))
    found = raised.value.diagnostics[0]
    said = "the call of MultiHeadAttention has no parameter 'causal'; causal= is given where the object is made"
    assert found.message == said
    assert [n.message for n in found.notes] == ["Wrapped.forward was called from run"]


def test_the_same_key_gives_the_same_bits():
    for make in (
        lambda key: nn.Linear(5, 3, key=key).weight,
        lambda key: nn.Embedding(5, 3, key=key).weight,
        lambda key: nn.init.he_normal((5, 3), key),
        lambda key: nn.init.glorot_uniform((5, 3), key),
    ):
        first = make(3).numpy()
        assert np.array_equal(first, make(3).numpy()) and not np.array_equal(first, make(4).numpy())
    keys = {k for key in range(50) for k in nn.init.split(key, 20)}
    assert len(keys) == 1000 and nn.init.split(9, 3) == nn.init.split(9, 5)[:3]
    mlp = nn.MLP(3, 3, key=0)
    assert not np.array_equal(mlp.up.weight.numpy(), mlp.down.weight.numpy())


def test_init_has_the_variance_that_it_says():
    shape = (100, 300)
    for made, variance in (
        (nn.init.lecun_uniform(shape, 1), 1 / 300),
        (nn.init.glorot_uniform(shape, 1), 2 / 400),
        (nn.init.he_normal(shape, 1), 2 / 100),
        (nn.init.normal(shape, 1, std=0.5), 0.25),
        (nn.init.uniform(shape, 1, bound=3.0), 3.0),
    ):
        assert made.numpy().var() == pytest.approx(variance, rel=0.05) and abs(made.numpy().mean()) < variance**0.5 / 50


def test_state_is_loaded_whole_or_not_at_all():
    model, other = counted(), counted()
    other.layers[0].weight = np.full((3, 4), 9, np.float32)
    other.seen = np.array(8, np.int32)
    before = {n: np.array(a) for n, a in model.state_dict().items()}
    state = other.state_dict()
    for change, said in (
        (lambda s: s.pop("seen"), "seen is missing"),
        (lambda s: s.update(extra=np.zeros(1)), "extra is not in Counted"),
        (lambda s: s.update(mean=np.zeros(3, np.float32)), r"mean is \[3\] f32, and in Counted \[4\] f32"),
        (lambda s: s.update(mean=np.zeros(4)), r"mean is \[4\] f64, and in Counted \[4\] f32"),
    ):
        wrong = dict(state)
        change(wrong)
        with pytest.raises(ts.LaunchError, match=rf"(?s)TS361.*{said}"):
            model.load_state_dict(wrong)
        assert all(np.array_equal(a, before[n]) for n, a in model.state_dict().items())
    model.load_state_dict(state)
    assert all(np.array_equal(a, state[n]) for n, a in model.state_dict().items())


def test_copies():
    model = counted()
    half = model.to(ts.f16)
    assert half.layers[0].weight.dtype == ts.f16 and half.mean.dtype == ts.f16 and half.seen.dtype == np.int32
    assert model.layers[0].weight.dtype == ts.f32 and half.act is ts.relu
    other = model.replace(act=ts.tanh)
    assert other.act is ts.tanh and model.act is ts.relu and other.layers[0].weight is model.layers[0].weight
    other.layers[0].weight = None
    assert model.layers[0].weight is not None
    with pytest.raises(ts.LaunchError, match="no field 'acts'"):
        model.replace(acts=ts.tanh)


def test_moving(monkeypatch: pytest.MonkeyPatch):
    """To a device all arrays go, to a dtype those of floats."""
    model = counted()
    same = model.to("cpu")
    assert all(np.array_equal(a, same.state_dict()[n]) for n, a in model.state_dict().items())
    asked = []
    monkeypatch.setattr(ts.Tensor, "to", lambda x, where: asked.append((x.shape, where)) or x)
    model.to("cuda:1")
    assert asked == [(np.shape(a), "cuda:1") for a in model.state_dict().values()]
    monkeypatch.undo()
    with pytest.raises(ts.LaunchError, match=r"(?s)TS501.*no device 'mps'"):
        model.to("mps")
    with pytest.raises(ts.LaunchError, match="no dtype 'flaot32'; did you mean 'float32'"):
        ts.asarray(np.ones(3)).astype("flaot32")


def test_modules_are_given_back_by_functions():
    @ts.function
    def doubled(model: Counted, x: Tensor["B", "I"]):
        return model.replace, model(x)

    @ts.function
    def forward(model: Counted, x: Tensor["B", "I"]):
        return model, model(x)

    model, x = counted(), np.ones((2, 3), np.float32)
    same, y = forward(model, x)
    assert type(same) is Counted and same.act is ts.relu and same.count == model.count
    h = x
    for layer in model.layers:
        h = np.maximum(h @ np.asarray(layer.weight) + (0 if layer.bias is None else np.asarray(layer.bias)), 0)
    out = model.table["out"]
    np.testing.assert_allclose(y, (h - 1) @ np.asarray(out.weight) + np.asarray(out.bias), rtol=1e-5, atol=1e-6)


class Scaled(nn.Module):
    weight: Tensor["N"]
    seen: Tensor[ts.int32]
    factor: int
    act: Callable = ts.abs

    def __call__(self):
        return ts.sum(self.act(self.weight * self.factor)) * self.seen


@ts.function
def derived(module):
    return ts.value_and_grad(lambda module: module())(module)


def test_a_gradient_by_a_module_with_integers_and_configuration():
    module = Scaled(np.array([1.0, -2.0], np.float32), np.array(2, np.int32), 3)
    value, gradient = derived(module)
    assert value == 18 and gradient.weight.tolist() == [6, -6] and gradient.seen is None
    assert repr(gradient) == "Scaled(weight: [2] f32, seen: None, factor: 3, act: abs)"
    opt = ts.optimizers.SGD(0.5)
    moved, _ = opt.update(module, gradient, opt.init(module))
    assert moved.weight.tolist() == [-2, 1] and moved.seen is module.seen and moved.factor == 3
    assert derived(module.replace(factor=1))[0] == 6


class Base(nn.Module):
    weight: Tensor["N"]

    def __init__(self, count):
        self.weight = np.zeros(count, np.float32)


class Same(Base):
    def __call__(self):
        return 1


class More(Base):
    bias: Tensor["N"]


def test_a_subclass_is_made_as_its_base_unless_it_adds_fields():
    assert Same(3).weight.shape == (3,) and Base(2).count == 2
    assert More(np.ones(2, np.float32), np.ones(1, np.float32)).count == 3


class Undeclared(nn.Module):
    """As one writes modules for PyTorch."""

    def __init__(self, width):
        self.hidden = nn.Linear(width, 5, key=1)
        self.out = nn.Linear(5, 2, key=2)

    def __call__(self, x):
        return self.out(ts.relu(self.hidden(x)))


def test_what_init_sets_without_declaring_it_is_trained_and_kept():
    model, x = Undeclared(3), np.ones((4, 3), np.float32)
    names = ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]
    assert list(model.named_parameters()) == list(model.state_dict()) == names
    assert model.count == 3 * 5 + 5 + 5 * 2 + 2 and "hidden: Linear(weight: [3, 5] f32" in repr(model)

    @ts.function
    def step(model, x):
        return ts.value_and_grad(lambda m: (m(x) ** 2).mean())(model)

    opt = ts.optimizers.SGD(lr=0.1)
    state, losses = opt.init(model), []
    for _ in range(3):
        loss, gradient = step(model, x)
        model, state = opt.update(model, gradient, state)
        losses.append(float(loss))
    assert losses[2] < losses[1] < losses[0]
    other = Undeclared(3)
    other.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(other(x), model(x))


def test_a_function_of_a_module_is_compiled_ahead():
    @ts.function
    def forward(layer, x):
        return layer(x)

    layer, x = nn.LayerNorm(4), np.arange(8, dtype=np.float32).reshape(2, 4)
    compiled = ts.compile(forward, arguments=(layer, x))
    assert np.array_equal(compiled(layer, x), forward(layer, x))


def test_annotations_with_sizes():
    class Pair(nn.Module):
        first: nn.Linear["D", "H"]

        def __call__(self, x: Tensor["B", "D"]) -> Tensor["B", "H"]:
            return self.first(x)

    @ts.function
    def forward(pair: Pair, x: Tensor["B", "D"]):
        return pair(x)

    layer = nn.Linear(3, 4, key=0)
    found = forward(Pair(layer), np.ones((2, 3), np.float32))
    np.testing.assert_allclose(found, np.asarray(layer.weight).sum(0)[None].repeat(2, 0), rtol=1e-5)
    assert nn.Linear["D", "H"].__origin__ is nn.Linear


def test_what_nn_has():
    assert {"Linear", "relu", "softmax", "init"} <= set(dir(nn))
    assert nn.relu is ts.relu and nn.Linear is ts.nn.Linear
    with pytest.raises(AttributeError, match="did you mean"):
        nn.rellu


def test_fields_do_not_take_names_of_modules():
    with pytest.raises(ts.LaunchError, match=r"TS105(?s:.)*the field 'count' of Counter"):

        class Counter(nn.Module):
            inner: nn.Linear
            count: Tensor[(), ts.int64]


def test_trees_of_any_dataclasses_are_copied():
    """With slots, frozen, and with a copy of their own."""

    @dataclasses.dataclass(slots=True)
    class Slots:
        a: object
        b: int = 1

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: object
        more: tuple = ()

    @dataclasses.dataclass
    class Copied:
        a: object
        copies: int = 0

        def __copy__(self):
            return Copied(self.a, self.copies + 1)

    x, y = np.ones(2, np.float32), np.zeros(2, np.float32)
    tree = [Slots(x, 3), Frozen(x, (x, "name")), Copied(x)]
    new = ts.nn.tree.replaced(tree, {"0.a": y, "1.more.0": y, "2.a": y})
    assert new[0].a is y and new[0].b == 3 and new[1].a is x and new[1].more == (y, "name") and new[2].a is y
    assert tree[0].a is x and tree[1].more[0] is x and tree[2].a is x


def test_another_dtype_inside_of_functions():
    @ts.function
    def step(model: nn.MLP, x: Tensor["B", "D"]):
        return ts.value_and_grad(lambda model: ts.mse(model.to(ts.bf16)(x.to(ts.bf16)).to(ts.f32), x))(model)

    model, x = nn.MLP(4, 8, key=0), np.random.default_rng(0).standard_normal((6, 4), np.float32)
    loss, gradient = step(model, x)
    assert gradient.up.weight.dtype == ts.f32
    narrow = model.to(ts.bf16)(ts.asarray(x).to(ts.bf16)).to(ts.f32)
    assert float(loss) == float(ts.mse(narrow, x)) != float(ts.mse(model(x), x))
    with pytest.raises(ts.CompileError, match=r"(?s)TS105.*another dtype, not a str"):
        ts.function(lambda model: model.to("cuda"))(model)


def test_loading_copies():
    a, b = nn.Linear(2, 2, key=0), nn.Linear(2, 2, key=1).requires_grad_()
    weight = b.weight
    b.load_state_dict(a.state_dict())
    assert b.weight is weight and weight.requires_grad and weight.tolist() == a.weight.tolist()
    with ts.no_grad():
        b.weight[...] = 0.0
    assert a.weight.tolist() != b.weight.tolist() == [[0, 0], [0, 0]]
    torch = require("torch")
    a.load_state_dict({n: torch.tensor(p.detach().numpy()) for n, p in b.state_dict().items()})
    assert isinstance(a.weight, ts.Tensor) and a(np.ones((1, 2), np.float32)).tolist() == [[0, 0]]


def test_parameters_of_other_libraries_are_named():
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*inputs, outputs, key.*write inputs= for in_features=, out"):
        nn.Linear(in_features=4, out_features=2, key=0)
    assert nn.Linear(inputs=4, outputs=2, key=0).weight.shape == (4, 2)


def test_models_are_pickled():
    model, x = nn.Sequential(nn.Linear(2, 3, key=0), ts.relu), np.ones((1, 2), np.float32)
    assert np.array_equal(pickle.loads(pickle.dumps(model))(x), model(x))  # noqa: S301
    assert pickle.loads(pickle.dumps(ts.linalg.solve)) is ts.linalg.solve  # noqa: S301


def test_weights_of_pytorchs_linear_layers_are_said_to_be_turned():
    with pytest.raises(ts.LaunchError, match=r"TS361(.|\n)*hold weight and all others the other.*layout=.torch"):
        nn.Linear(4, 8, key=0).load_state_dict(
            {"weight": np.zeros((8, 4), np.float32), "bias": np.zeros(8, np.float32)}
        )


def test_a_share_that_is_dropped_lies_between_0_and_1():
    assert nn.Dropout(1).p == 1.0
    for p in (1.5, -0.1, math.nan, "half"):
        with pytest.raises(ts.LaunchError, match=r"TS105(.|\n)*Dropout: p is a number from 0 to 1"):
            nn.Dropout(p)


class Positions(nn.Module):
    """As PyTorch's users write it."""

    def __init__(self, width: int, most: int = 8):
        super().__init__()
        self.register_buffer("table", np.arange(most * width, dtype=np.float32).reshape(most, width))
        self.scale = nn.Parameter(2.0)

    def forward(self, x):
        return x * self.scale + self.table[: x.shape[0]]


def test_buffers_that_are_registered_are_not_trained(tmp_path):
    model, x = nn.Sequential(Positions(4), nn.Linear(4, 4, key=0)), np.ones((3, 4), np.float32)
    assert [*model.named_parameters()] == ["layers.0.scale", "layers.1.weight", "layers.1.bias"]
    assert "layers.0.table" in model.state_dict() and "registered" not in repr(model)
    run = ts.train(model, ts.optimizers.AdamW(0.1), lambda m, x: ts.mse(m(x), x), [x], steps=3, live=False)
    assert np.array_equal(run.model[0].table, model[0].table) and float(run.model[0].scale) != 2.0
    copy = model.to(ts.bf16).replace(layers=[Positions(4), model[1]])
    assert "layers.0.table" not in copy.named_parameters()
    gradient = ts.function(lambda m, x: ts.grad(lambda m: ts.sum(m(x)))(m))(model, x)
    assert np.asarray(gradient[0].scale).shape == () and gradient[0].scale != 0
    ts.checkpoint.save(tmp_path, model=run.model)
    loaded = ts.checkpoint.load(tmp_path, model=model)["model"]
    assert np.array_equal(loaded(x), run.model(x)) and "layers.0.table" not in loaded.named_parameters()


def test_what_cannot_be_a_parameter_or_a_buffer():
    assert nn.Parameter([1, 2]).dtype == ts.f32 and nn.Parameter(np.float64(2)).shape == ()
    with pytest.raises(ts.TesseraError, match=r"(?s)TS351.*int64 has no gradient"):
        nn.Parameter(np.arange(3))
    with pytest.raises(ts.TesseraError, match=r"(?s)TS105.*leave persistent=False out"):
        Positions(4).register_buffer("mask", np.ones(3), persistent=False)


class Mixed(nn.Module):
    """Each of the layers that PyTorch names or holds in another way, at some depth."""

    def __init__(self):
        self.convolution = nn.Sequential(nn.Conv1d(3, 4, 3, key=0), nn.BatchNorm1d(4), ts.relu)
        self.table = nn.Embedding(5, 4, key=1)
        self.rows = [nn.Sequential(nn.Linear(4, 4, key=2), nn.LayerNorm(4)), nn.Linear(4, 6, key=3, bias=False)]
        self.recurrent = {"lstm": nn.LSTM(6, 4, key=4), "gru": nn.GRU(4, 5, key=5)}

    def forward(self, x, indices):
        h = ts.swapaxes(self.convolution(x), 1, 2) + self.table(indices)
        h = self.rows[1](self.rows[0](h))
        return self.recurrent["gru"](self.recurrent["lstm"](h))


def mixed_in_pytorch(torch):
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            t = torch.nn
            self.convolution = t.Sequential(t.Conv1d(3, 4, 3), t.BatchNorm1d(4), t.ReLU())
            self.table = t.Embedding(5, 4)
            self.rows = t.ModuleList([t.Sequential(t.Linear(4, 4), t.LayerNorm(4)), t.Linear(4, 6, bias=False)])
            lstm, gru = t.LSTM(6, 4, batch_first=True), t.GRU(4, 5, batch_first=True)
            self.recurrent = t.ModuleDict({"lstm": lstm, "gru": gru})

        def forward(self, x, indices):
            h = self.convolution(x).transpose(1, 2) + self.table(indices)
            h = self.rows[1](self.rows[0](h))
            return self.recurrent["gru"](self.recurrent["lstm"](h)[0])[0]

    return Mixed()


def test_weights_come_from_pytorch_and_go_back():
    torch = require("torch")
    torch.manual_seed(0)
    theirs, model = mixed_in_pytorch(torch), Mixed()
    rng = np.random.default_rng(0)
    x, indices = rng.standard_normal((2, 3, 9)).astype(np.float32), rng.integers(0, 5, (2, 7))
    given = torch.tensor(x), torch.tensor(indices)
    theirs(*given)  # moves the averages
    theirs.eval()
    with pytest.raises(ts.LaunchError, match=r"TS361(.|\n)*names of PyTorch's layers.*layout=.torch"):
        model.load_state_dict(theirs.state_dict())
    model.load_state_dict(theirs.state_dict(), layout="torch")
    expected = theirs(*given).detach().numpy()
    np.testing.assert_allclose(model(x, indices), expected, rtol=1e-5, atol=1e-6)

    back = mixed_in_pytorch(torch).eval()
    back.load_state_dict({n: torch.from_dlpack(a) for n, a in model.state_dict(layout="torch").items()})
    np.testing.assert_allclose(back(*given).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert model.state_dict(layout="torch").keys() == theirs.state_dict().keys()

    short = {n: a for n, a in theirs.state_dict().items() if n != "rows.0.0.weight"}
    with pytest.raises(ts.LaunchError, match=r"TS361(.|\n)*Mixed: rows\.0\.0\.weight is missing$"):
        model.load_state_dict(short, layout="torch")
    with pytest.raises(ts.LaunchError, match=r"TS361(.|\n)*table\.weight is \[6, 4\] f32, and in Mixed \[5, 4\] f32$"):
        model.load_state_dict(theirs.state_dict() | {"table.weight": torch.zeros(6, 4)}, layout="torch")


def test_parameters_are_one_vector():
    """In functions and outside; what is not trained stays, and each array has its dtype again."""
    model = nn.Sequential(nn.Linear(3, 4, key=0), nn.BatchNorm1d(4), nn.Linear(4, 2, key=1).to(ts.bf16))
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    vector, unravel = ts.tree_ravel(model)
    assert vector.shape == (model.count,) and np.array_equal(vector[:12].reshape(3, 4), model[0].weight)
    twice = unravel(vector * 2)
    assert twice[2].weight.dtype == ts.bf16 and twice[1].var is model[1].var
    assert np.array_equal(twice[0].weight, 2 * model[0].weight)

    def size(model, x):
        return ts.mean(ts.square(model[0](x)))

    @ts.function
    def step(model, x):
        vector, unravel = ts.tree_ravel(model)
        return unravel(vector - 0.5 * ts.grad(lambda v: size(unravel(v), x))(vector))

    wanted = model[0].weight - 0.5 * ts.grad(size)(model, x)[0].weight
    np.testing.assert_allclose(step(model, x)[0].weight, wanted, rtol=1e-6)
    assert ts.hessian(lambda v: size(unravel(v), x))(vector).shape == (model.count, model.count)
    plain, unravel = ts.tree_ravel({"w": np.ones((2, 2), np.float32), "n": np.arange(3)})
    assert plain.shape == (4,) and unravel(plain)["n"].tolist() == [0, 1, 2]


def test_a_state_is_not_loaded_inside_of_a_function():
    @ts.function
    def loaded(model, state):
        model.load_state_dict(state)
        return model

    with pytest.raises(ts.CompileError, match=r"TS102(.|\n)*load_state_dict changes a model(.|\n)*tree_ravel"):
        loaded(nn.Linear(2, 2, key=0), {"weight": np.ones((2, 2), np.float32), "bias": np.ones(2, np.float32)})
