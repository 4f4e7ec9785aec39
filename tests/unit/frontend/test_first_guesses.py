"""What a person who knows PyTorch writes first: it works, or the error says at the line what to write."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, nn
from tessera.compiler.frontend.incremental import analyse_file
from tessera.errors import CompileError
from tessera.optimizers import AdamW, Cosine, Linear

X = np.ones((2, 6), np.float32)


class Parts(nn.Module):
    """`forward` in `forward`, as in any model."""

    def __init__(self, inside: int = 6) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inside, 3, key=0), ts.relu)

    def forward(self, x):
        return self.body(x)


class NoForward(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(6, 3, key=0)


@ts.function
def called(model, x):
    return model(x)


@pytest.mark.parametrize(
    "statement, said",
    [
        ("from tessera import optim", r"tessera.*'optim'; it is ts\.optimizers"),
        ("from tessera import Tensr", "did you mean 'Tensor'"),
        ("from tessera.nn import functional as F", r"; functions are those of ts: ts\.relu"),
        ("from tessera.nn import ReLU", r"write the function ts\.relu, without parentheses in nn\.Sequential"),
        ("from tessera.optimizers import StepLR", "a function of the step"),
        ("from tessera import recover_and_continue", r"@ts\.fault_tolerant"),
    ],
)
def test_an_import_says_what_there_is_instead(statement, said):
    with pytest.raises(ImportError, match=said) as e:
        exec(compile(statement, "<notebook>", "exec"), {})
    assert len(e.traceback) == 2  # the statement, behind this test's line: nothing of Tessera's
    assert not hasattr(ts, "optim") and not hasattr(nn, "functional")


def split_by_size(x: Tensor["B", "D"]):
    q, k, v = x.split(2, dim=1)
    return q + k + v


def state_of_a_gru(layer, x):
    _, state = layer(x)
    return state


def in_another_order(x: Tensor["B", "D"], i: Tensor["B", "K", ts.int64]):
    return x.gather(1, i)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: called(NoForward(), X), r"TS104.*NoForward has no attribute 'forward'; define it"),
        (lambda: NoForward()(X), r"TS104.*NoForward\(\)\(X\).*no attribute 'forward'; define it"),
        (lambda: ts.function(lambda m, x: m.eval()(x))(Parts(), X), r"TS104.*'eval'; leave it out: ts\.train trains"),
        (lambda: ts.function(state_of_a_gru)(nn.GRU(6, 4, key=0), X[None]),
         r"TS105.*2 values are expected here, 1 is given: the rows of one tensor, \[1, 2, 4\]"),
        (lambda: ts.function(split_by_size)(X), r"TS105.*3 values are expected here, 2 are given; split takes the"),
        (lambda: ts.function(in_another_order)(X, np.zeros((2, 1), np.int64)), r"TS105.*is x\.gather\(index, 1\) here"),
        (lambda: ts.asarray(X).gather(1, np.zeros((2, 1), np.int64)), r"TS105.*is x\.gather\(index, 1\) here"),
        (lambda: ts.ones(2, 3), r"TS301.*ts\.ones\(\(2, 3\)\)"),
        (lambda: ts.cross_entropy(X, np.zeros(2, np.int64), ignore_index=-1), "TS105.*labels below 0.*do not count"),
        (lambda: ts.randint(10, (3,)), r"TS105.*a seed comes first: ts\.randint\(seed, \(3, 4\), 0, 10\)"),
        (lambda: ts.var(X, unbiased=False), r"TS105.*correction=0"),
        (lambda: nn.LSTM(2, 3, batch_first=True), r"TS105.*nothing \(x is \[B, T, D\]\) for batch_first="),
        (lambda: ts.no_grad(3), r"TS105.*stands before a function or in `with ts\.no_grad\(\):`, and takes no int"),
        (lambda: ts.tile(X), r"TS105.*tile\(x, reps\) needs 'reps'"),
        (lambda: ts.optimizers.SGD(0.1).init(3), "TS362.*int has no parameters: arrays of floats, in a module"),
        (lambda: ts.optimizers.SGD(0.1).init({"w": 3}), "TS362.*dict has no parameters"),
        (lambda: nn.LSTM(2, 3, bidirectional=True), r"TS105.*ts\.flip\(x, 1\)"),
    ],
)  # fmt: skip
def test_a_call_says_what_to_write(call, said):
    with pytest.raises(ts.TesseraError, match=f"(?s){said}"):
        call()


@pytest.mark.parametrize(
    "owner, name, said",
    [
        (ts, "autocast", r"model\.to_mixed_precision"),
        (ts, "gradcheck", r"ts\.check_grad"),
        (ts, "empty_like", r"ts\.zeros_like"),
        (nn, "Flatten", r"ts\.flatten\(x, 1\), in nn\.Sequential lambda x"),
        (nn, "GELU", r"the function ts\.gelu"),
        (Parts(), "train", "leave it out"),
        (nn.BatchNorm1d(3), "running_mean", r"norm\.mean"),
    ],
)
def test_a_name_says_what_there_is_instead(owner, name, said):
    with pytest.raises(AttributeError, match=f"no attribute {name!r}; .*{said}"):
        getattr(owner, name)


def test_what_the_hints_name_exists():
    assert ts.flatten(ts.ones((2, 3, 4)), 1).shape == (2, 12) and ts.check_grad and ts.zeros_like
    mask = ts.tril(ts.ones((3, 3), ts.bool))
    assert mask.dtype == ts.bool and not nn.tree.parameters({"mask": mask})
    labels, weight = np.array([0, 2, -1]), np.array([1.0, 2.0, 3.0], np.float32)
    logits = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.cross_entropy
    given = torch.from_numpy(logits), torch.from_numpy(labels)
    assert np.allclose(ts.cross_entropy(logits, labels), theirs(*given, ignore_index=-1))
    w = weight[labels[:2]]
    mine = ts.sum(w * ts.cross_entropy(logits[:2], labels[:2], "none")) / ts.sum(w)
    assert np.allclose(mine, theirs(given[0][:2], given[1][:2], torch.from_numpy(weight)))


def test_notes_lead_from_forward_to_forward():
    """Not through the method of `nn.Module` that calls it."""
    for model in (Parts(5), nn.Sequential(Parts(5)).to_mixed_precision()):
        with pytest.raises(ts.CompileError) as e:
            called(model, X)
        said = str(e.value)
        assert "module.py" not in said and "mixed.py" not in said and "was called from called" in said, said


def test_contiguous_is_the_tensor_itself_everywhere():
    @ts.function
    def turned(x: Tensor["B", "D"]):
        return x.T.contiguous().view(-1)

    assert np.array_equal(turned(X), ts.asarray(X).T.contiguous().view(-1))
    assert np.array_equal(ts.grad(lambda x: ts.sum(ts.square(x.contiguous())))(X), 2 * X)


@ts.function
def reduced(x: Tensor["B", "D", f32], how: Literal["sum", "mean"], times: Literal[1, 2] = 1):
    return times * (ts.sum(x) if how == "sum" else ts.mean(x))


def test_literals_hold_at_calls():
    assert float(reduced(X, "sum", 2)) == 24 and float(reduced(X, "mean")) == 1
    for args, said in (
        (("max",), "how is 'sum' or 'mean', not 'max'"),
        (("sum", 3), "times is 1 or 2, not 3"),
        (("sum", True), "times is 1 or 2, not True"),
        ((None,), "how is 'sum' or 'mean', not None"),
    ):
        with pytest.raises(ts.LaunchError, match=f"(?s)TS105.*{said}"):
            reduced(X, *args)

    @ts.function
    def inside(x: Tensor["B", "D", f32]):
        return reduced(x, "largest")

    with pytest.raises(ts.CompileError, match=r"(?s)TS105.*how of reduced is 'sum' or 'mean', not 'largest'"):
        inside(X)


def stepped(lr):
    model = nn.Linear(2, 2, key=0)
    opt = AdamW(1e-3)
    return opt.update(model, model, opt.init(model), lr)


@ts.function
def stepped_inside(model: nn.Linear):
    opt = AdamW(1e-3)
    return opt.update(model, model, opt.init(model), -1.0)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: ts.optimizers.EMA(1.5), "EMA: decay is a number from 0 to 1, not 1.5"),
        (lambda: ts.clip_grad_norm(nn.Linear(2, 2, key=0), -1.0), "clip_grad_norm: max_norm is a number of at least 0"),
        (lambda: stepped(-1), "AdamW: lr is at least 0, not -1"),
        (lambda: stepped(float("nan")), "AdamW: lr is at least 0, not nan"),
        (lambda: stepped_inside(nn.Linear(2, 2, key=0)), "AdamW: lr is at least 0, not -1.0"),
        (lambda: AdamW(nn.Linear(2, 2, key=0)).step(lr=-1.0), "AdamW: lr is at least 0"),
        (lambda: Cosine(1e-3, steps=0), "Cosine: steps is a whole number of at least 1"),
        (lambda: Cosine(1e-3, 10, warmup=11), "Cosine: steps is at least 11, those of the warmup, not 10"),
        (lambda: Linear(1.0, 0.0, 0), "Linear: steps is a whole number of at least 1"),
        (lambda: ts.optimizers.SGD(0.1, momentum=2.0), "SGD: momentum is a number of at least 0 and less than 1"),
        (lambda: nn.Linear(2, 2, key=0).zero_grad(set_to_none=False), "leave set_to_none=False out"),
    ],
)
def test_settings_that_cannot_be_meant(call, said):
    with pytest.raises(ts.TesseraError, match=f"(?s)TS105.*{said}"):
        call()


def test_an_update_without_a_state():
    model = nn.Linear(2, 2, key=0)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS362.*opt\.init\(model\) makes it"):
        AdamW(1e-3).update(model, model)


def test_a_loop_as_in_pytorch():
    model = Parts()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    first = None
    for _ in range(5):
        optimizer.zero_grad(set_to_none=True)
        loss = ts.mse(model(X), np.zeros((2, 3), np.float32))
        loss.backward()
        ts.clip_grad_norm(model, 1.0)
        optimizer.step()
        first = loss.item() if first is None else first
    assert loss.item() < first


def test_gradients_of_gradients_are_those_of_functions():
    w = ts.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS356.*backward\(create_graph=True\).*ts\.grad\(f\)\(w\)"):
        ts.sum(w**3).backward(create_graph=True)
    found = ts.grad(lambda w: ts.sum(ts.grad(lambda w: ts.sum(w**3))(w) ** 2))(w.detach())  # as the message writes it
    assert np.allclose(found, [36.0, 288.0])


def test_numpy_on_recorded_numbers_points_to_the_line():
    w = ts.tensor([1.0, 2.0], requires_grad=True)
    losses = [ts.sum(w * w)]
    with pytest.raises(ts.LaunchError, match=r"(?s)TS356.*np\.mean\(losses\).*of a number \.item\(\)"):
        np.mean(losses)


def test_a_rule_takes_what_it_is_given():
    @ts.function
    def held(x: Tensor["N", f32], low: f32):
        return ts.maximum(x, low)

    with pytest.raises(ts.CompileError, match=r"(?s)TS105.*as back\(result, cotangent, x, low\), and takes out, ct"):

        @held.vjp
        def back(out, ct):
            return ct

    @held.vjp
    def fits(out, ct, *given, scale=1.0):
        return scale * ct, None

    assert ts.grad(lambda x: ts.sum(held(x, 0.5)))(np.zeros(2, np.float32)).tolist() == [1.0, 1.0]


def test_an_unknown_argument_is_told_without_frames_of_tessera():
    with pytest.raises(ts.LaunchError, match="train has no parameter 'validate_on'; did you mean 'validation'") as e:
        ts.train(Parts(), AdamW(1e-3), lambda m, x: ts.sum(m(x)), [X], validate_on=[X])
    assert len(e.traceback) == 1


def test_attributes_are_told_without_frames_of_tessera():
    mixed = Parts().to_mixed_precision()
    for owner, name in ((Parts(), "eval"), (ts.ones((2,)), "float"), (AdamW(1e-3), "step"), (mixed, "body")):
        with pytest.raises(AttributeError, match=name) as e:
            getattr(owner, name)
        assert len(e.traceback) == 1
    with pytest.raises(AttributeError, match=r"'body'; the model itself has it: \.model\.body"):
        _ = mixed.body


class Cached(nn.Module):
    def __init__(self) -> None:
        self.table = nn.Embedding(16, 8, key=0)
        self.block = nn.TransformerBlock(8, 2, causal=True, positions="rotary", key=1)

    def forward(self, x, cache=None):
        return self.table.transposed(self.block(self.table(x), cache=cache))


def test_narrow_models_take_names_and_caches():
    """As the model does that they are made of: state stays that of the caller."""
    x = np.arange(6)[None]

    @ts.function
    def following(model, x, cache):
        return model(x, cache=cache)

    for compute in (ts.f32, ts.bf16):
        model = Cached().to_mixed_precision(compute=compute)
        cache = ts.KVCache(B=1, H=2, S_max=8, D_h=4, dtype=ts.f32)
        parts = [following(model, x[:, :3], cache), following(model, x[:, 3:], cache)]
        assert int(cache.length) == 6
        assert np.allclose(np.concatenate(parts, 1), model(x), atol=1e-5 if compute == ts.f32 else 2e-2)


def test_models_are_copied_with_their_functions():
    model = Cached().to_mixed_precision()
    twin = copy.deepcopy(model)
    x = np.arange(4)[None]
    assert twin.run is model.run and twin.model.table is not model.model.table
    assert np.array_equal(twin(x), model(x))


FACTOR = 3.0


@pytest.mark.parametrize(
    "looks",
    [lambda x: x * globals()["FACTOR"], lambda x: x if "FACTOR" in globals() else 2 * x, lambda x: locals()["x"],
     lambda x: vars()["x"], lambda x: eval("x"), lambda x: eval("1 + 1") * x],
)  # fmt: skip
def test_names_are_not_looked_up_in_the_code_of_the_compiler(looks):
    @ts.function
    def looking(x):
        return looks(x)

    with pytest.raises(CompileError, match="which is read and not run") as e:
        looking(X)
    assert e.value.diagnostics[0].code == "TS102"


def test_builtins_of_that_name_that_a_file_defines_stay_its_own():
    head = "import tessera as ts\n\n\ndef vars():\n    return 2.0\n\n\n"
    text = head + "@ts.function\ndef f(x: ts.Tensor['B']):\n    return x * vars()\n"
    assert not [d for a in analyse_file("own.py", text) for d in a.diagnostics]


@pytest.mark.parametrize("looks", ["globals()['a'] * x", "locals()['x']", "eval('x')", "vars()['x']"])
def test_a_text_says_the_same(looks):
    found = analyse_file(
        "looks.py", f"import tessera as ts\n\n\n@ts.function\ndef f(x: ts.Tensor['B']):\n    return {looks}\n"
    )
    assert [d.code for d in found[0].diagnostics] == ["TS102"]


@pytest.mark.parametrize(
    ("right", "said"),
    [("w.T", "did you mean w, without .T?"), ("w.mT", "did you mean w, without .mT?"),
     ("w.transpose(1, 0)", "did you mean w, without .transpose(1, 0)?"),
     ("v", "did you mean the transpose of the right operand (.T)?")],
)  # fmt: skip
def test_a_transpose_is_not_to_be_transposed_again(right, said):
    text = (
        "import tessera as ts\n\n\n@ts.function\ndef f(x: ts.Tensor['B', 4], w: ts.Tensor[4, 8], v: ts.Tensor[8, 4]):\n"
    )
    (found,) = analyse_file("turned.py", f"{text}    return x @ {right}\n")[0].diagnostics
    assert found.code == "TS203" and said in [n.message for n in found.notes]
    (fix,) = found.fixes
    assert fix.message == ("Use the transpose of the right operand (.T)" if right == "v" else f"Leave {right[1:]} out")


def test_a_second_number_of_diff():
    with pytest.raises(CompileError, match=r"prepend of diff is an array of 2 axes") as e:
        ts.diff(ts.ones((2, 3)), 2)
    assert "ts.diff(x, n=2)" in e.value.diagnostics[0].notes[0].message
    np.testing.assert_array_equal(np.asarray(ts.diff(ts.tensor(X), prepend=ts.zeros((2, 1)))), np.diff(X, prepend=0))


def test_the_data_of_a_parameter_are_its_elements() -> None:
    weight = ts.Tensor(X.copy(), requires_grad=True)
    with pytest.raises(AttributeError, match=r"write x\[\.\.\.\] = values, under ts\.no_grad\(\)"):
        weight.data = X
    with pytest.raises(AttributeError, match=r"has no attribute 'data'; write x\.detach\(\)"):
        weight.data
    with ts.no_grad():
        weight[...] = X * 3
    assert weight.requires_grad and np.array_equal(weight.detach(), X * 3)
